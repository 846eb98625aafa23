//! How other parts of the tracer learn of the tree that [`super::lifetimes`] follows.

use flowtrace_schema::{ChannelId, Upid, Usage};

use super::beginning::{Beginning, Kept};
use super::topology::Call;

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

/// Who else learns of the tree: told of each change at once, while the thread concerned is held
/// in a stop, so that whatever is read of it then belongs to that moment. Times are those at which
/// the event arrived.
pub(crate) trait Observer {
    /// Process `child` was forked by `parent`; it has not run yet.
    fn forked(&mut self, parent: Tracee, child: Tracee, now: u64) {
        let _ = (parent, child, now);
    }

    /// A thread beside the first one was made; it has not run yet.
    fn thread_began(&mut self, thread: Tracee, now: u64) {
        let _ = (thread, now);
    }

    /// A process runs a new program, whose image is `tracee.upid`; all threads of the image
    /// before it, `prev`, are over. `None`: the command itself begins.
    fn executed(&mut self, tracee: Tracee, prev: Option<Upid>, now: u64) {
        let _ = (tracee, prev, now);
    }

    /// What the program begins with of which [`Observer::executed`] just told.
    fn began_with(&mut self, tracee: Tracee, beginning: &dyn Beginning, now: u64) {
        let _ = (tracee, beginning, now);
    }

    /// Image `tracee.upid` is over, by an exec or with its process, and used this. Told before
    /// [`Observer::executed`] of the next one, and before [`Observer::ended`].
    fn image_over(&mut self, tracee: Tracee, usage: &Usage, by_exec: bool, now: u64) {
        let _ = (tracee, usage, by_exec, now);
    }

    /// A thread is going to make a process; told where its maker's event comes when both run on.
    fn forking(&mut self, tracee: Tracee, now: u64) {
        let _ = (tracee, now);
    }

    /// A process is going to run a new program, if there is none in the way; told where [`Observer::executed`] comes when
    /// that runs already. What is to be known of it then is put into `kept`.
    fn executing(&mut self, tracee: Tracee, kept: &mut Kept, now: u64) {
        let _ = (tracee, kept, now);
    }

    /// The call of this thread has returned of which [`Observer::called`] wanted to know the result; told where
    /// results are not to be had, at the thread's next call or its end.
    fn has_returned(&mut self, tracee: Tracee, now: u64) {
        let _ = (tracee, now);
    }

    /// The same while that call may still go on. Returns whether what it did is found.
    fn may_have_returned(&mut self, tracee: Tracee, now: u64) -> bool {
        let _ = (tracee, now);
        false
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

    /// A thread is about to exit; `last`: and the process with it. Its memory and descriptors are
    /// still there. Not told of every end: see [`Observer::ended`].
    fn exiting(&mut self, tracee: Tracee, last: bool, now: u64) {
        let _ = (tracee, last, now);
    }

    /// A thread is over; the first thread of a process stands for the process, which ends with it.
    fn ended(&mut self, tracee: Tracee, now: u64) {
        let _ = (tracee, now);
    }

    /// The kernel layer had the kernel stop a thread between two of its calls, because too much waits to be read
    /// of what it tells: it goes on when this returns.
    fn held(&mut self) {}

    /// Job control stopped a thread; it does not run until it is told of by
    /// [`Observer::continued`], or is over.
    fn stopped(&mut self, thread: Tracee, now: u64) {
        let _ = (thread, now);
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
