//! Reasons for which the life of a process is cut at an instant.

use crate::model::ProcessId;
/// A cut in the life of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cut {
    /// The process killed that process. This cut comes first: the process cannot have waited for that end
    /// before.
    Kill(ProcessId),
    /// A wait of the process ended; place among all releases.
    Release(usize),
    /// The process started that process, or wrote a file that that one needed to begin.
    Fork(ProcessId),
    /// The process caused the release at that place.
    LetGo(usize),
}
