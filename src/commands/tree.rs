//! `flowtrace tree`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use flowtrace_profiler::load::load;
use flowtrace_profiler::text::tree::{self, Style};
use flowtrace_schema::Trace;

use crate::output;

/// Show the tree of processes with their times and the bytes they moved
///
/// Processes alike (same step, same ending, same kinds of children) share a line, with ×N and
/// their sums. A process that called exec is shown as its last program.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Trace to read
    trace: PathBuf,
    /// A line for every process, with every program it was
    #[arg(long)]
    full: bool,
    /// Text for people, or JSON with every process and exact numbers
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A tree
    Text,
    /// A list in the order of the tree; times in nanoseconds, sizes in bytes
    Json,
}

pub(crate) fn run(args: &Args) -> super::Outcome {
    let workflow = load(&Trace::open(&args.trace)?)?;
    let path = args.output.as_deref();
    output::write_to(path, &args.trace, |out| {
        match args.format {
            Format::Text => {
                let style = Style {
                    width: output::width(path),
                    is_full: args.full,
                };
                out.write_all(tree::text(&workflow, style).as_bytes())?;
            }
            Format::Json => {
                serde_json::to_writer_pretty(&mut *out, &tree::rows(&workflow))
                    .map_err(std::io::Error::from)?;
                writeln!(out)?;
            }
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}
