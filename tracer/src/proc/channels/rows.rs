//! Rows of the ends of channels.

use flowtrace_schema::{ChannelEndRecord, ChannelId, Direction, Record, SocketEnd, Upid};

use super::holder::End;
use super::{Channels, sockets};

impl Channels {
    pub(super) fn write_rows(&mut self, pid: u32) {
        let Some(holder) = self.holders.get(&pid) else {
            return;
        };
        let (upid, unwritten) = (holder.upid, holder.ends.iter());
        let unwritten = unwritten.filter(|(_, end)| end.row.is_none());
        let unwritten: Vec<_> = unwritten.map(|(key, end)| (*key, *end)).collect();
        for (key, end) in unwritten {
            let row = self.write_row(upid, key, &end);
            let holder = self.holders.get_mut(&pid);
            if let Some(end) = holder.and_then(|holder| holder.ends.get_mut(&key)) {
                end.row = Some(row);
            }
        }
    }

    pub(super) fn write_row(&mut self, upid: Upid, key: (ChannelId, Direction), end: &End) -> u32 {
        self.last_row += 1;
        self.recorder.record(Record::ChannelEnd(ChannelEndRecord {
            id: self.last_row,
            channel: key.0,
            upid,
            fd: end.fd,
            direction: key.1,
            from_ns: end.from_ns,
        }));
        for inode in end.sockets.into_iter().flatten() {
            self.note_address(inode, self.last_row);
        }
        self.last_row
    }

    /// Records the addresses of a socket of the end in a row, by which its packets are found.
    pub(super) fn note_address(&self, inode: u64, row: u32) {
        if let Some(known) = self.registry().addresses(inode) {
            self.recorder.record(Record::SocketEnd(Box::new(SocketEnd {
                end: row,
                is_udp: known.transport == sockets::Transport::Udp,
                local: known.local,
                peer: known.peer,
            })));
        }
    }
}
