//! The read or write in which a thread waits for the answer to a request of its own.
//!
//! A request has the amount that the kernel wants, which is less than the application's amount where the
//! kernel cuts a call. The arguments of the call are in `/proc/TID/syscall` until the request is answered.
//! Reading them takes some microseconds, so [`super::split`] does so only if a request may be part of a
//! larger call.
//!
//! The sizes of the buffers of a `readv` are in the memory of the process. They are read only if the process
//! has one thread: reading takes a lock that another thread may have while it waits for an answer from here.

use std::fs::{self, File};
use std::io::{IoSliceMut, Read};
use std::thread::yield_now;

use flowtrace_schema::Op;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

/// Call of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The amount of the request.
    This,
    /// Possibly more than the request.
    More {
        /// The offset of the call, or the position of the open file when the call began.
        at: u64,
        /// Amount of the call.
        amount: Amount,
    },
}

/// The amount of data of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    /// Bytes.
    Bytes(u64),
    /// Buffers whose sizes are not known.
    Buffers(u64),
}

/// Number of tries if the thread has not gone to sleep yet. It is about to.
const TRIES: u32 = 100;

/// The call of kind `op` in which thread `tid` is. `is_more` returns true for amounts larger than the
/// request. `None` if the thread is in another call, or may not be read.
pub(super) fn of(tid: u32, op: Op, is_more: impl Fn(Amount) -> bool) -> Option<Asked> {
    let call = Call::in_which(tid)?;
    let mut amount = call.amount(op)?;
    if !is_more(amount) {
        return Some(Asked::This);
    }
    if let Amount::Buffers(count) = amount
        && let Some(bytes) = bytes_of_buffers(tid, call.arguments[1], count)
    {
        amount = Amount::Bytes(bytes);
    }
    let at = match call.offset() {
        Some(offset) => offset,
        None => position(tid, call.fd())?,
    };
    Some(Asked::More { at, amount })
}

/// The offset with which thread `tid` began the `sendfile` or `splice` in which it reads a file. `None` if it
/// is in another call, or may not be read.
pub(super) fn begin_of_splice(tid: u32) -> Option<u64> {
    let call = Call::in_which(tid)?;
    let (fd, offset) = match call.number {
        libc::SYS_sendfile => (call.arguments[1], call.arguments[2]),
        libc::SYS_splice => (call.arguments[0], call.arguments[1]),
        _ => return None,
    };
    match offset {
        0 => position(tid, fd),
        offset => memory(tid, offset, size_of::<u64>())?
            .try_into()
            .ok()
            .map(u64::from_ne_bytes),
    }
}

/// Position of an open file. The kernel moves it at the end of a call.
fn position(tid: u32, fd: u64) -> Option<u64> {
    let mut buffer = [0; 256];
    let text = read(&format!("/proc/{tid}/fdinfo/{fd}"), &mut buffer)?;
    let value = text.lines().next()?.strip_prefix("pos:")?;
    value.trim().parse().ok()
}

/// Sum of the sizes in an array of `iovec` of a process with one thread.
fn bytes_of_buffers(tid: u32, array: u64, count: u64) -> Option<u64> {
    /// Most buffers of a call (`UIO_MAXIOV` of include/uapi/linux/uio.h).
    const MOST: usize = 1024;
    let count = usize::try_from(count).ok().filter(|&count| count <= MOST)?;
    let bytes = memory(tid, array, count * size_of::<libc::iovec>())?;
    // Address and size of each buffer.
    let words = bytes
        .as_chunks()
        .0
        .iter()
        .copied()
        .map(usize::from_ne_bytes);
    Some(words.skip(1).step_by(2).map(|size| size as u64).sum())
}

/// Memory of a process with one thread.
fn memory(tid: u32, address: u64, length: usize) -> Option<Vec<u8>> {
    let mut threads = fs::read_dir(format!("/proc/{tid}/task")).ok()?;
    if threads.nth(1).is_some() {
        return None;
    }
    let mut bytes = vec![0; length];
    let remote = RemoteIoVec {
        base: usize::try_from(address).ok()?,
        len: length,
    };
    let pid = Pid::from_raw(i32::try_from(tid).ok()?);
    let got = process_vm_readv(pid, &mut [IoSliceMut::new(&mut bytes)], &[remote]).ok()?;
    (got == length).then_some(bytes)
}

fn read<'a>(path: &str, buffer: &'a mut [u8]) -> Option<&'a str> {
    let length = File::open(path)
        .and_then(|mut file| file.read(buffer))
        .ok()?;
    Some(std::str::from_utf8(&buffer[..length]).ok()?.trim_end())
}

