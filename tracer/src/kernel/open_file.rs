//! Open files, which several descriptors and processes may share.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;

use flowtrace_schema::{Call, FileId};

/// An open file: what the manual calls an open file description.
#[derive(Debug)]
pub(super) struct OpenFile {
    /// `None`: it is left out of the trace.
    pub(super) file: Option<FileId>,
    /// FUSE records its data.
    pub(super) by_fuse: bool,
    /// `Some`: it was looked at after it was used, and is this file if nothing became of the descriptor meanwhile;
    /// the rows that wait for that to be known.
    pub(super) waiting: RefCell<Option<Vec<Call>>>,
    /// What it was taken for turned out to be another.
    pub(super) is_void: Cell<bool>,
    state: Rc<State>,
}

/// What all descriptors of an open file share.
#[derive(Debug)]
pub(super) struct State {
    /// Where the next read or write begins. `None`: not known until somebody seeks.
    pub(super) position: Cell<Option<u64>>,
    /// Others move the position, who are not known.
    pub(super) wanders: Cell<bool>,
    /// Writes go to the end since somebody changed its flags.
    pub(super) appends: Cell<bool>,
    /// Records were lost since it was opened: it may be another file's by now.
    pub(super) lossy: Cell<bool>,
    /// Calls under way that use the position.
    users: Cell<u32>,
    /// More than one at a time did: which was first is not known.
    contested: Cell<bool>,
}

impl Deref for OpenFile {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl OpenFile {
    pub(super) fn new(file: Option<FileId>, by_fuse: bool) -> OpenFile {
        OpenFile {
            file,
            by_fuse,
            waiting: RefCell::new(None),
            is_void: Cell::new(false),
            state: Rc::new(State {
                position: Cell::new(Some(0)),
                wanders: Cell::new(false),
                appends: Cell::new(false),
                lossy: Cell::new(false),
                users: Cell::new(0),
                contested: Cell::new(false),
            }),
        }
    }

    /// One that is met as a descriptor of which nothing was known: `of`, or, where that is `None`, one that
    /// nobody knows otherwise. Its rows are held.
    pub(super) fn met(file: Option<FileId>, by_fuse: bool, of: Option<&OpenFile>) -> OpenFile {
        let mut open = OpenFile::new(file, by_fuse);
        open.waiting = RefCell::new(Some(Vec::new()));
        match of {
            Some(of) => open.state = Rc::clone(&of.state),
            None => {
                open.position.set(None);
                open.wanders.set(true);
            }
        }
        open
    }
}

impl State {
    /// A call that uses the position begins.
    pub(super) fn enter(&self) {
        if self.users.get() > 0 {
            self.contested.set(true);
        }
        self.users.set(self.users.get() + 1);
    }

    /// It returns, or its thread is gone. Whether it had the position to itself.
    pub(super) fn leave(&self) -> bool {
        let alone = !self.contested.get();
        self.users.set(self.users.get().saturating_sub(1));
        if self.users.get() == 0 {
            self.contested.set(false);
        }
        alone
    }

    /// Somebody sought this place.
    pub(super) fn seek(&self, position: Option<u64>) {
        self.position.set(position.filter(|_| !self.wanders.get()));
    }

    /// What becomes of it is not told any more.
    pub(super) fn set_unreported(&self) {
        self.wanders.set(true);
        self.lossy.set(true);
        self.position.set(None);
    }

    /// `count` bytes were read or written at the position, which is returned.
    pub(super) fn advance(&self, count: u64) -> Option<u64> {
        let before = self.position.get();
        self.position
            .set(before.map(|before| before.saturating_add(count)));
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_first_is_known_of_one_at_a_time() {
        let open = OpenFile::new(None, false);
        open.enter();
        assert!(open.leave());
        open.enter();
        open.enter();
        assert!(!open.leave() && !open.leave());
        open.enter();
        assert!(open.leave());
    }
}
