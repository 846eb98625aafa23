//! Opening and releasing files.

use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flowtrace_schema::{FileId, FileKind};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::unistd::{close, dup};

use super::make::permissions;
use super::{Entry, Passthrough};
use crate::fs::again::Again;
use crate::fs::credentials::{Requester, set_mask};
use crate::fs::handle::{OpenFile, Opener};
use crate::fs::node::Node;
use crate::fs::offers::Position;
use crate::fs::split::Split;
use crate::stat;
use crate::stat::Attributes;
use nix::Result;

/// Flag with which the kernel opens a program to execute (`__FMODE_EXEC` of include/linux/fs.h).
const EXECUTE: i32 = 0x20;

/// An opened file and its number.
pub(in crate::fs) type Opened = (u64, Arc<OpenFile>);

/// A file to make.
#[derive(Clone, Copy, Debug)]
pub(in crate::fs) struct NewFile<'a> {
    /// Its name; `None` for one without (`O_TMPFILE`).
    pub(in crate::fs) name: Option<&'a OsStr>,
    /// Permission bits.
    pub(in crate::fs) mode: u32,
    /// The caller's file creation mask.
    pub(in crate::fs) mask: u32,
    /// Flags of open(2).
    pub(in crate::fs) flags: i32,
}

impl Passthrough {
    /// Opens a known file.
    pub(in crate::fs) fn open(
        &self,
        who: Requester,
        opener: Opener,
        node: Arc<Node>,
        flags: i32,
    ) -> Result<Opened> {
        if node.kind != FileKind::File {
            // The kernel opens FIFOs, sockets and devices by itself; this process never does.
            return Err(Errno::ENXIO);
        }
        if let Some(offer) = self
            .offers
            .take(who.tid, (node.key.dev, node.key.ino), flags)
        {
            let position = Some(offer.position);
            return Ok(self.opened(offer.file, node, opener, flags, position));
        }
        let real = real_flags(flags);
        let fd = if flags & EXECUTE != 0 && self.credentials.exceeds(who) {
            self.open_program(who, &node)
        } else {
            let _as_caller = self.credentials.act_as(who)?;
            match self.reopen(&node, real) {
                Err(Errno::EPERM) if real.contains(OFlag::O_NOATIME) => {
                    self.reopen(&node, real - OFlag::O_NOATIME)
                }
                result => result,
            }
        }?;
        if real.contains(OFlag::O_TRUNC) {
            self.strip_privilege(who, &node)?;
            self.record_size(node.file, 0);
        }
        Ok(self.opened(fd, node, opener, flags, None))
    }

    /// Opens a program that is about to be executed. That needs the right to execute it, not to read it.
    fn open_program(&self, who: Requester, node: &Node) -> Result<OwnedFd> {
        {
            let _as_caller = self.credentials.act_as(who)?;
            self.access(node, libc::X_OK)?;
        }
        self.reopen(node, OFlag::O_RDONLY)
    }

    /// Makes a file and opens it; opens an existing one unless `O_EXCL` forbids that. Counts a lookup. The
    /// last value is the file of the call, also on failure.
    pub(in crate::fs) fn create(
        &self,
        who: Requester,
        opener: Opener,
        parent: &Node,
        new: NewFile<'_>,
    ) -> (Result<(Entry, Opened)>, Option<FileId>) {
        let _names = parent.change_names();
        let result = self.create_real(who, parent, new).and_then(|fd| {
            let path_only = self.reopen_fd(fd.as_fd(), OFlag::O_PATH)?;
            let attributes = stat::of(path_only.as_fd())?;
            if !attributes.is_regular() {
                return Err(Errno::ENXIO);
            }
            let node = self.enter(parent, new.name, path_only, &attributes);
            let attributes = self.show_in(parent, &node, attributes);
            let entry = Entry {
                node: Arc::clone(&node),
                attributes,
            };
            Ok((entry, self.opened(fd, node, opener, new.flags, None)))
        });
        let file = match (&result, new.name) {
            (Ok((entry, _)), _) => entry.node.recorded(),
            (Err(_), Some(name)) => self.known_as(parent, name),
            (Err(_), None) => parent.recorded(),
        };
        (result, file)
    }

    fn create_real(&self, who: Requester, parent: &Node, new: NewFile<'_>) -> Result<OwnedFd> {
        let real = real_flags(new.flags) | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = permissions(new.mode, set_mask(new.mask));
        let pin = self.pin(parent)?;
        let directory = pin.as_fd();
        let Some(name) = new.name else {
            let _as_caller = self.credentials.make_as(who)?;
            // With O_EXCL the kernel says that the file may get no name later.
            let exclusive = OFlag::from_bits_truncate(new.flags & libc::O_EXCL);
            let flags = real | OFlag::O_TMPFILE | exclusive;
            return self.or_evict(|| openat(directory, ".", flags, mode));
        };
        if !parent.shows(name) {
            return Err(Errno::EACCES);
        }
        // One descriptor for the open file, one for the node.
        self.spare(2)?;
        let exclusive = new.flags & libc::O_EXCL != 0;
        let made = {
            let _as_caller = self.credentials.make_as(who)?;
            let flags = real | OFlag::O_CREAT | OFlag::O_EXCL;
            self.or_evict(|| openat(directory, name, flags, mode))
        };
        match made {
            // Another process has just made it. The kernel has not checked that the caller may open it, so
            // the caller's own permission decides.
            Err(Errno::EEXIST) if !exclusive => {
                let _as_caller = self.credentials.assume(who)?;
                self.or_evict(|| openat(directory, name, real | OFlag::O_NONBLOCK, mode))
            }
            result => result,
        }
    }

