//! Why the life of a process is cut at an instant.

use crate::model::ProcessId;
/// Where the life of a process is cut.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cut {
    /// It ended that process, before it can have waited for that.
    Kill(ProcessId),
    /// A wait ended, by its place among all releases.
    Release(usize),
    /// It started that process, or wrote what that one needed to begin.
    Fork(ProcessId),
    /// What this process did let go the release at that place.
    LetGo(usize),
}
