//! `flowtrace dag`.

use std::path::PathBuf;
use std::process::ExitCode;

use flowtrace_schema::Trace;

use crate::drawing::{Format, View};
use crate::output;

/// Write the workflow as a graph of processes and files
///
/// Ellipses are processes, boxes files, dotted lines forks; red is the one critical path that `flowtrace
/// critical-path` names. An edge shows the bytes that moved along it, and the bytes per second of the time in
/// the calls that moved them; the width of its line shows either (`--width`). Every picture has its legend.
/// The edges of data never make a cycle; an edge that would is left out and counted. `flowtrace export` has
/// further formats.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  flowtrace dag trace.db | dot -Tsvg > dag.svg
  flowtrace dag trace.db --format text
  flowtrace dag trace.db --by twins --width rate -o dag.png
  flowtrace dag trace.db --ancestors-of mosaic.png --by rule
  flowtrace dag trace.db --by process --format graphml -o dag.graphml")]
pub(crate) struct Args {
    /// Trace to read
    #[arg(default_value = flowtrace_schema::DEFAULT_TRACE)]
    trace: PathBuf,
    /// Format of the graph [default: by the ending of FILE, else dot]
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    view: View,
    #[command(flatten)]
    output: output::Target,
}

pub(crate) fn run(args: &Args) -> crate::failure::Outcome {
    let trace = Trace::open(&args.trace)?;
    let format = args.output.format(args.format, Format::Dot)?;
    args.view.write(&trace, format, None, &args.output)?;
    Ok(ExitCode::SUCCESS)
}
