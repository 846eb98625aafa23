//! Calls whose results are not told. The thread is held when it makes one, and again when it makes the next, or at its end: then
//! the first has returned, and what it did is found where it shows: in the process's memory and descriptors, and under
//! the names of files.

use std::ffi::OsStr;

use flowtrace_schema::Loss;

use super::super::channels::sockets::{self, Name};
use super::super::descriptors::Object;
use super::super::observer::Tracee;
use super::super::outside::{Named, Open};
use super::super::topology::UNNAMED;
use super::{Pending, Wiring};

impl Wiring {
    /// An open at its entry. A file that is there is taken at its word; what will be made is looked for later.
    pub(super) fn open_unseen(
        &mut self,
        tracee: Tracee,
        directory: Option<i32>,
        path: &OsStr,
        flags: u32,
        now: u64,
    ) -> Option<Pending> {
        let has = |flag: i32| flags & flag as u32 == flag as u32;
        let elsewhere = self.elsewhere.contains(&tracee.pid);
        let path = self.outside.place(tracee, directory, path, elsewhere)?;
        let mut open = Open {
            flags,
            creates: flags & UNNAMED != 0,
            start_ns: now,
        };
        match self.outside.look(&path) {
            _ if flags & UNNAMED != 0 => Some(Pending::Open(open, Some(path))),
            Some(Named::Fifo) => Some(Pending::Accept),
            Some(Named::File(found)) if !has(libc::O_CREAT | libc::O_EXCL) => {
                self.outside.takes(tracee, &open, &found, now);
                None
            }
            Some(_) => None,
            None if has(libc::O_CREAT) => {
                open.creates = true;
                Some(Pending::Open(open, Some(path)))
            }
            None => None,
        }
    }

    /// What the last call of this thread did, which is over.
    pub(super) fn find_out(&mut self, tracee: Tracee, now: u64) {
        if !self.is_found(tracee, now) {
            self.pending.remove(&tracee.tid);
        }
    }

    /// The one process that waits to accept what connects to there, and by what.
    fn who_accepts(&self, to: &Name) -> Option<(u32, i32)> {
        let waiting = self
            .pending
            .values()
            .filter_map(|(pending, _)| match pending {
                Pending::Accepts(pid, fd, Some(at)) if at.accepts(to) => Some((*pid, *fd)),
                _ => None,
            });
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_unstable();
        waiting.dedup_by_key(|(pid, _)| *pid);
        match waiting[..] {
            [one] => Some(one),
            _ => None,
        }
    }

    /// Whether the last call of this thread has done something, which is recorded then.
    pub(super) fn is_found(&mut self, tracee: Tracee, now: u64) -> bool {
        let Some((pending, entered)) = self.pending.get(&tracee.tid) else {
            return true;
        };
        let entered = *entered;
        let found = match pending {
            Pending::Ends(since) => self.channels.made_some(tracee, *since, now),
            Pending::Joins(socket, own) => {
                let is_connected = self.channels.connected(tracee, socket, own, now);
                let to = sockets::connected_to(own).filter(|_| is_connected);
                if let (Some(to), Object::Socket { inode }) = (to, socket.object)
                    && let Some((pid, fd)) = self.who_accepts(&to)
                {
                    self.channels.accepts(pid, fd, own, inode, now);
                }
                is_connected
            }
            Pending::Pair(_)
            | Pending::Accept
            | Pending::Accepts(..)
            | Pending::Bind(_)
            | Pending::Connect(..) => self.channels.made_some(tracee, None, now),
            Pending::Open(open, Some(_)) if open.flags & UNNAMED != 0 => {
                self.outside.find_unnamed(tracee, open)
            }
            Pending::Open(open, place) => {
                let place = place.as_ref();
                let named = place.and_then(|place| self.outside.look(place));
                if let Some(Named::File(found)) = &named {
                    self.outside.takes(tracee, open, found, entered);
                }
                named.is_some()
            }
            Pending::Names(change) => {
                let has_changed = self.outside.has_changed(change);
                if has_changed
                    && let Some((Pending::Names(change), _)) = self.pending.remove(&tracee.tid)
                {
                    self.outside.changed(change, entered);
                }
                has_changed
            }
            Pending::Mount => {
                self.recorder.lost(Loss::MountsInside, 1);
                true
            }
        };
        if found {
            self.pending.remove(&tracee.tid);
        }
        found
    }
}
