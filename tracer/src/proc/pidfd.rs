//! Process descriptors: each names one process for ever, also when its id is used again.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A descriptor of a process.
#[derive(Debug)]
pub(crate) struct PidFd(OwnedFd);

impl PidFd {
    /// A descriptor of process `pid`. `None`: it is gone, or the kernel is older than 5.3.
    pub(crate) fn open(pid: u32) -> Option<PidFd> {
        // SAFETY: the call touches no memory; what it returns is a descriptor of our own.
        #[expect(unsafe_code)]
        unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
            (fd >= 0).then(|| PidFd(OwnedFd::from_raw_fd(fd as i32)))
        }
    }

    /// A duplicate of the process's descriptor `fd` (`pidfd_getfd(2)`, since Linux 5.6). `None`: it is
    /// closed, or this is not allowed.
    pub(super) fn duplicate(&self, fd: i32) -> Option<OwnedFd> {
        // SAFETY: the call touches no memory; what it returns is a descriptor of our own.
        #[expect(unsafe_code)]
        unsafe {
            let own = libc::syscall(libc::SYS_pidfd_getfd, self.0.as_raw_fd(), fd, 0);
            (own >= 0).then(|| OwnedFd::from_raw_fd(own as i32))
        }
    }

    /// True if all threads of the process have ended.
    pub(super) fn is_over(&self) -> bool {
        let mut poll_fd = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut poll_fd, PollTimeout::ZERO) == Ok(1)
    }

    /// Wait status of a process that was waited for by its parent (`PIDFD_GET_INFO`, since Linux 6.15).
    pub(super) fn wait_status(&self) -> Option<i32> {
        /// `_IOWR(0xff, 11, struct pidfd_info)` of the size that all versions know.
        const GET_INFO: libc::c_ulong = 0xc040_ff0b;
        const EXIT: u64 = 1 << 3;
        /// Members up to `exit_code`, the last one used (include/uapi/linux/pidfd.h).
        #[repr(C)]
        #[derive(Default)]
        struct Info {
            mask: u64,
            cgroup: u64,
            ids: [u32; 11],
            exit_code: i32,
        }
        let mut info = Info {
            mask: EXIT,
            ..Info::default()
        };
        // SAFETY: `info` has the size that stands in the request, and outlives the call.
        #[expect(unsafe_code)]
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), GET_INFO as _, &raw mut info) };
        (result == 0 && info.mask & EXIT != 0).then_some(info.exit_code)
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_end_of_a_process_is_seen_and_its_status_kept() {
        let mut child = Command::new("sh")
            .args(["-c", "read x; exit 7"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pidfd = PidFd::open(child.id()).unwrap();
        assert!(!pidfd.is_over());
        assert_eq!(pidfd.wait_status(), None);
        child.wait().unwrap();
        assert!(pidfd.is_over());
        // Older kernels do not report it.
        assert!(matches!(pidfd.wait_status(), Some(0x700) | None));
    }
}
