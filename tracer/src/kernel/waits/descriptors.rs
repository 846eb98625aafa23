//! What a wait may be for, by the descriptors of its thread.

use flowtrace_schema::FileId;

use crate::proc::sampler::objects::Target;

/// Who knows what the descriptors of a thread stand for.
pub(in super::super) trait Descriptors {
    /// What descriptor `fd` of thread `tid` stands for, and which file of a view it is. `None`: not known, or closed.
    fn stands_for(&self, tid: u32, fd: i32) -> Option<(Target, Option<FileId>)>;
}
