//! What /proc tells about the descriptors of a process: which of them are pipes, FIFOs and
//! sockets, and what they allow.
//!
//! Looking costs about 10 µs and 1 µs for each descriptor. No filesystem is asked, so that a
//! look never becomes a request to one of our own views.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::LazyLock;

use flowtrace_schema::Direction;
use nix::fcntl::AT_FDCWD;

use super::reading::ProcessStat;
use crate::fs::{Attributes, stat};

mod closing;
mod numbers;

pub(crate) use closing::{keep_only, spawn_apart};
#[cfg(any(test, fuzzing))]
pub(crate) use numbers::entries_in;

/// Device of all pipes without a name. `None`: this process cannot make one to see.
static PIPES: LazyLock<Option<u64>> = LazyLock::new(|| {
    let (pipe, _other) = std::io::pipe().ok()?;
    Some(attributes(std::process::id(), pipe.as_raw_fd())?.dev)
});

/// A pipe or socket in the kernel. Inode numbers of pipes and sockets are counted up over both
/// (`get_next_ino`), so they are not given twice before 2³² of them; a FIFO has that of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Object {
    /// A pipe without a name.
    Pipe {
        /// Its inode on pipefs.
        inode: u64,
    },
    /// A pipe with a name.
    Fifo {
        /// Device of the name.
        device: u64,
        /// Inode of the name.
        inode: u64,
    },
    /// A socket of any family.
    Socket {
        /// Its inode on sockfs.
        inode: u64,
    },
}

/// A descriptor of a pipe or socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) fd: i32,
    pub(crate) object: Object,
    pub(crate) direction: Direction,
    /// Bytes that a pipe may hold, where that was told with it.
    pub(crate) capacity: Option<u64>,
}

impl Descriptor {
    /// What the kernel writes for it in place of a path, if it has none.
    pub(super) fn text(&self) -> Option<OsString> {
        match self.object {
            Object::Pipe { inode } => Some(format!("pipe:[{inode}]").into()),
            Object::Socket { inode } => Some(format!("socket:[{inode}]").into()),
            Object::Fifo { .. } => None,
        }
    }
}

/// The pipes and sockets among the descriptors of process `pid`, in the order of their numbers.
/// `None`: they cannot be looked at.
pub(crate) fn of(pid: u32) -> Option<Vec<Descriptor>> {
    let (directory, numbers) = numbers::numbers(pid)?;
    // Who has ended seems to have none.
    if numbers.is_empty() && ProcessStat::of(pid).is_none_or(|stat| stat.is_zombie) {
        return None;
    }
    let of_number = |fd: i32| {
        let name = CString::new(fd.to_string()).ok()?;
        described(directory.as_fd(), &name, fd)
    };
    let mut found: Vec<Descriptor> = numbers.into_iter().filter_map(of_number).collect();
    found.sort_unstable_by_key(|descriptor| descriptor.fd);
    Some(found)
}

/// The numbers of all its descriptors.
pub(crate) fn numbers_of(pid: u32) -> Vec<i32> {
    numbers::numbers(pid)
        .map(|(_, numbers)| numbers)
        .unwrap_or_default()
}

/// Descriptor `fd` of process `pid`, if it is a pipe or socket.
pub(crate) fn one(pid: u32, fd: i32) -> Option<Descriptor> {
    described(AT_FDCWD, &CString::new(link(pid, fd)).ok()?, fd)
}

/// The descriptor behind a name in a directory of descriptors, if it is a pipe or socket.
fn described(directory: BorrowedFd<'_>, name: &CStr, fd: i32) -> Option<Descriptor> {
    let attributes = stat::known(directory, name).ok()?;
    let inode = (attributes.dev, attributes.ino);
    channel(fd, attributes.mode, inode, || {
        // The link's mode is what the descriptor allows (proc_pid_fd(5)).
        let mode = stat::at(directory, name).ok()?.mode;
        Some((mode & 0o400 != 0, mode & 0o200 != 0))
    })
}

