//! One step's uses of one thing, and the order of two steps that their uses ask for.

/// Something that steps can touch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Thing {
    /// A name in a directory: its existence, and the file that has it.
    Name(String),
    /// Contents and attributes of a file, under any of its names.
    Content(i64),
    /// The list of names in a directory.
    List(String),
    /// A name outside the traced directories, known from opens, arguments and the instants of changes.
    Outside(String),
    /// A FIFO, which needs a process at each end.
    Fifo(i64),
}

/// The kind of use. Of two kinds the greater one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum How {
    /// The step read the thing.
    Read,
    /// The step added something to the thing or removed it, which other steps may do as well, in any
    /// order.
    Vary,
    /// The step listed the names in a directory, and added or removed one.
    Mix,
    /// The step changed the thing.
    Write,
    /// The step cannot go on without the other step.
    Meet,
}

impl How {
    /// Both kinds. A step that lists a directory and adds a name needs the order of either.
    fn and(self, other: How) -> How {
        match (self, other) {
            (How::Read, How::Vary) | (How::Vary, How::Read) => How::Mix,
            _ => self.max(other),
        }
    }

    /// Returns true if a use of this kind of a directory's names may have listed them.
    pub(super) fn may_list(self) -> bool {
        matches!(self, How::Read | How::Mix | How::Write)
    }
}

/// The first and the last time of a use, ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) first_ns: i64,
    pub(super) last_ns: i64,
}

/// All uses of one thing by one step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    pub(super) step: usize,
    pub(super) how: How,
    pub(super) span: Span,
    /// Time of the reads.
    read: Option<Span>,
    /// Time of the other uses.
    changed: Option<Span>,
}

/// The part of the names added by another step that a step saw when it listed a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Saw {
    Nothing,
    All,
    /// The step listed the directory before a name came, and after: it may have waited for the name.
    Change,
    /// Some of the names, as chance had it. No order of the steps would give these.
    Some,
}

impl Span {
    fn with(self, other: Span) -> Span {
        Span {
            first_ns: self.first_ns.min(other.first_ns),
            last_ns: self.last_ns.max(other.last_ns),
        }
    }

    /// The names added during `added` that a step saw which listed the directory during `self`.
    fn saw(self, added: Span) -> Saw {
        if self.last_ns <= added.first_ns {
            Saw::Nothing
        } else if self.first_ns >= added.last_ns {
            Saw::All
        } else if self.first_ns > added.first_ns && self.last_ns < added.last_ns {
            Saw::Some
        } else {
            Saw::Change
        }
    }
}

impl Touch {
    pub(super) fn new(step: usize, how: How, span: Span) -> Touch {
        let is_look = how == How::Read;
        Touch {
            step,
            how,
            span,
            read: is_look.then_some(span),
            changed: (!is_look).then_some(span),
        }
    }

    /// Adds another use of the thing by the same step.
    pub(super) fn add(&mut self, other: Touch) {
        let both = |one: Option<Span>, other: Option<Span>| match (one, other) {
            (Some(one), Some(other)) => Some(one.with(other)),
            (one, other) => one.or(other),
        };
        self.how = self.how.and(other.how);
        self.span = self.span.with(other.span);
        self.read = both(self.read, other.read);
        self.changed = both(self.changed, other.changed);
    }

    /// The order of this step and one that began later to use the same thing: true if this step has to
    /// come before the other, and true if the other has to come before this one. Both are true if the
    /// uses overlap and neither came first.
    ///
    /// Steps that only list a directory and add names of their own, as Python does when it imports a
    /// module, need no order if no order would give the names they saw: each listed before the other
    /// added, or while it did.
    pub(super) fn orders(&self, later: &Touch) -> (bool, bool) {
        let is_at_once = self.span.last_ns > later.span.first_ns || later.how == How::Meet;
        let is_list = |how| matches!(how, How::Read | How::Vary | How::Mix);
        if !(is_at_once && is_list(self.how) && is_list(later.how)) {
            return (true, is_at_once);
        }
        let saw = |lister: &Touch, other: &Touch| Some(lister.read?.saw(other.changed?));
        match (saw(self, later), saw(later, self)) {
            (Some(Saw::Change), _) | (_, Some(Saw::Change)) | (Some(Saw::All), Some(Saw::All)) => {
                (true, true)
            }
            (Some(Saw::Nothing), Some(Saw::Nothing)) => (false, false),
            (mine, others) => (
                mine == Some(Saw::Nothing) || others == Some(Saw::All),
                mine == Some(Saw::All) || others == Some(Saw::Nothing),
            ),
        }
    }
}
