//! From the events of the tree to what it is wired with: channels ([`super::channels`]) and files
//! outside the traced directories ([`super::outside`]).

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use flowtrace_schema::{HostId, Loss, Recorder, Upid, Usage};

use super::channels::sockets::{self, Name};
use super::channels::{Channels, Registry};
use super::descriptors::{self, Descriptor};
use super::moment::{Held, Moment};
use super::observer::{Observer, Tracee};
use super::outside::{NameChange, Open, Outside, Place};
use super::reading::{self, Traffic};
use super::topology::{Call, CallKind, UNNAMED, bytes_at, path_at, some_at};
use super::views::Views;
use crate::fs::FileTable;
use crate::kernel::Descriptions;

mod unseen;

/// Flags of mount(2) that mount nothing.
const CHANGES_MOUNT: u64 =
    libc::MS_REMOUNT | libc::MS_PRIVATE | libc::MS_SLAVE | libc::MS_SHARED | libc::MS_UNBINDABLE;

/// Sees descriptors and calls.
pub(crate) struct Wiring {
    recorder: Recorder,
    channels: Channels,
    outside: Outside,
    /// Whoever wants to know what descriptors stand for.
    told: Option<Descriptions>,
    /// The filter was to be installed in the command.
    wants_calls: bool,
    /// Calls whose return is waited for, by thread, with the time of their entry.
    pending: HashMap<u32, (Pending, u64)>,
    /// Processes that changed their root or namespaces, or whose forebears did: a path of theirs
    /// is not one of ours.
    elsewhere: HashSet<u32>,
    /// Results of calls are not to be had: what they did is found out later ([`unseen`]).
    runs_on: bool,
}

#[derive(Debug)]
enum Pending {
    /// Two descriptors are written to this address.
    Pair(u64),
    /// Descriptors are not told; of a pipe what the process had moved before.
    Ends(Option<Traffic>),
    Accept,
    /// A process accepts by a descriptor what connects to there.
    Accepts(u32, i32, Option<Name>),
    Bind(i32),
    Connect(i32, Option<SocketAddr>),
    /// A socket, and a duplicate of ours.
    Joins(Descriptor, OwnedFd),
    /// Where it leads, if the descriptor will not be told.
    Open(Open, Option<Place>),
    Names(NameChange),
    /// Something is mounted over a part of a view.
    Mount,
}

impl Wiring {
    /// Sees what is to be seen of files that are in none of `views`.
    pub(crate) fn new(
        host: HostId,
        recorder: Recorder,
        registry: Arc<Mutex<Registry>>,
        files: Arc<FileTable>,
        views: Views,
        wants_calls: bool,
        told: Option<Descriptions>,
    ) -> Wiring {
        Wiring {
            channels: Channels::new(registry, recorder.clone()),
            outside: Outside::new(host, files, &recorder, views, told.clone(), wants_calls),
            told,
            recorder,
            wants_calls,
            pending: HashMap::new(),
            elsewhere: HashSet::new(),
            runs_on: false,
        }
    }

    /// Processes are held at the entries of calls alone.
    pub(crate) fn run_on(mut self) -> Wiring {
        self.runs_on = true;
        self
    }

