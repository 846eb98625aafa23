//! Limits of hand-made runs whose truth is known.

use flowtrace_profiler::analysis::bottlenecks::{self, Bottlenecks, Options};
use flowtrace_profiler::analysis::critical_path::CriticalPath;
use flowtrace_profiler::graph::{self, Dag};
use flowtrace_profiler::load::{load, load_activity};
use flowtrace_profiler::model::Workflow;
use flowtrace_profiler::timeline::{self, Timeline};
use flowtrace_schema::Trace;

mod beyond;
mod bottleneck;
mod confined;
mod growing;
mod in_order;
#[path = "../support/play.rs"]
mod play;
mod servers;
mod sockets;
mod threads;
mod waiting;

/// A hand-made run and its results.
pub(crate) struct Run {
    _directory: tempfile::TempDir,
    pub(crate) workflow: Workflow,
    pub(crate) dag: Dag,
    pub(crate) timeline: Timeline,
    pub(crate) path: CriticalPath,
}

/// Makes a run on a machine with two CPUs and reads it. `build` ends the run.
pub(crate) fn run(build: impl FnOnce(play::Play)) -> Run {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.db");
    build(play::Play::new(&path, "run.sh", 2));
    let trace = Trace::open(&path).unwrap();
    let workflow = load(&trace).unwrap();
    let timeline = timeline::read(&trace, &workflow).unwrap();
    let dag = graph::build(&workflow);
    let path = CriticalPath::of(&workflow, &load_activity(&trace, &workflow).unwrap());
    Run {
        _directory: directory,
        workflow,
        dag,
        timeline,
        path,
    }
}

impl Run {
    /// The bottlenecks by rule.
    pub(crate) fn bottlenecks(&self) -> Bottlenecks {
        let names = bottlenecks::by_rule(&self.workflow);
        let options = Options::default();
        bottlenecks::analyse(
            &self.workflow,
            &self.dag,
            &self.timeline,
            &names,
            true,
            options,
        )
    }

    /// The first cause: step or `None`, resource, percent of the run.
    pub(crate) fn cause(&self) -> Option<(Option<String>, &'static str, i64)> {
        let result = self.bottlenecks();
        let cause = result.causes.first()?;
        let task = cause.task.map(|task| result.tasks.tasks[task].name());
        Some((
            task,
            cause.resource.name(),
            (cause.share * 100.0).round() as i64,
        ))
    }
}
