//! What an image has read and written, to be compared with what the kernel counted.

use std::cell::{Cell, RefCell};

use flowtrace_schema::Op;

use super::super::syscalls::Does;
use super::super::traffic::Sums;

/// Calls of an image that read and wrote, whatever from and to.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) reads: Cell<u64>,
    pub(super) writes: Cell<u64>,
    /// Through pipes and sockets.
    pub(super) sums: RefCell<Sums>,
    /// True if it may have moved data without a call.
    pub(super) is_partial: Cell<bool>,
}

impl Counts {
    /// A call returned; counted is what the kernel counts (`syscr` and `syscw` of proc_pid_io(5)).
    pub(super) fn add(&self, does: Does, result: i64) {
        let is_counted = ![libc::EBADF, libc::EFAULT].contains(&(-result as i32));
        let (reads, writes) = match does {
            // The kernel does not count what receives and sends.
            Does::Data(data) if data.socket.is_some() => (false, false),
            Does::Data(data) => (!data.writes, data.writes),
            // A copy from the end of a file is over before it is counted (vfs_copy_file_range of fs/read_write.c).
            Does::Moves(moves) if moves.ops.0 == Op::CopyFrom && result == 0 => (false, false),
            Does::Moves(moves) => (moves.counted, moves.counted),
            _ => (false, false),
        };
        let count = |of: &Cell<u64>, adds: bool| of.set(of.get() + u64::from(adds && is_counted));
        count(&self.reads, reads);
        count(&self.writes, writes);
    }
}
