//! Samples from eBPF programs.

use std::collections::HashMap;

use flowtrace_schema::FileId;

use crate::merge::Timed;
use crate::stat::Inode;

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

impl Timed for Sample {
    fn time(&self) -> u64 {
        self.at
    }
}

/// Kind of an interrupt that is none of the interrupted thread's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interrupt {
    /// Of software, as of packets that arrive.
    Soft,
    /// Of hardware: if the woken thread waits for a time, of its timer.
    Hard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// It uses this file.
    Enters(FileUse),
    /// It also uses this file, of its second descriptor.
    AlsoUses(FileUse),
    Returns(Returned),
    /// The call, of several messages, has moved this many bytes: recorded before it returns.
    Moved(u64),
    /// The thread is in this call, or in none, and is about to leave its CPU to wait.
    In(InCall),
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
        interrupt: Option<Interrupt>,
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

/// The file of a descriptor of a call, when the call began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileUse {
    /// Address of the open file in the kernel: no other one has it while calls use it.
    pub(super) file: u64,
    pub(super) inode: Inode,
    /// Type and permissions of its inode (`st_mode` of inode(7)).
    pub(super) mode: u32,
    /// True if the offset was the position of the open file, which the call moves.
    pub(super) at_position: bool,
    /// True if writes go to the end, by the flags of the open file.
    pub(super) appends: bool,
    pub(super) offset: Option<u64>,
    pub(super) length: Option<u64>,
    /// Flags of the call.
    pub(super) flags: u32,
    pub(super) descriptor: i32,
}

impl FileUse {
    /// Its file among those of the run. The inode of a file that was removed may have become that of a FIFO or socket,
    /// which is a channel.
    pub(super) fn file_in(&self, files: &HashMap<Inode, FileId>) -> Option<FileId> {
        let is_channel = matches!(self.mode & libc::S_IFMT, libc::S_IFIFO | libc::S_IFSOCK);
        files.get(&self.inode).copied().filter(|_| !is_channel)
    }
}

/// The return of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Returned {
    /// A value, or a negative errno.
    pub(super) result: i64,
    /// The position of the open file after a write that appends.
    pub(super) position: Option<u64>,
}

/// A call in which a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InCall {
    pub(super) arguments: [u64; 6],
    /// The files of its descriptors ([`waited_for`](super::syscalls::waited_for)).
    pub(super) files: [Option<WaitedFile>; 2],
}

/// The file of a descriptor of such a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitedFile {
    pub(super) inode: Inode,
    /// Type and permissions of its inode; no type: it is an object of the kernel.
    pub(super) mode: u32,
}

pub(super) fn bytes<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..)?.get(..N)?.try_into().ok()
}
