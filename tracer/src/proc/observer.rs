//! Events of the process tree for other parts of the tracer.

use flowtrace_schema::{ChannelId, Upid, Usage};

use super::snapshot::ProcessSnapshot;
use super::topology::Call;
use super::tracepoints::Called;

/// A traced thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tracee {
    /// Thread id.
    pub(crate) tid: u32,
    /// Id of the thread's process.
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

/// Receiver of the events of the tree, in their order. A [`ProcessSnapshot`] has the state of the process at
/// the event: the thread concerned is in a stop, or the kernel has sent the state with the event. Times are
/// those at which the event arrived.
pub(crate) trait Observer {
    /// Process `parent` forked process `child`. `snapshot` is that of the parent at the fork, which the child
    /// inherits.
    fn forked(&mut self, parent: Tracee, child: Tracee, snapshot: &dyn ProcessSnapshot, now: u64) {
        let _ = (parent, child, snapshot, now);
    }

    /// A thread other than the first one was made; it has not run yet.
    fn thread_began(&mut self, thread: Tracee, now: u64) {
        let _ = (thread, now);
    }

    /// A process runs a new program, whose image is `tracee.upid`; all threads of the former image, `prev`,
    /// are over. `None`: the command itself begins.
    fn executed(
        &mut self,
        tracee: Tracee,
        prev: Option<Upid>,
        snapshot: &dyn ProcessSnapshot,
        now: u64,
    ) {
        let _ = (tracee, prev, snapshot, now);
    }

    /// The state with which the program of the last [`Observer::executed`] begins.
    fn began_with(&mut self, tracee: Tracee, snapshot: &dyn ProcessSnapshot, now: u64) {
        let _ = (tracee, snapshot, now);
    }

    /// Image `tracee.upid` is over and used `usage`. `exec` is the snapshot at the exec that ended the image;
    /// `None`: the process ended. Called before [`Observer::executed`] of the next image, and before
    /// [`Observer::ended`].
    fn image_over(
        &mut self,
        tracee: Tracee,
        usage: &Usage,
        exec: Option<&dyn ProcessSnapshot>,
        now: u64,
    ) {
        let _ = (tracee, usage, exec, now);
    }

    /// A thread makes a system call that the filter picks. Returns true to get its result
    /// ([`Observer::returned`]).
    fn called(&mut self, tracee: Tracee, call: Call, now: u64) -> bool {
        let _ = (tracee, call, now);
        false
    }

    /// The system call whose result was asked for returned: a value, or a negative errno. It may begin anew
    /// when a signal interrupted it.
    fn returned(&mut self, tracee: Tracee, result: i64, now: u64) {
        let _ = (tracee, result, now);
    }

    /// A call has returned, and the kernel reports what it did. Where calls are reported so,
    /// [`Observer::called`] is not called.
    fn reported(&mut self, tracee: Tracee, called: &Called, now: u64) {
        let _ = (tracee, called, now);
    }

    /// A thread is about to exit. `last`: it is the last of its process, which still has its descriptors. Not
    /// every exit is reported here, but each in [`Observer::ended`].
    fn exiting(&mut self, tracee: Tracee, last: bool, snapshot: &dyn ProcessSnapshot, now: u64) {
        let _ = (tracee, last, snapshot, now);
    }

    /// A thread is over; the first thread of a process stands for the process, which ends with it.
    fn ended(&mut self, tracee: Tracee, now: u64) {
        let _ = (tracee, now);
    }

    /// Job control stopped a thread. It does not run until [`Observer::continued`] or its end.
    fn stopped(&mut self, thread: Tracee, now: u64) {
        let _ = (thread, now);
    }

    /// All events before `until` were reported. Not called where the threads concerned are stopped at each
    /// event.
    fn complete(&mut self, until: u64) {
        let _ = until;
    }

    /// A thread that job control had stopped goes on.
    fn continued(&mut self, thread: Tracee, now: u64) {
        let _ = (thread, now);
    }
}

/// The known channels, by inode.
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
