//! Files that programs inherit open: position and size at the begin and at the end.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use flowtrace_schema::{FileId, Op, Usage};

use super::super::near::{self, Found};
use super::super::observer::Tracee;
use super::super::snapshot::{LiveSnapshot, ProcessSnapshot};
use crate::stat::Attributes;

/// Files that programs inherited open, by process.
#[derive(Debug, Default)]
pub(super) struct InheritedFiles {
    pub(super) files: HashMap<u32, Vec<InheritedFile>>,
    /// Parent of each forked process.
    pub(super) parents: HashMap<u32, u32>,
    /// Files that had another name already when the end of their program was reported.
    pub(super) late: Vec<Late>,
}

/// A file that a program inherited open.
#[derive(Debug)]
pub(super) struct InheritedFile {
    pub(super) fd: i32,
    pub(super) file: FileId,
    pub(super) path: PathBuf,
    /// Device and inode.
    pub(super) inode: (u64, u64),
    /// Device and inode as snapshots have them.
    pub(super) reported: (u64, u64),
    /// Access mode and `O_APPEND`.
    pub(super) flags: i32,
    pub(super) since_ns: u64,
    pub(super) then: Extent,
    /// State at the end; `None`: not read, or unknown.
    pub(super) now: Option<Extent>,
    /// Bytes that the program's children moved.
    pub(super) by_children: u64,
}

/// A file whose state at the end of its program is unknown.
#[derive(Debug)]
pub(super) struct Late {
    pub(super) file: InheritedFile,
    pub(super) tracee: Tracee,
    pub(super) usage: Usage,
    pub(super) end_ns: u64,
}

/// Position and size of an open file, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) position: u64,
    pub(super) size: u64,
}

/// The bytes that a program moved through a file, as one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) file: FileId,
    /// Read or write.
    pub(super) op: Op,
    /// Begin of the program.
    pub(super) since_ns: u64,
    /// Position at that time.
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// Size of the file at the end of the program, bytes.
    pub(super) size: u64,
}

impl InheritedFiles {
    /// A process was forked.
    pub(super) fn forked(&mut self, parent: u32, child: u32) {
        self.parents.insert(child, parent);
    }

    /// A program begins with a file as descriptor `fd`.
    pub(super) fn begins(
        &mut self,
        (pid, fd): (u32, i32),
        (flags, position): (u32, u64),
        (file, path, attributes, reported): (FileId, &Path, &Attributes, (u64, u64)),
        now: u64,
    ) {
        let (flags, inode) = (flags as i32, (attributes.dev, attributes.ino));
        let files = self.files.entry(pid).or_default();
        // `> out 2>&1` is one open file.
        if files
            .iter()
            .any(|file| (file.inode, file.flags) == (inode, flags))
        {
            return;
        }
        files.push(InheritedFile {
            fd,
            file,
            path: path.to_owned(),
            inode,
            reported,
            flags,
            since_ns: now,
            then: Extent::of(flags, position, attributes.size),
            now: None,
            by_children: 0,
        });
    }

    /// A program is about to end: its descriptors are still there, unless it closed them.
    pub(super) fn check(&mut self, pid: u32, snapshot: &dyn ProcessSnapshot) {
        let parent = self.parents.get(&pid).copied();
        for file in self.files.get_mut(&pid).into_iter().flatten() {
            file.check(snapshot, parent);
        }
    }

    /// A program is over and used `usage`. Returns the bytes that it moved.
    pub(super) fn over(
        &mut self,
        tracee: Tracee,
        usage: &Usage,
        exec: Option<&dyn ProcessSnapshot>,
        now: u64,
    ) -> Vec<Moved> {
        /// Bound on files that are not found: those that were removed never are.
        const MOST_LATE: usize = 1 << 10;
        let pid = tracee.pid;
        let mut found = Vec::new();
        let parent = self.parents.get(&pid).copied();
        for mut file in self.files.remove(&pid).unwrap_or_default() {
            file.check(exec.unwrap_or(&LiveSnapshot(pid)), parent);
            if file.now.is_none() {
                if self.late.len() == MOST_LATE {
                    self.late.remove(0);
                }
                self.late.push(Late {
                    file,
                    tracee,
                    usage: *usage,
                    end_ns: now,
                });
            } else if let Some(moved) = file.moved(usage) {
                self.moved_below(pid, file.inode, moved.bytes);
                found.push(moved);
            }
        }
        found
    }

