//! The records that the programs write, the maps that they use, and the registers that they keep.

use std::os::fd::BorrowedFd;

use super::layout;
use crate::bpf::followed::Processes;
use crate::bpf::pages::Pages;

/// What the programs use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Maps<'a> {
    /// The processes that are told of ([`crate::bpf::followed`]); `None`: all are.
    pub(super) processes: Option<Processes<'a>>,
    pub(super) ring: BorrowedFd<'a>,
    /// Bytes of the ring.
    pub(super) size: u32,
    /// A word: how many records found no room.
    pub(super) lost: BorrowedFd<'a>,
    /// [`super::memory::SCRATCH`] bytes for each processor.
    pub(super) scratch: BorrowedFd<'a>,
    /// How many processors there are.
    pub(super) processors: u32,
    /// A ring of its own that wakes the reader.
    pub(super) bell: BorrowedFd<'a>,
    /// Another one, with what lies in pipes ([`super::contents`]).
    pub(super) contents: BorrowedFd<'a>,
    /// The sockets that were told for what they sent, by their inodes ([`super::sent`]).
    pub(super) sent: BorrowedFd<'a>,
    /// Where what lies in pipes is.
    pub(super) pages: Option<Pages>,
    /// Loops need no bound ([`Code::may_be_late`]).
    pub(super) endless: bool,
    /// Whether is told what processes have open when they fork, execute a program and end.
    pub(super) with_tables: bool,
}

/// What a record tells.
pub(super) const FORKED: u32 = 1;
pub(super) const EXECUTED: u32 = 2;
pub(super) const ENDED: u32 = 3;
/// Parts of an exec, which come before it. Each may come in several records.
pub(super) const EXECUTABLE: u32 = 4;
pub(super) const DIRECTORY: u32 = 5;
pub(super) const ARGUMENTS: u32 = 6;
pub(super) const ENVIRONMENT: u32 = 7;
/// Job control stops a thread.
pub(super) const STOPPED: u32 = 8;
/// The last thread of a process begins to end it: what is open is still there.
pub(super) const EXITING: u32 = 9;
/// Parts of an exec: the path of what is open as descriptor 0, and so on.
pub(super) const TARGETS: u32 = 10;
/// Descriptors that a shell can redirect by one digit.
pub(super) const NUMBERED: u32 = 10;
/// A part of a fork, an exec, and the begin of an end: all that is open.
pub(super) const TABLE: u32 = TARGETS + NUMBERED;
/// A part of an exec and the begin of an end: the same of the process that has it as a child.
pub(super) const TABLE_OF_PARENT: u32 = TABLE + 1;
/// Parts of a call, which come before it: the other one of two descriptors; the path of what it opened; the address of a socket; names
/// that it was given, and the directories that they are relative to.
pub(super) const SECOND: u32 = TABLE_OF_PARENT + 1;
pub(super) const OPENED: u32 = SECOND + 1;
pub(super) const ADDRESS: u32 = OPENED + 1;
pub(super) const NAMES: [u32; 2] = [ADDRESS + 1, ADDRESS + 2];
pub(super) const BASES: [u32; 2] = [ADDRESS + 3, ADDRESS + 4];
/// A call has returned.
pub(super) const CALLED: u32 = BASES[1] + 1;
/// A thread that executed a program while its processor's clock stood still leaves that.
pub(super) const LEFT: u32 = CALLED + 1;

/// A record: time, thread, process, what it is, and a number; then what is not common to all.
pub(super) const AT: usize = 0;
pub(super) const TID: usize = 8;
pub(super) const PID: usize = 12;
pub(super) const WHAT: usize = 16;
pub(super) const NUMBER: usize = 20;
pub(super) const REST: usize = 24;

/// Of a fork: ids of the new thread and its process, how many pid namespaces it is in below the first one, and its id in the
/// innermost.
pub(super) const CHILD_TID: usize = REST;
pub(super) const CHILD_PID: usize = REST + 4;
pub(super) const LEVEL: usize = REST + 8;
pub(super) const INNER: usize = REST + 16;
pub(super) const FORK: usize = REST + 24;
/// Bytes of an id in a namespace (`struct upid`), as a power of 2.
pub(super) const ID_BITS: i32 = 4;
/// More namespaces within each other than there may be (`MAX_PID_NS_LEVEL`).
pub(super) const LEVELS: i32 = 32;
/// Of an exec and an end: what the thread used, and the most memory of its process, pages.
pub(super) const COSTS: usize = REST;
pub(super) const PEAK: usize = COSTS + 8 * layout::COSTS.len();
/// The processor that it is on.
pub(super) const PROCESSOR_AT: usize = PEAK + 8;
/// The clock of that, the one that goes on only while tasks have it, and bits that say what is about them.
pub(super) const CLOCK: usize = PROCESSOR_AT + 8;
pub(super) const TASK_CLOCK: usize = CLOCK + 8;
pub(super) const CLOCK_FLAGS: usize = TASK_CLOCK + 8;
/// Of an exec also the id that the thread had before, and the file mode creation mask.
pub(super) const FORMER: usize = CLOCK_FLAGS + 8;
pub(super) const UMASK: usize = FORMER + 4;
pub(super) const EXEC: usize = FORMER + 8;
/// Of an end when it was made, and the wait status as the process's and its own.
pub(super) const START: usize = CLOCK_FLAGS + 8;
pub(super) const LEADER_CODE: usize = START + 8;
pub(super) const GROUP_CODE: usize = LEADER_CODE + 4;
pub(super) const GROUP_FLAGS: usize = GROUP_CODE + 4;
pub(super) const END: usize = GROUP_FLAGS + 8;
/// In [`NUMBER`] of a path: the file has no name any more.
pub(super) const UNNAMED: u32 = 1;
/// It never had one: all there is of a path is what the kernel calls it.
pub(super) const DETACHED: u32 = 2;
/// Of a table: there may be more.
pub(super) const CUT: u32 = 4;
/// In [`NUMBER`] of a fork: the new process shares the table of descriptors with its maker.
pub(super) const SHARES: u32 = 1;
/// In [`NUMBER`] of an exec: the program's calls have the numbers of another architecture.
pub(super) const FOREIGN: u32 = 1 << 31;
/// The same, one bit for each part that could not be told.
pub(super) fn missing(part: u32) -> u32 {
    1 << part
}

/// The clock of a CPU stands still until the running thread leaves it, because another thread was woken that is to run
/// there. The time from then on is charged to the running thread as waiting for a CPU (`RQCF_REQ_SKIP` of kernel/sched/sched.h).
pub(super) const IS_HALTED: i32 = 1;

/// Bits of a thread's state (linux/sched.h): it is over, and stopped by job control.
pub(super) const DEAD: i32 = 0x80;
pub(super) const HALTED: i32 = 0x04;

// Registers that calls of helpers keep.
pub(super) const CONTEXT: u8 = 6;
pub(super) const TASK: u8 = 7;
pub(super) const STEP: u8 = 8;
/// Where [`super::memory`] is.
pub(super) const MEMORY: u8 = 9;
