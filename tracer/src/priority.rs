//! Priority boost for threads of the recorder that must not wait for a CPU behind the threads of the command.
#![expect(unsafe_code)]

use std::marker::PhantomData;

/// Nice value above everything but processes that a user has put above everything (`sched_prio_to_weight` of
/// the kernel: 28 times the share of an ordinary thread, and it gets a CPU as soon as it is woken).
const NICE: libc::c_int = -15;

/// While this value lives, the calling thread, and threads that it starts, run before those of the command.
#[derive(Debug)]
pub(crate) struct Ahead {
    before: libc::c_int,
    /// The priority is that of one thread.
    _thread: PhantomData<*const ()>,
}

impl Ahead {
    /// Raises the priority. If that is not allowed (setpriority(2) needs `CAP_SYS_NICE`), nothing changes.
    pub(crate) fn of_the_command() -> Ahead {
        let before = nice();
        set(NICE.min(before));
        Ahead {
            before,
            _thread: PhantomData,
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        set(self.before);
    }
}

/// The calling thread runs as soon as it is woken, whatever else runs, until it ends or calls [`as_usual`]
/// (`SCHED_FIFO` of sched(7)). This is for a thread with little work at a time. If that is not allowed,
/// nothing changes.
pub(crate) fn at_once() {
    schedule(libc::SCHED_FIFO, 1);
}

/// The calling thread is scheduled as usual again.
pub(crate) fn as_usual() {
    schedule(libc::SCHED_OTHER, 0);
}

fn schedule(policy: libc::c_int, sched_priority: libc::c_int) {
    // musl has the function, but refuses every call of it. The kernel's `struct sched_param` is this one number.
    // SAFETY: the kernel reads the number, which outlives the call; 0 is the calling thread.
    unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            0,
            policy,
            &raw const sched_priority,
        )
    };
}

fn nice() -> libc::c_int {
    // SAFETY: takes numbers only; 0 is the calling thread.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

fn set(nice: libc::c_int) {
    // SAFETY: takes numbers only; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_this_thread_alone_and_for_a_while() {
        let before = nice();
        let ahead = Ahead::of_the_command();
        assert!(nice() == NICE.min(before) || nice() == before);
        drop(ahead);
        assert_eq!(nice(), before);
    }
}
