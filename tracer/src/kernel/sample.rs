//! Samples from tracepoints.

/// The entry or the return of a system call, or a decision of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// `CLOCK_MONOTONIC`, ns.
    pub(super) at: u64,
    pub(super) tid: u32,
    /// Number of the call; 0 for the scheduler.
    pub(super) number: u32,
    pub(super) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// With its arguments; for addresses of lengths and offsets see
    /// [`reported_value`](super::syscalls::reported_value).
    Enters([u64; 6]),
    /// A value, or a negative errno.
    Returns(i64),
    /// A message that the thread's call is to send, or has received, carries a descriptor.
    Carries(Carried),
    /// The call, of several messages, has moved this many bytes: recorded before it returns.
    Moved(u64),
    /// The thread is in this call, or in none, and is about to leave its CPU to wait. Only for calls without
    /// records of their own.
    In([u64; 6]),
    InNoCall,
    /// The thread leaves its CPU in this state (`prev_state` of `sched_switch`) to thread `next`. `ran_ns`:
    /// its CPU time so far, if reported.
    Leaves {
        state: u16,
        next: u32,
        ran_ns: Option<u64>,
    },
    /// The thread is woken by another one; in an interrupt `by` is the interrupted thread.
    Woken {
        by: u32,
        in_interrupt: bool,
    },
    /// The request to a device that begins at this sector reached a stage.
    Request {
        stage: Stage,
        device: u32,
        sector: u64,
    },
}

/// Stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits in a queue of the kernel.
    Queued,
    /// The device has it.
    Issued,
    /// The device has answered.
    Done,
}

/// A descriptor that a message carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Carried {
    /// Its number in the process that makes the call.
    pub(super) fd: u64,
    pub(super) open: OpenId,
    /// Mode of its inode (`st_mode` of inode(7)).
    pub(super) mode: u32,
}

/// Identity of an open file as long as the message is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct OpenId {
    /// Address in the kernel's memory.
    pub(super) address: u64,
    /// Number of its inode in the kernel, which for files is not always that of stat(2).
    pub(super) inode: u64,
}

pub(super) fn bytes<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..)?.get(..N)?.try_into().ok()
}
