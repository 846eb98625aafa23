//! The few ptrace requests that are needed, as safe functions (ptrace(2)).
//!
//! Own bindings because a wait status must survive undecoded: a process may stop with a
//! real-time signal, for which nix has no value.
#![expect(unsafe_code)]

use std::io;

use super::reading::{Account, ProcessCost};
#[cfg(target_arch = "x86_64")]
use super::topology::bytes_at;

/// `PTRACE_EVENT_STOP` (include/uapi/linux/ptrace.h); not in libc for every target.
const EVENT_STOP: i32 = 128;
/// Bit that `PTRACE_O_TRACESYSGOOD` adds to the signal of a stop in a system call.
const SYSTEM_CALL: i32 = 0x80;

/// A report of [`wait`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    /// The task.
    pub(super) tid: u32,
    pub(super) event: Event,
    /// Costs of its process so far.
    pub(super) used: Account,
}

/// A change of one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The process ended: this is about a whole thread group.
    Exited(i32),
    /// A signal ended the process.
    Killed(i32),
    /// The task is stopped and waits to be continued.
    Stopped(Stop),
}

/// Reason why a task is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// About to receive a signal.
    Signal(i32),
    /// Stopped by job control, with the signal that did it.
    Group(i32),
    /// The first stop of a new task, or one that merely announces a change.
    Trap,
    /// It made a new task, by clone(2) proper or by fork(2) or vfork(2).
    Forked {
        /// True for `PTRACE_EVENT_CLONE`, which may mean a thread.
        by_clone: bool,
    },
    /// Runs a new program.
    Exec,
    /// About to exit; its memory and /proc entries are still there.
    Exit,
    /// At the entry of a system call that the filter picks ([`super::topology`]).
    Call,
    /// At the return of a system call, where [`resume_to_return`] asked for that.
    Returned,
}

/// A system call at its entry or return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SystemCall {
    /// At its entry: the verdict of the filter, and the arguments.
    Entry {
        /// The low 16 bits of the filter's verdict.
        code: u16,
        /// The arguments, zero-extended where they are 32 bits.
        arguments: [u64; 6],
    },
    /// At its return: a value, or a negative errno.
    Return(i64),
}

/// Traces `pid`, and all that it will fork, by events alone. The tracees die with the tracer:
/// their files would be unreachable.
pub(crate) fn seize(pid: u32) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACEEXIT
        | libc::PTRACE_O_TRACESECCOMP
        | libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_EXITKILL;
    request(libc::PTRACE_SEIZE, pid, options as usize)
}

/// Lets a stopped task go on, delivering `signal` unless it is 0.
pub(super) fn resume(tid: u32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, signal as usize)
}

/// Lets a task that is stopped at the entry of a system call go on to its return.
pub(super) fn resume_to_return(tid: u32) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL, tid, 0)
}

