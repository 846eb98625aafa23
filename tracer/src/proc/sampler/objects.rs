//! Files behind the descriptors of a blocked call.

use std::ffi::CString;
use std::fs;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use flowtrace_schema::Side;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use super::text;

/// Most descriptors of one wait that are read; a server may wait for thousands.
const MOST: usize = 32;

/// Kind of file that a descriptor stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A pipe, FIFO or socket, with its inode.
    Channel(u64),
    /// A terminal or another character device.
    Terminal,
    /// A file, directory or block device.
    File,
    /// An object of the kernel without a name.
    Event,
}

/// A thread whose descriptors are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
}

impl Holder {
    /// Path of one of its files in /proc.
    pub(crate) fn path(self, name: &str) -> String {
        format!("/proc/{}/task/{}/{name}", self.pid, self.tid)
    }

    /// True if it is the only thread of its process.
    pub(crate) fn is_alone(self) -> bool {
        // A directory with no other ones has two links (proc(5)).
        let threads = fs::metadata(format!("/proc/{}/task", self.pid));
        threads.is_ok_and(|task| task.nlink() == 3)
    }

    /// The kind of file of descriptor `fd`. `None`: it is closed, or cannot be read.
    pub(crate) fn target(self, fd: i32) -> Option<Target> {
        let path = self.path(&format!("fd/{fd}"));
        let link = fs::read_link(&path).ok()?;
        let link = link.as_os_str().as_bytes();
        let numbered = ["pipe", "socket"].map(|kind| text::inode_in(link, kind));
        if let Some(inode) = numbered.into_iter().flatten().next() {
            return Some(Target::Channel(inode));
        }
        if !link.starts_with(b"/") {
            return Some(Target::Event);
        }
        Some(match kind_of(path) {
            Some((libc::S_IFIFO, inode)) => Target::Channel(inode),
            Some((libc::S_IFCHR, _)) => Target::Terminal,
            _ => Target::File,
        })
    }

    /// Members of the array of `count` `pollfd` at an address.
    pub(crate) fn polled(self, address: u64, count: u64) -> Vec<(i32, Side)> {
        let count = usize::try_from(count).unwrap_or(MOST).min(MOST);
        text::poll_targets(&self.memory(address, count * 8))
    }

    /// Members of the sets for reading and writing of `select`, whose highest one is below `end`.
    pub(crate) fn selected(self, end: u64, read: u64, write: u64) -> Vec<(i32, Side)> {
        let end = end.min(libc::FD_SETSIZE as u64) as i32;
        // Sets are made of words of the machine.
        let bytes = (end as usize).div_ceil(64) * 8;
        let mut found = Vec::new();
        for (address, side) in [(read, Side::Read), (write, Side::Write)] {
            if address != 0 {
                let members = text::set_members(&self.memory(address, bytes));
                found.extend(
                    members
                        .into_iter()
                        .filter(|&fd| fd < end)
                        .map(|fd| (fd, side)),
                );
            }
        }
        found.truncate(MOST);
        found
    }

    /// Members of the epoll `fd`.
    pub(crate) fn epolled(self, fd: i32) -> Vec<(i32, Side)> {
        let info = fs::read(self.path(&format!("fdinfo/{fd}"))).unwrap_or_default();
        let mut found = text::epoll_targets(&info);
        found.truncate(MOST);
        found
    }

    /// Up to `length` bytes of its memory; unreadable pages are missing.
    fn memory(self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let remote = RemoteIoVec {
            base: address as usize,
            len: length,
        };
        let pid = Pid::from_raw(self.pid as i32);
        let read = process_vm_readv(pid, &mut [IoSliceMut::new(&mut bytes)], &[remote]);
        bytes.truncate(read.unwrap_or(0));
        bytes
    }
}

/// Type and inode of the file behind the descriptor's link `path`. Only what the kernel knows is taken: the
/// filesystem may be a mount of ours, or one whose server does not answer.
#[expect(unsafe_code)]
fn kind_of(path: String) -> Option<(u32, u64)> {
    let path = CString::new(path).ok()?;
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    let mask = libc::STATX_TYPE | libc::STATX_INO;
    let flags = libc::AT_STATX_DONT_SYNC;
    // SAFETY: path is a string that ends with a NUL, and `found` has space for the result.
    let found = unsafe {
        let result = libc::statx(
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            mask,
            found.as_mut_ptr(),
        );
        (result == 0).then(|| found.assume_init())?
    };
    Some((u32::from(found.stx_mode) & libc::S_IFMT, found.stx_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    fn own() -> Holder {
        Holder {
            pid: std::process::id(),
            tid: nix::unistd::gettid().as_raw() as u32,
        }
    }

    #[test]
    fn descriptors_are_distinguished() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let link = fs::read_link(format!("/proc/self/fd/{}", reader.as_raw_fd())).unwrap();
        let inode = text::inode_in(link.as_os_str().as_bytes(), "pipe").unwrap();
        let target = |fd: i32| own().target(fd);
        assert_eq!(target(reader.as_raw_fd()), Some(Target::Channel(inode)));
        let file = tempfile::tempfile().unwrap();
        assert_eq!(target(file.as_raw_fd()), Some(Target::File));
        let null = File::open("/dev/null").unwrap();
        assert_eq!(target(null.as_raw_fd()), Some(Target::Terminal));
        assert_eq!(target(99_999), None);

        let scratch = tempfile::tempdir().unwrap();
        let fifo = scratch.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let fifo = File::options().read(true).write(true).open(&fifo).unwrap();
        let inode = nix::sys::stat::fstat(&fifo).unwrap().st_ino;
        assert_eq!(target(fifo.as_raw_fd()), Some(Target::Channel(inode)));
    }

    #[test]
    fn sets_are_read_from_memory() {
        let array = [libc::pollfd {
            fd: 5,
            events: libc::POLLOUT,
            revents: 0,
        }];
        let found = own().polled(array.as_ptr() as u64, 1);
        assert_eq!(found, [(5, Side::Write)]);
        let set = [1_u64 << 3];
        let address = set.as_ptr() as u64;
        assert_eq!(own().selected(4, address, 0), [(3, Side::Read)]);
        assert_eq!(own().selected(3, address, 0), []);
        assert_eq!(own().polled(8, 4), [], "an address that is not mapped");
    }
}
