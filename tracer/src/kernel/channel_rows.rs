//! A row for each call on a pipe or socket, if that is asked for.

use std::collections::HashMap;
use std::sync::Arc;

use flowtrace_schema::ChannelCall;

use crate::proc::observer::ChannelLookup;

/// Most rows that wait until their channel is known.
const WAITING: usize = 1 << 16;

/// Receiver of rows.
pub(super) type Sink = Box<dyn FnMut(ChannelCall)>;

/// Makes rows from calls.
pub(super) struct ChannelRows {
    /// `None`: no rows are wanted.
    sink: Option<Sink>,
    channels: Arc<dyn ChannelLookup>,
    /// Rows by the inode of a file that is no channel, or not yet: a socket may be connected later.
    unknown: HashMap<u64, Vec<ChannelCall>>,
    waiting: usize,
}

impl ChannelRows {
    pub(super) fn new(channels: Arc<dyn ChannelLookup>, sink: Option<Sink>) -> ChannelRows {
        ChannelRows {
            sink,
            channels,
            unknown: HashMap::new(),
            waiting: 0,
        }
    }

    /// A call returned. `make` makes the row, whose channel is still to be found.
    pub(super) fn add(&mut self, make: impl FnOnce() -> ChannelCall) {
        let Some(sink) = &mut self.sink else {
            return;
        };
        let mut call = make();
        call.channel = self.channels.of_inode(call.inode);
        if call.channel.is_some() || self.waiting >= WAITING {
            return sink(call);
        }
        self.waiting += 1;
        self.unknown.entry(call.inode).or_default().push(call);
    }

    /// Looks up the channels of waiting rows once more; at the `end` rows without one are dropped.
    pub(super) fn settle(&mut self, end: bool) {
        let Some(sink) = &mut self.sink else {
            return;
        };
        self.unknown.retain(|inode, calls| {
            let channel = self.channels.of_inode(*inode);
            let is_settled = end || channel.is_some();
            if is_settled {
                self.waiting -= calls.len();
                for call in calls.drain(..) {
                    sink(ChannelCall { channel, ..call });
                }
            }
            !is_settled
        });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use flowtrace_schema::{ChannelId, Side, Upid};

    use super::*;

    /// Inode 7 becomes a channel, 8 is one, 9 never is.
    #[derive(Default)]
    struct Connects(AtomicBool);

    impl ChannelLookup for Connects {
        fn of_inode(&self, inode: u64) -> Option<ChannelId> {
            let is_known = inode == 8 || inode == 7 && self.0.load(Ordering::Relaxed);
            is_known.then_some(ChannelId(inode as u32))
        }
    }

    fn call(inode: u64, start_ns: u64) -> ChannelCall {
        ChannelCall {
            start_ns,
            duration_ns: 1,
            upid: Upid(1),
            tid: None,
            channel: None,
            inode,
            side: Side::Read,
            length: Some(1),
            result: 1,
            bytes: Some(1),
            lossy: false,
        }
    }

    #[test]
    fn calls_wait_for_their_channel() {
        let connects = Arc::<Connects>::default();
        let seen = Rc::<RefCell<Vec<ChannelCall>>>::default();
        let into = Rc::clone(&seen);
        let sink: Sink = Box::new(move |call| into.borrow_mut().push(call));
        let mut rows = ChannelRows::new(connects.clone(), Some(sink));
        for (start, inode) in [7, 8, 9].into_iter().enumerate() {
            rows.add(|| call(inode, start as u64));
        }
        rows.settle(false);
        connects.0.store(true, Ordering::Relaxed);
        rows.settle(false);
        rows.settle(true);
        let seen = seen.borrow();
        let seen: Vec<_> = seen.iter().map(|c| (c.inode, c.channel)).collect();
        let id = |number| Some(ChannelId(number));
        assert_eq!(seen, [(8, id(8)), (7, id(7)), (9, None)]);
        assert_eq!(rows.waiting, 0);
    }

    #[test]
    fn nothing_is_made_where_nobody_wants_it() {
        let mut rows = ChannelRows::new(Arc::<Connects>::default(), None);
        rows.add(|| panic!("nobody wants it"));
        rows.settle(true);
    }
}