/// Has a task that is stopped at the entry of a system call get `ENOSYS` for it, as the kernel
/// answers where a filter asks for a tracer and there is none (seccomp(2)). Not on other
/// architectures: there the call is made.
pub(super) fn refuse_call(tid: u32) {
    #[cfg(target_arch = "x86_64")]
    {
        set_register(tid, libc::ORIG_RAX, -1);
        set_register(tid, libc::RAX, -i64::from(libc::ENOSYS));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = tid;
}

/// Makes the child of a task that is stopped at the entry of clone(2) a traced one: takes `CLONE_UNTRACED`
/// off the flags.
pub(super) fn trace_child(tid: u32) {
    #[cfg(target_arch = "x86_64")]
    if let Some(flags) = clone_flags(tid) {
        let untraced = libc::CLONE_UNTRACED as u64;
        set_register(tid, libc::RDI, (flags & !untraced).cast_signed());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = tid;
}

#[cfg(target_arch = "x86_64")]
fn set_register(tid: u32, register: i32, value: i64) {
    let place = register as usize * size_of::<u64>();
    // SAFETY: writes a register of the task; no memory of ours is involved.
    unsafe { libc::ptrace(libc::PTRACE_POKEUSER, tid as libc::pid_t, place, value) };
}

/// The system call that a task is stopped in. `None`: it is gone, or the kernel is older than 5.3.
pub(super) fn system_call(tid: u32) -> Option<SystemCall> {
    let mut info = [0u64; INFO_WORDS];
    // SAFETY: the kernel writes at most the size given as third argument, which is that of
    // `info`, and `info` outlives the call.
    let size = unsafe {
        libc::ptrace(
            GET_SYSCALL_INFO,
            tid as libc::pid_t,
            size_of_val(&info),
            &raw mut info as usize,
        )
    };
    (size > 0).then(|| decode_call(&info)).flatten()
}

/// `PTRACE_GET_SYSCALL_INFO` and words of 8 bytes of its answer, `struct ptrace_syscall_info`
/// (include/uapi/linux/ptrace.h).
const GET_SYSCALL_INFO: Request = 0x420e;
const INFO_WORDS: usize = 12;

fn decode_call(info: &[u64; INFO_WORDS]) -> Option<SystemCall> {
    const EXIT: u8 = 2;
    const SECCOMP: u8 = 3;
    match info[0].to_ne_bytes()[0] {
        EXIT => Some(SystemCall::Return(info[3].cast_signed())),
        SECCOMP => Some(SystemCall::Entry {
            code: u32::from_ne_bytes(info[10].to_ne_bytes()[..4].try_into().ok()?) as u16,
            arguments: info[4..10].try_into().ok()?,
        }),
        _ => None,
    }
}

/// The stack pointer of a stopped task that runs 64-bit code.
pub(super) fn stack_pointer(tid: u32) -> Option<u64> {
    registers(tid).map(|registers| stack_of(&registers))
}

/// Flags of the clone(2), clone3(2) or the like that a task is stopped in (`CLONE_NEWPID` and others).
/// `None`: not known on this architecture, or for this kind of program.
pub(crate) fn clone_flags(tid: u32) -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        let registers = registers(tid)?;
        match i64::try_from(registers.orig_rax).ok()? {
            libc::SYS_fork | libc::SYS_vfork => Some(0),
            libc::SYS_clone => Some(registers.rdi),
            // The first word of its arguments.
            libc::SYS_clone3 => bytes_at(tid, registers.rdi).map(u64::from_ne_bytes),
            _ => None,
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = tid;
        None
    }
}

#[cfg(target_arch = "x86_64")]
fn stack_of(registers: &libc::user_regs_struct) -> u64 {
    registers.rsp
}

#[cfg(target_arch = "aarch64")]
fn stack_of(registers: &libc::user_regs_struct) -> u64 {
    registers.sp
}

/// The registers of a stopped task. `None`: it is gone, or it has registers of another architecture.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn registers(tid: u32) -> Option<libc::user_regs_struct> {
    const NT_PRSTATUS: usize = 1;
    let mut registers = std::mem::MaybeUninit::<libc::user_regs_struct>::zeroed();
    let mut place = libc::iovec {
        iov_base: registers.as_mut_ptr().cast(),
        iov_len: size_of::<libc::user_regs_struct>(),
    };
    // SAFETY: the kernel writes at most `iov_len` bytes to `registers`, and the bytes written to
    // `place`; both outlive the call.
    let result = unsafe {
        libc::ptrace(
            libc::PTRACE_GETREGSET,
            tid as libc::pid_t,
            NT_PRSTATUS,
            &raw mut place as usize,
        )
    };
    let whole = result == 0 && place.iov_len == size_of::<libc::user_regs_struct>();
    // SAFETY: all zero are valid registers, and the kernel has written all of them.
    whole.then(|| unsafe { registers.assume_init() })
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn registers(_tid: u32) -> Option<()> {
    None
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn stack_of((): &()) -> u64 {
    0
}

/// Has a task stop, wherever it is.
pub(super) fn interrupt(tid: u32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0)
}

/// Lets a stopped task go on for good, delivering `signal` unless it is 0.
pub(super) fn detach(tid: u32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, signal as usize)
}

/// Leaves a task in the stop of job control, and still gets its events.
pub(super) fn listen(tid: u32) -> io::Result<()> {
    request(libc::PTRACE_LISTEN, tid, 0)
}

/// The number that belongs to the event a task is stopped for: the new task of a fork, the former thread id
/// of an exec, the wait status of an exit. `None`: there is none, or SIGKILL has taken the task out of that
/// stop, so that the number would be that of another event.
pub(super) fn event_message(tid: u32, stop: Stop) -> Option<u32> {
    let mut message: libc::c_ulong = 0;
    request(libc::PTRACE_GETEVENTMSG, tid, &raw mut message as usize).ok()?;
    // A task only ever moves on from a stop: if it is still there after the read, it was there during the
    // read. No stop follows that of its exit.
    (stop == Stop::Exit || is_in(tid, stop)).then_some(message as u32)
}

/// True if task `tid` is in that event stop. A SIGKILL may have taken it on to the next one, which would be
/// lost if the task were resumed.
pub(super) fn is_in(tid: u32, stop: Stop) -> bool {
    signal_code(tid).is_some_and(|code| event_of(code >> 8, libc::SIGTRAP) == stop)
}

/// `si_code` of the signal that task `tid` is stopped with. `None`: it is not stopped with one, or is gone.
fn signal_code(tid: u32) -> Option<i32> {
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    request(libc::PTRACE_GETSIGINFO, tid, info.as_mut_ptr() as usize).ok()?;
    // SAFETY: all zero is a valid siginfo_t, and the kernel has filled it.
    Some(unsafe { info.assume_init() }.si_code)
}

