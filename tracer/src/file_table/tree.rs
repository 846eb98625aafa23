//! The known directories and their paths.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use flowtrace_schema::{FileId, Record, Text};

use super::Hashed;

/// Directories by id, each below a known one or a root.
#[derive(Debug, Default)]
pub(super) struct Tree {
    directories: HashMap<FileId, Place>,
    /// Pairs of directory and subdirectory.
    below: BTreeSet<(FileId, FileId)>,
    /// Directories by the hash of parent and name.
    names: Hashed<FileId>,
}

#[derive(Clone, Debug)]
struct Place {
    parent: Option<FileId>,
    /// Last component, or the whole path of a root.
    name: OsString,
    /// Hash of parent and name; 0 for a root.
    hash: u64,
}

/// A directory gets a path, or loses the one that it had.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    Begin(FileId, OsString),
    End(FileId),
}

impl Change {
    /// The record of a change that happened at `now`.
    pub(super) fn at(self, now: u64) -> Record {
        match self {
            Change::Begin(directory, path) => Record::DirectoryPath {
                directory,
                path: Text::from(path),
                from_ns: now,
            },
            Change::End(directory) => Record::DirectoryPathEnd {
                directory,
                at_ns: now,
            },
        }
    }
}

impl Tree {
    /// Makes a directory a root with its own path. A root never moves.
    pub(super) fn plant(&mut self, directory: FileId, path: &OsStr) -> Vec<Change> {
        if self.is_root(directory) {
            return Vec::new();
        }
        let mut changes = Vec::new();
        self.visit(directory, &mut |id| changes.push(Change::End(id)));
        self.detach(directory);
        let place = Place {
            parent: None,
            name: path.to_owned(),
            hash: 0,
        };
        self.directories.insert(directory, place);
        self.begin(directory, &mut changes);
        changes
    }

    /// Puts a directory, known or new, at a free name whose hash with the parent is `hash`.
    pub(super) fn place(
        &mut self,
        directory: FileId,
        parent: FileId,
        name: &OsStr,
        hash: u64,
    ) -> Vec<Change> {
        // A directory must not be put below itself; only changes outside of the mount could require that. No
        // directory is below a new one, and the way up may be long.
        let is_known = self.directories.contains_key(&directory);
        if self.is_root(directory) || (is_known && self.is_within(parent, directory)) {
            return Vec::new();
        }
        let mut changes = Vec::new();
        self.visit(directory, &mut |id| changes.push(Change::End(id)));
        self.detach(directory);
        self.attach(directory, parent, name, hash);
        self.begin(directory, &mut changes);
        changes
    }

    /// Exchanges the places of two directories.
    pub(super) fn exchange(&mut self, one: FileId, other: FileId) -> Vec<Change> {
        let within = self.is_within(one, other) || self.is_within(other, one);
        let places = (self.directories.get(&one), self.directories.get(&other));
        let (Some(a), Some(b), false) = (places.0.cloned(), places.1.cloned(), within) else {
            return Vec::new();
        };
        let (Some(a_parent), Some(b_parent)) = (a.parent, b.parent) else {
            return Vec::new();
        };
        let mut changes = Vec::new();
        for id in [one, other] {
            self.visit(id, &mut |id| changes.push(Change::End(id)));
            self.detach(id);
        }
        self.attach(one, b_parent, &b.name, b.hash);
        self.attach(other, a_parent, &a.name, a.hash);
        for id in [one, other] {
            self.begin(id, &mut changes);
        }
        changes
    }

    /// Removes a directory and all known directories below it.
    pub(super) fn remove(&mut self, directory: FileId) -> Vec<Change> {
        if self.is_root(directory) {
            return Vec::new();
        }
        let mut gone = Vec::new();
        self.visit(directory, &mut |id| gone.push(id));
        for &id in &gone {
            self.detach(id);
            self.directories.remove(&id);
        }
        gone.into_iter().map(Change::End).collect()
    }

    /// The known directory at the name with this hash.
    pub(super) fn child(&self, hash: u64) -> Option<FileId> {
        self.names.get(&hash).copied()
    }

    fn is_root(&self, directory: FileId) -> bool {
        let place = self.directories.get(&directory);
        place.is_some_and(|place| place.parent.is_none())
    }

