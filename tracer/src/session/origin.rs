//! State that this process was started with and that the Rust runtime changes before `main`: it opens closed
//! standard streams on `/dev/null`, and has `SIGPIPE` ignored. A command is to find both as they were.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Bit N: descriptor N was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);
static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);

// SAFETY: the section holds functions without arguments that the C library calls before `main`;
// this one calls only what needs no runtime.
#[expect(unsafe_code)]
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    for stream in 0..3 {
        // SAFETY: only asks about a number.
        #[expect(unsafe_code)]
        let flags = unsafe { libc::fcntl(stream, libc::F_GETFD) };
        if flags < 0 {
            CLOSED.fetch_or(1 << stream, Ordering::Relaxed);
        }
    }
    // SAFETY: only asks, into memory of the right size, for which zeros are valid.
    #[expect(unsafe_code)]
    let ignored = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    };
    SIGPIPE_IGNORED.store(ignored, Ordering::Relaxed);
}

/// Makes it so again. For a process that is about to be the command: nothing may use its standard
/// streams after it.
pub(super) fn restore() {
    let closed = CLOSED.load(Ordering::Relaxed);
    for stream in (0..3).filter(|stream| closed & 1 << stream != 0) {
        // SAFETY: the runtime opened this number, and nothing uses it any more.
        #[expect(unsafe_code)]
        unsafe {
            libc::close(stream);
        }
    }
    if !SIGPIPE_IGNORED.load(Ordering::Relaxed) {
        // SAFETY: no handler is installed, only the default action put back.
        #[expect(unsafe_code)]
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        }
    }
}
