//! Reports to observers. No process is stopped for them: the event has happened, and its snapshot comes with
//! it.

use flowtrace_schema::Recorder;

use super::observations::{Executed, Observation, What};
use crate::proc::environment::Wanted;
use crate::proc::inherited::Inherited;
use crate::proc::observer::{Observer, Tracee};
use crate::proc::snapshot::{LiveSnapshot, ProcessSnapshot};
use crate::proc::tracepoints::BpfSnapshot;

/// The observers of processes.
#[derive(Default)]
pub(crate) struct Observers {
    all: Vec<Box<dyn Observer + Send>>,
    beginnings: Option<Beginnings>,
}

/// State for recording the begins of programs.
struct Beginnings {
    recorder: Recorder,
    wanted: Wanted,
    inherited: Inherited,
}

impl Observers {
    /// Reports to `observer`, too, from now on.
    pub(crate) fn observe(&mut self, observer: Box<dyn Observer + Send>) {
        self.all.push(observer);
    }

    /// Records the state at the begin of programs, where the kernel reports their open files. Environments
    /// are only compared, except for the variables in `wanted`.
    pub(crate) fn record_beginnings(&mut self, recorder: Recorder, wanted: Wanted) {
        self.beginnings = Some(Beginnings {
            recorder,
            wanted,
            inherited: Inherited::default(),
        });
    }

    fn report(&mut self, mut what: impl FnMut(&mut dyn Observer)) {
        for observer in &mut self.all {
            what(observer.as_mut());
        }
    }

    /// All events before `until` were reported.
    pub(super) fn complete(&mut self, until: u64) {
        self.report(|observer| observer.complete(until));
    }

    /// Reports changes.
    pub(super) fn deliver(&mut self, observations: Vec<Observation>) {
        // The content of pipes is read before the programs read it.
        for observation in &observations {
            if let What::Executed(executed) = &observation.what
                && let Some(snapshot) = &executed.snapshot
            {
                snapshot.keep_contents();
            }
        }
        for Observation { at, tracee, what } in observations {
            match what {
                What::Forked(maker, snapshot) => {
                    self.forked(maker, tracee, snapshot.as_deref(), at);
                }
                What::ThreadBegan => self.report(|observer| observer.thread_began(tracee, at)),
                What::Executed(executed) => self.executed(tracee, *executed, at),
                What::ImageOver {
                    usage,
                    exec,
                    by_exec,
                } => {
                    let here = LiveSnapshot(tracee.pid);
                    let exec = by_exec.then(|| snapshot_of(exec.as_deref(), &here));
                    self.report(|observer| observer.image_over(tracee, &usage, exec, at));
                }
                What::Exiting(snapshot) => {
                    self.report(|observer| observer.exiting(tracee, true, &*snapshot, at));
                }
                What::Ended => self.report(|observer| observer.ended(tracee, at)),
                What::Called(called) => {
                    self.report(|observer| observer.reported(tracee, &called, at));
                }
                What::Stopped => self.report(|observer| observer.stopped(tracee, at)),
            }
        }
    }

    fn forked(&mut self, maker: Tracee, child: Tracee, snapshot: Option<&BpfSnapshot>, at: u64) {
        let here = LiveSnapshot(maker.pid);
        let snapshot = snapshot_of(snapshot, &here);
        self.report(|observer| observer.forked(maker, child, snapshot, at));
    }

    fn executed(&mut self, tracee: Tracee, executed: Executed, at: u64) {
        let Executed {
            prev,
            environ,
            snapshot,
        } = executed;
        let here = LiveSnapshot(tracee.pid);
        let umask = snapshot.as_ref().and_then(|snapshot| snapshot.umask);
        let snapshot = snapshot_of(snapshot.as_deref(), &here);
        self.report(|observer| observer.executed(tracee, prev, snapshot, at));
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
        inherited.record(recorder, pid, upid, umask, digest, snapshot);
        self.report(|observer| observer.began_with(tracee, snapshot, at));
    }
}

/// The reported snapshot, or the present state.
fn snapshot_of<'a>(
    reported: Option<&'a BpfSnapshot>,
    here: &'a LiveSnapshot,
) -> &'a dyn ProcessSnapshot {
    match reported {
        Some(reported) => reported,
        None => here,
    }
}
