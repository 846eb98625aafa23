//! The comparison as text for people.

use std::fmt::Write;

use flowtrace_render::units::{bytes, count, counted, duration, plain, shorten};

use super::{
    Change, Comparison, DurationVerdict, Finding, FunctionRow, Functions, Run, Subject, statistics,
};

/// Number of findings that are shown; others are counted.
const SHOWN: usize = 40;

/// Number of rules that are shown as reasons of another duration.
const REASONS: usize = 3;

/// Number of functions that are shown.
const FUNCTIONS: usize = 5;

/// Indent of the second and later lines of a finding, in columns.
const INDENT: usize = 11;

/// The comparison as text, the answer first. A finding longer than `width` columns continues on the
/// next line; with `None` each is one line.
pub fn text(comparison: &Comparison, width: Option<usize>) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    for warning in &comparison.warnings {
        let _ = writeln!(text, "flowtrace: warning: {}", plain(warning));
    }
    let _ = writeln!(text, "flowtrace: {}", headline(comparison));
    for note in &comparison.notes {
        let _ = writeln!(text, "  note     {}", plain(note));
    }
    let reasons = comparison.reasons.iter().take(REASONS).map(reason);
    let findings = comparison.findings.iter().take(SHOWN).map(sentence);
    for line in reasons.chain(findings) {
        let line = format!("  {line}");
        let _ = writeln!(
            text,
            "{}",
            width.map_or_else(|| line.clone(), |width| wrapped(&line, width))
        );
    }
    if comparison.findings.len() > SHOWN {
        let _ = writeln!(
            text,
            "  +{} more: --format json",
            comparison.findings.len() - SHOWN
        );
    }
    if let Some(network) = &comparison.network {
        for (what, a, b) in network.lines() {
            let _ = writeln!(text, "  packets  {what}: {} → {}", plain(&a), plain(&b));
        }
    }
    for row in comparison.functions.iter().flat_map(functions) {
        let _ = writeln!(text, "  function {row}");
    }
    let _ = writeln!(text, "  compared {}", how(comparison));
    text
}

/// The functions whose CPU time differs most.
fn functions(functions: &Functions) -> Vec<String> {
    /// Least difference, as a share of all CPU time that was sampled.
    const LEAST: f64 = 0.01;
    let all = functions.all_ns.0.max(functions.all_ns.1);
    let matters = |row: &&FunctionRow| (row.b_ns - row.a_ns).abs() >= LEAST * all;
    let rows = functions.rows.iter().filter(matters).take(FUNCTIONS);
    rows.map(|row| {
        format!(
            "{} in {}: {} → {} on CPU ({})",
            shorten(&plain(&row.function), 60),
            plain(&row.rule),
            duration(row.a_ns as i64),
            duration(row.b_ns as i64),
            percent(row.a_ns, row.b_ns)
        )
    })
    .collect()
}

/// A line broken between its parts, which ` · ` separates.
fn wrapped(line: &str, width: usize) -> String {
    let mut text = String::new();
    let mut used = 0;
    for (at, part) in line.split(" · ").enumerate() {
        let length = part.chars().count();
        if at > 0 && used + 3 + length > width {
            let _ = write!(text, "\n{:INDENT$}", "");
            used = INDENT;
        } else if at > 0 {
            text += " · ";
            used += 3;
        }
        text += part;
        used += length;
    }
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
        0 if comparison.duration.verdict == DurationVerdict::Unsure => format!(
            "the duration differs{} · {times} ({}), which may be chance",
            match comparison.reasons.is_empty() {
                true => ", nothing else does",
                false => "",
            },
            percent(a, b)
        ),
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
            "{values} of {a} and {b} runs; with one run of a side only large differences of times count: give more with --with and --against"
        ),
    }
}

/// A reason of another duration as a sentence.
pub(super) fn reason(rule: &Finding) -> String {
    let sentence = sentence(rule);
    let rest = sentence.split_once(' ').map_or("", |(_, rest)| rest);
    format!("reason   {}", rest.trim_start())
}

/// A finding as a sentence.
pub(super) fn sentence(finding: &Finding) -> String {
    let what = match finding.subject {
        Subject::Input => "input ",
        Subject::Rule | Subject::Run | Subject::Network => "",
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
        Change::Span => format!("{} {what}{name}: {}", verb("longer  ", "shorter "), times()),
        Change::Reads => format!("reads    {what}{name}: {}", sizes()),
        Change::Writes => format!("writes   {what}{name}: {}", sizes()),
        Change::ReadCalls | Change::WriteCalls => {
            let which = match finding.change {
                Change::ReadCalls => "read",
                _ => "write",
            };
            let change = match b > 0.0 && a / b >= 10.0 {
                true => format!("{} times fewer", count((a / b) as i64)),
                false => percent(a, b),
            };
            let verb = verb("more    ", "fewer   ");
            let (a, b) = (count(a as i64), count(b as i64));
            format!("{verb} {what}{name}: {which} calls {a} → {b} ({change})")
        }
        Change::Duration | Change::Period => {
            format!("{} {what}{name}: {}", verb("longer  ", "shorter "), times())
        }
        Change::Rate => format!(
            "{} {what}{name}: {a:.1}/s → {b:.1}/s ({})",
            verb("faster  ", "slower  "),
            percent(a, b)
        ),
        Change::Messages => format!(
            "{} {what}{name}: {} → {} ({})",
            verb("more    ", "fewer   "),
            count(a as i64),
            count(b as i64),
            percent(a, b)
        ),
        Change::Payload => format!("{} {what}{name}: {}", verb("more    ", "less    "), sizes()),
        Change::Balance => format!("balance  {what}{name}: delays {}", times()),
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

/// `worse` or `better` from the view of a user who waits for the run; empty if the change is neither.
pub(super) fn judged(finding: &Finding) -> &'static str {
    match finding.change {
        Change::New | Change::Gone | Change::Count => "",
        Change::Messages | Change::Payload => "",
        Change::Rate if finding.b > finding.a => "better",
        Change::Rate => "worse",
        _ if matches!(finding.subject, Subject::Input | Subject::File) => "",
        _ if finding.b > finding.a => "worse",
        _ => "better",
    }
}

fn percent(a: f64, b: f64) -> String {
    match a > 0.0 {
        true if b / a >= 10.0 => format!("{} times", count((b / a) as i64)),
        true => format!("{:+.0} %", (b / a - 1.0) * 100.0).replace('-', "−"),
        false => "was nothing".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_findings_are_broken_and_not_cut() {
        let line = "  gone     awk · 6 × · 1.8 s · 1.4 s cpu · was 32 % of the critical path";
        assert_eq!(
            wrapped(line, 40),
            "  gone     awk · 6 × · 1.8 s · 1.4 s cpu\n           was 32 % of the critical path"
        );
        assert_eq!(wrapped(line, 200), line);
    }

    #[test]
    fn large_changes_are_shown_as_multiples() {
        assert_eq!(percent(216e3, 1e9), "4\u{2009}629 times");
        assert_eq!(percent(2.0, 1.0), "−50 %");
        assert_eq!(percent(1.0, 3.0), "+200 %");
        assert_eq!(percent(0.0, 3.0), "was nothing");
    }
}
