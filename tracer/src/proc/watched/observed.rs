//! Telling others what becomes of the processes, and holding threads at calls on the way ([`crate::proc::notifications`]).
//!
//! Nobody is held when a fork, an exec or an end is told: it has happened, and what the process had then is told with it. All
//! that happened until a call is told before that.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use flowtrace_schema::Recorder;

use super::Watched;
use super::observations::{Executed, Observation, What};
use crate::proc::environment::Wanted;
use crate::proc::inherited::Inherited;
use crate::proc::moment::{Held as Here, Moment};
use crate::proc::notifications::{Listener, Notified};
use crate::proc::observer::{Observer, Tracee};
use crate::proc::topology::{Call, CallKind};
use crate::proc::tracepoints::Told;

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
    /// File mode creation masks that processes set, or their forebears.
    umasks: HashMap<u32, u32>,
    /// Threads that made a call whose result somebody waits for.
    waiting: HashMap<u32, Waiting>,
}

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
            umasks: HashMap::new(),
            waiting: HashMap::new(),
        });
    }

    /// Readable when a thread is held; `None`: there is none any more that could be.
    pub(super) fn signal(&self) -> Option<BorrowedFd<'_>> {
        let held = self.held.as_ref().filter(|held| !held.listener.is_over());
        held.map(|held| held.listener.as_fd())
    }

    /// When is to be looked for what a call did.
    pub(super) fn due(&self) -> Option<Instant> {
        let held = self.held.as_ref()?;
        held.waiting.values().map(|waiting| waiting.due).min()
    }

    /// Looks for what calls did that have not been followed by others.
    pub(super) fn look_for_results(&mut self, now: u64) {
        let Observers { all, held } = self;
        let Some(held) = held else {
            return;
        };
        let moment = Instant::now();
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
        // Before the programs read it.
        for observation in &observations {
            if let What::Executed(executed) = &observation.what
                && let Some(moment) = &executed.moment
            {
                moment.keep_contents();
            }
        }
        for Observation { at, tracee, what } in observations {
            match what {
                What::Forked(maker, moment) => self.forked(maker, tracee, moment.as_deref(), at),
                What::ThreadBegan => self.tell(|observer| observer.thread_began(tracee, at)),
                What::Executed(executed) => self.executed(tracee, *executed, at),
                What::ImageOver {
                    usage,
                    exec,
                    by_exec,
                } => {
                    let here = Here(tracee.pid);
                    let exec = by_exec.then(|| moment_of(exec.as_deref(), &here));
                    if let Some(moment) = exec {
                        self.has_returned(tracee, moment, at);
                    }
                    self.tell(|observer| observer.image_over(tracee, &usage, exec, at));
                }
                What::Exiting(moment) => self.exiting(tracee, &*moment, at),
                What::Ended => self.ended(tracee, at),
                What::Stopped => self.tell(|observer| observer.stopped(tracee, at)),
            }
        }
    }

    fn forked(&mut self, maker: Tracee, child: Tracee, moment: Option<&Told>, at: u64) {
        if let Some(held) = &mut self.held
            && let Some(&umask) = held.umasks.get(&maker.pid)
        {
            held.umasks.insert(child.pid, umask);
        }
        if let Some(told) = moment {
            let tid = told.tid;
            self.has_returned(Tracee { tid, ..maker }, told, at);
        }
        let here = Here(maker.pid);
        let moment = moment_of(moment, &here);
        self.tell(|observer| observer.forked(maker, child, moment, at));
    }

    fn executed(&mut self, tracee: Tracee, executed: Executed, at: u64) {
        let Executed {
            prev,
            environ,
            moment,
        } = executed;
        let here = Here(tracee.pid);
        let moment = moment_of(moment.as_deref(), &here);
        self.tell(|observer| observer.executed(tracee, prev, at));
        let Some(held) = &mut self.held else {
            return;
        };
        let digest = environ.map(|environ| held.inherited.digest(&environ, &held.wanted));
        let umask = held.umasks.get(&tracee.pid).copied();
        let (pid, upid) = (tracee.pid, tracee.upid);
        held.inherited
            .record(&held.recorder, pid, upid, umask, digest, moment);
        self.tell(|observer| observer.began_with(tracee, moment, at));
    }

    /// The last thread of a process begins to end it.
    fn exiting(&mut self, tracee: Tracee, moment: &dyn Moment, at: u64) {
        let held = self.held.as_ref();
        let waiting = held.into_iter().flat_map(|held| held.waiting.values());
        let waiting = waiting.map(|waiting| waiting.tracee);
        let waiting = waiting.filter(|other| other.pid == tracee.pid);
        for other in waiting.collect::<Vec<_>>() {
            self.has_returned(other, moment, at);
        }
        self.tell(|observer| observer.exiting(tracee, true, moment, at));
    }

    fn ended(&mut self, tracee: Tracee, at: u64) {
        self.has_returned(tracee, &Here(tracee.pid), at);
        self.tell(|observer| observer.ended(tracee, at));
        if let Some(held) = &mut self.held
            && tracee.tid == tracee.pid
        {
            held.umasks.remove(&tracee.pid);
        }
    }

    /// A call of this thread is over, if somebody waits for the result of one.
    fn has_returned(&mut self, tracee: Tracee, moment: &dyn Moment, now: u64) {
        let held = self.held.as_mut();
        if held.is_some_and(|held| held.waiting.remove(&tracee.tid).is_some()) {
            self.tell(|observer| observer.has_returned(tracee, moment, now));
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
        self.has_returned(tracee, &Here(tracee.pid), now);
        if call.kind == CallKind::Connect {
            self.look_again_soon();
        }
        let mut wanted = false;
        self.tell(|observer| wanted |= observer.called(tracee, call, now));
        let Some(held) = &mut self.held else {
            return;
        };
        if call.kind == CallKind::Umask {
            held.umasks.insert(tracee.pid, call.mode_mask());
        }
        if wanted {
            // What others make is there until their next call.
            let may_pass = matches!(
                call.kind,
                CallKind::Accept | CallKind::Connect | CallKind::SocketPair
            );
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

/// What was told of a moment, or what there is now.
fn moment_of<'a>(told: Option<&'a Told>, here: &'a Here) -> &'a dyn Moment {
    match told {
        Some(told) => told,
        None => here,
    }
}

impl Watched {
    /// Tells what has happened until now. Whether there was anything.
    pub(super) fn tell_observers(&self, observers: &mut Observers) -> bool {
        let observations = {
            let mut state = self.state();
            state.pump();
            state.table.take_observations()
        };
        let is_any = !observations.is_empty();
        observers.deliver(observations);
        is_any
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
            }
        }
    }
}
