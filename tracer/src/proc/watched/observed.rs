//! Telling others what becomes of the processes, and holding threads at calls on the way ([`crate::proc::notifications`]).
//!
//! Nobody is held when a fork, an exec or an end is told: it has happened. What must be looked at in a process is looked at
//! before, at the entry of the call that forks, executes or exits, where its thread is held. All that happened until then is
//! told first.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use flowtrace_schema::Recorder;

use super::Watched;
use super::observations::{Executed, Observation, What};
use crate::proc::beginning::Kept;
use crate::proc::environment::Wanted;
use crate::proc::inherited::Inherited;
use crate::proc::notifications::{Listener, Notified};
use crate::proc::observer::{Observer, Tracee};
use crate::proc::topology::{Call, CallKind};

/// Who learns of the processes, and by what they are held.
#[derive(Default)]
pub(crate) struct Observers {
    all: Vec<Box<dyn Observer + Send>>,
    held: Option<Held>,
}

/// What is kept where calls are held.
struct Held {
    listener: Listener,
    recorder: Recorder,
    wanted: Wanted,
    inherited: Inherited,
    /// Of processes before an exec.
    kept: HashMap<u32, Kept>,
    /// File mode creation masks that processes set, or their forebears.
    umasks: HashMap<u32, u32>,
    /// Threads that made a call whose result somebody waits for.
    waiting: HashMap<u32, Waiting>,
    /// When will have been told what was begun.
    soon: Option<Instant>,
}

/// How soon after an exec is looked for the record of it.
const SOON: Duration = Duration::from_micros(500);

struct Waiting {
    tracee: Tracee,
    /// When is looked whether it has returned.
    due: Instant,
    /// How long is waited before the next look.
    pause: Duration,
}

/// How soon is looked for what a call did, and how much later each time that nothing is found. Who makes no other call is
/// looked at in between, for it may give up what it has made.
const FIRST_LOOK: Duration = Duration::from_micros(30);
const LATER: u32 = 2;
const LAST_PAUSE: Duration = Duration::from_secs(1);

impl Observers {
    /// Tells `observer`, too, from now on.
    pub(crate) fn observe(&mut self, observer: Box<dyn Observer + Send>) {
        self.all.push(observer);
    }

    /// Threads are held by `listener`, so that what programs begin with can be recorded: of environments whether they
    /// differ, but for what is `wanted`.
    pub(crate) fn hold(&mut self, listener: Listener, recorder: Recorder, wanted: Wanted) {
        self.held = Some(Held {
            listener,
            recorder,
            wanted,
            inherited: Inherited::default(),
            kept: HashMap::new(),
            umasks: HashMap::new(),
            waiting: HashMap::new(),
            soon: None,
        });
    }

