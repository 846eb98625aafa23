//! The processes that use io_uring. The data of files that such a process opens in a mount are left to the
//! kernel, or to its page cache.
//!
//! Through FUSE direct I/O a request of io_uring at the position of the file (offset −1) does not move that
//! position: `fuse_direct_IO` of the kernel (fs/fuse/file.c, Linux 6.18) sets `ki_pos` for synchronous
//! requests alone. A second write would overwrite the first. Data served by passthrough are right, and so are
//! data that go through the page cache.

use flowtrace_schema::{Loss, Recorder, Upid};

use crate::callers::Images;

/// The images that have a ring.
#[derive(Debug, Default)]
pub struct Rings(Images);

impl Rings {
    /// Returns true if image `upid` may have a ring.
    pub(crate) fn has(&self, upid: Upid) -> bool {
        self.0.has(upid)
    }

    /// Image `upid` has made a ring.
    pub(crate) fn made(&self, upid: Upid, recorder: &Recorder) {
        if self.0.insert(upid) {
            recorder.lost(Loss::Rings, 1);
        }
    }

    /// A process whose image is `of` has forked one whose image is `heir`, which may use the same ring.
    pub(crate) fn inherit(&self, of: Upid, heir: Upid) {
        self.0.inherit(of, heir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_have_the_rings_of_their_parents() {
        let rings = Rings::default();
        rings.inherit(Upid(1), Upid(2));
        assert!(!rings.has(Upid(2)));
        rings.made(Upid(1), &Recorder::nowhere());
        rings.inherit(Upid(1), Upid(2));
        assert!(rings.has(Upid(1)) && rings.has(Upid(2)) && !rings.has(Upid(3)));
    }
}
