//! Notices to the user while a run goes on.

use std::path::PathBuf;

use flowtrace_schema::ProcessLayer;

use crate::net::live::Refused;
use crate::proc::lifetimes::LeftBehind;

/// A notice to the user while the run goes on.
#[derive(Clone, Debug)]
pub enum Notice {
    /// A mount could not be made over its directory, but at another path.
    OtherPath {
        /// The directory.
        directory: PathBuf,
        /// Mount point.
        view: PathBuf,
        /// Reason.
        reason: String,
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
    /// File calls cannot be seen at all.
    NoFiles {
        /// Reason.
        reason: String,
    },
    /// Processes are not followed by ptrace.
    NotTraced {
        /// Reason; `None` if that was requested.
        refused: Option<String>,
        /// Layer that follows them instead.
        layer: ProcessLayer,
        /// True if the kernel reports the costs of each process.
        has_costs: bool,
    },
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