    /// A process is over.
    pub(super) fn ended(&mut self, pid: u32) {
        self.files.remove(&pid);
        self.parents.remove(&pid);
    }

    /// Adds the bytes that `pid` moved to all its ancestors that have the same file.
    pub(super) fn moved_below(&mut self, pid: u32, inode: (u64, u64), bytes: u64) {
        let mut at = pid;
        // The chain ends at the oldest process, but ids are used again: so it is bounded.
        for _ in 0..self.parents.len() {
            let Some(&parent) = self.parents.get(&at) else {
                return;
            };
            for file in self.files.get_mut(&parent).into_iter().flatten() {
                if file.inode == inode {
                    file.by_children = file.by_children.saturating_add(bytes);
                }
            }
            at = parent;
        }
    }
}

impl Extent {
    /// The state; the position of a file in append mode is its end.
    fn of(flags: i32, position: u64, size: u64) -> Extent {
        let appends = flags & libc::O_APPEND != 0;
        Extent {
            position: if appends { size } else { position },
            size,
        }
    }
}

impl InheritedFile {
    /// Records the present state of the file, once: by the descriptor of its process, by one of its parent,
    /// which mostly waits with the file open, or by its name.
    pub(super) fn check(&mut self, snapshot: &dyn ProcessSnapshot, parent: Option<u32>) {
        if self.now.is_none() {
            let own = self.seen_at(self.reported, snapshot, self.fd);
            let of_parent = || {
                let parent = parent?;
                match snapshot.of_parent(parent) {
                    Some(parent) => self.seen_in(self.reported, parent),
                    None => self.seen_in(self.inode, &LiveSnapshot(parent)),
                }
            };
            self.now = own.or_else(of_parent).or_else(|| self.seen_by_name());
        }
    }

    /// The state of the file, if descriptor `fd` is open on it; snapshots of this kind name it `inode`.
    fn seen_at(
        &self,
        inode: (u64, u64),
        snapshot: &dyn ProcessSnapshot,
        fd: i32,
    ) -> Option<Extent> {
        let (_, size) = snapshot.extent(fd).filter(|(found, _)| *found == inode)?;
        let (flags, position) = snapshot.state(fd)?;
        (flags as i32 == self.flags).then(|| Extent::of(self.flags, position, size))
    }

    fn seen_in(&self, inode: (u64, u64), snapshot: &dyn ProcessSnapshot) -> Option<Extent> {
        let mut numbers = snapshot.numbers().into_iter();
        numbers.find_map(|fd| self.seen_at(inode, snapshot, fd))
    }

    /// The state by name: only the size is known, which is the position of a writer at the end.
    pub(super) fn seen_by_name(&self) -> Option<Extent> {
        let found = match near::behind(&self.path) {
            Found::Is(there) => Some(there.attributes),
            Found::Nothing | Found::Unknown => None,
        };
        let is_it = |found: &Attributes| (found.dev, found.ino) == self.inode;
        let size = found.filter(is_it)?.size;
        let position = match self.flags & libc::O_ACCMODE {
            libc::O_WRONLY => size.max(self.then.position),
            _ => self.then.position,
        };
        Some(Extent { position, size })
    }

    pub(super) fn moved(&self, usage: &Usage) -> Option<Moved> {
        let now = self.now?;
        let writes = match self.flags & libc::O_ACCMODE {
            libc::O_RDONLY => false,
            libc::O_WRONLY => true,
            _ => now.size > self.then.size,
        };
        let (op, own) = match writes {
            true => (Op::Write, usage.write_bytes),
            false => (Op::Read, usage.read_bytes),
        };
        let moved = now.position.saturating_sub(self.then.position);
        let bytes = moved
            .saturating_sub(self.by_children)
            .min(own.unwrap_or(u64::MAX));
        (bytes > 0).then_some(Moved {
            file: self.file,
            op,
            since_ns: self.since_ns,
            offset: self.then.position,
            bytes,
            size: now.size,
        })
    }
}
