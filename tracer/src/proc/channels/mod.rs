//! Pipes, FIFOs and sockets, and the processes that have their ends open.
//!
//! The open ends of a process are known from reads of its descriptors ([`super::descriptors`]), from those of
//! its parent at the fork, and from the calls that make or open a channel ([`super::topology`]). `close` and
//! `dup` do not stop, so a closed end is noticed at the next read. The descriptors of a process are read
//!
//! - at its exec, unless it cannot have any end;
//! - when it forks, if it made an end itself: the child then inherits what is really there;
//! - at the exec and the end of its children, a few times for each end that it made, and while it has both
//!   ends of a pipe that it made also at calls of its children: a shell has closed a pipeline's ends by then,
//!   a program that reads its child's output has kept one;
//! - at its own end, if it was forked without exec, made an end, or may have been passed one.

mod holder;
mod reads;
mod registry;
mod reported;
mod rows;
pub(crate) mod sockets;
mod unread;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowtrace_schema::{ChannelEndClosed, ChannelId, Direction, Record, Recorder, Usage};

use super::descriptors::{self, Descriptor, Object};
use super::exec_reads::Programs;
use super::observer::Tracee;
use super::pipe_content::Left;
use super::reading::Traffic;
use super::snapshot::{LiveSnapshot, ProcessSnapshot};
use holder::{End, Holder, Moved, Outcome, opposite, outcome};
pub(crate) use registry::Registry;

/// Most ends of a process whose descriptors are read for each end that it makes.
const MOST_READ: usize = 64;

/// Tracks the processes that have channel ends open.
#[derive(Debug)]
pub(crate) struct Channels {
    registry: Arc<Mutex<Registry>>,
    recorder: Recorder,
    holders: HashMap<u32, Holder>,
    /// Pipes into which nobody but their maker has written; true if the content was recorded.
    unshared: HashMap<ChannelId, bool>,
    /// Ends that children of the pipe's maker used while they had the other one, too.
    used_whole: HashSet<(ChannelId, Direction)>,
    last_row: u32,
    programs: Programs,
    /// True if calls that make channels are seen: then a process without ends cannot get one unseen.
    calls_seen: bool,
}

impl Channels {
    pub(crate) fn new(registry: Arc<Mutex<Registry>>, recorder: Recorder) -> Channels {
        Channels {
            registry,
            recorder,
            holders: HashMap::new(),
            unshared: HashMap::new(),
            used_whole: HashSet::new(),
            last_row: 0,
            programs: Programs::default(),
            calls_seen: false,
        }
    }

    /// Calls that make channels are seen from now on.
    pub(crate) fn see_calls(&mut self) {
        self.calls_seen = true;
    }

    /// Process `child` was forked. `snapshot` is that of its parent, which it inherits.
    pub(crate) fn forked(
        &mut self,
        parent: Tracee,
        child: Tracee,
        snapshot: &dyn ProcessSnapshot,
        now: u64,
    ) {
        if self.holders.get(&parent.pid).is_some_and(Holder::has_made) {
            self.read_descriptors(parent.pid, snapshot, now);
        }
        let Some(holder) = self.holders.get(&parent.pid) else {
            return;
        };
        let forked = holder.fork(child.upid, parent.pid, now);
        self.holders.insert(child.pid, forked);
        // The inherited ends of the parent need a row now: the parent goes on with them.
        self.write_rows(parent.pid);
    }

    pub(crate) fn thread_began(&mut self, pid: u32) {
        if let Some(holder) = self.holders.get_mut(&pid) {
            holder.threaded = true;
        }
    }

    pub(crate) fn executed(&mut self, tracee: Tracee, snapshot: &dyn ProcessSnapshot, now: u64) {
        let before = self.holders.remove(&tracee.pid);
        let parent = before.as_ref().and_then(|holder| holder.parent);
        let has_none = before.is_some_and(|holder| holder.ends.is_empty());
        let pid = tracee.pid;
        self.holders.insert(pid, Holder::new(tracee.upid, parent));
        if !(has_none && self.calls_seen) {
            self.read_descriptors(pid, snapshot, now);
            self.find_leaked(pid, snapshot);
            self.find_left(tracee, snapshot);
            self.write_rows(pid);
        }
        self.mark_passed(pid);
        self.read_parent(pid, snapshot, now);
    }

