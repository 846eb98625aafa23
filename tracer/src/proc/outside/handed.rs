//! Files outside that a program got as open descriptors: what it moved through them.
//!
//! Whoever opens a file need not be who uses it: a shell opens `{ sort in; } > out`, Python opens what
//! it hands to `subprocess.run(…, stdout=file)`. Position and size of the file when the program begins and when it ends tell whether
//! something was moved meanwhile; the process's own counts, which never are its children's, tell
//! whether it may have been the one, and what its children moved is taken off.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use flowtrace_schema::{Call as CallRow, Fidelity, FileId, Op, Usage};

use super::super::near::{self, Found};
use super::super::snapshot::{LiveSnapshot, ProcessSnapshot};
use super::paths::is_kernels;
use super::{Outside, Tracee, inode};
use crate::kernel::{Descriptions, Inherited};
use crate::stat::Attributes;

/// What processes were handed.
#[derive(Debug, Default)]
pub(super) struct Handed {
    held: HashMap<u32, Vec<Held>>,
    /// Of each process that was forked, by whom.
    parents: HashMap<u32, u32>,
    /// Files that had another name already when the programs that were over were told of.
    late: Vec<Late>,
}

/// A file that a program has open from its begin on.
#[derive(Debug)]
struct Held {
    fd: i32,
    file: FileId,
    path: PathBuf,
    /// Device and inode.
    inode: (u64, u64),
    /// The same as moments tell it.
    told: (u64, u64),
    /// Access mode and whether it appends.
    flags: i32,
    since_ns: u64,
    then: Extent,
    /// How it is at the end; `None`: not looked at, or not to be seen.
    now: Option<Extent>,
    /// What its children moved.
    by_children: u64,
}

/// A file of which is not known how it was when its program was over.
#[derive(Debug)]
struct Late {
    held: Held,
    tracee: Tracee,
    usage: Usage,
    end_ns: u64,
}

/// How far an open file has come, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    position: u64,
    size: u64,
}

/// What a program moved through a file, as one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moved {
    file: FileId,
    /// Read or write.
    op: Op,
    /// Begin of the program.
    since_ns: u64,
    /// Position then.
    offset: u64,
    bytes: u64,
    /// Size of the file at the end of the program, bytes.
    size: u64,
}

impl Outside {
    /// A process was forked.
    pub(crate) fn forked(&mut self, parent: Tracee, child: Tracee) {
        if let Some(handed) = &mut self.handed {
            handed.forked(parent.pid, child.pid);
        }
    }

    /// A program begins with these descriptors.
    pub(crate) fn began_with(&mut self, tracee: Tracee, moment: &dyn ProcessSnapshot, now: u64) {
        if let Some(told) = self.first.take() {
            self.inherited(&told, tracee, moment, now);
        }
        if self.handed.is_none() {
            return;
        }
        for (fd, target) in moment.targets() {
            let path = Path::new(&target);
            if let Some((file, attributes)) = self.held(path, fd, moment, now)
                && let Some(handed) = &mut self.handed
                && let Some(state) = moment.state(fd)
                && let Some((told, _)) = moment.extent(fd)
            {
                let found = (file, path, &attributes, told);
                handed.begins((tracee.pid, fd), state, found, now);
            }
        }
    }

    /// The first program of the run begins. Of what it has open no call told; of what others get, the calls do.
    fn inherited(
        &mut self,
        told: &Descriptions,
        tracee: Tracee,
        moment: &dyn ProcessSnapshot,
        now: u64,
    ) {
        let mut before: Vec<Inherited> = Vec::new();
        for (fd, target) in moment.targets() {
            if let Some((file, _)) = self.held(Path::new(&target), fd, moment, now)
                && let Some((flags, position)) = moment.state(fd)
            {
                // What is open in the same way at the same place is taken for one.
                let is_same =
                    |b: &&Inherited| (b.file, b.flags, b.position) == (file, flags, position);
                let inherited = Inherited {
                    fd,
                    file,
                    flags,
                    position,
                    same_as: before.iter().find(is_same).map(|same| same.fd),
                };
                told.inherited(tracee.tid, inherited, now);
                before.push(inherited);
            }
        }
    }