    /// What to wait for at the return of a call.
    fn enter(&mut self, tracee: Tracee, call: Call, now: u64) -> Option<Pending> {
        let [a, b, c, d, e, _] = call.arguments;
        let fd = |argument: u64| argument as i32;
        let path = |address| path_at(tracee.tid, address);
        match call.kind {
            CallKind::Open => self.open(tracee, None, a, b as u32, now),
            CallKind::OpenAt => self.open(tracee, Some(fd(a)), b, c as u32, now),
            CallKind::OpenAt2 => {
                let flags = u64::from_ne_bytes(bytes_at(tracee.tid, c)?) as u32;
                self.open(tracee, Some(fd(a)), b, flags, now)
            }
            CallKind::Creat => {
                let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
                self.open(tracee, None, a, flags as u32, now)
            }
            CallKind::Unlink => self.removing(tracee, None, a),
            CallKind::UnlinkAt if c as i32 & libc::AT_REMOVEDIR != 0 => None,
            CallKind::UnlinkAt => self.removing(tracee, Some(fd(a)), b),
            CallKind::Rename => {
                let (from, to) = (path(a)?, path(b)?);
                let outside = &self.outside;
                let change = outside.renaming(tracee, (None, &from), (None, &to), false);
                change.map(Pending::Names)
            }
            CallKind::RenameAt => {
                // renameat has no flags, but 0 in that place only by chance.
                let exchange = e as u32 == libc::RENAME_EXCHANGE;
                let (from, to) = (path(b)?, path(d)?);
                let (from, to) = ((Some(fd(a)), &*from), (Some(fd(c)), &*to));
                let change = self.outside.renaming(tracee, from, to, exchange);
                change.map(Pending::Names)
            }
            CallKind::Pipe
            | CallKind::SocketPair
            | CallKind::Bind
            | CallKind::Connect
            | CallKind::Accept
                if self.runs_on =>
            {
                unseen::will_make(tracee.pid, call.kind, fd(a))
            }
            CallKind::Pipe => Some(Pending::Pair(a)),
            CallKind::SocketPair => Some(Pending::Pair(d)),
            CallKind::Bind => Some(Pending::Bind(fd(a))),
            CallKind::Connect => {
                let length = (c as usize).min(size_of::<libc::sockaddr_storage>());
                let address = some_at(tracee.tid, b, length)
                    .and_then(|address| sockets::address_in(&address));
                Some(Pending::Connect(fd(a), address))
            }
            CallKind::Accept => Some(Pending::Accept),
            // Kept with the process ([`super::lifetimes`]), and by who looks for flows.
            CallKind::Umask | CallKind::Socket => None,
            CallKind::Splice => {
                self.channels.splices(tracee.pid);
                None
            }
            CallKind::ChangeView => {
                self.elsewhere.insert(tracee.pid);
                None
            }
            CallKind::AsyncIo => None,
            CallKind::Mount if d & CHANGES_MOUNT != 0 => None,
            CallKind::Mount => {
                let hides = self.outside.mounting(tracee, None, &path(b)?);
                hides.then_some(Pending::Mount)
            }
            CallKind::MoveMount => {
                let hides = self.outside.mounting(tracee, Some(fd(c)), &path(d)?);
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
            && (self.outside.is_settled(tracee, &path, flags, now)
                || self.outside.is_in_view(tracee, directory, &path))
        {
            return None;
        }
        let has = |flag: i32| flags & flag as u32 == flag as u32;
        if self.runs_on {
            return self.open_unseen(tracee, directory, &path, flags, now);
        }
        let makes =
            || has(libc::O_EXCL) || !elsewhere && self.outside.is_absent(tracee, directory, &path);
        let creates = flags & UNNAMED != 0 || has(libc::O_CREAT) && makes();
        let open = Open {
            flags,
            creates,
            start_ns: now,
        };
        Some(Pending::Open(open, None))
    }

    fn removing(&mut self, tracee: Tracee, directory: Option<i32>, path: u64) -> Option<Pending> {
        if self.elsewhere.contains(&tracee.pid) {
            return None;
        }
        let path = path_at(tracee.tid, path)?;
        let change = self.outside.removing(tracee, directory, &path);
        change.map(Pending::Names)
    }

    fn made(&mut self, tracee: Tracee, descriptors: &[i32], now: u64) {
        self.channels.made(tracee, descriptors, now);
        if let Some(told) = &self.told {
            told.made(tracee, descriptors, now);
        }
    }

    fn opened(&mut self, tracee: Tracee, fd: i32, open: &Open, now: u64) {
        let Some(attributes) = descriptors::attributes(tracee.pid, fd) else {
            return;
        };
        if attributes.mode & libc::S_IFMT == libc::S_IFIFO {
            self.made(tracee, &[fd], now);
        } else {
            // The kernel does not tell a path of more than a page.
            let path = descriptors::target(tracee.pid, fd).unwrap_or_default();
            self.outside
                .opened(tracee, fd, open, &path, &attributes, now);
        }
    }
}

impl Observer for Wiring {
    fn forked(&mut self, parent: Tracee, child: Tracee, moment: &dyn Moment, now: u64) {
        self.channels.forked(parent, child, moment, now);
        self.outside.forked(parent, child);
        if self.elsewhere.contains(&parent.pid) {
            self.elsewhere.insert(child.pid);
        }
    }

    fn thread_began(&mut self, thread: Tracee, _now: u64) {
        self.channels.thread_began(thread.pid);
    }

    fn executed(&mut self, tracee: Tracee, prev: Option<Upid>, _now: u64) {
        if prev.is_none() {
            self.outside.begun(tracee.pid);
        }
        if prev.is_none() && self.wants_calls {
            let filters = |pid| reading::filters_of(pid).unwrap_or(0);
            if filters(tracee.pid) > filters(std::process::id()) {
                self.channels.see_calls();
            } else {
                self.recorder.lost(Loss::TopologyUnseen, 1);
            }
        }
    }

    fn began_with(&mut self, tracee: Tracee, moment: &dyn Moment, now: u64) {
        self.channels.executed(tracee, moment, now);
        self.outside.began_with(tracee, moment, now);
    }

    fn has_returned(&mut self, tracee: Tracee, moment: &dyn Moment, now: u64) {
        self.find_out(tracee, moment, now);
    }

    fn may_have_returned(&mut self, tracee: Tracee, now: u64) -> bool {
        self.is_found(tracee, &Held(tracee.pid), now)
    }

    fn image_over(&mut self, tracee: Tracee, usage: &Usage, exec: Option<&dyn Moment>, now: u64) {
        self.channels.image_over(tracee, usage, exec);
        self.outside.image_over(tracee, usage, exec, now);
    }

    fn called(&mut self, tracee: Tracee, call: Call, now: u64) -> bool {
        self.channels.calls(tracee.pid, now);
        match self.enter(tracee, call, now) {
            Some(pending) => {
                self.pending.insert(tracee.tid, (pending, now));
                true
            }
            None => false,
        }
    }

    fn returned(&mut self, tracee: Tracee, result: i64, now: u64) {
        let Some((pending, _)) = self.pending.remove(&tracee.tid) else {
            return;
        };
        let in_progress = result == -i64::from(libc::EINPROGRESS);
        if let (Pending::Connect(fd, Some(address)), true) = (&pending, in_progress) {
            self.channels.connecting(tracee, *fd, *address, now);
            if let Some(told) = &self.told {
                told.made(tracee, &[*fd], now);
            }
            return;
        }
        if result < 0 {
            return;
        }
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
            // Never waited for by their return.
            Pending::Ends(_) | Pending::Joins(..) | Pending::Accepts(..) => {}
            Pending::Accept => self.made(tracee, &[result as i32], now),
            Pending::Bind(fd) | Pending::Connect(fd, _) => {
                self.made(tracee, &[fd], now);
            }
            Pending::Open(open, _) => self.opened(tracee, result as i32, &open, now),
            Pending::Names(change) => self.outside.changed(change, now),
            Pending::Mount => self.recorder.lost(Loss::MountsInside, 1),
        }
    }

    fn exiting(&mut self, tracee: Tracee, last: bool, moment: &dyn Moment, now: u64) {
        if last {
            self.channels.exiting(tracee.pid, moment, now);
            self.outside.exiting(tracee, moment);
        }
    }

    fn ended(&mut self, tracee: Tracee, _now: u64) {
        self.pending.remove(&tracee.tid);
        if tracee.tid == tracee.pid {
            self.channels.ended(tracee.pid);
            self.outside.ended(tracee);
            self.elsewhere.remove(&tracee.pid);
        }
    }
}
