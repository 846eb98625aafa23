//! Places of processes and files in a [`Workflow`](super::Workflow).

/// A process: place in [`Workflow::processes`](super::Workflow::processes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u32);

/// A file: place in [`Workflow::files`](super::Workflow::files).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileIndex(pub u32);

impl Default for ProcessId {
    fn default() -> Self {
        ProcessId(u32::MAX)
    }
}

impl Default for FileIndex {
    fn default() -> Self {
        FileIndex(u32::MAX)
    }
}
