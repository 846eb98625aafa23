//! State in which this process was started and which it changes. The Rust runtime opens closed standard
//! streams on `/dev/null` before `main`, and ignores `SIGPIPE`. An ignored `SIGCHLD`, with which a process
//! cannot wait for a child, is set to its default here, and a small limit of the stack is raised. The command
//! gets all of these in their original state.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// Bit N: descriptor N was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);
static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static SIGCHLD_IGNORED: AtomicBool = AtomicBool::new(false);
/// The limit of the stack, soft and hard, if it was raised.
static STACK: OnceLock<(rlim_t, rlim_t)> = OnceLock::new();

/// Usual size of the stack, which this process gets.
const USUAL_STACK: rlim_t = 8 << 20;
/// With a smaller stack this process cannot even read its arguments.
const LEAST_STACK: rlim_t = 256 << 10;

// SAFETY: the section contains functions without arguments that the C library calls before `main`; this one
// calls only functions that need no runtime.
#[expect(unsafe_code)]
#[used]
#[unsafe(link_section = ".init_array")]
static RECORD: extern "C" fn() = record;

extern "C" fn record() {
    for stream in 0..3 {
        // SAFETY: only reads the flags of a number.
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

/// The limit of the stack, bytes, if it is less than this program needs and may not be raised.
pub fn small_stack() -> Option<(u64, u64)> {
    let (soft, _) = getrlimit(Resource::RLIMIT_STACK).ok()?;
    (soft < LEAST_STACK).then_some((soft, LEAST_STACK))
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: only reads, into memory of the right size, for which zeros are valid.
    #[expect(unsafe_code)]
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Sets the action of a signal: the default one, which may replace an inherited ignore, or ignoring it.
pub(super) fn dispose(signal: i32, to: libc::sighandler_t) {
    // SAFETY: no handler is installed.
    #[expect(unsafe_code)]
    unsafe {
        libc::signal(signal, to);
    }
}

/// Restores the original state. For a process that is about to be the command: nothing may use its standard
/// streams after it. Makes only system calls, so that it may be called between fork and exec.
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
