//! Channels that calls make whose results are not told: what they did is found at a later moment.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use flowtrace_schema::{ChannelId, Direction};

use super::super::descriptors::{self, Descriptor};
use super::super::moment::Moment;
use super::super::observer::Tracee;
use super::super::reading::Traffic;
use super::Channels;
use super::holder::Moved;

impl Channels {
    /// A process has made descriptors of channels by a call: those that are not known are new. Whether there are any.
    /// `since`: what it had moved before, if a pipe was to be made. The end of such a one that has been given up already was used by
    /// its maker alone: a shell writes a here-document so.
    pub(crate) fn made_some(
        &mut self,
        tracee: Tracee,
        moment: &dyn Moment,
        since: Option<Traffic>,
        now: u64,
    ) -> bool {
        let Some(found) = moment.channels() else {
            return false;
        };
        let Some(holder) = self.holders.get(&tracee.pid) else {
            return false;
        };
        let mut registry = self.registry();
        let is_new = |descriptor: &&Descriptor| {
            let channel = registry.identify(tracee.pid, descriptor);
            channel
                .is_some_and(|channel| !holder.ends.contains_key(&(channel, descriptor.direction)))
        };
        let new: Vec<Descriptor> = found.iter().filter(is_new).copied().collect();
        drop(registry);
        if !new.is_empty() {
            self.made_since(tracee.pid, &new, moment, || since, now);
        }
        let alone = new.iter().filter(|one| {
            let mut others = found.iter().filter(|other| other.object == one.object);
            one.is_read_end() && others.all(|other| other.fd == one.fd)
        });
        for &one in alone.filter(|_| since.is_some()) {
            let write = Descriptor {
                direction: Direction::Write,
                ..one
            };
            self.wrote_at_once(tracee.pid, &write, moment, since, now);
        }
        !new.is_empty()
    }

    /// A thread opens a pipe with a name, and may have closed it again before it is looked at: so the open is taken at its word.
    pub(crate) fn opens_fifo(
        &mut self,
        tracee: Tracee,
        path: &Path,
        inode: (u64, u64),
        flags: u32,
        now: u64,
    ) {
        /// What a new pipe may hold, unless the user has too many (pipe(7)).
        const CAPACITY: u64 = 1 << 16;
        let direction = match flags as i32 & libc::O_ACCMODE {
            libc::O_RDONLY => Direction::Read,
            libc::O_WRONLY => Direction::Write,
            _ => Direction::Both,
        };
        let channel = self.registry().fifo(inode, Some(path), || Some(CAPACITY));
        let since = match self.holders.get(&tracee.pid) {
            Some(holder) if !holder.threaded => Traffic::of(tracee.pid),
            _ => None,
        };
        // An open gives the first number that is free.
        let used = descriptors::numbers_of(tracee.pid);
        let fd = (0..).find(|fd| !used.contains(fd)).unwrap_or(0);
        self.hold_end(tracee.pid, (channel, direction), fd, true, since, now);
        self.write_rows(tracee.pid);
    }

    /// A process has made this end, written to it and given it up between two looks.
    fn wrote_at_once(
        &mut self,
        pid: u32,
        descriptor: &Descriptor,
        moment: &dyn Moment,
        since: Option<Traffic>,
        now: u64,
    ) {
        let channel = self.registry().identify(pid, descriptor);
        let Some(channel) = channel else { return };
        self.unshared.insert(channel, false);
        let key = (channel, Direction::Write);
        self.hold(pid, key, descriptor, true, since, now);
        self.write_rows(pid);
        let moved = moment.traffic().zip(since);
        let moved = moved.map(|(now, since)| Moved::from(now - since));
        self.give_up(pid, key, Some(now), moved, false);
    }

    /// The channel that a socket of a process is an end of, by a duplicate of ours: for it may be gone. `None`: it is not connected yet.
    pub(crate) fn connected(&mut self, socket: &Descriptor, own: &OwnedFd) -> Option<ChannelId> {
        let ours = Descriptor {
            fd: own.as_raw_fd(),
            ..*socket
        };
        self.registry().identify(std::process::id(), &ours)
    }

    /// Process `pid` has connected this socket.
    pub(crate) fn joined(&mut self, pid: u32, socket: &Descriptor, channel: ChannelId, now: u64) {
        let key = (channel, socket.direction);
        self.hold(pid, key, socket, true, None, now);
        self.write_rows(pid);
    }

    /// Process `pid` has accepted the other end by `fd`: which socket it has is found when it is looked at, but it may be given
    /// up before.
    pub(crate) fn accepted(&mut self, pid: u32, fd: i32, channel: ChannelId, now: u64) {
        self.hold_end(pid, (channel, Direction::Both), fd, true, None, now);
        self.write_rows(pid);
    }
}
