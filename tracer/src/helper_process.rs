//! Processes of our own beside us, for what we cannot do ourselves: when we are killed, or because we are known.
#![expect(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;

use crate::descriptor_table::keep_only;

/// Such a process. Dropped, it is waited for.
#[derive(Debug)]
pub(crate) struct HelperProcess(libc::pid_t);

/// To which process group it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// To ours: what is sent to all of that reaches it.
    Ours,
    /// To its own, in a session of its own: nothing that ends the one that started us reaches it.
    Own,
}

impl HelperProcess {
    /// Begins one that does `act` and ends, with these descriptors and no others (their numbers are in order). No signal reaches
    /// it but SIGKILL and SIGSTOP, all others stay pending, and its end raises none: it is none of the children that are waited for (wait(2), `__WCLONE`).
    ///
    /// # Errors
    /// When there is no room for another process.
    ///
    /// # Safety
    /// Other threads of ours do not go on in it, whatever they hold: `act` makes nothing but system calls, on memory that
    /// was made before, and uses no descriptor but these.
    pub(crate) unsafe fn begin(
        name: &CStr,
        group: Group,
        kept: &[RawFd],
        act: impl FnOnce(),
    ) -> io::Result<HelperProcess> {
        const NO_SIGNAL: libc::c_ulong = 0;
        // SAFETY: what the child does is what the caller vouches for, and plain system calls.
        unsafe {
            match libc::syscall(libc::SYS_clone, NO_SIGNAL, 0, 0, 0, 0) {
                0 => {
                    libc::prctl(libc::PR_SET_NAME, name.as_ptr());
                    if group == Group::Own {
                        libc::setsid();
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

    /// Does not wait for its end, which may come after ours.
    pub(crate) fn leave(self) {
        std::mem::forget(self);
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        // SAFETY: a child of ours, which ends now.
        unsafe { libc::waitpid(self.0, std::ptr::null_mut(), libc::__WCLONE) };
    }
}

/// Waits in such a process until the other end of `socket` or pipe is closed. Whether that was without a word: a byte says that all
/// is well.
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
