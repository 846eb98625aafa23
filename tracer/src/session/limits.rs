//! Resource limits that the user set for the command must not end the tracer.
//!
//! A daemon that reaches them would take the workflow's files away. The command was forked before and keeps
//! its limits.

use std::io;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, Signal, signal};

/// Address space below which a mount cannot be served: buffers for the largest requests, one a thread, are
/// reserved but hardly ever used.
const ADDRESS_SPACE: u64 = 512 << 20;

/// A limit of open files below this one is reported. A program may have 1024 by default, and all programs in
/// the mounts count together.
const DESCRIPTORS: u64 = 4096;

/// Limit of open files below which the tracer itself cannot go on when the command runs.
const LEAST_DESCRIPTORS: u64 = 128;

/// The limit of open files of this process, if it is small. Call it after the limits were lifted.
pub(super) fn few_descriptors() -> Option<u64> {
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    (limit < DESCRIPTORS).then_some(limit)
}

/// Raises the limits as far as possible; as root, removes all of them.
///
/// # Errors
/// If the limits are too small to begin with.
pub(super) fn lift() -> io::Result<()> {
    for resource in [
        Resource::RLIMIT_AS,
        Resource::RLIMIT_DATA,
        Resource::RLIMIT_CPU,
        Resource::RLIMIT_FSIZE,
    ] {
        if setrlimit(resource, RLIM_INFINITY, RLIM_INFINITY).is_err()
            && let Ok((_, hard)) = getrlimit(resource)
        {
            let _ = setrlimit(resource, hard, hard);
        }
    }
    // If the size of files stays limited, a trace that reaches the limit is like a full disk.
    // SAFETY: no handler is installed; a failing write is reported by the write itself.
    #[expect(unsafe_code)]
    let _ = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) };
    crate::fs::raise_descriptor_limit();
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((limit, _)) if limit < LEAST_DESCRIPTORS => {
            return Err(io::Error::other(format!(
                "the limit of open files (ulimit -n) is {limit}, and the tracer needs {LEAST_DESCRIPTORS}"
            )));
        }
        _ => {}
    }
    match getrlimit(Resource::RLIMIT_AS) {
        Ok((limit, _)) if limit < ADDRESS_SPACE => Err(io::Error::other(format!(
            "the limit of address space (ulimit -v) is {} kB, and the tracer needs {} kB",
            limit / 1024,
            ADDRESS_SPACE / 1024
        ))),
        _ => Ok(()),
    }
}
