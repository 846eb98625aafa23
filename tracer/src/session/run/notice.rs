//! Notices to the user while a run goes on.

use std::path::PathBuf;

use flowtrace_schema::ProcessLayer;

use crate::net::live::Refused;
use crate::proc::lifetimes::LeftBehind;

/// What a run records where it could be more.
#[derive(Clone, Debug)]
pub struct Coverage {
    /// Layer that follows the processes.
    pub processes: ProcessLayer,
    /// Directories whose file calls are recorded.
    pub directories: Vec<PathBuf>,
    /// True if opens and names of other files are recorded.
    pub opens: bool,
    /// Reasons of the system for the failure of better layers. Empty if processes and traced directories are recorded
    /// as fully as the options ask for.
    pub refused: Vec<String>,
    /// What to do so that more is recorded; `None` where the options asked for less.
    pub remedy: Option<String>,
}

/// A notice to the user while the run goes on.
#[derive(Clone, Debug)]
pub enum Notice {
    /// A mount could not be made over its directory, but at another path.
    OtherPath {
        /// The directory.
        directory: PathBuf,
        /// Mount point.
        view: PathBuf,
    },
    /// A directory lies in a mount of another flowtrace, and is not mounted a second time.
    SeenAlready {
        /// The directory.
        directory: PathBuf,
    },
    /// The trace to write is that of a run to which this one belongs; nothing is recorded.
    OuterTrace {
        /// The trace.
        trace: PathBuf,
    },
    /// Less is recorded than would be elsewhere, or with other rights.
    Coverage(Coverage),
    /// Packets of an interface are not captured.
    NotCaptured(Refused),
    /// The command has ended, and flowtrace detaches from the processes that it left behind.
    LetGo {
        /// These processes.
        processes: Vec<LeftBehind>,
    },
    /// The command has ended, but not these processes that it left behind.
    StillRunning {
        /// These processes.
        processes: Vec<LeftBehind>,
    },
    /// This process has a low limit of open files, though each file of a traced directory takes one: the
    /// command may reach that limit before its own.
    FewDescriptors {
        /// The limit.
        limit: u64,
    },
}