/// A system call with its arguments, as the manual pages give them.
#[derive(Debug)]
struct Call {
    number: libc::c_long,
    arguments: [u64; 6],
}

impl Call {
    /// The call in which thread `tid` waits, or is about to.
    fn in_which(tid: u32) -> Option<Call> {
        for _ in 0..TRIES {
            let mut buffer = [0; 256];
            let text = read(&format!("/proc/{tid}/syscall"), &mut buffer)?;
            if text != "running" {
                return Call::parse(text);
            }
            yield_now();
        }
        None
    }

    fn parse(text: &str) -> Option<Call> {
        let mut words = text.split(' ');
        let number = words.next()?.parse().ok()?;
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            *argument = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        }
        Some(Call { number, arguments })
    }

    fn fd(&self) -> u64 {
        self.arguments[0]
    }

    /// Amount that the call reads or writes; `None` if it does not. The calls that 32-bit programs use for
    /// this have other numbers, none of which is one of these.
    fn amount(&self, op: Op) -> Option<Amount> {
        let amount = self.arguments[2];
        match (op, self.number) {
            (Op::Read, libc::SYS_read | libc::SYS_pread64)
            | (Op::Write, libc::SYS_write | libc::SYS_pwrite64) => Some(Amount::Bytes(amount)),
            (Op::Read, libc::SYS_readv | libc::SYS_preadv | libc::SYS_preadv2)
            | (Op::Write, libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2) => {
                Some(Amount::Buffers(amount))
            }
            _ => None,
        }
    }

    /// The offset in the arguments, if there is one. 64-bit systems have all of it in one argument.
    fn offset(&self) -> Option<u64> {
        /// With this offset the second versions of the calls use the position.
        const NONE: u64 = u64::MAX;
        match self.number {
            libc::SYS_read | libc::SYS_readv | libc::SYS_write | libc::SYS_writev => None,
            libc::SYS_preadv2 | libc::SYS_pwritev2 if self.arguments[3] == NONE => None,
            _ => Some(self.arguments[3]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: libc::c_long, offset: u64) -> Call {
        let text =
            format!("{number} 0x3 0x7ffd3059b950 0x500000 {offset:#x} 0x0 0x7 0x7ffd 0x7f39");
        Call::parse(&text).unwrap()
    }

    #[test]
    fn arguments_are_read() {
        let read = call(libc::SYS_read, 9);
        assert_eq!(read.fd(), 3);
        assert_eq!(read.amount(Op::Read), Some(Amount::Bytes(5 << 20)));
        assert_eq!(read.amount(Op::Write), None);
        assert_eq!(read.offset(), None);
        let pwritev = call(libc::SYS_pwritev, 9);
        assert_eq!(pwritev.amount(Op::Write), Some(Amount::Buffers(5 << 20)));
        assert_eq!(pwritev.offset(), Some(9));
        assert_eq!(call(libc::SYS_preadv2, u64::MAX).offset(), None);
        assert_eq!(call(libc::SYS_sendfile, 0).amount(Op::Write), None);
    }

    #[test]
    fn what_is_no_call_is_none() {
        for text in ["", "running", "-1 0x7ffd3059b950 0x7f39c7438b60", "0 3 4"] {
            assert!(Call::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn buffers_of_a_process_with_threads_are_not_read() {
        let pid = std::process::id();
        let (say, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || wait.recv());
        let (mut one, mut two) = ([0; 3], [0; 5]);
        let buffers = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
        let array = buffers.as_ptr() as u64;
        assert_eq!(bytes_of_buffers(pid, array, 2), None);
        drop(say);
        let _ = thread.join();
    }

    #[test]
    fn a_thread_that_waits_is_seen() {
        let (end, _keeps_it_waiting) = std::io::pipe().unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            sender.send(nix::unistd::gettid().as_raw() as u32).unwrap();
            let mut end = end;
            let _ = end.read(&mut [0; 77]);
        });
        let tid = receiver.recv().unwrap();
        // The thread may be between the two system calls.
        let found = (0..1000).find_map(|_| {
            yield_now();
            of(tid, Op::Read, |amount| amount != Amount::Bytes(77))
        });
        assert_eq!(found, Some(Asked::This));
        assert_eq!(of(tid, Op::Write, |_| true), None);
        assert_eq!(of(u32::MAX, Op::Read, |_| true), None);
    }
}