    fn opened(
        &self,
        fd: OwnedFd,
        node: Arc<Node>,
        opener: Opener,
        flags: i32,
        position: Option<Arc<Position>>,
    ) -> Opened {
        let may_store = flags & libc::O_ACCMODE == libc::O_RDWR;
        let fd = Arc::new(fd);
        self.is_opened(&node, &fd);
        node.writable_maps
            .fetch_add(u32::from(may_store), Ordering::AcqRel);
        // The page cache does not know a shared position.
        let may_write = flags & libc::O_ACCMODE != libc::O_RDONLY && position.is_none();
        node.writers
            .fetch_add(u32::from(may_write), Ordering::AcqRel);
        let open = Arc::new(OpenFile {
            fd,
            node,
            position,
            opener,
            is_program: flags & EXECUTE != 0,
            appends: AtomicBool::new(flags & libc::O_APPEND != 0),
            is_direct: flags & libc::O_DIRECT != 0,
            may_store,
            may_write,
            wrote: AtomicBool::new(false),
            split: Split::default(),
            again: Again::default(),
        });
        (self.files.insert(Arc::clone(&open)), open)
    }

    /// True if a file that was just opened is as it was when it was last opened, or released after a change
    /// through this mount.
    ///
    /// While others of this mount may write to it, it counts as unchanged: their changes are in the page
    /// cache before they are in the file. If a page were dropped and read anew between the two, the next
    /// reader would get the old page, even after the writer has released the lock of the file
    /// (`fuse_fill_write_pages` of fs/fuse/file.c unlocks the page before the write is sent).
    pub(in crate::fs) fn is_unchanged(&self, number: u64, node: &Node) -> bool {
        let own = |open: Arc<OpenFile>| u32::from(open.may_write);
        if node.writers.load(Ordering::Acquire) > self.file(number).map_or(0, own) {
            return true;
        }
        let attributes = self.file(number).and_then(|open| stat::of(open.fd.as_fd()));
        let contents = attributes.map_or(0, |attributes| contents(&attributes));
        contents != 0 && node.contents.swap(contents, Ordering::Relaxed) == contents
    }

    /// A descriptor was closed: some filesystems report failed writes at this instant.
    pub(in crate::fs) fn flush(&self, open: &OpenFile) -> Result<()> {
        if !open.wrote.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.or_evict(|| dup(open.fd.as_fd())) {
            Ok(fd) => close(fd),
            // This failure is not the program's, and the release of the file still reports failed writes to
            // it.
            Err(Errno::EMFILE | Errno::ENFILE) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// The last descriptor and mapping of an open file are gone.
    pub(in crate::fs) fn release(&self, number: u64) -> Result<Arc<OpenFile>> {
        let open = self.files.remove(number)?;
        self.is_closing(&open.node, &open.fd);
        open.node
            .writable_maps
            .fetch_sub(u32::from(open.may_store), Ordering::AcqRel);
        if open.wrote.load(Ordering::Relaxed)
            && open.node.file.is_some()
            && let Ok(attributes) = stat::of(open.fd.as_fd())
        {
            let contents = contents(&attributes);
            open.node.contents.store(contents, Ordering::Relaxed);
            self.record_size(open.node.file, attributes.size);
        }
        // Only after its own writes are known to be valid.
        open.node
            .writers
            .fetch_sub(u32::from(open.may_write), Ordering::AcqRel);
        Ok(open)
    }

    /// Clears set-user-id and set-group-id of a file whose data changed, where the kernel would have done so
    /// for the caller but does not for this process.
    pub(super) fn strip_privilege(&self, who: Requester, node: &Node) -> Result<()> {
        if !self.credentials.exceeds(who) {
            return Ok(());
        }
        let mode = stat::of(self.pin(node)?.as_fd())?.mode;
        let mut kept = mode & !libc::S_ISUID;
        if mode & libc::S_IXGRP != 0 {
            kept &= !libc::S_ISGID;
        }
        if kept == mode {
            return Ok(());
        }
        self.chmod(node, kept)
    }
}

/// A number that changes with the data of a file, and is never 0.
fn contents(a: &Attributes) -> u64 {
    let mut hasher = DefaultHasher::new();
    (a.size, a.modified, a.changed).hash(&mut hasher);
    hasher.finish() | 1
}

/// Flags for the real open: those of the application, without those that the kernel has applied already and
/// those that do not fit the I/O of this process.
fn real_flags(flags: i32) -> OFlag {
    let flags = OFlag::from_bits_truncate(flags);
    // O_NONBLOCK and O_ASYNC mean nothing for regular files but would leave a lease unbroken.
    flags
        - (OFlag::O_CREAT
            | OFlag::O_EXCL
            | OFlag::O_NOCTTY
            | OFlag::O_NOFOLLOW
            | OFlag::O_TMPFILE.difference(OFlag::O_DIRECTORY)
            | OFlag::O_NONBLOCK
            | OFlag::O_ASYNC)
}
