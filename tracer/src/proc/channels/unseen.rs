//! Channels of processes that run on when forks and execs are told, and of calls whose results are not: they are held at the entries of
//! calls, and what they did before is found then.

use std::os::fd::{AsRawFd, OwnedFd};

use flowtrace_schema::{ChannelId, Direction};

use super::super::descriptors::{self, Descriptor};
use super::super::observer::Tracee;
use super::super::reading::Traffic;
use super::Channels;
use super::holder::{Holder, Moved};

impl Channels {
    /// A process is held while it makes another one, which will inherit what is there now.
    pub(crate) fn forking(&mut self, pid: u32, now: u64) {
        if self.holders.get(&pid).is_some_and(Holder::has_made) {
            self.look(pid, now);
        }
    }

    /// A process is held before an exec: what its image leaves unread, and what it has moved. Whether
    /// the next one may hold something.
    pub(crate) fn executing(&mut self, pid: u32) -> bool {
        self.find_unread(pid);
        let Some(holder) = self.holders.get_mut(&pid) else {
            return true;
        };
        if holder.has_made() {
            holder.last = Traffic::of(pid).filter(|_| !holder.threaded);
        }
        !(holder.ends.is_empty() && self.calls_seen)
    }

    /// Which channels these descriptors of a held process are, to be known when it runs on.
    pub(crate) fn identify(&self, pid: u32, descriptors: &[Descriptor]) {
        let mut registry = self.registry();
        for descriptor in descriptors {
            registry.identify(pid, descriptor);
        }
    }

    /// A process has made descriptors of channels by a call: those that are not known are new. Whether there are any.
    /// `since`: what it had moved before, if a pipe was to be made. The end of such a one that has been given up already was used by
    /// its maker alone: a shell writes a here-document so.
    pub(crate) fn made_some(&mut self, tracee: Tracee, since: Option<Traffic>, now: u64) -> bool {
        let Some(found) = descriptors::of(tracee.pid) else {
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
            self.made_since(tracee.pid, &new, || since, now);
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
            self.wrote_at_once(tracee.pid, &write, since, now);
        }
        !new.is_empty()
    }

    /// A process has made this end, written to it and given it up between two looks.
    fn wrote_at_once(
        &mut self,
        pid: u32,
        descriptor: &Descriptor,
        since: Option<Traffic>,
        now: u64,
    ) {
        let channel = self.registry().identify(pid, descriptor);
        let Some(channel) = channel else { return };
        self.unshared.insert(channel, false);
        let key = (channel, Direction::Write);
        self.hold(pid, key, descriptor, true, since, now);
        self.write_rows(pid);
        let moved = Traffic::of(pid).zip(since);
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
