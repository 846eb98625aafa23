//! Lookup of the objects that a wait may be for, by the descriptors of its thread.

use flowtrace_schema::FileId;

use crate::proc::sampler::objects::Target;

/// A source of the files that descriptors of threads stand for.
pub(in super::super) trait Descriptors {
    /// The kind of file of descriptor `fd` of thread `tid`, and the file if it is on a mount. `None`: not
    /// known, or closed.
    fn stands_for(&self, tid: u32, fd: i32) -> Option<(Target, Option<FileId>)>;
}
