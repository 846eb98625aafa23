//! Turns the events of the process tree into channels ([`super::channels`]) and unmounted files
//! ([`super::unmounted`]).

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use flowtrace_schema::{HostId, Loss, Recorder, Upid, Usage};

use super::channels::sockets;
use super::channels::{Channels, Registry};
use super::descriptors;
use super::links;
use super::near;
use super::observer::{Observer, Tracee};
use super::reading;
use super::snapshot::ProcessSnapshot;
use super::topology::{Call, CallKind, UNNAMED, bytes_at, is_resident, path_at};
use super::tracepoints::Called;
use super::unmounted::{NameChange, Open, UnmountedFiles};
use super::views::Views;
use crate::file_table::FileTable;
use crate::kernel::FoundFiles;

/// Flags of mount(2) that mount nothing.
const CHANGES_MOUNT: u64 =
    libc::MS_REMOUNT | libc::MS_PRIVATE | libc::MS_SLAVE | libc::MS_SHARED | libc::MS_UNBINDABLE;

/// Source of the knowledge about descriptors of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// Stops at the calls that the filter in the command picks, and snapshots of stopped processes.
    Calls,
    /// Snapshots alone.
    Snapshots,
    /// Forks, execs, exits and calls reported by the kernel: no process is stopped.
    Kernel,
}

/// Tracks the descriptors of processes and the calls that make them.
pub(crate) struct FdTracker {
    recorder: Recorder,
    channels: Channels,
    unmounted: UnmountedFiles,
    by: By,
    /// Calls whose return is awaited, by thread.
    pending: HashMap<u32, Pending>,
    /// Processes that changed their root or namespaces, or whose ancestors did: their paths may name other
    /// files than ours.
    elsewhere: HashSet<u32>,
}

#[derive(Debug)]
enum Pending {
    /// Two descriptors are written to this address.
    Pair(u64),
    Accept,
    Bind(i32),
    /// A socket, and the address (with its length) of the `sockaddr` that it connects to.
    Connect(i32, (u64, u64)),
    Open(Open),
    /// The names that the call has are read when it returns.
    Unread(Call, u64),
    Names(NameChange),
    /// Something is mounted over a part of a mount of flowtrace.
    Mount,
}

impl FdTracker {
    /// A tracker of the files that are in none of `views`.
    pub(crate) fn new(
        host: HostId,
        recorder: Recorder,
        registry: Arc<Mutex<Registry>>,
        files: Arc<FileTable>,
        views: Views,
        by: By,
        found_files: Option<FoundFiles>,
    ) -> FdTracker {
        let follows = by != By::Snapshots;
        let mut channels = Channels::new(registry, recorder.clone());
        if by == By::Kernel {
            channels.see_calls();
        }
        FdTracker {
            channels,
            unmounted: UnmountedFiles::new(host, files, &recorder, views, found_files, follows),
            recorder,
            by,
            pending: HashMap::new(),
            elsewhere: HashSet::new(),
        }
    }

    /// The command is going to run as process `pid`, which waits. Where processes are not stopped, it may
    /// have ended when its begin is reported.
    pub(crate) fn launch(&mut self, pid: u32) {
        self.unmounted.begun(pid);
    }

