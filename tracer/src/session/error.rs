//! Errors that prevent or end a recording.

use std::io;
use std::path::PathBuf;

/// Result of a session.
pub type Result<T> = std::result::Result<T, Error>;

/// Reasons why a session failed; each message says what failed, on what and why.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such command.
    #[error("{0}: command not found")]
    NotFound(String),
    /// The command exists but cannot be executed.
    #[error("{program}: cannot execute: {source}")]
    NotExecutable {
        /// Program that was to run.
        program: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The command was ended before it ran.
    #[error("signal {signal} came before the command ran; nothing is recorded")]
    NeverRan {
        /// The signal that ended it.
        signal: i32,
    },
    /// The trace cannot be written.
    #[error(transparent)]
    Store(#[from] flowtrace_schema::Error),
    /// A directory cannot be traced.
    #[error("cannot trace {path}: {reason}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
    /// A directory cannot be mounted, or its mount cannot be served.
    #[error("cannot make a traced mount at {path}: {reason}")]
    View {
        /// Mount point.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
    /// A mount would contain itself.
    #[error(
        "cannot make a traced mount at {mountpoint}: it is inside {source_path}, so the mount would contain itself"
    )]
    ViewInItself {
        /// Mount point.
        mountpoint: PathBuf,
        /// Directory below the mount.
        source_path: PathBuf,
    },
    /// The mount would hide the trace.
    #[error("cannot write the trace {trace}: the mount at {mountpoint} would hide it")]
    TraceUnderView {
        /// The trace.
        trace: PathBuf,
        /// Mount point.
        mountpoint: PathBuf,
    },
    /// A directory is part of a mount that is being traced already.
    #[error("cannot trace {path}: flowtrace traces it already")]
    TracedTwice {
        /// The directory.
        path: PathBuf,
        /// The mount of `flowtrace mount` that it is part of; `None` if this process belongs to the processes
        /// that a `flowtrace run` traces.
        view: Option<PathBuf>,
    },
    /// `/proc` shows the processes of another pid namespace, under other numbers.
    #[error("cannot follow the processes of the command: /proc belongs to another pid namespace")]
    ForeignProc,
    /// The kernel layer, which was requested, is not available.
    #[error("no kernel layer here: {0}")]
    KernelLayer(String),
    /// Call stacks, which were requested, cannot be sampled.
    #[error("cannot sample call stacks here: {0}")]
    Stacks(io::Error),
    /// File calls cannot come over io_uring, which was requested.
    #[error("no file calls over io_uring here: {0}")]
    Transport(String),
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// Action that failed, as a verb.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

impl Error {
    pub(super) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::System { what, source }
    }

    pub(super) fn errno(what: &'static str) -> impl FnOnce(nix::errno::Errno) -> Error {
        move |errno| Error::System {
            what,
            source: errno.into(),
        }
    }
}