/// Waits for any child or tracee. `None`: none is left but helper processes: without `__WALL`, children that
/// end without a signal do not count, unless they are traced (wait(2), since Linux 4.7).
pub(super) fn wait() -> io::Result<Option<Report>> {
    loop {
        let mut status = 0;
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: `status` and `usage` outlive the call, which writes nothing else.
        let tid = unsafe { libc::wait4(-1, &raw mut status, 0, usage.as_mut_ptr()) };
        if tid > 0 {
            // SAFETY: all zero is a valid rusage, and the kernel has filled it.
            let used = used(&unsafe { usage.assume_init() });
            return Ok(Some(Report {
                tid: tid as u32,
                event: decode(status),
                used,
            }));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ECHILD) => return Ok(None),
            Some(libc::EINTR) => {}
            _ => return Err(error),
        }
    }
}

pub(super) fn decode(status: i32) -> Event {
    if libc::WIFEXITED(status) {
        return Event::Exited(libc::WEXITSTATUS(status));
    }
    if libc::WIFSIGNALED(status) {
        return Event::Killed(libc::WTERMSIG(status));
    }
    Event::Stopped(event_of(status >> 16, libc::WSTOPSIG(status)))
}

/// The kind of stop of ptrace event `event`, or of none, with `signal`.
fn event_of(event: i32, signal: i32) -> Stop {
    match event {
        0 if signal == libc::SIGTRAP | SYSTEM_CALL => Stop::Returned,
        0 => Stop::Signal(signal),
        EVENT_STOP => match signal {
            libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => Stop::Group(signal),
            _ => Stop::Trap,
        },
        libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => Stop::Forked { by_clone: false },
        libc::PTRACE_EVENT_CLONE => Stop::Forked { by_clone: true },
        libc::PTRACE_EVENT_EXEC => Stop::Exec,
        libc::PTRACE_EVENT_EXIT => Stop::Exit,
        libc::PTRACE_EVENT_SECCOMP => Stop::Call,
        _ => Stop::Trap,
    }
}

fn used(usage: &libc::rusage) -> Account {
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    Account {
        cost: ProcessCost {
            user_ns: ns(usage.ru_utime),
            sys_ns: ns(usage.ru_stime),
            minor_faults: usage.ru_minflt as u64,
            major_faults: usage.ru_majflt as u64,
        },
        voluntary_switches: usage.ru_nvcsw as u64,
        involuntary_switches: usage.ru_nivcsw as u64,
        max_rss_bytes: (usage.ru_maxrss as u64).saturating_mul(1024),
    }
}

/// Type of the first argument of ptrace(2), which differs between C libraries.
#[cfg(not(target_env = "musl"))]
type Request = libc::c_uint;
#[cfg(target_env = "musl")]
type Request = libc::c_int;

fn request(request: Request, tid: u32, data: usize) -> io::Result<()> {
    // SAFETY: the only requests made through here whose data is a pointer are GETEVENTMSG, to a
    // c_ulong, and GETSIGINFO, to a siginfo_t, both owned by the caller; all others take a number.
    let result = unsafe { libc::ptrace(request, tid as libc::pid_t, 0, data) };
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_become_nanoseconds() {
        // SAFETY: all zero is a valid rusage.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        usage.ru_utime = libc::timeval {
            tv_sec: 2,
            tv_usec: 7,
        };
        usage.ru_majflt = 3;
        let found = used(&usage).cost;
        assert_eq!((found.user_ns, found.sys_ns), (2_000_007_000, 0));
        assert_eq!((found.minor_faults, found.major_faults), (0, 3));
    }

    #[test]
    fn wait_statuses_decode() {
        assert_eq!(decode(7 << 8), Event::Exited(7));
        assert_eq!(decode(9), Event::Killed(9));
        let stopped = |event: i32, signal: i32| decode((event << 16) | (signal << 8) | 0x7f);
        // A real-time signal must reach the process like any other.
        assert_eq!(stopped(0, 40), Event::Stopped(Stop::Signal(40)));
        assert_eq!(
            stopped(128, libc::SIGTSTP),
            Event::Stopped(Stop::Group(libc::SIGTSTP))
        );
        assert_eq!(stopped(128, libc::SIGTRAP), Event::Stopped(Stop::Trap));
        assert_eq!(
            stopped(1, 5),
            Event::Stopped(Stop::Forked { by_clone: false })
        );
        assert_eq!(
            stopped(3, 5),
            Event::Stopped(Stop::Forked { by_clone: true })
        );
        assert_eq!(stopped(4, 5), Event::Stopped(Stop::Exec));
        assert_eq!(stopped(6, 5), Event::Stopped(Stop::Exit));
        assert_eq!(stopped(7, 5), Event::Stopped(Stop::Call));
        assert_eq!(stopped(0, 0x85), Event::Stopped(Stop::Returned));
        assert_eq!(stopped(0, 5), Event::Stopped(Stop::Signal(5)));
    }
}
