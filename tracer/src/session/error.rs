//! Why a recording did not begin, or could not go on.

use std::io;
use std::path::PathBuf;

/// Result of a session.
pub type Result<T> = std::result::Result<T, Error>;

/// Each says what failed, on what and why.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such command.
    #[error("{0}: command not found")]
    NotFound(String),
    /// The command is there but cannot be executed.
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
        /// The number of the signal that did it.
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
        /// Why not.
        reason: String,
    },
    /// A view of a directory cannot be mounted or served.
    #[error("cannot mount a traced view at {path}: {reason}")]
    View {
        /// Where it was to be.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A view would show itself.
    #[error(
        "cannot mount a traced view at {mountpoint}: it lies inside {source_path}, and the view would hold itself"
    )]
    ViewInItself {
        /// Where it was to be.
        mountpoint: PathBuf,
        /// Directory that it was to show.
        source_path: PathBuf,
    },
    /// The view would hide the trace.
    #[error("cannot write the trace {trace}: the view at {mountpoint} would lie over it")]
    TraceUnderView {
        /// The trace.
        trace: PathBuf,
        /// Where the view was to be.
        mountpoint: PathBuf,
    },
    /// A directory is part of a view that is being traced already.
    #[error("cannot trace {path}: flowtrace traces it already")]
    TracedTwice {
        /// The directory.
        path: PathBuf,
        /// The view of `flowtrace mount` that it is part of; none: this process belongs to what
        /// a `flowtrace run` traces.
        view: Option<PathBuf>,
    },
    /// `/proc` shows the processes of another pid namespace, under other numbers.
    #[error("cannot follow the processes of the command: /proc belongs to another pid namespace")]
    ForeignProc,
    /// Tracepoints or passthrough, which were asked for, are not to be had.
    #[error("no kernel layer here: {0}")]
    KernelLayer(String),
    /// File calls cannot come over io_uring, which was asked for.
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
