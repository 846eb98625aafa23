//! Lookup of the files that threads wait for.

use flowtrace_schema::FileId;

use crate::stat::Inode;

/// The files of the run.
pub(in super::super) trait Files {
    /// The file of an inode, if the trace has it.
    fn file(&self, inode: Inode) -> Option<FileId>;
}
