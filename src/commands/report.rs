//! `flowtrace report`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use flowtrace_profiler::load::load;
use flowtrace_profiler::report::{self, Limits};
use flowtrace_render::units;
use flowtrace_schema::Trace;

use crate::{output, progress};

/// Write one HTML file that shows the run: timeline, graph, tree, tables
///
/// The file needs nothing else: it opens from disk in any browser, without a network, and can be sent to
/// others. Without -o it is named like the trace, and lies in the current directory.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  flowtrace report trace.db
  flowtrace report trace.db -o run.html
  flowtrace report trace.db --format json -o - | jq '.head.facts.duration_ns'")]
pub(crate) struct Args {
    /// Trace to read
    trace: PathBuf,
    /// A page for people, or its data [default: by the ending of FILE, else html]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Write to FILE; `-` for standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace an existing file even if flowtrace did not write it, or somebody changed it since
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One self-contained page
    Html,
    /// The data of the page as one object; times in nanoseconds, sizes in bytes
    Json,
}

pub(crate) fn run(args: &Args) -> crate::failure::Outcome {
    let given = args.output.clone().filter(|path| path != Path::new("-"));
    let given = output::Target::new(given, args.force);
    let format = given.format(args.format, Format::Html)?;
    let target = match args.output {
        None if format == Format::Html => {
            output::Target::new(Some(default_path(&args.trace)), args.force)
        }
        _ => given,
    };
    let trace = Trace::open(&args.trace)?;
    let working = progress::working(format!("reading {}", args.trace.display()));
    let workflow = load(&trace)?;
    let report = report::gather(&workflow, &trace, Limits::default())?;
    drop(working);
    output::write_to(&target, &args.trace, |mut out| {
        match format {
            Format::Html => report.write_html(&mut out)?,
            Format::Json => report.write_json(&mut out)?,
        }
        Ok(())
    })?;
    if let Some(path) = target.path() {
        let size = path.metadata().map_or(0, |m| m.len() as i64);
        message!(
            "flowtrace: wrote {}, {}; open it in a browser",
            path.display(),
            units::bytes(size)
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// `trace.html` here for `…/trace.db`.
fn default_path(trace: &Path) -> PathBuf {
    let mut path = PathBuf::from(trace.file_name().unwrap_or("trace".as_ref()));
    path.set_extension("html");
    path
}
