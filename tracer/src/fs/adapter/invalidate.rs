//! What the kernel is told to drop.
//!
//! - Pages, in direct-passthrough: `sendfile` and `splice` read through the page cache of the
//!   mount, while mappings go to the real file. What such a read leaves behind must not be
//!   served again after a store through a mapping.
//! - Names, when descriptors run short.
//!
//! The kernel waits for a page that another request is about to fill, and for that request it
//! needs one of our threads. So never do all of them tell it at once: the last one leaves it to a
//! thread that serves no requests.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fuser::{INodeNo, Notifier};

use crate::fs::passthrough::View;

/// How often, and after which time, to look for a free descriptor. Not for long: the kernel may
/// hold the directory of the request that waits, and then cannot drop names in it.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(2);

/// Something to drop.
#[derive(Clone, Copy, Debug)]
enum Stale {
    Pages {
        ino: u64,
        offset: u64,
        length: u64,
    },
    Names,
    /// Nothing more comes.
    End,
}

/// Hands over what is to be dropped.
#[derive(Debug)]
pub(super) struct Drops {
    sender: Sender<Stale>,
    /// Set once the session exists.
    notifier: Arc<OnceLock<Notifier>>,
    /// Serving threads that wait for the kernel right now, and how many may.
    telling: AtomicUsize,
    may_tell: usize,
    /// Names are being dropped already.
    relieving: Arc<AtomicBool>,
}

/// The receiving end of [`Drops`].
#[derive(Debug)]
pub(super) struct Dropper {
    receiver: Receiver<Stale>,
    notifier: Arc<OnceLock<Notifier>>,
    relieving: Arc<AtomicBool>,
    view: Arc<View>,
}

/// Both ends, for `threads` serving threads.
pub(super) fn pair(view: Arc<View>, threads: usize) -> (Drops, Dropper) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let relieving = Arc::new(AtomicBool::new(false));
    let notifier = Arc::new(OnceLock::new());
    let drops = Drops {
        sender,
        notifier: Arc::clone(&notifier),
        telling: AtomicUsize::new(0),
        may_tell: threads.saturating_sub(1),
        relieving: Arc::clone(&relieving),
    };
    let dropper = Dropper {
        receiver,
        notifier,
        relieving,
        view,
    };
    (drops, dropper)
}

impl Drops {
    /// Pages of a file, of which a read was just answered, should not be kept.
    pub(super) fn pages(&self, ino: u64, offset: u64, length: u64) {
        let told = self.telling.fetch_add(1, Ordering::AcqRel) < self.may_tell
            && self
                .notifier
                .get()
                .map(|notifier| drop_pages(notifier, ino, offset, length))
                .is_some();
        self.telling.fetch_sub(1, Ordering::AcqRel);
        if told {
            return;
        }
        // Fails only at the very end, when nobody reads any more.
        let _ = self.sender.send(Stale::Pages {
            ino,
            offset,
            length,
        });
    }

    /// Descriptors run short.
    pub(super) fn names(&self) {
        if !self.relieving.swap(true, Ordering::Relaxed) {
            let _ = self.sender.send(Stale::Names);
        }
    }

    /// Nobody serves any more.
    pub(super) fn end(&self) {
        let _ = self.sender.send(Stale::End);
    }

    /// Repeats what failed for want of a descriptor, while names are dropped to gain some.
    ///
    /// Not in all serving threads at once: a descriptor is free only when one of them has
    /// served the kernel's word that a file is forgotten.
    pub(super) fn with_room<T>(&self, mut act: impl FnMut() -> T, failed: fn(&T) -> bool) -> T {
        let mut result = act();
        for _ in 0..ATTEMPTS {
            if !failed(&result) {
                break;
            }
            self.names();
            if !self.pause() {
                break;
            }
            result = act();
        }
        result
    }

    /// Waits a little, unless that would leave no thread to serve.
    pub(super) fn pause(&self) -> bool {
        let may = self.telling.fetch_add(1, Ordering::AcqRel) < self.may_tell;
        if may {
            std::thread::sleep(PAUSE);
        }
        self.telling.fetch_sub(1, Ordering::AcqRel);
        may
    }
}

impl Dropper {
    /// The session exists.
    pub(super) fn set_notifier(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }

    /// Drops what arrives until nothing more comes.
    pub(super) fn run(&self) {
        let Some(notifier) = self.notifier.get() else {
            return;
        };
        for stale in &self.receiver {
            match stale {
                Stale::Pages {
                    ino,
                    offset,
                    length,
                } => drop_pages(notifier, ino, offset, length),
                Stale::Names => {
                    for (directory, name) in self.view.superfluous() {
                        // Fails only when the kernel has dropped it by itself already.
                        let _ = notifier.inval_entry(INodeNo(directory), &name);
                    }
                    self.relieving.store(false, Ordering::Relaxed);
                }
                Stale::End => return,
            }
        }
    }
}

fn drop_pages(notifier: &Notifier, ino: u64, offset: u64, length: u64) {
    let signed = |value| i64::try_from(value).unwrap_or(0);
    // Fails only when the kernel has dropped the inode, and its pages, already.
    let _ = notifier.inval_inode(INodeNo(ino), signed(offset), signed(length));
}
