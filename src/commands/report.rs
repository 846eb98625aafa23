//! `flowtrace report`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use flowtrace_profiler::load::load;
use flowtrace_profiler::report::{self, Limits};
use flowtrace_profiler::text::units;
use flowtrace_schema::Trace;

use crate::failure::Failure;
use crate::{output, progress};

/// Write one HTML file that shows the run: timeline, graph, tree, tables
///
/// The file needs nothing else: it opens from disk in any browser, without a network, and can be
/// sent to somebody. Without -o it is named like the trace, and lies in the current directory.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  flowtrace report trace.db
  flowtrace report trace.db -o run.html
  flowtrace report trace.db --format json -o - | jq '.head.facts.duration_ns'")]
pub(crate) struct Args {
    /// Trace to read
    trace: PathBuf,
    /// A page for people, or its data
    #[arg(long, value_enum, default_value_t = Format::Html)]
    format: Format,
    /// Write to FILE; `-` for standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One self-contained page
    Html,
    /// What the page shows as one object; times in nanoseconds, sizes in bytes
    Json,
}

pub(crate) fn run(args: &Args) -> super::Outcome {
    let trace = Trace::open(&args.trace)?;
    let path = match &args.output {
        Some(path) if path == Path::new("-") => None,
        Some(path) => Some(path.clone()),
        None if args.format == Format::Json => None,
        None => Some(default_path(&args.trace)?),
    };
    let working = progress::working(format!("reading {}", args.trace.display()));
    let workflow = load(&trace)?;
    let report = report::gather(&workflow, &trace, Limits::default())?;
    drop(working);
    output::write_to(path.as_deref(), &args.trace, |mut out| {
        match args.format {
            Format::Html => report.write_html(&mut out)?,
            Format::Json => report.write_json(&mut out)?,
        }
        Ok(())
    })?;
    if let Some(path) = path {
        let size = path.metadata().map_or(0, |m| m.len() as i64);
        tell!(
            "flowtrace: wrote {}, {}; open it in a browser",
            path.display(),
            units::bytes(size)
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// `trace.html` here for `…/trace.db`. What stands there is replaced only if it is a report.
fn default_path(trace: &Path) -> Result<PathBuf, Failure> {
    let mut path = PathBuf::from(trace.file_name().unwrap_or("trace".as_ref()));
    path.set_extension("html");
    let mut begin = Vec::new();
    if let Ok(file) = File::open(&path) {
        let read = file.take(500).read_to_end(&mut begin);
        let is_report = String::from_utf8_lossy(&begin).contains("content=\"flowtrace\"");
        if read.is_err() || !(begin.is_empty() || is_report) {
            return Err(Failure::usage(format!(
                "{} is there and is no report of flowtrace",
                path.display()
            ))
            .hint("name another file with -o"));
        }
    }
    Ok(path)
}
