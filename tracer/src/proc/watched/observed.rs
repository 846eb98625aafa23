//! Telling others what becomes of the processes. Nobody is held for it: it has happened, and what a process had then is told with it.

use flowtrace_schema::Recorder;

use super::observations::{Executed, Observation, What};
use crate::proc::environment::Wanted;
use crate::proc::inherited::Inherited;
use crate::proc::observer::{Observer, Tracee};
use crate::proc::snapshot::{LiveSnapshot, ProcessSnapshot};
use crate::proc::tracepoints::Told;

/// Who learns of the processes.
#[derive(Default)]
pub(crate) struct Observers {
    all: Vec<Box<dyn Observer + Send>>,
    beginnings: Option<Beginnings>,
}

/// What is needed to record what programs begin with.
struct Beginnings {
    recorder: Recorder,
    wanted: Wanted,
    inherited: Inherited,
}

impl Observers {
    /// Tells `observer`, too, from now on.
    pub(crate) fn observe(&mut self, observer: Box<dyn Observer + Send>) {
        self.all.push(observer);
    }

    /// Records what programs begin with: of environments whether they differ, but for what is `wanted`. Where the
    /// kernel tells what they have open.
    pub(crate) fn record_beginnings(&mut self, recorder: Recorder, wanted: Wanted) {
        self.beginnings = Some(Beginnings {
            recorder,
            wanted,
            inherited: Inherited::default(),
        });
    }

    fn tell(&mut self, mut what: impl FnMut(&mut dyn Observer)) {
        for observer in &mut self.all {
            what(observer.as_mut());
        }
    }

    /// Tells that all until this moment was told.
    pub(super) fn complete(&mut self, until: u64) {
        self.tell(|observer| observer.complete(until));
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
                    let here = LiveSnapshot(tracee.pid);
                    let exec = by_exec.then(|| moment_of(exec.as_deref(), &here));
                    self.tell(|observer| observer.image_over(tracee, &usage, exec, at));
                }
                What::Exiting(moment) => {
                    self.tell(|observer| observer.exiting(tracee, true, &*moment, at));
                }
                What::Ended => self.tell(|observer| observer.ended(tracee, at)),
                What::Called(called) => self.tell(|observer| observer.told(tracee, &called, at)),
                What::Stopped => self.tell(|observer| observer.stopped(tracee, at)),
            }
        }
    }

    fn forked(&mut self, maker: Tracee, child: Tracee, moment: Option<&Told>, at: u64) {
        let here = LiveSnapshot(maker.pid);
        let moment = moment_of(moment, &here);
        self.tell(|observer| observer.forked(maker, child, moment, at));
    }

    fn executed(&mut self, tracee: Tracee, executed: Executed, at: u64) {
        let Executed {
            prev,
            environ,
            moment,
        } = executed;
        let here = LiveSnapshot(tracee.pid);
        let umask = moment.as_ref().and_then(|moment| moment.umask);
        let moment = moment_of(moment.as_deref(), &here);
        self.tell(|observer| observer.executed(tracee, prev, moment, at));
        let Some(beginnings) = &mut self.beginnings else {
            return;
        };
        let Beginnings {
            recorder,
            wanted,
            inherited,
            ..
        } = beginnings;
        let digest = environ.map(|environ| inherited.digest(&environ, wanted));
        let (pid, upid) = (tracee.pid, tracee.upid);
        inherited.record(recorder, pid, upid, umask, digest, moment);
        self.tell(|observer| observer.began_with(tracee, moment, at));
    }
}

/// What was told of a moment, or what there is now.
fn moment_of<'a>(told: Option<&'a Told>, here: &'a LiveSnapshot) -> &'a dyn ProcessSnapshot {
    match told {
        Some(told) => told,
        None => here,
    }
}