    /// The file outside that is open as descriptor `fd`, if it is one.
    fn held(
        &mut self,
        path: &Path,
        fd: i32,
        moment: &dyn ProcessSnapshot,
        now: u64,
    ) -> Option<(FileId, Attributes)> {
        let name = path.as_os_str().as_bytes();
        if !path.is_absolute() || self.views.cover(path) || is_kernels(name) {
            return None;
        }
        let attributes = self.attributes(moment, fd)?;
        let file = self.found(path, &attributes, libc::O_RDONLY as u32, now)?;
        if let Some(told) = moment.as_told(fd) {
            self.inodes.insert(inode(&told), file);
        }
        Some((file, attributes))
    }

    /// A process is about to end.
    pub(crate) fn exiting(&mut self, tracee: Tracee, moment: &dyn ProcessSnapshot) {
        if let Some(handed) = &mut self.handed {
            handed.look(tracee.pid, moment);
        }
    }

    /// A program is over and used this. What it wrote is put at its end, behind all that it read, and what it read
    /// at its begin. `exec`: the moment at which the next one begins, if it ends by that.
    pub(crate) fn image_over(
        &mut self,
        tracee: Tracee,
        usage: &Usage,
        exec: Option<&dyn ProcessSnapshot>,
        now: u64,
    ) {
        let Some(handed) = &mut self.handed else {
            return;
        };
        for moved in handed.over(tracee, usage, exec, now) {
            self.record_moved(tracee, moved, now);
        }
    }

    /// A file has another name: looks for it again, if it was not found under the one that it had.
    pub(super) fn look_again(&mut self, file: FileId, path: &Path) {
        let Some(handed) = &mut self.handed else {
            return;
        };
        let mut found = Vec::new();
        handed.late.retain_mut(|late| {
            if late.held.file != file {
                return true;
            }
            path.clone_into(&mut late.held.path);
            late.held.now = late.held.seen_by_name();
            found.extend(late.held.moved(&late.usage).map(|moved| {
                let of = (late.tracee, late.held.inode, late.end_ns);
                (of, moved)
            }));
            late.held.now.is_none()
        });
        for ((tracee, inode, end_ns), moved) in found {
            if let Some(handed) = &mut self.handed {
                handed.moved_below(tracee.pid, inode, moved.bytes);
            }
            self.record_moved(tracee, moved, end_ns);
        }
    }

    fn record_moved(&mut self, tracee: Tracee, moved: Moved, now: u64) {
        if moved.op == Op::Write {
            self.files.size(moved.file, moved.size);
        }
        self.ring.push(CallRow {
            start_ns: match moved.op {
                Op::Write => now,
                _ => moved.since_ns,
            },
            duration_ns: 0,
            upid: Some(tracee.upid),
            tid: None,
            op: moved.op,
            file: Some(moved.file),
            offset: Some(moved.offset),
            length: Some(moved.bytes),
            flags: None,
            result: moved.bytes as i64,
            fidelity: Fidelity::Open,
        });
    }

    /// A process is over.
    pub(crate) fn ended(&mut self, tracee: Tracee) {
        if let Some(handed) = &mut self.handed {
            handed.ended(tracee.pid);
        }
    }
}

impl Handed {
    /// A process was forked.
    fn forked(&mut self, parent: u32, child: u32) {
        self.parents.insert(child, parent);
    }

    /// A program begins with a file as descriptor `fd`.
    fn begins(
        &mut self,
        (pid, fd): (u32, i32),
        (flags, position): (u32, u64),
        (file, path, attributes, told): (FileId, &Path, &Attributes, (u64, u64)),
        now: u64,
    ) {
        let (flags, inode) = (flags as i32, (attributes.dev, attributes.ino));
        let held = self.held.entry(pid).or_default();
        // `> out 2>&1` is one open file.
        if held
            .iter()
            .any(|held| (held.inode, held.flags) == (inode, flags))
        {
            return;
        }
        held.push(Held {
            fd,
            file,
            path: path.to_owned(),
            inode,
            told,
            flags,
            since_ns: now,
            then: Extent::of(flags, position, attributes.size),
            now: None,
            by_children: 0,
        });
    }

