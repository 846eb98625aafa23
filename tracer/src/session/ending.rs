//! Ending as the command did.

use std::io::Write;

use nix::libc;
use nix::sys::resource::{Resource, setrlimit};

use super::origin::dispose;

/// Ends this process by a signal, as one that ended the command: whoever waits learns the same as without
/// us. A script of bash goes on after a program that has returned 130, and ends with one that Ctrl-C ended; others look
/// for the signal itself. Leaves no core: that of the command is there. Where the signal does not end it, as in
/// the first process of a container, it exits as shells say it, by 128 and the signal.
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
        // To the process: other threads may be there still.
        libc::kill(libc::getpid(), signal);
    }
    std::process::exit(128 + signal)
}
