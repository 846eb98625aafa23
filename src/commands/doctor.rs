//! `flowtrace doctor`: what works here.

use std::io::Write;
use std::process::ExitCode;

use flowtrace_tracer::doctor::{Verdict, examine};

use super::Outcome;

/// Say what can be traced on this machine, what cannot, and the remedy
///
/// Tries everything for real. Exit status 1 when something is missing.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args) -> Outcome {
    let checks = examine();
    let mut out = std::io::stdout().lock();
    for check in &checks {
        let verdict = match check.verdict {
            Verdict::Works => "ok     ",
            Verdict::Limited => "limited",
            Verdict::Missing => "missing",
        };
        writeln!(out, "{verdict}  {:<44} {}", check.facility, check.found)?;
        if let Some(remedy) = &check.remedy {
            writeln!(out, "         remedy: {remedy}")?;
        }
    }
    let missing = checks.iter().any(|check| check.verdict == Verdict::Missing);
    Ok(ExitCode::from(u8::from(missing)))
}
