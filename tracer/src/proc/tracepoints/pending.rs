//! Parts of records that are not complete yet: a call has one or two, an exec a dozen.

use std::collections::HashMap;
use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;

use super::super::links::DELETED;
use super::format::{DETACHED, UNNAMED};

/// Most parts, and most bytes in one, whose memory is kept to be used again.
const SPARES: usize = 64;
const SPARE_BYTES: usize = 64 << 10;

/// Parts by thread.
#[derive(Debug, Default)]
pub(super) struct Pending {
    of: HashMap<u32, Parts>,
    /// Empty parts, whose memory is used again: there are thousands of calls a second.
    spare: Vec<Parts>,
}

impl Pending {
    /// The parts of thread `tid`.
    pub(super) fn of(&mut self, tid: u32) -> &mut Parts {
        let spare = || self.spare.pop().unwrap_or_default();
        self.of.entry(tid).or_insert_with(spare)
    }

    /// Takes the parts of thread `tid`; to be given back ([`Pending::give_back`]).
    pub(super) fn take(&mut self, tid: u32) -> Parts {
        self.of.remove(&tid).unwrap_or_default()
    }

    /// Keeps the memory of parts that are not needed any more.
    pub(super) fn give_back(&mut self, mut parts: Parts) {
        if self.spare.len() < SPARES && (1..SPARE_BYTES).contains(&parts.bytes.capacity()) {
            parts.pieces.clear();
            parts.bytes.clear();
            self.spare.push(parts);
        }
    }

    /// Removes the parts of thread `tid` if none are left.
    pub(super) fn forget_empty(&mut self, tid: u32) {
        if self.of.get(&tid).is_some_and(Parts::is_empty) {
            let parts = self.take(tid);
            self.give_back(parts);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }
}

/// The parts of one record.
#[derive(Debug, Default)]
pub(super) struct Parts {
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
}

#[derive(Debug)]
struct Piece {
    what: u32,
    flags: u32,
    at: Range<usize>,
}

/// A part.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part<'a> {
    pub(super) bytes: &'a [u8],
    /// Flags of its record ([`super::format::NUMBER`]).
    pub(super) flags: u32,
}

impl Parts {
    /// Adds `bytes` that were reported as `what`.
    pub(super) fn add(&mut self, what: u32, flags: u32, bytes: &[u8]) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        let at = from..self.bytes.len();
        self.pieces.push(Piece { what, flags, at });
    }

    /// The last part that was reported as `what`.
    pub(super) fn get(&self, what: u32) -> Option<Part<'_>> {
        let mut pieces = self.pieces.iter().rev();
        pieces.find(|piece| piece.what == what).map(|piece| Part {
            bytes: &self.bytes[piece.at.clone()],
            flags: piece.flags,
        })
    }

    /// All parts that were reported as `what`, joined.
    pub(super) fn joined(&self, what: u32) -> Vec<u8> {
        let pieces = self.pieces.iter().filter(|piece| piece.what == what);
        let bytes: Vec<&[u8]> = pieces.map(|p| &self.bytes[p.at.clone()]).collect();
        bytes.concat()
    }

    pub(super) fn forget(&mut self, what: u32) {
        self.pieces.retain(|piece| piece.what != what);
    }

    fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }
}

/// A path from its names, the last one first, each ended by a NUL, in the form that the kernel shows in a
/// link in /proc.
pub(super) fn path(part: Part<'_>) -> OsString {
    path_with_room(part, 0)
}

/// As [`path`], with room for that many bytes more.
pub(super) fn path_with_room(part: Part<'_>, more: usize) -> OsString {
    let names = part.bytes.strip_suffix(b"\0").unwrap_or(part.bytes);
    let has = |flag| part.flags & flag != 0;
    // An event or the like, whose text says so itself.
    if has(DETACHED) && names.starts_with(b"[") {
        return OsString::from_vec([b"anon_inode:", names].concat());
    }
    let mut path = Vec::with_capacity(names.len() + 1 + more);
    if !names.is_empty() {
        for name in names.rsplit(|&byte| byte == 0) {
            path.push(b'/');
            path.extend_from_slice(name);
        }
    }
    if path.is_empty() {
        path.push(b'/');
    }
    if has(UNNAMED | DETACHED) {
        path.extend_from_slice(DELETED);
    }
    OsString::from_vec(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_kept_by_thread_until_they_are_taken() {
        let mut pending = Pending::default();
        pending.of(7).add(1, 0, b"ab");
        pending.of(8).add(1, 0, b"x");
        pending.of(7).add(2, 5, b"");
        pending.of(7).add(1, 3, b"c");
        let parts = pending.take(7);
        assert_eq!(parts.joined(1), b"abc");
        let last = parts.get(1).map(|part| (part.bytes, part.flags));
        assert_eq!(last, Some((&b"c"[..], 3)));
        assert_eq!(parts.get(2).map(|part| part.flags), Some(5));
        assert!(parts.get(3).is_none() && parts.joined(3).is_empty());
        pending.give_back(parts);
        assert!(pending.of(9).get(1).is_none(), "used again, and empty");
        pending.of(8).forget(1);
        for tid in [8, 9] {
            pending.forget_empty(tid);
        }
        assert!(pending.is_empty());
    }

    fn of(names: &[u8], flags: u32) -> String {
        let part = Part {
            bytes: names,
            flags,
        };
        path(part).into_string().unwrap()
    }

    #[test]
    fn paths_are_put_together_from_their_names() {
        assert_eq!(of(b"", 0), "/");
        assert_eq!(of(b"sh\0bin\0usr\0", 0), "/usr/bin/sh");
        assert_eq!(of(b"x\0tmp\0", UNNAMED), "/tmp/x (deleted)");
        assert_eq!(of(b"memfd:x\0", DETACHED), "/memfd:x (deleted)");
        assert_eq!(of(b"[eventfd]\0", DETACHED), "anon_inode:[eventfd]");
    }
}