    /// A program is about to end: its descriptors are still there, unless it closed them.
    fn look(&mut self, pid: u32, moment: &dyn ProcessSnapshot) {
        let parent = self.parents.get(&pid).copied();
        for held in self.held.get_mut(&pid).into_iter().flatten() {
            held.look(moment, parent);
        }
    }

    /// A program is over and used this: what it moved.
    fn over(
        &mut self,
        tracee: Tracee,
        usage: &Usage,
        exec: Option<&dyn ProcessSnapshot>,
        now: u64,
    ) -> Vec<Moved> {
        /// Files that were removed are never found.
        const MOST_LATE: usize = 1 << 10;
        let pid = tracee.pid;
        let mut found = Vec::new();
        let parent = self.parents.get(&pid).copied();
        for mut held in self.held.remove(&pid).unwrap_or_default() {
            held.look(exec.unwrap_or(&LiveSnapshot(pid)), parent);
            if held.now.is_none() {
                if self.late.len() == MOST_LATE {
                    self.late.remove(0);
                }
                self.late.push(Late {
                    held,
                    tracee,
                    usage: *usage,
                    end_ns: now,
                });
            } else if let Some(moved) = held.moved(usage) {
                self.moved_below(pid, held.inode, moved.bytes);
                found.push(moved);
            }
        }
        found
    }

    /// A process is over.
    fn ended(&mut self, pid: u32) {
        self.held.remove(&pid);
        self.parents.remove(&pid);
    }

    /// Tells all above `pid` that have the same file what it moved.
    fn moved_below(&mut self, pid: u32, inode: (u64, u64), bytes: u64) {
        let mut at = pid;
        // Each has an older parent, but ids are used again.
        for _ in 0..self.parents.len() {
            let Some(&parent) = self.parents.get(&at) else {
                return;
            };
            for held in self.held.get_mut(&parent).into_iter().flatten() {
                if held.inode == inode {
                    held.by_children = held.by_children.saturating_add(bytes);
                }
            }
            at = parent;
        }
    }
}

impl Extent {
    /// What is appended goes to the end, wherever the position is.
    fn of(flags: i32, position: u64, size: u64) -> Extent {
        let appends = flags & libc::O_APPEND != 0;
        Extent {
            position: if appends { size } else { position },
            size,
        }
    }
}

impl Held {
    /// Takes note of how the file is now, once: by the descriptor of its process, by one of its
    /// parent, who mostly waits with it open, or by its name.
    fn look(&mut self, moment: &dyn ProcessSnapshot, parent: Option<u32>) {
        if self.now.is_none() {
            let own = self.seen_at(self.told, moment, self.fd);
            let of_parent = || {
                let parent = parent?;
                match moment.of_parent(parent) {
                    Some(parent) => self.seen_in(self.told, parent),
                    None => self.seen_in(self.inode, &LiveSnapshot(parent)),
                }
            };
            self.now = own.or_else(of_parent).or_else(|| self.seen_by_name());
        }
    }

    /// How the file is, if descriptor `fd` is it, which this kind of moments calls `inode`.
    fn seen_at(&self, inode: (u64, u64), moment: &dyn ProcessSnapshot, fd: i32) -> Option<Extent> {
        let (_, size) = moment.extent(fd).filter(|(found, _)| *found == inode)?;
        let (flags, position) = moment.state(fd)?;
        (flags as i32 == self.flags).then(|| Extent::of(self.flags, position, size))
    }

    fn seen_in(&self, inode: (u64, u64), moment: &dyn ProcessSnapshot) -> Option<Extent> {
        let mut numbers = moment.numbers().into_iter();
        numbers.find_map(|fd| self.seen_at(inode, moment, fd))
    }

    /// A name tells of a size alone, and so of what was written at the end.
    fn seen_by_name(&self) -> Option<Extent> {
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

    fn moved(&self, usage: &Usage) -> Option<Moved> {
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
