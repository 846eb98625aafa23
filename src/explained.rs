//! A trace, read and ready to be explained.

use std::path::Path;

use flowtrace_profiler::analysis::critical_path::CriticalPath;
use flowtrace_profiler::analysis::findings::{self, Verdict};
use flowtrace_profiler::analysis::hot;
use flowtrace_profiler::analysis::statistics::calls::{CallStatistics, load_and_gather};
use flowtrace_profiler::graph::{self, Dag};
use flowtrace_profiler::load::{load, load_activity};
use flowtrace_profiler::model::Workflow;
use flowtrace_profiler::stacks::Samples;
use flowtrace_profiler::text::summary;
use flowtrace_profiler::timeline::{self, Timeline};
use flowtrace_schema::{Trace, quote_argv};

use crate::failure::Failure;

/// A trace with its workflow, graph and timeline.
#[derive(Debug)]
pub(crate) struct Explained {
    pub(crate) trace: Trace,
    pub(crate) workflow: Workflow,
    pub(crate) dag: Dag,
    pub(crate) timeline: Timeline,
}

/// Opens a trace and reads its processes. A trace without a run is refused: mostly its -wal file was left
/// behind.
pub(crate) fn open(path: &Path) -> Result<(Trace, Workflow), Failure> {
    let trace = Trace::open(path)?;
    let workflow = load(&trace)?;
    holds_a_run(path, &workflow)?;
    Ok((trace, workflow))
}

/// As [`open`], with the statistics of all calls over time in at most `bins` intervals.
pub(crate) fn open_with_calls(
    path: &Path,
    bins: usize,
) -> Result<(Workflow, CallStatistics), Failure> {
    let (workflow, calls) = load_and_gather(&Trace::open(path)?, bins)?;
    holds_a_run(path, &workflow)?;
    Ok((workflow, calls))
}

fn holds_a_run(path: &Path, workflow: &Workflow) -> Result<(), Failure> {
    if workflow.runs.is_empty() && workflow.images.is_empty() && !workflow.is_live {
        return Err(
            Failure::usage(format!("{} has no run", path.display())).hint(
                "a recording that was killed keeps its rows in the -wal file beside it: copy both",
            ),
        );
    }
    Ok(())
}

/// As [`open`], for a question about processes; `what` names the question. A trace of packets alone is
/// refused, for its processes are no more than ends of connections.
pub(crate) fn open_with_processes(path: &Path, what: &str) -> Result<(Trace, Workflow), Failure> {
    let (trace, workflow) = open(path)?;
    if workflow.lacks_processes() && workflow.network.is_some() {
        let why = summary::not_recorded(true);
        let failure = Failure::usage(format!("{what} of {}: {why}", path.display()));
        return Err(failure.hint(
            "flowtrace run --net records processes and packets; flowtrace network analyses packets alone",
        ));
    }
    Ok((trace, workflow))
}

/// Reads all of a trace, for the question `what` about processes.
pub(crate) fn read(path: &Path, what: &str) -> Result<Explained, Failure> {
    let (trace, workflow) = open_with_processes(path, what)?;
    let timeline = timeline::read(&trace, &workflow)?;
    let dag = graph::build(&workflow);
    Ok(Explained {
        trace,
        workflow,
        dag,
        timeline,
    })
}

/// The critical path of a run.
pub(crate) fn critical_path(trace: &Trace, workflow: &Workflow) -> Result<CriticalPath, Failure> {
    Ok(CriticalPath::of(workflow, &load_activity(trace, workflow)?))
}

/// The sampled call stacks of a trace.
///
/// # Errors
/// If there are none.
pub(crate) fn stacks(trace: &Trace, workflow: &Workflow) -> Result<Samples, Failure> {
    let samples = Samples::read(trace, workflow)?;
    let samples = samples.filter(|all| !all.samples.is_empty() || !all.waits.is_empty());
    samples.ok_or_else(|| {
        Failure::new(
            1,
            format!("there are no call stacks in {}", trace.path().display()),
        )
        .hint("flowtrace run --stacks records them")
    })
}

/// The name of a trace as one types it in a shell.
pub(crate) fn typed(path: &Path) -> String {
    quote_argv([path.as_os_str().as_encoded_bytes()])
        .text()
        .into_owned()
}

/// Analyses a run whose rows are read already: for the summary.
///
/// A run whose processes were not recorded has no verdict.
pub(crate) fn verdict(trace: &Trace, workflow: &Workflow) -> Result<Verdict, Failure> {
    if workflow.lacks_processes() {
        return Ok(Verdict::default());
    }
    let timeline = timeline::read(trace, workflow)?;
    let dag = graph::build(workflow);
    let path = critical_path(trace, workflow)?;
    let mut verdict = findings::verdict(workflow, &dag, &timeline, &path);
    if let Some(samples) = Samples::read(trace, workflow)? {
        verdict.hot = hot::line(&samples, workflow, &path, verdict.step.as_deref());
    }
    verdict.critical_path = summary::critical_path(workflow, &path);
    Ok(verdict)
}
