//! Locks for tests.

use super::{Kind, Lock, Space, Subject};

pub(super) const RECORD: Subject = Subject {
    node: 1,
    space: Space::Record,
};

pub(super) fn lock(owner: u64, kind: Option<Kind>, start: u64, end: u64) -> Lock {
    Lock {
        owner,
        fh: owner,
        pid: owner as u32,
        kind,
        start,
        end,
    }
}

pub(super) fn write(owner: u64, start: u64, end: u64) -> Lock {
    lock(owner, Some(Kind::Write), start, end)
}

pub(super) fn read(owner: u64, start: u64, end: u64) -> Lock {
    lock(owner, Some(Kind::Read), start, end)
}
