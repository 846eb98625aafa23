//! Descriptors of a process in /proc that are pipes, FIFOs and sockets, with their access modes.
//!
//! A read costs about 10 µs and 1 µs for each descriptor. No filesystem is asked, so that a read never
//! becomes a request to one of flowtrace's own mounts.

use std::ffi::{CStr, CString, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::LazyLock;

use flowtrace_schema::Direction;
use nix::fcntl::AT_FDCWD;

use super::links::link;
use super::reading::{self, ProcessStat};
use crate::stat::{self, Attributes};

mod numbers;

#[cfg(any(test, fuzzing))]
pub(crate) use numbers::entries_in;

/// Device of all pipes without a name. `None`: this process cannot make a pipe.
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
    /// Size of the pipe's buffer, bytes, if it was reported.
    pub(crate) capacity: Option<u64>,
}

impl Descriptor {
    /// The text that the kernel shows in place of a path, if it has none.
    pub(super) fn text(&self) -> Option<OsString> {
        match self.object {
            Object::Pipe { inode } => Some(format!("pipe:[{inode}]").into()),
            Object::Socket { inode } => Some(format!("socket:[{inode}]").into()),
            Object::Fifo { .. } => None,
        }
    }
}

/// The pipes and sockets among the descriptors of process `pid`, in the order of their numbers. `None`: they
/// cannot be read.
pub(crate) fn of(pid: u32) -> Option<Vec<Descriptor>> {
    let (directory, numbers) = numbers::numbers(pid)?;
    // A process that has ended seems to have no descriptors.
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

/// The numbers of all descriptors of process `pid`.
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

/// Descriptor `fd` of an inode of this mode, device and number, if that is a pipe or socket. `allows` returns
/// if a pipe may be read from, and written to.
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

/// Attributes of the file open as descriptor `fd`, as far as the kernel knows them without asking a server.
pub(crate) fn attributes(pid: u32, fd: i32) -> Option<Attributes> {
    stat::known(AT_FDCWD, &CString::new(link(pid, fd)).ok()?).ok()
}

/// Open flags and position of a descriptor (proc_pid_fdinfo(5)). Of the flags only those that matter to a
/// process that inherits it: access mode and `O_APPEND`.
pub(super) fn state(pid: u32, fd: i32) -> Option<(u32, u64)> {
    let kept = (libc::O_ACCMODE | libc::O_APPEND) as u32;
    info(pid, fd).map(|(flags, position)| (flags & kept, position))
}

fn info(pid: u32, fd: i32) -> Option<(u32, u64)> {
    let info = reading::contents(&format!("/proc/{pid}/fdinfo/{fd}")).ok()?;
    parse(str::from_utf8(&info).ok()?)
}

fn parse(info: &str) -> Option<(u32, u64)> {
    let field = |name: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(name))?;
        Some(value.trim())
    };
    let flags = u32::from_str_radix(field("flags:")?, 8).ok()?;
    Some((flags, field("pos:")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsRawFd;

    use super::super::links::target;
    use super::*;

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

    #[test]
    fn fdinfo_is_read() {
        let info = "pos:\t42\nflags:\t02102001\nmnt_id:\t25\n";
        assert_eq!(parse(info), Some((0o2_102_001, 42)));
        assert_eq!(parse(""), None);
    }
}
