//! Open files, which several descriptors and processes may share.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;

use flowtrace_schema::{Call, FileId};

/// An open file description.
#[derive(Debug)]
pub(super) struct OpenFile {
    /// `None`: it is left out of the trace.
    pub(super) file: Option<FileId>,
    /// True if FUSE records its data.
    pub(super) by_fuse: bool,
    /// `Some`: it was read after its first use, and is this file if the descriptor was not changed meanwhile;
    /// the rows that wait until this is known.
    pub(super) waiting: RefCell<Option<Vec<Call>>>,
    /// True if it turned out to be another file.
    pub(super) is_void: Cell<bool>,
    state: Rc<State>,
}

/// State that all descriptors of an open file share.
#[derive(Debug)]
pub(super) struct State {
    /// Position of the next read or write. `None`: not known until the next seek.
    pub(super) position: Cell<Option<u64>>,
    /// True if unknown processes move the position, too.
    pub(super) wanders: Cell<bool>,
    /// True if writes go to the end, because its flags were changed.
    pub(super) appends: Cell<bool>,
    /// True if records were lost since it was opened: the descriptor may be another file's by now.
    pub(super) lossy: Cell<bool>,
    /// Calls in flight that use the position.
    users: Cell<u32>,
    /// True if more than one at a time did: their order is not known.
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

    /// An open file found at a descriptor of which nothing was known: the known one `of`, or, if `None`, a
    /// new one. Its rows wait.
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

    /// The call returns, or its thread is gone. Returns true if no other call used the position meanwhile.
    pub(super) fn leave(&self) -> bool {
        let alone = !self.contested.get();
        self.users.set(self.users.get().saturating_sub(1));
        if self.users.get() == 0 {
            self.contested.set(false);
        }
        alone
    }

    /// A call set the position.
    pub(super) fn seek(&self, position: Option<u64>) {
        self.position.set(position.filter(|_| !self.wanders.get()));
    }

    /// Its calls will not all be reported any more.
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
