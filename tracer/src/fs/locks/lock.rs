//! One lock: its range, owner and kind.

/// The last byte that can be locked: a range to there goes to the end of the file, wherever that is.
pub(crate) const END: u64 = i64::MAX as u64;

/// Which kind of call made a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Space {
    /// `fcntl`: a range of bytes.
    Record,
    /// `flock`: the whole file.
    Whole,
}

/// Kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Others may hold it for reading too.
    Read,
    /// Nobody else holds any.
    Write,
}

/// A lock that is held or wanted; `None` as kind gives the range up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    /// Owner, as the kernel numbers owners.
    pub(crate) owner: u64,
    /// Open file through which it was made.
    pub(crate) fh: u64,
    /// Process that made it.
    pub(crate) pid: u32,
    /// Kind; `None` gives the range up.
    pub(crate) kind: Option<Kind>,
    /// First byte.
    pub(crate) start: u64,
    /// Last byte.
    pub(crate) end: u64,
}

impl Lock {
    fn overlaps(&self, other: &Lock) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// True if this lock, which is held, is in the way of `wanted`.
    pub(super) fn conflicts(&self, wanted: &Lock) -> bool {
        let exclusive = [self.kind, wanted.kind].contains(&Some(Kind::Write));
        wanted.kind.is_some() && exclusive && self.owner != wanted.owner && self.overlaps(wanted)
    }

    /// True if this lock and `next`, which begins later, are one.
    pub(super) fn continues_as(&self, next: &Lock) -> bool {
        (self.owner, self.kind) == (next.owner, next.kind)
            && self.end.checked_add(1).is_some_and(|end| end >= next.start)
    }
}
