//! Pages, and modes, that the kernel is to drop.
//!
//! In direct-passthrough, `sendfile` and `splice` read through the page cache of the mount, while
//! mappings go to the real file. What such a read leaves behind must not be served again after a
//! store through a mapping, nor at all, or a read would not be seen.
//!
//! A page that is dropped before the reader has taken it is asked for again, maybe many times. So
//! where nobody can store through a mapping, it is kept for a moment ([`KEPT`]).
//!
//! The kernel waits for a page that another request is about to fill, and for that request it
//! needs one of our threads. So never do all of them tell it at once: the last one leaves it to a
//! thread that serves no requests.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use crate::fs::again;
use crate::fs::protocol::{Device, notify};

/// How long pages are kept that nobody can have changed: a reader that was woken takes them in
/// microseconds, one that waits for a processor later.
const KEPT: Duration = again::SAME;

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
    sender: Sender<Message>,
    device: Arc<dyn Device>,
    /// Serving threads that wait for the kernel right now, and how many may.
    telling: AtomicUsize,
    may_tell: usize,
}

/// The receiving end of [`Drops`].
#[derive(Debug)]
pub(super) struct Dropper {
    receiver: Receiver<Message>,
    device: Arc<dyn Device>,
}

#[derive(Clone, Copy, Debug)]
enum Message {
    Now(Pages),
    At(Instant, Pages),
    /// Nothing more comes.
    End,
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
    /// Pages of a file, of which a read was just answered, should not be kept; or only for the
    /// reader to take them.
    pub(super) fn pages(&self, (node, offset, length): (u64, u64, u64), for_reader: bool) {
        let pages = Pages {
            node,
            offset,
            length,
        };
        if for_reader {
            let _ = self.sender.send(Message::At(Instant::now() + KEPT, pages));
            return;
        }
        if self.telling.fetch_add(1, Ordering::AcqRel) < self.may_tell {
            tell(&*self.device, pages);
        } else {
            // Fails only at the very end, when nobody reads any more.
            let _ = self.sender.send(Message::Now(pages));
        }
        self.telling.fetch_sub(1, Ordering::AcqRel);
    }

    /// A change of data may have taken set-user-id and set-group-id off a node, which the kernel does not expect: it keeps
    /// a mode until its time is over. The kernel waits for nothing here, so that any thread may call this.
    pub(super) fn mode(&self, node: u64) {
        // Fails only when the kernel has forgotten the inode.
        let _ = notify::forget_attributes(&*self.device, node);
    }

    /// Nobody serves any more.
    pub(super) fn end(&self) {
        let _ = self.sender.send(Message::End);
    }
}

impl Dropper {
    /// Drops what arrives until nothing more comes.
    pub(super) fn run(&self) {
        let mut kept = VecDeque::<(Instant, Pages)>::new();
        loop {
            let message = match kept.front() {
                Some((until, _)) => {
                    let rest = until.saturating_duration_since(Instant::now());
                    self.receiver.recv_timeout(rest)
                }
                None => self.receiver.recv().map_err(RecvTimeoutError::from),
            };
            match message {
                Ok(Message::Now(pages)) => tell(&*self.device, pages),
                Ok(Message::At(until, pages)) => kept.push_back((until, pages)),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => return,
            }
            while kept
                .front()
                .is_some_and(|(until, _)| *until <= Instant::now())
            {
                let (_, pages) = kept.pop_front().expect("looked at above");
                tell(&*self.device, pages);
            }
        }
    }
}

fn tell(device: &dyn Device, pages: Pages) {
    // Fails only when the kernel has dropped the inode, and its pages, already.
    let _ = notify::drop_pages(device, pages.node, pages.offset, pages.length);
}
