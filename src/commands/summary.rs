//! `flowtrace summary`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use flowtrace_profiler::text::summary::{self, Style};

use crate::{explained, output};

/// Summarise a run: its end, its time, its data
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Trace to read
    #[arg(default_value = flowtrace_schema::DEFAULT_TRACE)]
    trace: PathBuf,
    /// Text for people, or JSON with exact numbers [default: by the ending of FILE, else text]
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    output: output::Target,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A few lines
    Text,
    /// One object; times in nanoseconds, sizes in bytes
    Json,
}

pub(crate) fn run(args: &Args) -> crate::failure::Outcome {
    let format = args.output.format(args.format, Format::Text)?;
    let (trace, workflow) = explained::open(&args.trace)?;
    let verdict = explained::verdict(&trace, &workflow)?;
    let path = args.output.path();
    output::write_to(&args.output, &args.trace, |out| {
        match format {
            Format::Text => {
                let style = Style {
                    width: output::width(path),
                    is_coloured: output::wants_colour(path),
                };
                let text = summary::with_verdict(&workflow, &args.trace, style, &verdict);
                out.write_all(text.as_bytes())?;
            }
            Format::Json => {
                let facts = summary::facts(&workflow);
                let verdict = &verdict;
                output::json(out, &summary::Judged { facts, verdict })?;
            }
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}
