//! The end of this process, which is that of the command.

use std::io::Write;

use nix::libc;
use nix::sys::resource::{Resource, setrlimit};

use super::origin::dispose;

/// Ends this process by the signal that ended the command: the parent then learns the same as without
/// flowtrace. A script of bash goes on after a program that has returned 130, and ends with one that Ctrl-C
/// ended; other parents check for the signal itself. Leaves no core, because the command has left one. If the
/// signal does not end this process, such as the first process of a container, it exits as shells do, with
/// 128 plus the signal.
pub fn end_by(signal: i32) -> ! {
    let _ = std::io::stdout().flush();
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    dispose(signal, libc::SIG_DFL);
    // SAFETY: the set is made before it is used, and the rest takes numbers.
    #[expect(unsafe_code)]
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        // To the process, because other threads may still exist.
        libc::kill(libc::getpid(), signal);
    }
    std::process::exit(128 + signal)
}
