//! Notices to the user while a run goes on.

use std::path::PathBuf;

use flowtrace_schema::ProcessLayer;

use crate::net::live::Refused;
use crate::proc::lifetimes::LeftBehind;

/// A notice to the user while the run goes on.
#[derive(Clone, Debug)]
pub enum Notice {
    /// A view could not be mounted over its own path.
    OtherPath {
        /// The directory.
        directory: PathBuf,
        /// Where its view is instead.
        view: PathBuf,
        /// Why.
        reason: String,
    },
    /// A directory lies in a view of another flowtrace, and is given no second one.
    SeenAlready {
        /// Which.
        directory: PathBuf,
    },
    /// The trace to write is that of a run to which this one belongs; nothing is recorded.
    OuterTrace {
        /// Which.
        trace: PathBuf,
    },
    /// File calls cannot be seen at all.
    NoFiles {
        /// Why.
        reason: String,
    },
    /// Processes are not followed by ptrace.
    NotTraced {
        /// Why not; `None` when that was asked for.
        refused: Option<String>,
        /// How they are followed instead.
        layer: ProcessLayer,
        /// True if what each process used is told by the kernel.
        has_costs: bool,
    },
    /// Packets of an interface are not captured.
    NotCaptured(Refused),
    /// The command has ended, and these processes that it left behind are let go.
    LetGo {
        /// Which.
        processes: Vec<LeftBehind>,
    },
    /// The command has ended, and processes it left behind have not.
    StillRunning {
        /// Which.
        processes: Vec<LeftBehind>,
    },
    /// This process may have few open files, though each of a traced directory takes one: the command may meet that limit
    /// before its own.
    FewDescriptors {
        /// So many.
        limit: u64,
    },
}
