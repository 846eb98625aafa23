//! Between FUSE and the kernel layer: which files were opened, which copies FUSE made and recorded,
//! and whose data must come to FUSE all the same.

use std::sync::{Mutex, MutexGuard, PoisonError};

use flowtrace_schema::{FileId, Loss, Recorder, Upid};

use crate::callers::{Caller, Images};

/// What FUSE did for a call that has not returned yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// When, ns since the start of the run.
    pub(crate) at: u64,
    /// Who makes the call.
    pub(crate) tid: u32,
    pub(crate) what: Noted,
}

/// See [`Note`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// Opened a file.
    Opened(OpenedFile),
    /// An open is going to be made of a file whose name says all.
    Opens(OpenedFile),
    /// Copied from file to file, and recorded that. Where it could not, the kernel does so by itself.
    Copied,
}

/// A file was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenedFile {
    /// The file; `None`: it is left out of the trace.
    pub(crate) file: Option<FileId>,
    /// The flags of open(2).
    pub(crate) flags: u32,
    /// Its data come to FUSE, which records them.
    pub(crate) by_fuse: bool,
    /// The number of its inode as the view shows it; `None`: outside of the views.
    pub(crate) number: Option<u64>,
}

/// What FUSE tells the kernel layer, and asks it.
#[derive(Debug, Default)]
pub struct Opens {
    notes: Mutex<Vec<Note>>,
    /// Images whose calls cannot be told by tracepoints: programs of another architecture, and
    /// those that have the kernel do their I/O behind their back.
    by_fuse: Images,
}

impl Opens {
    /// Whether the kernel may serve the data of a file that is being opened by itself.
    pub(crate) fn may_pass(&self, who: Option<Caller>, flags: u32) -> bool {
        let Some(who) = who else {
            return false;
        };
        // Where an append ends up is only known to who makes it.
        flags & libc::O_APPEND as u32 == 0 && !self.is_by_fuse(who.upid)
    }

    /// Something was done for a call.
    pub(crate) fn note(&self, note: Note) {
        self.notes().push(note);
    }

    /// What was done since the last call.
    pub(super) fn take(&self) -> Vec<Note> {
        std::mem::take(&mut *self.notes())
    }

    /// Image `heir` is of a process that the one of image `of` has just forked.
    pub(crate) fn inherit(&self, of: Upid, heir: Upid) {
        self.by_fuse.inherit(of, heir);
    }

    /// Image `upid` begins to have the kernel read and write for it, of which no call tells.
    pub(crate) fn reads_by_itself(&self, upid: Upid, recorder: &Recorder) {
        if self.by_fuse.insert(upid) {
            recorder.lost(Loss::AsyncIo, 1);
        }
    }

    /// The data of what image `upid` opens from now on must come to FUSE.
    pub(crate) fn serve_by_fuse(&self, upid: Upid) {
        self.by_fuse.insert(upid);
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
    fn appends_and_programs_of_other_kinds_stay_with_fuse() {
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
        opens.serve_by_fuse(Upid(2));
        assert!(!opens.may_pass(who(2), 0) && opens.may_pass(who(1), 0));
    }
}