    /// The work to do at the return of a call; `None`: nothing.
    fn enter(&mut self, tracee: Tracee, call: Call, now: u64) -> Option<Pending> {
        let [a, b, c, d, e, _] = call.arguments;
        let fd = |argument: u64| argument as i32;
        let path = |address| path_at(tracee.tid, address);
        match call.kind {
            CallKind::Open | CallKind::Creat => {
                self.open(tracee, None, a, flags_of(tracee, call)?, now)
            }
            CallKind::OpenAt | CallKind::OpenAt2 => {
                self.open(tracee, Some(fd(a)), b, flags_of(tracee, call)?, now)
            }
            CallKind::Unlink => self.removing(tracee, None, a),
            CallKind::UnlinkAt if c as i32 & libc::AT_REMOVEDIR != 0 => None,
            CallKind::UnlinkAt => self.removing(tracee, Some(fd(a)), b),
            CallKind::Rename => {
                let (from, to) = (path(a)?, path(b)?);
                let unmounted = &self.unmounted;
                let change = unmounted.renaming(tracee, (None, &from), (None, &to), false);
                change.map(Pending::Names)
            }
            CallKind::RenameAt => {
                // renameat has no flags: another argument may equal RENAME_EXCHANGE only by chance.
                let exchange = e as u32 == libc::RENAME_EXCHANGE;
                let (from, to) = (path(b)?, path(d)?);
                let (from, to) = ((Some(fd(a)), &*from), (Some(fd(c)), &*to));
                let change = self.unmounted.renaming(tracee, from, to, exchange);
                change.map(Pending::Names)
            }
            CallKind::Link => {
                let (from, to) = (path(a)?, path(b)?);
                let change = self
                    .unmounted
                    .linking(tracee, Some((None, &from)), (None, &to));
                change.map(Pending::Names)
            }
            CallKind::LinkAt => {
                let (from, to) = (path(b)?, path(d)?);
                let (from, to) = (Some((Some(fd(a)), &*from)), (Some(fd(c)), &*to));
                self.unmounted.linking(tracee, from, to).map(Pending::Names)
            }
            CallKind::Pipe => Some(Pending::Pair(a)),
            CallKind::SocketPair => Some(Pending::Pair(d)),
            CallKind::Bind => Some(Pending::Bind(fd(a))),
            CallKind::Connect => Some(Pending::Connect(fd(a), (b, c))),
            CallKind::Accept => Some(Pending::Accept),
            // Handled where processes are recorded ([`super::lifetimes`]), and by the observer of flows.
            CallKind::Umask
            | CallKind::Socket
            | CallKind::SendTo
            | CallKind::SendMessage
            | CallKind::ReceiveMessage
            | CallKind::ReceiveMessages => None,
            CallKind::Splice => {
                self.channels.splices(tracee.pid);
                None
            }
            CallKind::ChangeView => {
                self.elsewhere.insert(tracee.pid);
                None
            }
            CallKind::AsyncIo | CallKind::Ring | CallKind::OnName => None,
            CallKind::Mount if d & CHANGES_MOUNT != 0 => None,
            CallKind::Mount => {
                let hides = self.unmounted.mounting(tracee, None, &path(b)?);
                hides.then_some(Pending::Mount)
            }
            CallKind::MoveMount => {
                let hides = self.unmounted.mounting(tracee, Some(fd(c)), &path(d)?);
                hides.then_some(Pending::Mount)
            }
        }
    }

    fn open(
        &mut self,
        tracee: Tracee,
        directory: Option<i32>,
        path: u64,
        flags: u32,
        now: u64,
    ) -> Option<Pending> {
        let elsewhere = self.elsewhere.contains(&tracee.pid);
        let path = path_at(tracee.tid, path)?;
        if !elsewhere
            && (self.unmounted.is_settled(tracee, &path, flags, None, now)
                || self.unmounted.is_in_view(tracee, directory, &path))
        {
            return None;
        }
        let is_absent = || match elsewhere {
            true => None,
            false => self.unmounted.is_absent(tracee, directory, &path),
        };
        let open = Open {
            flags,
            creates: creates(flags).or_else(is_absent),
            start_ns: now,
        };
        Some(Pending::Open(open))
    }

    /// The work to do now that a call, whose arguments could not be read at its entry, has succeeded.
    fn read_late(&mut self, tracee: Tracee, call: Call, start_ns: u64) -> Option<Pending> {
        if !call.kind.opens() {
            return self.enter(tracee, call, start_ns);
        }
        let flags = flags_of(tracee, call)?;
        Some(Pending::Open(Open {
            flags,
            creates: creates(flags),
            start_ns,
        }))
    }

    /// An open that the kernel reported.
    fn reported_open(&mut self, tracee: Tracee, called: &Called, flags: u32, now: u64) {
        if called.made.as_ref().is_some_and(|made| made.is_fifo()) {
            self.reported_channels(tracee, called, now);
        } else {
            self.unmounted.reported(tracee, called, flags, now);
        }
    }

    fn reported_channels(&mut self, tracee: Tracee, called: &Called, now: u64) {
        self.channels.reported(tracee, called, now);
    }

    fn removing(&mut self, tracee: Tracee, directory: Option<i32>, path: u64) -> Option<Pending> {
        if self.elsewhere.contains(&tracee.pid) {
            return None;
        }
        let path = path_at(tracee.tid, path)?;
        let change = self.unmounted.removing(tracee, directory, &path);
        change.map(Pending::Names)
    }

    fn made(&mut self, tracee: Tracee, descriptors: &[i32], now: u64) {
        self.channels.made(tracee, descriptors, now);
    }

    fn opened(&mut self, tracee: Tracee, fd: i32, open: &Open, now: u64) {
        let Some(attributes) = descriptors::attributes(tracee.tid, fd) else {
            return;
        };
        if attributes.mode & libc::S_IFMT == libc::S_IFIFO {
            self.made(tracee, &[fd], now);
        } else {
            // The kernel reports no path of more than a page.
            let path = links::target(tracee.tid, fd).unwrap_or_default();
            self.unmounted.opened(tracee, open, &path, &attributes, now);
        }
    }
}