    /// Returns true if `directory` is `ancestor` or is below it.
    fn is_within(&self, directory: FileId, ancestor: FileId) -> bool {
        let mut at = Some(directory);
        while let Some(id) = at {
            if id == ancestor {
                return true;
            }
            at = self.directories.get(&id).and_then(|place| place.parent);
        }
        false
    }

    fn attach(&mut self, directory: FileId, parent: FileId, name: &OsStr, hash: u64) {
        self.below.insert((parent, directory));
        self.names.insert(hash, directory);
        let place = Place {
            parent: Some(parent),
            name: name.to_owned(),
            hash,
        };
        self.directories.insert(directory, place);
    }

    /// Removes a directory from its parent; it stays known.
    fn detach(&mut self, directory: FileId) {
        let Some(place) = self.directories.get(&directory) else {
            return;
        };
        if let Some(parent) = place.parent {
            self.below.remove(&(parent, directory));
            if self.names.get(&place.hash) == Some(&directory) {
                self.names.remove(&place.hash);
            }
        }
    }

    /// Calls `act` for a known directory and all below it.
    fn visit(&self, directory: FileId, act: &mut impl FnMut(FileId)) {
        if !self.directories.contains_key(&directory) {
            return;
        }
        let mut waiting = vec![directory];
        while let Some(id) = waiting.pop() {
            act(id);
            waiting.extend(self.children(id));
        }
    }

    /// The paths that a directory and all directories below it have from now on.
    fn begin(&self, directory: FileId, changes: &mut Vec<Change>) {
        let mut waiting = vec![(directory, self.path(directory))];
        while let Some((id, path)) = waiting.pop() {
            for child in self.children(id) {
                if let Some(place) = self.directories.get(&child) {
                    waiting.push((child, join(&path, &place.name)));
                }
            }
            changes.push(Change::Begin(id, path));
        }
    }

    fn children(&self, directory: FileId) -> impl Iterator<Item = FileId> {
        let all = (directory, FileId(0))..=(directory, FileId(u32::MAX));
        self.below.range(all).map(|&(_, child)| child)
    }

    fn path(&self, directory: FileId) -> OsString {
        let mut parts = Vec::new();
        let mut at = Some(directory);
        while let Some(place) = at.and_then(|id| self.directories.get(&id)) {
            parts.push(&*place.name);
            at = place.parent;
        }
        let mut path = Vec::new();
        for part in parts.iter().rev() {
            append(&mut path, part);
        }
        OsString::from_vec(path)
    }
}

fn append(path: &mut Vec<u8>, name: &OsStr) {
    if !path.is_empty() && path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name.as_bytes());
}

fn join(directory: &OsStr, name: &OsStr) -> OsString {
    let mut path = Vec::with_capacity(directory.len() + 1 + name.len());
    path.extend_from_slice(directory.as_bytes());
    append(&mut path, name);
    OsString::from_vec(path)
}

#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing {
    use super::*;

    /// Any changes of the places of a few directories: each gets a path only when it has none and loses only
    /// one that it has, and the paths in force are those of the places.
    pub fn directory_tree(bytes: &[u8]) {
        let id = |byte: u8| FileId(1 + u32::from(byte % 8));
        let (root, mut tree) = (FileId(1), Tree::default());
        let mut paths = HashMap::new();
        apply(&mut paths, tree.plant(root, OsStr::new("/top")));
        for change in bytes.chunks_exact(4) {
            let (one, other) = (id(change[1]), id(change[2]));
            let name = (change[3] % 4).to_string();
            let hash = u64::from(other.0) << 8 | u64::from(change[3] % 4) | 1 << 40;
            let changes = match change[0] % 4 {
                // A name is free and its directory known when a directory is placed there.
                0 | 1 if tree.child(hash).is_none() && paths.contains_key(&other) => {
                    tree.place(one, other, OsStr::new(&name), hash)
                }
                2 => tree.exchange(one, other),
                3 => tree.remove(one),
                _ => Vec::new(),
            };
            apply(&mut paths, changes);
            for (directory, path) in &paths {
                assert_eq!(*path, tree.path(*directory), "{directory:?}");
            }
            assert_eq!(paths.len(), tree.directories.len());
        }
    }

    fn apply(paths: &mut HashMap<FileId, OsString>, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Begin(directory, path) => {
                    assert_eq!(
                        paths.insert(directory, path),
                        None,
                        "{directory:?} has a path"
                    );
                }
                Change::End(directory) => {
                    assert!(paths.remove(&directory).is_some(), "{directory:?} has none");
                }
            }
        }
    }
}
