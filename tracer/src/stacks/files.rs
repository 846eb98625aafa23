//! The files that processes execute: found again by the path that a process saw, and checked to be the same.
//!
//! The process may be over, and its mount namespace with it. So a path is tried in flowtrace's own namespace
//! first, where a traced directory is the real one, and then below the root of the process and of the command.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::statfs::{FUSE_SUPER_MAGIC, fstatfs};

use super::elf;
use super::records::{Identity, Mapped};
use crate::proc::near::{self, Found};

/// Opens the file of a mapping that process `pid` made; `None`: nothing has the name any more, another file
/// has it, or a look might wait for the workflow. `command` is the first process of the run.
pub(super) fn open(mapped: &Mapped, pid: u32, command: u32) -> Option<File> {
    let path = Path::new(OsStr::from_bytes(&mapped.path));
    if !path.is_absolute() {
        return None;
    }
    let is_it = |file: &File| is_same(file, &mapped.identity);
    if let Some(file) = in_our_namespace(path).filter(is_it) {
        return Some(file);
    }
    let below = |pid| below_root_of(pid, path).filter(is_it);
    below(pid)
        .or_else(|| below(command))
        .or_else(|| by_mapping(mapped, pid).filter(is_it))
}

/// Opens a file of flowtrace's own namespace without waiting for the workflow.
pub(super) fn in_our_namespace(path: &Path) -> Option<File> {
    match near::behind(path) {
        Found::Is(there) => plain(&there.usable()?),
        Found::Nothing | Found::Unknown => None,
    }
}

/// Opens a file by the path that process `pid` has for it.
pub(super) fn below_root_of(pid: u32, path: &Path) -> Option<File> {
    let directory = OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_DIRECTORY;
    let root = nix::fcntl::open(
        &*format!("/proc/{pid}/root"),
        directory,
        nix::sys::stat::Mode::empty(),
    );
    // What was mapped a short time ago is in the cache of names, so that no server is asked.
    let cached = ResolveFlag::from_bits_retain(libc::RESOLVE_CACHED);
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(cached | ResolveFlag::RESOLVE_IN_ROOT);
    let file = openat2(&root.ok()?, path, how).ok()?;
    readable(&file)
}

/// Opens a file that has no name any more, while a process has it mapped (proc(5), map_files).
fn by_mapping(mapped: &Mapped, pid: u32) -> Option<File> {
    let end = mapped.start.checked_add(mapped.length)?;
    let link = format!("/proc/{pid}/map_files/{:x}-{end:x}", mapped.start);
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC);
    let file: OwnedFd = openat2(AT_FDCWD, &*link, how).ok()?;
    readable(&file)
}

/// Opens a file that was found (`O_PATH`), but none whose reads could wait for the workflow, or for this process itself.
fn readable(found: &OwnedFd) -> Option<File> {
    if fstatfs(found).ok()?.filesystem_type() == FUSE_SUPER_MAGIC {
        return None;
    }
    plain(Path::new(&format!("/proc/self/fd/{}", found.as_raw_fd())))
}

/// Opens a regular file, which never waits.
fn plain(path: &Path) -> Option<File> {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

/// True if a file is the one that was mapped. The device is not compared: through the mounts of flowtrace, and
/// on filesystems of layers or subvolumes, processes see another one.
fn is_same(file: &File, identity: &Identity) -> bool {
    match identity {
        Identity::Build(id) => elf::build_id(file).is_some_and(|own| own == *id),
        Identity::Inode(_, _, inode) => file.metadata().is_ok_and(|known| known.ino() == *inode),
    }
}
