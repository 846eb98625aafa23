//! Notifications of a seccomp filter (seccomp_unotify(2)): a thread waits at the entry of a picked call until it is told to go
//! on, and nobody needs to trace it.
//!
//! The kernel can wake both sides on the processor of the other (`SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`), at a twentieth of the price. It is not
//! asked to: all that was held would gather on one processor (a C build with two jobs took 1.5 × as long).
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::topology::Call;

mod guard;

pub(crate) use guard::Guard;

/// `SECCOMP_IOCTL_NOTIF_*` of include/uapi/linux/seccomp.h.
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;
const CONTINUE: u32 = 1;

/// `struct seccomp_notif`, whose size these numbers of requests tell.
#[repr(C)]
#[derive(Default)]
struct Notification {
    id: u64,
    pid: u32,
    flags: u32,
    number: i32,
    architecture: u32,
    instruction: u64,
    arguments: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// The end at which one listens.
#[derive(Debug)]
pub(crate) struct Listener(OwnedFd);

/// A thread waits at the entry of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notified {
    pub(crate) id: u64,
    pub(crate) tid: u32,
    pub(crate) call: Call,
}

impl Listener {
    /// By what [`super::topology::install_notifying`] returned.
    pub(crate) fn new(listener: OwnedFd) -> Listener {
        Listener(listener)
    }

    /// A thread that waits. `None`: there is none. What is no call of ours, or of a thread that we do not see,
    /// goes on at once.
    pub(crate) fn receive(&self) -> io::Result<Option<Notified>> {
        loop {
            if !self.is_ready()?.contains(PollFlags::POLLIN) {
                return Ok(None);
            }
            let mut told = Notification::default();
            // SAFETY: the kernel writes one notification, which outlives the call.
            let result = unsafe { libc::ioctl(self.0.as_raw_fd(), RECEIVE, &raw mut told) };
            if result < 0 {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    // It was killed meanwhile, or a signal came.
                    Some(libc::ENOENT | libc::EINTR) => continue,
                    _ => return Err(error),
                }
            }
            let number = told.number.cast_unsigned();
            let call = Call::of(told.architecture, number, told.arguments);
            match call.filter(|_| told.pid != 0) {
                Some(call) => {
                    return Ok(Some(Notified {
                        id: told.id,
                        tid: told.pid,
                        call,
                    }));
                }
                None => self.go_on(told.id),
            }
        }
    }

    /// Lets a thread make its call.
    pub(crate) fn go_on(&self, id: u64) {
        let response = Response {
            id,
            value: 0,
            error: 0,
            flags: CONTINUE,
        };
        // Fails when it was killed meanwhile.
        // SAFETY: the kernel reads one response, which outlives the call.
        unsafe { libc::ioctl(self.0.as_raw_fd(), SEND, &raw const response) };
    }

    /// Whether the last thread has ended that could be held.
    pub(crate) fn is_over(&self) -> bool {
        self.is_ready()
            .is_ok_and(|ready| ready.contains(PollFlags::POLLHUP))
    }

    fn is_ready(&self) -> io::Result<PollFlags> {
        let mut ready = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut ready, PollTimeout::ZERO)?;
        Ok(ready[0].revents().unwrap_or(PollFlags::empty()))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
