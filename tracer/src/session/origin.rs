//! State that this process was started with and does not keep. The Rust runtime opens closed standard streams on
//! `/dev/null` before `main`, and has `SIGPIPE` ignored. An ignored `SIGCHLD`, with which no child can be waited
//! for, is set to its default here, and a small limit of the stack is raised. A command is to find all of these as they were.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// Bit N: descriptor N was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);
static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static SIGCHLD_IGNORED: AtomicBool = AtomicBool::new(false);
/// The limit of the stack, soft and hard, where it was raised.
static STACK: OnceLock<(rlim_t, rlim_t)> = OnceLock::new();

/// The stack that this process is to have, as usual.
const USUAL_STACK: rlim_t = 8 << 20;
/// With less it cannot even read its arguments.
const LEAST_STACK: rlim_t = 256 << 10;

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
    SIGPIPE_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
    if is_ignored(libc::SIGCHLD) {
        SIGCHLD_IGNORED.store(true, Ordering::Relaxed);
        dispose(libc::SIGCHLD, libc::SIG_DFL);
    }
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_STACK)
        && soft < USUAL_STACK
    {
        let _ = STACK.set((soft, hard));
        let raised = setrlimit(Resource::RLIMIT_STACK, USUAL_STACK, hard.max(USUAL_STACK));
        let _ = raised.or_else(|_| setrlimit(Resource::RLIMIT_STACK, hard.min(USUAL_STACK), hard));
    }
}

/// The limit of the stack, bytes, where it is less than this program needs and may not be raised.
pub fn small_stack() -> Option<(u64, u64)> {
    let (soft, _) = getrlimit(Resource::RLIMIT_STACK).ok()?;
    (soft < LEAST_STACK).then_some((soft, LEAST_STACK))
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: only asks, into memory of the right size, for which zeros are valid.
    #[expect(unsafe_code)]
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// `to`: the default action, which may be inherited as ignored, or to ignore it.
pub(super) fn dispose(signal: i32, to: libc::sighandler_t) {
    // SAFETY: no handler is installed.
    #[expect(unsafe_code)]
    unsafe {
        libc::signal(signal, to);
    }
}

/// Makes it so again. For a process that is about to be the command: nothing may use its standard
/// streams after it. Makes nothing but system calls, so that it may be called between fork and exec.
pub(super) fn restore() {
    let closed = CLOSED.load(Ordering::Relaxed);
    for stream in (0..3).filter(|stream| closed & 1 << stream != 0) {
        // SAFETY: the runtime opened this number, and nothing uses it any more.
        #[expect(unsafe_code)]
        unsafe {
            libc::close(stream);
        }
    }
    let disposition = |is_ignored: &AtomicBool| match is_ignored.load(Ordering::Relaxed) {
        true => libc::SIG_IGN,
        false => libc::SIG_DFL,
    };
    dispose(libc::SIGPIPE, disposition(&SIGPIPE_IGNORED));
    dispose(libc::SIGCHLD, disposition(&SIGCHLD_IGNORED));
    if let Some(&(soft, hard)) = STACK.get() {
        let _ = setrlimit(Resource::RLIMIT_STACK, soft, hard);
    }
}