/// Open flags of a call that opens a file.
fn flags_of(tracee: Tracee, call: Call) -> Option<u32> {
    let [_, b, c, ..] = call.arguments;
    Some(match call.kind {
        CallKind::Open => b as u32,
        CallKind::OpenAt => c as u32,
        CallKind::OpenAt2 => u64::from_ne_bytes(bytes_at(tracee.tid, c)?) as u32,
        _ => (libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC) as u32,
    })
}

/// True if an open with these flags makes its file if it succeeds. `None`: it makes the file only if there is
/// none.
fn creates(flags: u32) -> Option<bool> {
    let has = |flag: i32| flags & flag as u32 == flag as u32;
    match has(libc::O_CREAT) {
        _ if flags & UNNAMED != 0 => Some(true),
        false => Some(false),
        true => has(libc::O_EXCL).then_some(true),
    }
}

impl Observer for FdTracker {
    fn forked(&mut self, parent: Tracee, child: Tracee, snapshot: &dyn ProcessSnapshot, now: u64) {
        self.channels.forked(parent, child, snapshot, now);
        self.unmounted.forked(parent, child);
        if self.elsewhere.contains(&parent.pid) {
            self.elsewhere.insert(child.pid);
        }
    }

    fn thread_began(&mut self, thread: Tracee, _now: u64) {
        self.channels.thread_began(thread.pid);
    }

    fn executed(
        &mut self,
        tracee: Tracee,
        prev: Option<Upid>,
        snapshot: &dyn ProcessSnapshot,
        now: u64,
    ) {
        if let (Some(upid), Some(program)) = (prev, snapshot.program()) {
            let caller = Tracee { upid, ..tracee };
            self.unmounted.executed(caller, program, now);
        }
        if prev.is_none() && self.by != By::Kernel {
            self.unmounted.begun(tracee.pid);
        }
        if prev.is_none() && self.by == By::Calls {
            let filters = |pid| reading::filters_of(pid).unwrap_or(0);
            if filters(tracee.pid) > filters(std::process::id()) {
                self.channels.see_calls();
            } else {
                self.recorder.lost(Loss::TopologyUnseen, 1);
            }
        }
    }

    fn began_with(&mut self, tracee: Tracee, snapshot: &dyn ProcessSnapshot, now: u64) {
        self.channels.executed(tracee, snapshot, now);
        self.unmounted.began_with(tracee, snapshot, now);
    }

    fn image_over(
        &mut self,
        tracee: Tracee,
        usage: &Usage,
        exec: Option<&dyn ProcessSnapshot>,
        now: u64,
    ) {
        self.channels.image_over(tracee, usage, exec);
        self.unmounted.image_over(tracee, usage, exec, now);
    }

    fn called(&mut self, tracee: Tracee, call: Call, now: u64) -> bool {
        self.channels.calls(tracee.pid, now);
        let pending = match near::may_serve()
            && !call
                .addresses()
                .all(|address| is_resident(tracee.tid, address))
        {
            true => Some(Pending::Unread(call, now)),
            false => self.enter(tracee, call, now),
        };
        match pending {
            Some(pending) => {
                self.pending.insert(tracee.tid, pending);
                true
            }
            None => false,
        }
    }

    fn returned(&mut self, tracee: Tracee, result: i64, now: u64) {
        let Some(pending) = self.pending.remove(&tracee.tid) else {
            return;
        };
        let in_progress = result == -i64::from(libc::EINPROGRESS);
        if let (Pending::Connect(fd, address), true) = (&pending, in_progress) {
            if let Some(address) = sockets::address_at(tracee.tid, *address) {
                self.channels.connecting(tracee, *fd, address, now);
            }
            return;
        }
        if result < 0 {
            return;
        }
        let pending = match pending {
            Pending::Unread(call, start_ns) => match self.read_late(tracee, call, start_ns) {
                Some(pending) => pending,
                None => return,
            },
            pending => pending,
        };
        match pending {
            Pending::Pair(address) => {
                if let Some(pair) = bytes_at::<8>(tracee.tid, address) {
                    let (one, other) = pair.split_at(4);
                    let fd = |half: &[u8]| half.try_into().map(i32::from_ne_bytes);
                    if let (Ok(one), Ok(other)) = (fd(one), fd(other)) {
                        self.made(tracee, &[one, other], now);
                    }
                }
            }
            Pending::Accept => self.made(tracee, &[result as i32], now),
            Pending::Bind(fd) | Pending::Connect(fd, _) => {
                self.made(tracee, &[fd], now);
            }
            Pending::Open(open) => self.opened(tracee, result as i32, &open, now),
            // Its names were read by now.
            Pending::Unread(..) => {}
            Pending::Names(change) => self.unmounted.changed(change, now),
            Pending::Mount => self.recorder.lost(Loss::MountsInside, 1),
        }
    }

