//! `flowtrace summary`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use flowtrace_profiler::load::load;
use flowtrace_profiler::text::summary::{self, Style};
use flowtrace_schema::Trace;

use crate::output;

/// Summarise a run: how it ended, where the time went, what data moved
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Trace to read
    trace: PathBuf,
    /// Text for people, or JSON with exact numbers
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A few lines
    Text,
    /// One object; times in nanoseconds, sizes in bytes
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
                    is_coloured: output::wants_colour(path),
                };
                out.write_all(summary::text(&workflow, &args.trace, style).as_bytes())?;
            }
            Format::Json => {
                serde_json::to_writer_pretty(&mut *out, &summary::facts(&workflow))
                    .map_err(std::io::Error::from)?;
                writeln!(out)?;
            }
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}