/// Descriptor `fd` of an inode of this mode, device and number, if that is a pipe or socket. `allows`: whether a pipe's may be
/// read from, and written to.
pub(super) fn channel(
    fd: i32,
    mode: u32,
    (device, inode): (u64, u64),
    allows: impl FnOnce() -> Option<(bool, bool)>,
) -> Option<Descriptor> {
    let object = match mode & libc::S_IFMT {
        libc::S_IFSOCK => Object::Socket { inode },
        libc::S_IFIFO if Some(device) == *PIPES => Object::Pipe { inode },
        libc::S_IFIFO => Object::Fifo { device, inode },
        _ => return None,
    };
    let direction = match object {
        Object::Socket { .. } => Direction::Both,
        _ => match allows()? {
            (true, false) => Direction::Read,
            (false, true) => Direction::Write,
            _ => Direction::Both,
        },
    };
    Some(Descriptor {
        fd,
        object,
        direction,
        capacity: None,
    })
}

/// Attributes of what is open as descriptor `fd`, as far as the kernel knows them by itself.
pub(crate) fn attributes(pid: u32, fd: i32) -> Option<Attributes> {
    stat::known(AT_FDCWD, &CString::new(link(pid, fd)).ok()?).ok()
}

/// What is open as descriptor `fd`: a path, or text like `pipe:[7]`.
pub(crate) fn target(pid: u32, fd: i32) -> Option<PathBuf> {
    led_to(&link(pid, fd))
}

/// Where a link in /proc leads to. The kernel calls deleted what its cache of names has lost: FUSE and others
/// lose a name when a lookup crosses its creation. A file of a filesystem without a device that has names is taken to have
/// that one.
pub(crate) fn led_to(link: &str) -> Option<PathBuf> {
    let target = fs::read_link(link).ok()?;
    let Some(name) = target.as_os_str().as_bytes().strip_suffix(DELETED) else {
        return Some(target);
    };
    let known = stat::known(AT_FDCWD, &CString::new(link).ok()?);
    let is_named = known.is_ok_and(|known| libc::major(known.dev) == 0 && known.links > 0);
    Some(match is_named {
        true => PathBuf::from(OsStr::from_bytes(name)),
        false => target,
    })
}

/// What the kernel adds to the path of a file that has no name any more.
pub(crate) const DELETED: &[u8] = b" (deleted)";

/// The link in /proc to what is open as descriptor `fd` of a process, or of a thread, which may have a table of its own (`/proc/TID` of proc(5)).
pub(crate) fn link(pid: u32, fd: i32) -> String {
    format!("/proc/{pid}/fd/{fd}")
}

/// Whether a link is the path of a file that has this name still; text that the kernel made up
/// and names of removed files are not.
pub(crate) fn is_path(target: &OsStr) -> bool {
    let target = target.as_bytes();
    target.starts_with(b"/") && !target.ends_with(DELETED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn paths_are_told_from_other_links() {
        assert!(is_path(OsStr::new("/tmp/x")));
        assert!(!is_path(OsStr::new("/tmp/x (deleted)")));
        assert!(!is_path(OsStr::new("anon_inode:[eventfd]")));
    }

    #[test]
    fn own_pipes_sockets_and_fifos() {
        let own = std::process::id();
        let (reader, writer) = std::io::pipe().unwrap();
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let fifo = fs::File::options()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();

        let all = of(own).unwrap();
        let find = |fd: i32| *all.iter().find(|d| d.fd == fd).unwrap();
        let (read, write) = (find(reader.as_raw_fd()), find(writer.as_raw_fd()));
        let link = target(own, read.fd).unwrap();
        let Object::Pipe { inode } = read.object else {
            panic!("{read:?}");
        };
        assert_eq!(link.as_os_str(), &*format!("pipe:[{inode}]"));
        assert_eq!(read.object, write.object);
        assert_eq!(read.direction, Direction::Read);
        assert_eq!(write.direction, Direction::Write);
        let fifo = find(fifo.as_raw_fd());
        assert!(matches!(fifo.object, Object::Fifo { .. }));
        assert_eq!(fifo.direction, Direction::Both);
        let socket = find(one.as_raw_fd());
        assert!(matches!(socket.object, Object::Socket { .. }));
        assert_eq!(of(u32::MAX), None);
    }
}
