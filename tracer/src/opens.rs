//! Exchange between FUSE and the kernel layer: the files that were opened, the copies that FUSE made and
//! recorded, and the images whose data must come to FUSE all the same.

use std::sync::{Mutex, MutexGuard, PoisonError};

use flowtrace_schema::{FileId, Loss, Recorder, Upid};

use crate::callers::{Caller, Images};
use crate::stat::Inode;

/// Action of FUSE for a call that has not returned yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// Time in ns since the start of the run.
    pub(crate) at: u64,
    /// Thread that makes the call.
    pub(crate) tid: u32,
    pub(crate) what: Noted,
}

/// Kinds of actions, see [`Note`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// Opened a file; `None`: the trace leaves it out.
    Opened(Inode, Option<FileId>),
    /// Copied from file to file, and recorded that. If FUSE could not copy, the kernel does so by itself.
    Copied,
}

/// Notes of FUSE for the kernel layer, and the images that FUSE must serve.
#[derive(Debug, Default)]
pub struct Opens {
    notes: Mutex<Vec<Note>>,
    /// Images whose I/O the kernel does asynchronously, which no call reports.
    by_fuse: Images,
}

impl Opens {
    /// Returns true if the kernel may serve by itself the data of a file that is being opened.
    pub(crate) fn may_pass(&self, who: Option<Caller>, flags: u32) -> bool {
        let Some(who) = who else {
            return false;
        };
        // Only the process that serves an append knows its offset.
        flags & libc::O_APPEND as u32 == 0 && !self.is_by_fuse(who.upid)
    }

    /// Adds a note.
    pub(crate) fn note(&self, note: Note) {
        self.notes().push(note);
    }

    /// Takes the notes since the last call.
    pub(super) fn take(&self) -> Vec<Note> {
        std::mem::take(&mut *self.notes())
    }

    /// A process whose image is `of` has forked one whose image is `heir`, which FUSE then serves likewise.
    pub(crate) fn inherit(&self, of: Upid, heir: Upid) {
        self.by_fuse.inherit(of, heir);
    }

    /// Image `upid` begins to have the kernel read and write for it, which no call reports.
    pub(crate) fn reads_by_itself(&self, upid: Upid, recorder: &Recorder) {
        if self.by_fuse.insert(upid) {
            recorder.lost(Loss::AsyncIo, 1);
        }
    }

    pub(super) fn is_by_fuse(&self, upid: Upid) -> bool {
        self.by_fuse.has(upid)
    }

    fn notes(&self) -> MutexGuard<'_, Vec<Note>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appends_and_programs_that_read_by_themselves_stay_with_fuse() {
        let opens = Opens::default();
        let who = |upid| {
            Some(Caller {
                upid: Upid(upid),
                tid: None,
            })
        };
        assert!(opens.may_pass(who(1), libc::O_RDWR as u32));
        assert!(!opens.may_pass(who(1), (libc::O_WRONLY | libc::O_APPEND) as u32));
        assert!(!opens.may_pass(None, 0));
        opens.reads_by_itself(Upid(2), &Recorder::nowhere());
        assert!(!opens.may_pass(who(2), 0) && opens.may_pass(who(1), 0));
    }
}
