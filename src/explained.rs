//! A trace, read and ready to be explained.

use std::path::Path;

use flowtrace_profiler::graph::{self, Dag};
use flowtrace_profiler::load::load;
use flowtrace_profiler::model::Workflow;
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

/// Reads all of a trace. One that holds no run is refused: mostly its -wal file was left behind.
pub(crate) fn read(path: &Path) -> Result<Explained, Failure> {
    let trace = Trace::open(path)?;
    let workflow = load(&trace)?;
    if workflow.runs.is_empty() && workflow.images.is_empty() && !workflow.is_live {
        return Err(
            Failure::usage(format!("{} holds no run", path.display())).hint(
                "a recording that was killed keeps its rows in the -wal file beside it: copy both",
            ),
        );
    }
    let timeline = timeline::read(&trace, &workflow)?;
    let dag = graph::build(&workflow);
    Ok(Explained {
        trace,
        workflow,
        dag,
        timeline,
    })
}

/// The name of a trace as one types it in a shell.
pub(crate) fn typed(path: &Path) -> String {
    quote_argv([path.as_os_str().as_encoded_bytes()])
        .text()
        .into_owned()
}
