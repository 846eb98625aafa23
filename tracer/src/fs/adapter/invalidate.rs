//! Pages that the kernel is told to drop.
//!
//! In direct-passthrough, `sendfile` and `splice` read through the page cache of the mount, while
//! mappings go to the real file. What such a read leaves behind must not be served again after a
//! store through a mapping.
//!
//! The kernel waits for a page that another request is about to fill, and for that request it
//! needs one of our threads. So never do all of them tell it at once: the last one leaves it to a
//! thread that serves no requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use crate::fs::protocol::{Device, notify};

/// Pages to drop.
#[derive(Clone, Copy, Debug)]
struct Pages {
    node: u64,
    offset: u64,
    length: u64,
}

/// Tells the kernel, or hands over.
#[derive(Debug)]
pub(super) struct Drops {
    /// `None` in the message: nothing more comes.
    sender: Sender<Option<Pages>>,
    device: Arc<dyn Device>,
    /// Serving threads that wait for the kernel right now, and how many may.
    telling: AtomicUsize,
    may_tell: usize,
}

/// The receiving end of [`Drops`].
#[derive(Debug)]
pub(super) struct Dropper {
    receiver: Receiver<Option<Pages>>,
    device: Arc<dyn Device>,
}

/// Both ends; at most `may_tell` serving threads tell the kernel at once.
pub(super) fn pair(device: Arc<dyn Device>, may_tell: usize) -> (Arc<Drops>, Dropper) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let drops = Drops {
        sender,
        device: Arc::clone(&device),
        telling: AtomicUsize::new(0),
        may_tell,
    };
    (Arc::new(drops), Dropper { receiver, device })
}

impl Drops {
    /// Pages of a file, of which a read was just answered, should not be kept.
    pub(super) fn pages(&self, node: u64, offset: u64, length: u64) {
        let pages = Pages {
            node,
            offset,
            length,
        };
        if self.telling.fetch_add(1, Ordering::AcqRel) < self.may_tell {
            tell(&*self.device, pages);
        } else {
            // Fails only at the very end, when nobody reads any more.
            let _ = self.sender.send(Some(pages));
        }
        self.telling.fetch_sub(1, Ordering::AcqRel);
    }

    /// Nobody serves any more.
    pub(super) fn end(&self) {
        let _ = self.sender.send(None);
    }
}

impl Dropper {
    /// Drops what arrives until nothing more comes.
    pub(super) fn run(&self) {
        while let Ok(Some(pages)) = self.receiver.recv() {
            tell(&*self.device, pages);
        }
    }
}

fn tell(device: &dyn Device, pages: Pages) {
    // Fails only when the kernel has dropped the inode, and its pages, already.
    let _ = notify::drop_pages(device, pages.node, pages.offset, pages.length);
}
