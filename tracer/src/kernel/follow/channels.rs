//! What a call moved through pipes and sockets.

use flowtrace_schema::Side;

use super::super::syscalls::{Data, Does};
use super::super::traffic::Moved;
use super::{Thread, UnderWay};

impl Thread {
    /// A read or write, or what stands for one on a socket, returned.
    pub(super) fn count_data(&self, call: &UnderWay, data: Data, result: i64, at: u64) {
        let side = if data.writes { Side::Write } else { Side::Read };
        let flags = data.socket.map_or(0, |socket| call.arguments[socket.flags]);
        let bytes = match data.socket {
            Some(socket) if socket.messages && result > 0 => None,
            // Looked at, and still there.
            _ if flags & libc::MSG_PEEK as u64 != 0 => Some(0),
            _ => Some(result.max(0).cast_unsigned()),
        };
        self.count(call, call.channels[0], side, bytes, result, at);
    }

    /// Data went from one descriptor to another.
    pub(super) fn count_moved(&self, call: &UnderWay, result: i64, at: u64) {
        let bytes = Some(result.max(0).cast_unsigned());
        let [from, to] = call.channels;
        self.count(call, from, Side::Read, bytes, result, at);
        self.count(call, to, Side::Write, bytes, result, at);
    }

    /// How much went through these pipes is not told.
    pub(super) fn count_obscured(&self, call: &UnderWay, at: u64) {
        let [from, to] = call.channels;
        // With one descriptor it may be either side.
        let to = match call.does {
            Does::Obscures([_]) => from,
            _ => to,
        };
        self.count(call, from, Side::Read, None, 1, at);
        self.count(call, to, Side::Write, None, 1, at);
    }

    fn count(
        &self,
        call: &UnderWay,
        inode: Option<u64>,
        side: Side,
        bytes: Option<u64>,
        result: i64,
        at: u64,
    ) {
        // One that failed before it reached anything is no use of it, as for files.
        let errors = [libc::EBADF, libc::EFAULT, libc::ENOTSOCK].map(|errno| -i64::from(errno));
        if let Some(inode) = inode
            && !errors.contains(&result)
        {
            self.counts.sums.borrow_mut().add(Moved {
                inode,
                side,
                bytes,
                from_ns: call.at,
                to_ns: at,
            });
        }
    }
}
