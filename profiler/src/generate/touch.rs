//! What a step did to one thing, and which order of two steps that asks for.

/// Something that steps can touch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Thing {
    /// A name: whether it is there, and of what.
    Name(String),
    /// What a file holds, and its attributes, under whatever names.
    Content(i64),
    /// The names in a directory.
    List(String),
    /// A name outside the traced directories, of which opens, arguments and moments tell.
    Outside(String),
    /// A FIFO, which nobody can use alone.
    Fifo(i64),
}

/// How.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum How {
    /// Looked at it.
    Read,
    /// Added to it or took from it, which others may do as well in any order.
    Vary,
    /// Looked at the names in a directory, and added one or took one away.
    Mix,
    /// Changed it.
    Write,
    /// Cannot go on without the other one.
    Meet,
}

impl How {
    /// Both: who looks at the names in a directory and adds one needs the order of either.
    fn and(self, other: How) -> How {
        match (self, other) {
            (How::Read, How::Vary) | (How::Vary, How::Read) => How::Mix,
            _ => self.max(other),
        }
    }

    /// Whether a directory was listed, if this is what was done to its list of names.
    pub(super) fn may_list(self) -> bool {
        matches!(self, How::Read | How::Mix | How::Write)
    }
}

/// From the first to the last time, ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) first_ns: i64,
    pub(super) last_ns: i64,
}

/// All that one step did to one thing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    pub(super) step: usize,
    pub(super) how: How,
    pub(super) span: Span,
    /// When it only looked.
    looked: Option<Span>,
    /// When it did more.
    changed: Option<Span>,
}

/// What a step that lists a directory saw of the names that another one added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Saw {
    Nothing,
    All,
    /// It looked before a name came, and after: it may have waited for it.
    Change,
    /// Some of them, as they happened to be there: in no order it would see these.
    Some,
}

impl Span {
    fn with(self, other: Span) -> Span {
        Span {
            first_ns: self.first_ns.min(other.first_ns),
            last_ns: self.last_ns.max(other.last_ns),
        }
    }

    /// What a step that listed a directory in this time saw of names that another one added in that.
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
            looked: is_look.then_some(span),
            changed: (!is_look).then_some(span),
        }
    }

    /// Adds what the same step did besides.
    pub(super) fn add(&mut self, other: Touch) {
        let both = |one: Option<Span>, other: Option<Span>| match (one, other) {
            (Some(one), Some(other)) => Some(one.with(other)),
            (one, other) => one.or(other),
        };
        self.how = self.how.and(other.how);
        self.span = self.span.with(other.span);
        self.looked = both(self.looked, other.looked);
        self.changed = both(self.changed, other.changed);
    }

    /// Whether this step has to come before another one that began later to touch the same thing, and whether that one has to
    /// come before this one. Both: they did it at the same time, and neither came first.
    ///
    /// Who only lists a directory and adds names of its own, as each Python does that imports a module, needs no order if none gives
    /// what was seen: each listed before the other added, or while it did.
    pub(super) fn orders(&self, later: &Touch) -> (bool, bool) {
        let is_at_once = self.span.last_ns > later.span.first_ns || later.how == How::Meet;
        let is_list = |how| matches!(how, How::Read | How::Vary | How::Mix);
        if !(is_at_once && is_list(self.how) && is_list(later.how)) {
            return (true, is_at_once);
        }
        let saw = |lister: &Touch, other: &Touch| Some(lister.looked?.saw(other.changed?));
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
