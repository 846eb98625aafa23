//! `flowtrace compare`.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use flowtrace_profiler::compare::{RunFacts, compare, html, text};
use flowtrace_schema::Trace;

use crate::{output, progress};

/// Compare two runs: what is new, gone, slower, reads more, waits longer
///
/// Steps are aligned by rule, files by the pattern of their names; of packets the rates, periods, messages
/// and balance are compared. Differences that two equal runs have as well are no findings, but another
/// duration is always reported. Exit status 1: there is a finding.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  flowtrace compare before.db after.db
  flowtrace compare a1.db b1.db --with a2.db --with a3.db --against b2.db --against b3.db
  flowtrace compare before.db after.db --format html -o compare.html")]
pub(crate) struct Args {
    /// Trace of the first run
    a: PathBuf,
    /// Trace of the second run
    b: PathBuf,
    /// Another run like the first; may be given several times
    #[arg(long, value_name = "TRACE")]
    with: Vec<PathBuf>,
    /// Another run like the second; may be given several times
    #[arg(long, value_name = "TRACE")]
    against: Vec<PathBuf>,
    /// Text for people, JSON, or one HTML file [default: by the ending of FILE, else text]
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    output: output::Target,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// The findings, the answer first
    Text,
    /// One object; times in nanoseconds, sizes in bytes
    Json,
    /// One file that needs nothing else
    Html,
}

pub(crate) fn run(args: &Args) -> crate::failure::Outcome {
    let format = args.output.format(args.format, Format::Text)?;
    let side =
        |first: &Path, others: &[PathBuf]| -> Result<Vec<RunFacts>, flowtrace_schema::Error> {
            let traces = std::iter::once(first).chain(others.iter().map(PathBuf::as_path));
            let facts =
                traces.map(|path| RunFacts::of(&Trace::open(path)?, &path.display().to_string()));
            facts.collect()
        };
    let working = progress::working("comparing");
    let comparison = compare(&side(&args.a, &args.with)?, &side(&args.b, &args.against)?);
    drop(working);
    let path = args.output.path();
    output::write_to(&args.output, &args.b, |out| {
        match format {
            Format::Text => {
                // A reader of a pipe or file wants each finding on its line.
                let is_terminal = path.is_none() && std::io::stdout().is_terminal();
                let width = is_terminal.then(|| output::width(path));
                output::text(out, &text::text(&comparison, width))?;
            }
            Format::Html => html::write(&comparison, out)?,
            Format::Json => {
                output::json(out, &comparison)?;
            }
        }
        Ok(())
    })?;
    Ok(match comparison.findings.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(1),
    })
}
