//! Helper processes: they do work that this process cannot do itself because it has been killed, or because
//! others know its pid.
#![expect(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;

use crate::descriptor_table::keep_only;

/// A helper process. Dropping the value waits for its end.
#[derive(Debug)]
pub(crate) struct HelperProcess(libc::pid_t);

/// Process group of a helper process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// Our own group: signals to the group reach the helper process.
    Ours,
    /// A group of its own: signals to ours do not reach the helper process. It stays in our session, since its
    /// priority has no effect on threads of other sessions (sched(7), "The autogroup feature").
    Own,
}

impl HelperProcess {
    /// Starts a helper process that calls `act` and ends. It has only the descriptors `kept`, whose numbers
    /// are sorted. No signal reaches it but SIGKILL and SIGSTOP; all others stay pending. Its end raises no
    /// signal, and plain waits for children do not return it (wait(2), `__WCLONE`).
    ///
    /// # Errors
    /// If the system allows no further process.
    ///
    /// # Safety
    /// Our other threads do not continue in the new process, whatever locks they have: unless there are none,
    /// `act` makes only system calls, on memory that was allocated before. It uses no descriptor but these, and
    /// does not unwind.
    pub(crate) unsafe fn begin(
        name: &CStr,
        group: Group,
        kept: &[RawFd],
        act: impl FnOnce(),
    ) -> io::Result<HelperProcess> {
        const NO_SIGNAL: libc::c_ulong = 0;
        // SAFETY: the child makes plain system calls, and `act`, for which the caller vouches.
        unsafe {
            match libc::syscall(libc::SYS_clone, NO_SIGNAL, 0, 0, 0, 0) {
                0 => {
                    libc::prctl(libc::PR_SET_NAME, name.as_ptr());
                    if group == Group::Own {
                        libc::setpgid(0, 0);
                    }
                    libc::chdir(c"/".as_ptr());
                    let mut all: libc::sigset_t = std::mem::zeroed();
                    libc::sigfillset(&raw mut all);
                    libc::sigprocmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
                    let _ = keep_only(kept);
                    act();
                    libc::_exit(0)
                }
                pid @ 1.. => Ok(HelperProcess(pid as libc::pid_t)),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }
}

impl HelperProcess {
    /// Waits for its end. Returns the signal that killed it, if one did.
    pub(crate) fn end(self) -> Option<i32> {
        let signal = self.wait();
        std::mem::forget(self);
        signal
    }

    fn wait(&self) -> Option<i32> {
        let mut status = 0;
        loop {
            // SAFETY: a child of ours, which ends by itself; `status` outlives the call.
            let ended = unsafe { libc::waitpid(self.0, &raw mut status, libc::__WCLONE) };
            if ended == self.0 {
                return libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
            }
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return None;
            }
        }
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        self.wait();
    }
}

/// Waits, in a helper process, until the other end of `socket` or pipe is closed. Returns true if it was
/// closed without a byte: a byte means a regular end.
pub(crate) fn is_silent_end(socket: RawFd) -> bool {
    let mut byte = 0u8;
    loop {
        // SAFETY: one byte is written, which outlives the call.
        unsafe {
            match libc::read(socket, (&raw mut byte).cast(), 1) {
                0 => return true,
                -1 if *libc::__errno_location() == libc::EINTR => {}
                _ => return false,
            }
        }
    }
}
