//! The bytes that each image moved through pipes and sockets, counted call by call.

use std::collections::HashMap;
use std::sync::Arc;

use flowtrace_schema::{ChannelTraffic, Record, Side, Upid};

use crate::proc::observer::ChannelLookup;

/// Data that went through one side of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sum {
    calls: u64,
    /// `None`: the result of a call does not give the number.
    bytes: Option<u64>,
    duration_ns: u64,
    first_ns: u64,
    last_ns: u64,
}

/// A call that moved data, or tried to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    /// Inode of the pipe or socket.
    pub(super) inode: u64,
    pub(super) side: Side,
    /// `None`: not known.
    pub(super) bytes: Option<u64>,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
}

/// The sums of one image.
#[derive(Debug, Default)]
pub(super) struct Sums {
    by_side: HashMap<(u64, Side), Sum>,
    /// True if records were dropped while it lived.
    pub(super) lossy: bool,
}

impl Sums {
    pub(super) fn add(&mut self, moved: Moved) {
        let sum = self.by_side.entry((moved.inode, moved.side));
        let sum = sum.or_insert(Sum {
            calls: 0,
            bytes: Some(0),
            duration_ns: 0,
            first_ns: moved.from_ns,
            last_ns: moved.to_ns,
        });
        sum.calls += 1;
        sum.bytes = sum.bytes.zip(moved.bytes).map(|(sum, bytes)| sum + bytes);
        sum.duration_ns += moved.to_ns.saturating_sub(moved.from_ns);
        sum.first_ns = sum.first_ns.min(moved.from_ns);
        sum.last_ns = sum.last_ns.max(moved.to_ns);
    }
}

/// Makes rows of the sums of images that are over.
pub(super) struct Accounts {
    channels: Arc<dyn ChannelLookup>,
    records: Vec<Record>,
}

impl Accounts {
    pub(super) fn new(channels: Arc<dyn ChannelLookup>) -> Accounts {
        Accounts {
            channels,
            records: Vec::new(),
        }
    }

    /// An image is over; `is_all`: it moved nothing else. Sockets that are no known channels, such as those
    /// to a name server, have no rows.
    pub(super) fn close(&mut self, upid: Upid, sums: &mut Sums, is_all: bool) {
        // Both sockets of a pair are one channel.
        let mut rows: HashMap<(u32, Side), ChannelTraffic> = HashMap::new();
        for ((inode, side), sum) in sums.by_side.drain() {
            let Some(channel) = self.channels.of_inode(inode) else {
                continue;
            };
            let row = rows.entry((channel.0, side)).or_insert(ChannelTraffic {
                channel,
                upid,
                side,
                calls: 0,
                bytes: Some(0),
                duration_ns: 0,
                first_ns: sum.first_ns,
                last_ns: sum.last_ns,
                exact: !sums.lossy,
            });
            row.calls += sum.calls;
            row.bytes = row.bytes.zip(sum.bytes).map(|(one, other)| one + other);
            row.duration_ns += sum.duration_ns;
            row.first_ns = row.first_ns.min(sum.first_ns);
            row.last_ns = row.last_ns.max(sum.last_ns);
        }
        let rows = rows
            .into_values()
            .map(|row| Record::ChannelTraffic(Box::new(row)));
        self.records.extend(rows);
        if is_all {
            self.records.push(Record::AllTraffic(upid));
        }
    }

    /// Takes the records made since the last call.
    pub(super) fn take(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowtrace_schema::ChannelId;

    /// Inodes 7 and 8 are a pair of sockets, 9 is no channel.
    struct Pair;

    impl ChannelLookup for Pair {
        fn of_inode(&self, inode: u64) -> Option<ChannelId> {
            (inode < 9).then_some(ChannelId(1))
        }
    }

    #[test]
    fn calls_are_summed_by_channel_and_side() {
        let mut sums = Sums::default();
        let mut add = |inode, side, bytes, from_ns| {
            let to_ns = from_ns + 10;
            sums.add(Moved {
                inode,
                side,
                bytes,
                from_ns,
                to_ns,
            });
        };
        add(7, Side::Read, Some(5), 100);
        add(8, Side::Read, Some(6), 300);
        add(7, Side::Write, Some(1), 200);
        add(7, Side::Write, None, 210);
        add(7, Side::Write, Some(1), 220);
        add(9, Side::Read, Some(9), 100);
        let mut accounts = Accounts::new(Arc::new(Pair));
        accounts.close(Upid(3), &mut sums, false);
        let mut rows: Vec<ChannelTraffic> = accounts
            .take()
            .into_iter()
            .map(|record| match record {
                Record::ChannelTraffic(row) => *row,
                other => panic!("{other:?}"),
            })
            .collect();
        rows.sort_by_key(|row| row.side.name());
        let seen: Vec<_> = rows
            .iter()
            .map(|r| {
                (
                    r.side,
                    r.calls,
                    r.bytes,
                    r.duration_ns,
                    r.first_ns,
                    r.last_ns,
                    r.exact,
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                (Side::Read, 2, Some(11), 20, 100, 310, true),
                (Side::Write, 3, None, 30, 200, 230, true),
            ]
        );
        assert!(accounts.take().is_empty());
    }
}