    fn reported(&mut self, tracee: Tracee, called: &Called, now: u64) {
        let has_failed = called.result < 0 && called.on_name.is_some();
        if has_failed || !called.call.kind.opens() {
            let is_foreign = self.elsewhere.contains(&tracee.pid);
            self.unmounted.on_name(tracee, called, is_foreign, now);
        }
        if has_failed {
            return;
        }
        let [_, b, c, d, e, _] = called.call.arguments;
        let name = |place: usize| called.names[place].as_deref().map(Path::as_os_str);
        match called.call.kind {
            CallKind::Open => self.reported_open(tracee, called, b as u32, now),
            CallKind::OpenAt => self.reported_open(tracee, called, c as u32, now),
            CallKind::Creat => {
                let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
                self.reported_open(tracee, called, flags as u32, now);
            }
            // The flags of openat2 are in memory; the open file has all that matter here but one.
            CallKind::OpenAt2 => {
                let made = called.made.as_ref();
                let state = made.and_then(|made| made.state(called.result as i32));
                let flags = state.map_or(0, |(flags, _)| flags);
                self.reported_open(tracee, called, flags, now);
            }
            CallKind::UnlinkAt if c as i32 & libc::AT_REMOVEDIR != 0 => {}
            CallKind::Unlink | CallKind::UnlinkAt => {
                if !self.elsewhere.contains(&tracee.pid)
                    && let Some(path) = name(0)
                    && let Some(change) = self.unmounted.removing(tracee, None, path)
                {
                    self.unmounted.changed(change, now);
                }
            }
            CallKind::Rename | CallKind::RenameAt => {
                let exchange =
                    called.call.kind == CallKind::RenameAt && e as u32 == libc::RENAME_EXCHANGE;
                if let (Some(from), Some(to)) = (name(0), name(1)) {
                    let (from, to) = ((None, from), (None, to));
                    let mut change = self.unmounted.renaming(tracee, from, to, exchange);
                    // The process may be gone, and with it its root and mount namespace.
                    if let Some(NameChange::Renamed { is_foreign, .. }) = &mut change {
                        *is_foreign |= self.elsewhere.contains(&tracee.pid);
                    }
                    if let Some(change) = change {
                        self.unmounted.changed(change, now);
                    }
                }
            }
            CallKind::Link | CallKind::LinkAt => {
                let from = name(0).map(|from| (None, from));
                if let Some(to) = name(1)
                    && let Some(change) = self.unmounted.linking(tracee, from, (None, to))
                {
                    self.unmounted.changed(change, now);
                }
            }
            CallKind::Pipe
            | CallKind::SocketPair
            | CallKind::Bind
            | CallKind::Connect
            | CallKind::Accept
            | CallKind::SendTo
            | CallKind::SendMessage
            | CallKind::ReceiveMessage
            | CallKind::ReceiveMessages => self.reported_channels(tracee, called, now),
            CallKind::Splice => self.channels.splices(tracee.pid),
            CallKind::ChangeView => {
                self.elsewhere.insert(tracee.pid);
            }
            CallKind::Mount if d & CHANGES_MOUNT != 0 => {}
            CallKind::Mount | CallKind::MoveMount => {
                if name(0).is_some_and(|path| self.unmounted.mounting(tracee, None, path)) {
                    self.recorder.lost(Loss::MountsInside, 1);
                }
            }
            CallKind::Socket
            | CallKind::Umask
            | CallKind::AsyncIo
            | CallKind::Ring
            | CallKind::OnName => {}
        }
    }

    fn exiting(&mut self, tracee: Tracee, last: bool, snapshot: &dyn ProcessSnapshot, now: u64) {
        if last {
            self.channels.exiting(tracee.pid, snapshot, now);
            self.unmounted.exiting(tracee, snapshot);
        }
    }

    fn ended(&mut self, tracee: Tracee, _now: u64) {
        self.pending.remove(&tracee.tid);
        if tracee.tid == tracee.pid {
            self.channels.ended(tracee.pid);
            self.unmounted.ended(tracee);
            self.elsewhere.remove(&tracee.pid);
        }
    }
}
