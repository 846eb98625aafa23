//! `flowtrace report`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::ValueEnum;
use flowtrace_profiler::load::load;
use flowtrace_profiler::report::{self, Limits};
use flowtrace_render::units;
use flowtrace_schema::Trace;

use crate::failure::Failure;
use crate::{output, progress};

/// Write one HTML file that shows the run: timeline, graph, tree, tables
///
/// The file needs nothing else: it opens from disk in any browser, without a network, and can be sent to
/// others. Without -o it is named like the trace, and lies in the current directory.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  flowtrace report --open
  flowtrace report night.db -o run.html
  flowtrace report trace.db --format json -o - | jq '.head.facts.duration_ns'")]
pub(crate) struct Args {
    /// Trace to read
    #[arg(default_value = flowtrace_schema::DEFAULT_TRACE)]
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
    /// Open the page in a browser, with xdg-open
    #[arg(long)]
    open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One self-contained page
    Html,
    /// The data of the page as one object; times in nanoseconds, sizes in bytes
    Json,
}

pub(crate) fn run(args: &Args) -> crate::failure::Outcome {
    let given = output::Target::new(args.output.clone(), args.force);
    let format = given.format(args.format, Format::Html)?;
    let target = match args.output {
        None if format == Format::Html => {
            output::Target::new(Some(default_path(&args.trace)), args.force)
        }
        _ => given,
    };
    if args.open && target.path().is_none() {
        return Err(Failure::usage(
            "--open needs a file to open, and this report goes to standard output",
        )
        .hint("leave out -o -, or --open"));
    }
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
        let advice = if args.open {
            ""
        } else {
            "; open it in a browser, or add --open"
        };
        message!(
            "flowtrace: wrote {}, {}{advice}",
            path.display(),
            units::bytes(size)
        );
        if args.open {
            open(path)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens a page as the desktop of the user does.
fn open(page: &Path) -> Result<(), Failure> {
    let failed = |why: String| {
        Failure::new(1, format!("cannot open {}: {why}", page.display()))
            .hint("open the file in a browser; xdg-open is in the package xdg-utils")
    };
    // A name that begins with a dash is no option.
    let page = std::path::absolute(page).unwrap_or_else(|_| page.to_owned());
    let status = Command::new("xdg-open")
        .arg(&page)
        .stdin(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(format!("xdg-open failed ({status})"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(failed("there is no xdg-open here".into()))
        }
        Err(error) => Err(failed(format!("xdg-open: {error}"))),
    }
}

/// `trace.html` here for `…/trace.db`.
fn default_path(trace: &Path) -> PathBuf {
    let mut path = PathBuf::from(trace.file_name().unwrap_or("trace".as_ref()));
    path.set_extension("html");
    path
}
