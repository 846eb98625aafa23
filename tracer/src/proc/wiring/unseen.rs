//! Calls whose results are not told. The thread is held when it makes one, and again when it makes the next, or at its end: then
//! the first has returned, and what it did is found where it shows: in the process's memory and descriptors, and under
//! the names of files.

use std::ffi::OsStr;

use flowtrace_schema::Loss;

use super::super::channels::sockets::{self, Name};
use super::super::descriptors;
use super::super::moment::Moment;
use super::super::observer::Tracee;
use super::super::outside::{Named, Open};
use super::super::pidfd::PidFd;
use super::super::reading::Traffic;
use super::super::topology::{CallKind, UNNAMED};
use super::{Pending, Wiring};

/// What a call will make by which process `pid` comes by ends of channels: `fd` is its first argument.
pub(super) fn will_make(pid: u32, kind: CallKind, fd: i32) -> Option<Pending> {
    match kind {
        CallKind::Pipe | CallKind::SocketPair => Some(Pending::Ends(Traffic::of(pid))),
        CallKind::Bind => Some(Pending::Ends(None)),
        CallKind::Connect => {
            let socket = descriptors::one(pid, fd)?;
            let own = PidFd::open(pid)?.duplicate(fd)?;
            Some(Pending::Joins(socket, own))
        }
        CallKind::Accept => Some(Pending::Accepts(pid, fd, sockets::listens_at(pid, fd))),
        _ => None,
    }
}

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
        let named = path;
        let path = self.outside.place(tracee, directory, named, elsewhere)?;
        let mut open = Open {
            flags,
            creates: flags & UNNAMED != 0,
            start_ns: now,
        };
        match self.outside.look(&path) {
            _ if flags & UNNAMED != 0 => Some(Pending::Open(open, Some(path))),
            Some(Named::Fifo(_)) => {
                // As the process sees it, and so its descriptors: in a view it has another inode.
                let place = self.outside.place(tracee, directory, named, true);
                if let Some(Named::Fifo(found)) = place.and_then(|place| self.outside.look(&place))
                {
                    let inode = (found.attributes.dev, found.attributes.ino);
                    self.channels
                        .opens_fifo(tracee, &found.path, inode, flags, now);
                }
                Some(Pending::Ends(None))
            }
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
    pub(super) fn find_out(&mut self, tracee: Tracee, moment: &dyn Moment, now: u64) {
        if !self.is_found(tracee, moment, now) {
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

    /// Whether the last call of this thread has done something until this `moment`, which is recorded then.
    pub(super) fn is_found(&mut self, tracee: Tracee, moment: &dyn Moment, now: u64) -> bool {
        let Some((pending, entered)) = self.pending.get(&tracee.tid) else {
            return true;
        };
        let entered = *entered;
        let found = match pending {
            Pending::Ends(since) => self.channels.made_some(tracee, moment, *since, now),
            Pending::Accepts(..) => self.channels.made_some(tracee, moment, None, now),
            Pending::Joins(socket, own) => match self.channels.connected(socket, own) {
                Some(channel) => {
                    let to = sockets::connected_to(own);
                    let accepts = to.and_then(|to| self.who_accepts(&to));
                    self.channels.joined(tracee.pid, socket, channel, now);
                    if let Some((pid, fd)) = accepts {
                        self.channels.accepted(pid, fd, channel, now);
                    }
                    true
                }
                None => false,
            },
            // Found out by their return, where that is told.
            Pending::Pair(_) | Pending::Accept | Pending::Bind(_) | Pending::Connect(..) => true,
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
