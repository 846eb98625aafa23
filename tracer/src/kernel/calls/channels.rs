//! What a call moved through pipes and sockets.

use flowtrace_schema::{ChannelCall, Side, Tid};

use super::super::channel_rows::ChannelRows;
use super::super::sample::{FileUse, Sample};
use super::super::syscalls::Data;
use super::super::traffic::Moved;
use super::thread::{InFlight, RESTARTS, Thread};

/// A call that returned, and where to put rows of what it did with channels.
pub(super) struct Done<'a> {
    pub(super) call: &'a InFlight,
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
        let bytes = match data.socket {
            // The data was returned, and is still there.
            Some(_) if call.file.flags & libc::MSG_PEEK as u32 != 0 => Some(0),
            Some(socket) if socket.messages && result > 0 => call.moved,
            _ => Some(result.max(0).cast_unsigned()),
        };
        self.count(&mut done, &call.file, side, bytes);
    }

    /// Data went from one descriptor to another.
    pub(super) fn count_moved(&self, mut done: Done<'_>) {
        let bytes = Some(done.result.max(0).cast_unsigned());
        let call = done.call;
        self.count(&mut done, &call.file, Side::Read, bytes);
        if let Some(to) = &call.other {
            self.count(&mut done, to, Side::Write, bytes);
        }
    }

    /// The call does not report how much went through these pipes.
    pub(super) fn count_obscured(&self, mut done: Done<'_>) {
        let call = done.call;
        self.count(&mut done, &call.file, Side::Read, None);
        // With one descriptor it may be either side.
        let to = call.other.as_ref().unwrap_or(&call.file);
        self.count(&mut done, to, Side::Write, None);
    }

    fn count(&self, done: &mut Done<'_>, file: &FileUse, side: Side, bytes: Option<u64>) {
        if !matches!(file.mode & libc::S_IFMT, libc::S_IFIFO | libc::S_IFSOCK) {
            return;
        }
        // One that failed before it reached anything is no use of it, as for files.
        let errors = [libc::EBADF, libc::EFAULT, libc::ENOTSOCK].map(|errno| -i64::from(errno));
        if errors.contains(&done.result) {
            return;
        }
        let inode = file.inode.number;
        // What a call that does not report its amount was asked to move is no length of the data.
        let length = file.length.filter(|_| bytes.is_some());
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