    /// Readable when a thread is held.
    pub(super) fn signal(&self) -> Option<BorrowedFd<'_>> {
        self.held.as_ref().map(|held| held.listener.as_fd())
    }

    /// When is to be looked for what a call did.
    pub(super) fn due(&self) -> Option<Instant> {
        let held = self.held.as_ref()?;
        let looks = held.waiting.values().map(|waiting| waiting.due);
        looks.chain(held.soon).min()
    }

    /// Looks for what calls did that have not been followed by others.
    pub(super) fn look_for_results(&mut self, now: u64) {
        let Observers { all, held } = self;
        let Some(held) = held else {
            return;
        };
        let moment = Instant::now();
        held.soon.take_if(|soon| *soon <= moment);
        held.waiting.retain(|_, waiting| {
            if waiting.due > moment {
                return true;
            }
            waiting.due = moment + waiting.pause;
            waiting.pause = (waiting.pause * LATER).min(LAST_PAUSE);
            let mut found = false;
            for observer in &mut *all {
                found |= observer.may_have_returned(waiting.tracee, now);
            }
            !found
        });
    }

    fn tell(&mut self, mut what: impl FnMut(&mut dyn Observer)) {
        for observer in &mut self.all {
            what(observer.as_mut());
        }
    }

    /// Tells what happened.
    pub(super) fn deliver(&mut self, observations: Vec<Observation>) {
        for Observation { at, tracee, what } in observations {
            match what {
                What::Forked(maker) => {
                    if let Some(held) = &mut self.held
                        && let Some(&umask) = held.umasks.get(&maker.pid)
                    {
                        held.umasks.insert(tracee.pid, umask);
                    }
                    self.tell(|observer| observer.forked(maker, tracee, at));
                }
                What::ThreadBegan => self.tell(|observer| observer.thread_began(tracee, at)),
                What::Executed(executed) => self.executed(tracee, *executed, at),
                What::ImageOver { usage, by_exec } => {
                    self.tell(|observer| observer.image_over(tracee, &usage, by_exec, at));
                }
                What::Ended => self.ended(tracee, at),
                What::Stopped => self.tell(|observer| observer.stopped(tracee, at)),
            }
        }
    }

    fn executed(&mut self, tracee: Tracee, executed: Executed, at: u64) {
        let Executed {
            prev,
            image,
            environ,
        } = executed;
        self.tell(|observer| observer.executed(tracee, prev, at));
        let Some(held) = &mut self.held else {
            return;
        };
        let Some(mut kept) = held.kept.remove(&tracee.pid) else {
            return;
        };
        kept.arguments = image.argv.clone().unwrap_or_default();
        let digest = environ.map(|environ| held.inherited.digest(&environ, &held.wanted));
        let umask = held.umasks.get(&tracee.pid).copied();
        let (pid, upid) = (tracee.pid, tracee.upid);
        held.inherited
            .record(&held.recorder, pid, upid, umask, digest, &kept);
        self.tell(|observer| observer.began_with(tracee, &kept, at));
    }

    fn ended(&mut self, tracee: Tracee, at: u64) {
        self.has_returned(tracee, at);
        self.tell(|observer| observer.ended(tracee, at));
        if let Some(held) = &mut self.held
            && tracee.tid == tracee.pid
        {
            held.kept.remove(&tracee.pid);
            held.umasks.remove(&tracee.pid);
        }
    }

    /// A call of this thread is over, if somebody waits for the result of one.
    fn has_returned(&mut self, tracee: Tracee, now: u64) {
        let held = self.held.as_mut();
        if held.is_some_and(|held| held.waiting.remove(&tracee.tid).is_some()) {
            self.tell(|observer| observer.has_returned(tracee, now));
        }
    }

    /// Whoever has waited for long may go on now: to accept a connection.
    fn look_again_soon(&mut self) {
        let held = self.held.iter_mut();
        for waiting in held.flat_map(|held| held.waiting.values_mut()) {
            (waiting.due, waiting.pause) = (Instant::now() + FIRST_LOOK, FIRST_LOOK);
        }
    }

    /// A thread is held at the entry of this call.
    fn called(&mut self, tracee: Tracee, call: Call, now: u64) {
        self.has_returned(tracee, now);
        match call.kind {
            CallKind::Fork | CallKind::Clone => self.tell(|observer| observer.forking(tracee, now)),
            CallKind::Exec => {
                let mut kept = Kept::of(tracee.pid);
                self.tell(|observer| observer.executing(tracee, &mut kept, now));
                if let Some(held) = &mut self.held {
                    held.kept.insert(tracee.pid, kept);
                }
            }
            CallKind::Exit => {
                let held = self.held.as_ref();
                let waiting = held.into_iter().flat_map(|held| held.waiting.values());
                let waiting = waiting.map(|waiting| waiting.tracee);
                let waiting = waiting.filter(|other| other.pid == tracee.pid);
                for other in waiting.collect::<Vec<_>>() {
                    self.has_returned(other, now);
                }
                self.tell(|observer| observer.exiting(tracee, true, now));
            }
            _ => {
                if call.kind == CallKind::Connect {
                    self.look_again_soon();
                }
                let mut wanted = false;
                self.tell(|observer| wanted |= observer.called(tracee, call, now));
                if let Some(held) = &mut self.held {
                    if call.kind == CallKind::Umask {
                        held.umasks.insert(tracee.pid, call.mode_mask());
                    }
                    if wanted {
                        // What others make is there until their next call.
                        let may_pass = matches!(call.kind, CallKind::Accept | CallKind::Connect);
                        let first = if may_pass { FIRST_LOOK } else { LAST_PAUSE };
                        let waiting = Waiting {
                            tracee,
                            due: Instant::now() + first,
                            pause: first,
                        };
                        held.waiting.insert(tracee.tid, waiting);
                    }
                }
            }
        }
    }
}

impl Watched {
    /// Tells what has happened until now.
    pub(super) fn tell_observers(&self, observers: &mut Observers) {
        let observations = {
            let mut state = self.state();
            state.pump();
            state.table.take_observations()
        };
        observers.deliver(observations);
    }

    /// Lets every thread go on that is held, after what it does was looked at, and all before it told.
    pub(super) fn answer(&self, observers: &mut Observers) {
        let receive = |held: &Held| held.listener.receive().ok().flatten();
        while let Some(Notified { id, tid, call }) = observers.held.as_ref().and_then(receive) {
            let (tracee, observations, now) = {
                let mut state = self.state();
                let now = state.table.clock.now();
                state.pump();
                let observations = state.table.take_observations();
                (state.table.tracee(tid), observations, now)
            };
            observers.deliver(observations);
            if let Some(tracee) = tracee {
                observers.called(tracee, call, now);
                let mut state = self.state();
                let held_ns = state.table.clock.now().saturating_sub(now);
                state.table.was_held(tracee.pid, held_ns);
            }
            if let Some(held) = &mut observers.held {
                held.listener.go_on(id);
                if matches!(call.kind, CallKind::Exec) {
                    held.soon = Some(Instant::now() + SOON);
                }
            }
        }
    }
}