    /// The ends that an image still has open are closed with it. `exec`: the snapshot at the exec that ended
    /// the image, if one did.
    pub(crate) fn image_over(
        &mut self,
        tracee: Tracee,
        usage: &Usage,
        exec: Option<&dyn ProcessSnapshot>,
    ) {
        let Some(holder) = self.holders.get_mut(&tracee.pid) else {
            return;
        };
        if holder.upid != tracee.upid || holder.ends.is_empty() {
            return;
        }
        if let Some(snapshot) = exec {
            self.find_unread(tracee.pid, snapshot);
        }
        let Some(holder) = self.holders.get_mut(&tracee.pid) else {
            return;
        };
        let is_reported = holder.has_made() && !holder.threaded;
        let traffic = || exec.unwrap_or(&LiveSnapshot(tracee.pid)).traffic();
        let last = holder.last.or_else(|| is_reported.then(traffic).flatten());
        let in_all = Moved::in_all(usage);
        let mut keys = holder.ends.keys();
        let reads = keys.any(|key| key.1 == Direction::Read);
        let read_by_exec = exec
            .filter(|_| reads)
            .and_then(|exec| exec.read_by_exec(&mut self.programs));
        let ends: Vec<_> = holder
            .ends
            .iter()
            .map(|(key, end)| (*key, end.since))
            .collect();
        for (key, since) in ends {
            let since = last
                .zip(since)
                .map(|(last, since)| Moved::from(last - since));
            let moved = since.or(in_all);
            let moved = match exec {
                Some(_) => moved.map(|moved| moved.before_exec(read_by_exec)),
                None => moved,
            };
            self.give_up(tracee.pid, key, None, moved, exec.is_some());
        }
        if let Some(holder) = self.holders.get_mut(&tracee.pid) {
            // An exec still needs the entry, to know if there were any ends.
            holder.last = None;
        }
    }

    /// The last thread of a process is about to exit; its descriptors are still there.
    pub(crate) fn exiting(&mut self, pid: u32, snapshot: &dyn ProcessSnapshot, now: u64) {
        self.find_unread(pid, snapshot);
        let Some(holder) = self.holders.get(&pid) else {
            return;
        };
        let has_made = holder.has_made();
        let may_differ = holder.forked || has_made || self.has_socket(holder) || !self.calls_seen;
        if may_differ && !(holder.ends.is_empty() && self.calls_seen) {
            self.read_descriptors(pid, snapshot, now);
        }
        if has_made && let Some(holder) = self.holders.get_mut(&pid) {
            holder.last = snapshot.traffic().filter(|_| !holder.threaded);
        }
        self.read_parent(pid, snapshot, now);
    }

    pub(crate) fn ended(&mut self, pid: u32) {
        self.holders.remove(&pid);
    }

    /// The process made these descriptors of pipes or sockets by a call.
    pub(crate) fn made(&mut self, tracee: Tracee, descriptors: &[i32], now: u64) {
        let pid = tracee.pid;
        let made = descriptors.iter();
        let made: Vec<_> = made.filter_map(|&fd| descriptors::one(pid, fd)).collect();
        let holder = self.holders.get(&pid);
        if holder.is_some_and(|it| it.has_made() && it.ends.len() <= MOST_READ) {
            // A shell that makes its next pipe has closed the ends of the last.
            self.find_closed(pid, &LiveSnapshot(pid), now);
        }
        self.add_all(pid, &made, || Traffic::of(pid), now);
    }

    /// Adds ends that process `pid` made; `since` returns its traffic before, if it has one thread.
    fn add_all(
        &mut self,
        pid: u32,
        made: &[Descriptor],
        since: impl FnOnce() -> Option<Traffic>,
        now: u64,
    ) {
        let Some(holder) = self.holders.get(&pid) else {
            return;
        };
        let since = if holder.threaded { None } else { since() };
        for descriptor in made {
            let channel = self.registry().identify(pid, descriptor);
            if let Some(channel) = channel {
                let key = (channel, descriptor.direction);
                if key.1 == Direction::Write {
                    self.unshared.insert(channel, false);
                }
                self.add(pid, key, descriptor, true, since, now);
            }
        }
        self.write_rows(pid);
    }

    /// Its socket `fd` is being connected to `to`.
    pub(crate) fn connecting(&mut self, tracee: Tracee, fd: i32, to: SocketAddr, now: u64) {
        if let Some(descriptor) = descriptors::one(tracee.pid, fd)
            && let Object::Socket { inode } = descriptor.object
        {
            let local = sockets::local_address(tracee.pid, fd);
            let channel = self.registry().connecting(inode, local, to);
            let key = (channel, Direction::Both);
            self.add(tracee.pid, key, &descriptor, true, None, now);
            self.write_rows(tracee.pid);
        }
    }

