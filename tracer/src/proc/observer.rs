//! How other parts of the tracer learn of the tree that [`super::lifetimes`] follows.

use flowtrace_schema::{ChannelId, Upid, Usage};

use super::snapshot::ProcessSnapshot;
use super::topology::Call;
use super::tracepoints::Called;

/// A thread under trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tracee {
    /// Its id.
    pub(crate) tid: u32,
    /// Id of its process.
    pub(crate) pid: u32,
    /// Image that the process runs.
    pub(crate) upid: Upid,
}

impl Tracee {
    /// The first thread of process `pid`.
    pub(super) fn first_of(pid: u32, upid: Upid) -> Tracee {
        Tracee {
            tid: pid,
            pid,
            upid,
        }
    }
}

/// Who else learns of the tree: told of each change in its turn. A [`ProcessSnapshot`] says what the process had then: the thread concerned is
/// held in a stop, or the kernel has told it with the change. Times are those at which
/// the event arrived.
pub(crate) trait Observer {
    /// Process `child` was forked by `parent`, which had at this `moment` what it inherits.
    fn forked(&mut self, parent: Tracee, child: Tracee, snapshot: &dyn ProcessSnapshot, now: u64) {
        let _ = (parent, child, snapshot, now);
    }

    /// A thread beside the first one was made; it has not run yet.
    fn thread_began(&mut self, thread: Tracee, now: u64) {
        let _ = (thread, now);
    }

    /// A process runs a new program, whose image is `tracee.upid`; all threads of the image
    /// before it, `prev`, are over. `None`: the command itself begins.
    fn executed(
        &mut self,
        tracee: Tracee,
        prev: Option<Upid>,
        snapshot: &dyn ProcessSnapshot,
        now: u64,
    ) {
        let _ = (tracee, prev, snapshot, now);
    }

    /// What the program begins with of which [`Observer::executed`] just told.
    fn began_with(&mut self, tracee: Tracee, snapshot: &dyn ProcessSnapshot, now: u64) {
        let _ = (tracee, snapshot, now);
    }

    /// Image `tracee.upid` is over, and used this: by an exec, of which this is the moment, or with its process. Told before
    /// [`Observer::executed`] of the next one, and before [`Observer::ended`].
    fn image_over(
        &mut self,
        tracee: Tracee,
        usage: &Usage,
        exec: Option<&dyn ProcessSnapshot>,
        now: u64,
    ) {
        let _ = (tracee, usage, exec, now);
    }

    /// A thread makes a system call that the filter picks. Returns whether to tell its result.
    fn called(&mut self, tracee: Tracee, call: Call, now: u64) -> bool {
        let _ = (tracee, call, now);
        false
    }

    /// The system call returned, of which the observer wanted to know that: a value, or a
    /// negative errno. It may begin anew when a signal interrupted it.
    fn returned(&mut self, tracee: Tracee, result: i64, now: u64) {
        let _ = (tracee, result, now);
    }

    /// A call has returned, of which nobody heard when it began: the kernel tells what it did. Where calls are told so,
    /// [`Observer::called`] is not.
    fn reported(&mut self, tracee: Tracee, called: &Called, now: u64) {
        let _ = (tracee, called, now);
    }

    /// A thread is about to exit; `last`: and the process with it, which still has its descriptors. Not told of every end: see
    /// [`Observer::ended`].
    fn exiting(&mut self, tracee: Tracee, last: bool, snapshot: &dyn ProcessSnapshot, now: u64) {
        let _ = (tracee, last, snapshot, now);
    }

    /// A thread is over; the first thread of a process stands for the process, which ends with it.
    fn ended(&mut self, tracee: Tracee, now: u64) {
        let _ = (tracee, now);
    }

    /// The kernel layer had the kernel stop a thread between two of its calls, because too much waits to be read
    /// of what it tells: it goes on when this returns.
    fn throttled(&mut self) {}

    /// Job control stopped a thread; it does not run until it is told of by
    /// [`Observer::continued`], or is over.
    fn stopped(&mut self, thread: Tracee, now: u64) {
        let _ = (thread, now);
    }

    /// All that happened before this moment was told. Not told where who is concerned is held.
    fn complete(&mut self, until: u64) {
        let _ = until;
    }

    /// A thread that job control had stopped goes on.
    fn continued(&mut self, thread: Tracee, now: u64) {
        let _ = (thread, now);
    }
}

/// Which channels are known, for whoever meets one by its inode.
pub(crate) trait ChannelLookup: Send + Sync {
    /// The channel whose pipe, FIFO or socket has this inode; of a pair of sockets either one.
    fn of_inode(&self, inode: u64) -> Option<ChannelId>;
}

/// No channel is known.
#[cfg(test)]
pub(crate) struct NoChannels;

#[cfg(test)]
impl ChannelLookup for NoChannels {
    fn of_inode(&self, _inode: u64) -> Option<ChannelId> {
        None
    }
}
