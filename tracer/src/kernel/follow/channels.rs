//! What a call moved through pipes and sockets.

use flowtrace_schema::{ChannelCall, Side, Tid};

use super::super::channel_rows::ChannelRows;
use super::super::sample::Sample;
use super::super::syscalls::{Data, Does, Moves};
use super::super::traffic::Moved;
use super::data::RESTARTS;
use super::thread::Thread;
use super::under_way::UnderWay;

/// A call that returned, and where to put rows of what it did with channels.
pub(super) struct Done<'a> {
    pub(super) call: &'a UnderWay,
    /// Its return.
    pub(super) sample: &'a Sample,
    pub(super) result: i64,
    pub(super) rows: &'a mut ChannelRows,
}

impl Thread {
    /// A read or write, or what stands for one on a socket, returned.
    pub(super) fn count_data(&self, mut done: Done<'_>, data: Data) {
        let (call, result) = (done.call, done.result);
        let side = if data.writes { Side::Write } else { Side::Read };
        let flags = data.socket.map_or(0, |socket| call.arguments[socket.flags]);
        let bytes = match data.socket {
            // Looked at, and still there.
            _ if flags & libc::MSG_PEEK as u64 != 0 => Some(0),
            Some(socket) if socket.messages && result > 0 => call.moved,
            _ => Some(result.max(0).cast_unsigned()),
        };
        let length = data.length(&call.arguments);
        self.count(&mut done, call.channels[0], side, length, bytes);
    }

    /// Data went from one descriptor to another.
    pub(super) fn count_moved(&self, mut done: Done<'_>, moves: Moves) {
        let bytes = Some(done.result.max(0).cast_unsigned());
        let [from, to] = done.call.channels;
        let length = Some(done.call.arguments[moves.length]);
        self.count(&mut done, from, Side::Read, length, bytes);
        self.count(&mut done, to, Side::Write, length, bytes);
    }

    /// How much went through these pipes is not told.
    pub(super) fn count_obscured(&self, mut done: Done<'_>) {
        let [from, to] = done.call.channels;
        // With one descriptor it may be either side.
        let to = match done.call.does {
            Does::Obscures([_]) => from,
            _ => to,
        };
        self.count(&mut done, from, Side::Read, None, None);
        self.count(&mut done, to, Side::Write, None, None);
    }

    fn count(
        &self,
        done: &mut Done<'_>,
        inode: Option<u64>,
        side: Side,
        length: Option<u64>,
        bytes: Option<u64>,
    ) {
        // One that failed before it reached anything is no use of it, as for files.
        let errors = [libc::EBADF, libc::EFAULT, libc::ENOTSOCK].map(|errno| -i64::from(errno));
        let Some(inode) = inode.filter(|_| !errors.contains(&done.result)) else {
            return;
        };
        let (from_ns, to_ns) = (done.call.at, done.sample.at);
        let mut sums = self.counts.sums.borrow_mut();
        sums.add(Moved {
            inode,
            side,
            bytes,
            from_ns,
            to_ns,
        });
        // The program sees another error, or the call is made once more.
        let result = match RESTARTS.contains(&done.result) {
            true => -i64::from(libc::EINTR),
            false => done.result,
        };
        let tid = done.sample.tid;
        done.rows.add(|| ChannelCall {
            start_ns: from_ns,
            duration_ns: to_ns.saturating_sub(from_ns),
            upid: self.upid,
            tid: (tid != self.pid).then_some(Tid(tid)),
            channel: None,
            inode,
            side,
            length,
            result,
            bytes,
            lossy: sums.lossy,
        });
    }
}
