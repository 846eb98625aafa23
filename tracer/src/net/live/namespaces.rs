//! The network namespaces that a workflow makes. Each is captured from the time when a process of the
//! workflow is seen in it, all its interfaces by one ring, until shortly after the last process has left it.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flowtrace_schema::{Loss, Recorder};
use nix::sched::{CloneFlags, setns};

use super::message::Message;
use super::reader::{Common, Reader};
use crate::net::ring::Ring;
use crate::net::senders::Senders;
use crate::net::sockets::Sockets;
use crate::proc::Living;
use flowtrace_net::filter::Filter;

/// Most namespaces at once: each takes a ring of memory.
const MOST: usize = 64;
/// Time for which a namespace without processes is still captured, and therefore exists.
const LINGER: Duration = Duration::from_millis(300);
/// Time between two readings of the namespaces of processes, beside those at their begins.
const CHECK: Duration = Duration::from_millis(100);
/// Longest time for the capture of a namespace to begin.
const PATIENCE: Duration = Duration::from_secs(5);

/// Captures in the network namespaces of a workflow.
#[derive(Debug)]
pub(crate) struct Namespaces {
    own: Option<u64>,
    common: Common,
    filter: Filter,
    recorder: Recorder,
    state: Mutex<State>,
    over: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Captured namespaces, by inode.
    open: HashMap<u64, Place>,
    /// Namespaces that cannot be captured.
    refused: HashSet<u64>,
    /// The namespace of each process.
    processes: HashMap<u32, u64>,
    threads: Vec<JoinHandle<()>>,
    /// Namespaces so far; 0 is the own one.
    count: u32,
}

#[derive(Debug)]
struct Place {
    stop: Arc<AtomicBool>,
    processes: HashSet<u32>,
    left: Instant,
}

impl Namespaces {
    pub(super) fn new(common: Common, filter: Filter, recorder: &Recorder) -> Arc<Namespaces> {
        Arc::new(Namespaces {
            own: inode("self"),
            common,
            filter,
            recorder: recorder.clone(),
            state: Mutex::default(),
            over: AtomicBool::new(false),
        })
    }

    /// Sockets whose owners only the process tracer can report.
    pub(crate) fn senders(&self) -> Option<Arc<Senders>> {
        self.common.senders.clone()
    }

    /// Notes that process `pid` may be in another namespace than before.
    pub(crate) fn check(self: &Arc<Self>, pid: u32) {
        let Some(inode) = inode(&pid.to_string()) else {
            return;
        };
        if Some(inode) == self.own && self.state().processes.is_empty() {
            return;
        }
        let mut state = self.state();
        if state.processes.get(&pid) == Some(&inode) {
            return;
        }
        state.leave(pid);
        if Some(inode) == self.own || state.refused.contains(&inode) {
            return;
        }
        if let Some(place) = state.open.get_mut(&inode) {
            place.processes.insert(pid);
        } else if self.over.load(Ordering::Acquire) {
            return;
        } else if let Some(place) = self.open(&mut state, pid, inode) {
            state.open.insert(inode, place);
        } else {
            state.refused.insert(inode);
            self.recorder.lost(Loss::NotCaptured, 1);
            return;
        }
        state.processes.insert(pid, inode);
    }

    /// Notes that process `pid` is over.
    pub(crate) fn ended(&self, pid: u32) {
        self.state().leave(pid);
    }

    /// Reads the namespaces of the living processes, again and again, for those that change their namespace
    /// without a fork or an exec, or are not stopped when they do.
    pub(crate) fn follow(self: &Arc<Self>, living: Arc<Living>) {
        let this = Arc::clone(self);
        let thread = thread::Builder::new().name("namespaces".into());
        let spawned = thread.spawn(move || {
            while !this.over.load(Ordering::Acquire) {
                for pid in living.all() {
                    this.check(pid);
                }
                let known: Vec<u32> = this.state().processes.keys().copied().collect();
                for pid in known {
                    if !living.contains(pid) {
                        this.ended(pid);
                    }
                }
                thread::sleep(CHECK);
            }
        });
        self.state().threads.extend(spawned);
    }

    /// Ends all captures.
    pub(super) fn stop(&self) {
        self.over.store(true, Ordering::Release);
        let threads = {
            let mut state = self.state();
            for place in state.open.values() {
                place.stop.store(true, Ordering::Release);
            }
            std::mem::take(&mut state.threads)
        };
        for thread in threads {
            let _ = thread.join();
        }
    }

    /// Begins the capture of the namespace of process `pid`; when this returns, packets are taken.
    fn open(self: &Arc<Self>, state: &mut State, pid: u32, inode: u64) -> Option<Place> {
        if state.open.len() >= MOST {
            return None;
        }
        let file = File::open(format!("/proc/{pid}/ns/net")).ok()?;
        // The pid may be that of another process by now.
        if file.metadata().ok()?.ino() != inode {
            return None;
        }
        state.count += 1;
        let scope = self.common.host.0 + (state.count << 16);
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = sync_channel(1);
        let (this, stop_of) = (Arc::clone(self), Arc::clone(&stop));
        let thread = thread::Builder::new()
            .name("namespace".into())
            .spawn(move || {
                // The change is of this thread alone, which ends here.
                let inside = setns(file.as_fd(), CloneFlags::CLONE_NEWNET).map_err(Into::into);
                let ring =
                    inside.and_then(|()| Ring::open_all(this.common.snap_length, &this.filter));
                drop(file);
                let opened = ring.is_ok();
                let senders = this.common.senders.clone();
                let clock = this.common.clock;
                let sockets = Sockets::open(clock, None, senders, Arc::default());
                let _ = ready.send(opened);
                let Ok(ring) = ring else { return };
                let name = (Some(inode), scope);
                let reader = Reader::new(this.common.clone(), ring, Arc::clone(&stop_of), name);
                let sender = this.common.sender.clone();
                thread::scope(|threads| {
                    if let Ok(sockets) = sockets {
                        let stop = &*stop_of;
                        threads.spawn(move || {
                            sockets.follow(stop, |observed| {
                                let _ = sender.send(Message::Sockets(observed, scope));
                            });
                        });
                    }
                    reader.run(|| this.is_left(inode));
                });
            })
            .ok()?;
        if is_ready.recv_timeout(PATIENCE) != Ok(true) {
            stop.store(true, Ordering::Release);
            return None;
        }
        state.threads.retain(|thread| !thread.is_finished());
        state.threads.push(thread);
        Some(Place {
            stop,
            processes: HashSet::from([pid]),
            left: Instant::now(),
        })
    }

    /// True if no process has been in a namespace for some time; then the namespace is forgotten.
    fn is_left(&self, inode: u64) -> bool {
        let mut state = self.state();
        let Some(place) = state.open.get(&inode) else {
            // Not yet: the namespace was opened just now.
            return false;
        };
        let is_left = place.processes.is_empty() && place.left.elapsed() >= LINGER;
        if is_left {
            place.stop.store(true, Ordering::Release);
            state.open.remove(&inode);
        }
        is_left
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn leave(&mut self, pid: u32) {
        let Some(inode) = self.processes.remove(&pid) else {
            return;
        };
        if let Some(place) = self.open.get_mut(&inode) {
            place.processes.remove(&pid);
            place.left = Instant::now();
        }
    }
}

/// Inode of the network namespace of a process.
pub(super) fn inode(process: &str) -> Option<u64> {
    Some(
        std::fs::metadata(format!("/proc/{process}/ns/net"))
            .ok()?
            .ino(),
    )
}