    /// A thread of process `pid` makes a call: an occasion to read its parent's descriptors.
    pub(crate) fn calls(&mut self, pid: u32, now: u64) {
        let parent = self.holders.get(&pid).and_then(|holder| holder.parent);
        let parent = parent.and_then(|pid| self.holders.get(&pid));
        if parent.is_some_and(Holder::is_undecided) {
            self.read_parent(pid, &LiveSnapshot(pid), now);
        }
    }

    pub(crate) fn splices(&mut self, pid: u32) {
        if let Some(holder) = self.holders.get_mut(&pid) {
            holder.splices = true;
        }
    }

    fn add(
        &mut self,
        pid: u32,
        key: (ChannelId, Direction),
        descriptor: &Descriptor,
        made: bool,
        since: Option<Traffic>,
        now: u64,
    ) {
        let end = self.add_end(pid, key, descriptor.fd, made, since, now);
        if let (Some(end), Object::Socket { inode }) = (end, descriptor.object)
            && end.add_socket(inode)
            && let Some(row) = end.row
        {
            self.note_address(inode, row);
        }
    }

    /// Adds an end whose socket is not known.
    fn add_end(
        &mut self,
        pid: u32,
        key: (ChannelId, Direction),
        fd: i32,
        made: bool,
        since: Option<Traffic>,
        now: u64,
    ) -> Option<&mut End> {
        let holder = self.holders.get_mut(&pid)?;
        let end = holder.ends.entry(key).or_insert(End {
            row: None,
            fd,
            sockets: [None; 2],
            from_ns: now,
            made,
            passed: false,
            given: false,
            of_maker: false,
            since,
            reads: 0,
            leaked: false,
            left: None,
            is_unread: false,
        });
        // A second open by the process itself is a use on purpose.
        end.made |= made;
        end.leaked &= !made && fd > 2;
        Some(end)
    }

    /// An end is closed at the time `at`; `None`: with its image.
    fn give_up(
        &mut self,
        pid: u32,
        key: (ChannelId, Direction),
        at: Option<u64>,
        moved: Option<Moved>,
        by_exec: bool,
    ) {
        let Some(holder) = self.holders.get_mut(&pid) else {
            return;
        };
        let Some(end) = holder.ends.get(&key).copied() else {
            return;
        };
        // Of children that run their maker's program and closed neither end, each may have used either end,
        // and their maker then the other one. Those that closed an end of another pipe, as shells do, used
        // this one.
        let by_child = at.is_none() && !by_exec && end.of_maker && !holder.keeps_a_side(key.1);
        // A program uses an end that is its standard input or output, too.
        let by_child = by_child || holder.is_standard(key);
        let by_maker = || {
            let other = opposite(key.1).map(|other| (key.0, other));
            end.made && other.is_some_and(|other| self.used_whole.contains(&other))
        };
        let is_used = by_child || by_maker();
        let is_socket = key.1 == Direction::Both && self.registry_has_socket(key.0);
        let Some(holder) = self.holders.get_mut(&pid) else {
            return;
        };
        let no_need = !is_socket && holder.has_no_need(key, at.is_none(), by_exec, is_used);
        let found = match end.is_unread || end.left.is_some_and(Left::is_nothing) {
            true => Outcome::NOTHING,
            false => outcome(key.1, moved, holder.splices, no_need),
        };
        if by_child && found.used.is_none() {
            self.used_whole.insert(key);
        }
        let (upid, forked) = (holder.upid, holder.forked);
        if key.1 == Direction::Write && !end.made && found.used != Some(false) {
            self.unshared.remove(&key.0);
        }
        if at.is_some() {
            holder.ends.remove(&key);
        }
        if forked && end.row.is_none() && found.used == Some(false) {
            return;
        }
        let row = end.row.unwrap_or_else(|| self.write_row(upid, key, &end));
        self.recorder
            .record(Record::ChannelEndClosed(ChannelEndClosed {
                id: row,
                to_ns: at,
                used: found.used,
                bytes: found.bytes,
                at_most_bytes: found.at_most_bytes,
            }));
    }

    fn registry_has_socket(&self, channel: ChannelId) -> bool {
        self.registry().is_socket(channel)
    }

    fn has_socket(&self, holder: &Holder) -> bool {
        let registry = self.registry();
        let mut both = holder.ends.keys().filter(|key| key.1 == Direction::Both);
        both.any(|key| registry.is_socket(key.0))
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
