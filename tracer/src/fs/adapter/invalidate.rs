//! Pages and modes that the kernel has to drop.
//!
//! In direct-passthrough, `sendfile` and `splice` read through the page cache of the mount, while mappings go
//! to the real file. The pages that such a read leaves behind must not be served again: after a store through
//! a mapping they would be stale, and in any case the second read would not be seen.
//!
//! A page that is dropped before the reader has taken it is requested again, maybe many times. So a page into
//! which no mapping can store is kept for a short time ([`KEPT`]).
//!
//! To drop a page, the kernel waits if another request is about to fill it, and that request needs one of our
//! serving threads. Therefore not all of them may notify the kernel at once: the last one leaves that to a
//! thread that serves no requests.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use crate::fs::again;
use crate::fs::protocol::{Device, notify};

/// Time for which pages are kept that cannot have changed: a reader that was woken takes them in
/// microseconds, one that waits for a CPU later.
const KEPT: Duration = again::SAME;

/// Pages to drop.
#[derive(Clone, Copy, Debug)]
struct Pages {
    node: u64,
    offset: u64,
    length: u64,
}

/// Drops pages: notifies the kernel, or passes the pages to the [`Dropper`].
#[derive(Debug)]
pub(super) struct Drops {
    sender: Sender<Message>,
    device: Arc<dyn Device>,
    /// Serving threads that wait for the kernel at this instant, and their limit.
    notifying: AtomicUsize,
    may_notify: usize,
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
    /// No more pages will come.
    End,
}

/// Makes both ends; at most `may_notify` serving threads notify the kernel at once.
pub(super) fn pair(device: Arc<dyn Device>, may_notify: usize) -> (Arc<Drops>, Dropper) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let drops = Drops {
        sender,
        device: Arc::clone(&device),
        notifying: AtomicUsize::new(0),
        may_notify,
    };
    (Arc::new(drops), Dropper { receiver, device })
}

impl Drops {
    /// Drops pages of a file of which a read was just answered; with `for_reader`, only after the reader has
    /// had time to take them.
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
        if self.notifying.fetch_add(1, Ordering::AcqRel) < self.may_notify {
            drop_now(&*self.device, pages);
        } else {
            // Fails only at the very end, when the pages do not matter any more.
            let _ = self.sender.send(Message::Now(pages));
        }
        self.notifying.fetch_sub(1, Ordering::AcqRel);
    }

    /// A change of data may have cleared set-user-id and set-group-id of a node. The kernel does not expect
    /// that: it keeps a mode until its time is over. It waits for nothing here, so any thread may call this.
    pub(super) fn mode(&self, node: u64) {
        // Fails only if the kernel has forgotten the inode.
        let _ = notify::forget_attributes(&*self.device, node);
    }

    /// No thread serves any more.
    pub(super) fn end(&self) {
        let _ = self.sender.send(Message::End);
    }
}

impl Dropper {
    /// Drops the pages that arrive until no more will come.
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
                Ok(Message::Now(pages)) => drop_now(&*self.device, pages),
                Ok(Message::At(until, pages)) => kept.push_back((until, pages)),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => return,
            }
            while kept
                .front()
                .is_some_and(|(until, _)| *until <= Instant::now())
            {
                let (_, pages) = kept.pop_front().expect("checked above");
                drop_now(&*self.device, pages);
            }
        }
    }
}

fn drop_now(device: &dyn Device, pages: Pages) {
    // Fails only if the kernel has dropped the inode, and its pages, already.
    let _ = notify::drop_pages(device, pages.node, pages.offset, pages.length);
}
