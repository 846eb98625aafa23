//! The comparison for people.

use std::fmt::Write;

use super::{Change, Comparison, Finding, Run, Subject, statistics};
use crate::text::units::{bytes, counted, duration, plain, shorten};

/// Findings that are shown before the others are counted.
const SHOWN: usize = 40;

/// The comparison as text, the answer first.
pub fn text(comparison: &Comparison, width: usize) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    for warning in &comparison.warnings {
        let _ = writeln!(text, "flowtrace: warning: {}", plain(warning));
    }
    let _ = writeln!(text, "flowtrace: {}", headline(comparison));
    for finding in comparison.findings.iter().take(SHOWN) {
        let _ = writeln!(
            text,
            "{}",
            shorten(&format!("  {}", sentence(finding)), width)
        );
    }
    if comparison.findings.len() > SHOWN {
        let _ = writeln!(
            text,
            "  +{} more: --format json",
            comparison.findings.len() - SHOWN
        );
    }
    let _ = writeln!(text, "  compared {}", how(comparison));
    text
}

/// The answer in one line.
pub(super) fn headline(comparison: &Comparison) -> String {
    let mean = |runs: &[Run]| {
        let all: Vec<f64> = runs.iter().map(|run| run.duration_ns as f64).collect();
        statistics::mean(&all)
    };
    let (a, b) = (mean(&comparison.a), mean(&comparison.b));
    let times = format!("{} → {}", duration(a as i64), duration(b as i64));
    match comparison.findings.len() {
        0 => format!("no difference beyond that of two equal runs · {times}"),
        count => format!(
            "{} · {times} ({})",
            counted(count as i64, "difference", "differences"),
            percent(a, b)
        ),
    }
}

pub(super) fn how(comparison: &Comparison) -> String {
    let (a, b) = (comparison.a.len(), comparison.b.len());
    let values = counted(comparison.compared as i64, "value", "values");
    match a > 1 && b > 1 {
        true => format!("{values} of {a} and {b} runs, each tested (Welch, p < 0.01 over all)"),
        false => format!(
            "{values} of {a} and {b} runs; times by a fixed allowance: give more runs with --with and --against"
        ),
    }
}

/// A finding as a sentence.
pub(super) fn sentence(finding: &Finding) -> String {
    let what = match finding.subject {
        Subject::Input => "input ",
        Subject::Rule => "",
        Subject::File => "file ",
    };
    let name = plain(&finding.name);
    let (a, b) = (finding.a, finding.b);
    let is_more = b > a;
    let verb = |more: &'static str, less: &'static str| if is_more { more } else { less };
    let times = || {
        format!(
            "{} → {} ({})",
            duration(a as i64),
            duration(b as i64),
            percent(a, b)
        )
    };
    let sizes = || {
        format!(
            "{} → {} ({})",
            bytes(a as i64),
            bytes(b as i64),
            percent(a, b)
        )
    };
    let mut text = match finding.change {
        Change::New => format!("new      {what}{name}"),
        Change::Gone => format!("gone     {what}{name}"),
        Change::Count => format!(
            "{} {what}{name}: {a:.0} → {b:.0}",
            verb("more    ", "fewer   ")
        ),
        Change::Time => format!("{} {what}{name}: {}", verb("slower  ", "faster  "), times()),
        Change::Cpu => format!(
            "{} {what}{name}: {} cpu",
            verb("slower  ", "faster  "),
            times()
        ),
        Change::Waits => format!(
            "{} {what}{name}: waits {}",
            verb("slower  ", "faster  "),
            times()
        ),
        Change::Reads => format!("reads    {what}{name}: {}", sizes()),
        Change::Writes => format!("writes   {what}{name}: {}", sizes()),
        Change::Size => format!("{} {what}{name}: {}", verb("larger  ", "smaller "), sizes()),
    };
    if let Some(remark) = &finding.remark {
        let _ = write!(text, " · {remark}");
    }
    if let Some(p) = finding.p {
        let _ = match p < 0.0001 {
            true => write!(text, " · p < 0.0001"),
            false => write!(text, " · p = {p:.4}"),
        };
    }
    text
}

fn percent(a: f64, b: f64) -> String {
    match a > 0.0 {
        true => format!("{:+.0} %", (b / a - 1.0) * 100.0).replace('-', "−"),
        false => "was nothing".into(),
    }
}
