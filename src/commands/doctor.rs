//! `flowtrace doctor`: the facilities that work here.

use std::io::Write;
use std::process::ExitCode;

use clap::ValueEnum;
use flowtrace_tracer::doctor::{Check, Verdict, examine};
use serde_json::json;

use crate::failure::Outcome;

/// Report what can be traced on this machine, what cannot, and the remedy
///
/// Tries everything for real. Exit status 1 when something is missing.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Text for people, or JSON
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A line for each facility
    Text,
    /// A list of objects
    Json,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let checks = examine();
    let mut out = std::io::stdout().lock();
    match args.format {
        Format::Text => text(&checks, &mut out)?,
        Format::Json => {
            let rows: Vec<_> = checks.iter().map(row).collect();
            serde_json::to_writer_pretty(&mut out, &rows).map_err(std::io::Error::from)?;
            writeln!(out)?;
        }
    }
    let missing = checks.iter().any(|check| check.verdict == Verdict::Missing);
    Ok(ExitCode::from(u8::from(missing)))
}

fn name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Works => "ok",
        Verdict::Limited => "limited",
        Verdict::Missing => "missing",
    }
}

fn text(checks: &[Check], out: &mut impl Write) -> std::io::Result<()> {
    for check in checks {
        let verdict = name(check.verdict);
        writeln!(out, "{verdict:<7}  {:<44} {}", check.facility, check.found)?;
        if let Some(remedy) = &check.remedy {
            writeln!(out, "         remedy: {remedy}")?;
        }
    }
    Ok(())
}

fn row(check: &Check) -> serde_json::Value {
    json!({
        "facility": check.facility,
        "verdict": name(check.verdict),
        "found": check.found,
        "remedy": check.remedy,
    })
}
