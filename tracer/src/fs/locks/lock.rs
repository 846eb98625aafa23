//! One lock: its range, owner and kind.

/// The last byte that can be locked: a range to this byte extends to the end of the file.
pub(crate) const END: u64 = i64::MAX as u64;

/// Kind of call that made a lock.
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
    /// Others may have it for reading too.
    Read,
    /// No other owner has a lock.
    Write,
}

/// A lock that an owner has or wants; `None` as kind releases the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    /// Owner, by the kernel's number.
    pub(crate) owner: u64,
    /// Open file through which it was made.
    pub(crate) fh: u64,
    /// Process that made it.
    pub(crate) pid: u32,
    /// Kind; `None` releases the range.
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

    /// True if this lock conflicts with `wanted`.
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
