//! The comparison as one HTML file that refers to no other.

use std::io::{self, Write};

use flowtrace_render::markup::Markup;
use flowtrace_render::units::{bytes, duration, plain};

use super::{Comparison, RuleFacts, flame, text};

const STYLE: &str = "
:root { color-scheme: light dark; --line: #8884; --a: #7a8ca8; --b: #c2703d; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
.warning { border-left: .3rem solid #c33; padding-left: .6rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: right; padding: .2rem .5rem; border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums; }
th:first-child, td:first-child, td.text { text-align: left; overflow-wrap: anywhere; }
td i { display: block; height: .4rem; min-width: 1px; } i.a { background: var(--a); } i.b { background: var(--b); }
small { opacity: .7; }
.findings td:first-child { white-space: nowrap; font-weight: 600; width: 6rem; }
.worse { color: light-dark(#b3261e, #ff8077); } .better { color: light-dark(#1f7a43, #67c98d); }
.side { display: inline-block; min-width: 4rem; font-weight: 600; }
";

/// Writes the page.
///
/// # Errors
/// When `out` fails.
pub fn write(comparison: &Comparison, mut out: impl Write) -> io::Result<()> {
    writeln!(out, "<!DOCTYPE html>")?;
    let mut html = Markup::new(out);
    html.open("html", &[("lang", &"en")])?;
    html.open("head", &[])?;
    html.empty("meta", &[("charset", &"utf-8")])?;
    html.empty(
        "meta",
        &[("name", &"viewport"), ("content", &"width=device-width")],
    )?;
    html.leaf("title", &[], "flowtrace compare")?;
    html.open("style", &[])?;
    html.raw(STYLE)?;
    html.close()?;
    html.close()?;
    html.open("body", &[])?;
    html.leaf("h1", &[], plain(&text::headline(comparison)))?;
    for warning in &comparison.warnings {
        html.leaf("p", &[("class", &"warning")], plain(warning))?;
    }
    for note in &comparison.notes {
        html.leaf("p", &[], plain(note))?;
    }
    runs(comparison, &mut html)?;
    findings(comparison, &mut html)?;
    packets(comparison, &mut html)?;
    if let Some(functions) = &comparison.functions {
        flame::write(functions, &mut html)?;
    }
    rules(comparison, &mut html)?;
    html.open("p", &[])?;
    let how = format!("compared {}", text::how(comparison));
    html.leaf("small", &[], plain(&how))?;
    html.close()?;
    html.close()?;
    html.close()
}

fn runs(comparison: &Comparison, html: &mut Markup<impl Write>) -> io::Result<()> {
    for (side, word, runs) in [
        ("a", "before", &comparison.a),
        ("b", "after", &comparison.b),
    ] {
        for run in runs {
            html.open("div", &[])?;
            let square = "display:inline-block;width:.8rem;height:.8rem";
            html.leaf("i", &[("class", &side), ("style", &square)], "")?;
            html.leaf("span", &[("class", &"side")], word)?;
            let name = plain(&run.trace);
            let length = duration(run.duration_ns);
            html.leaf("span", &[], format_args!("{name} · {length}"))?;
            html.leaf("small", &[], plain(&run.command))?;
            html.close()?;
        }
    }
    Ok(())
}

fn findings(comparison: &Comparison, html: &mut Markup<impl Write>) -> io::Result<()> {
    html.leaf("h2", &[], "Findings")?;
    html.open("table", &[("class", &"findings")])?;
    html.open("tbody", &[])?;
    let reasons = comparison.reasons.iter();
    let reasons = reasons.map(|rule| (rule, text::reason(rule)));
    let findings = comparison.findings.iter();
    let findings = findings.map(|finding| (finding, text::sentence(finding)));
    for (finding, sentence) in reasons.chain(findings) {
        let sentence = plain(&sentence);
        let (verb, what) = sentence.split_once(' ').unwrap_or((&sentence, ""));
        html.open("tr", &[])?;
        html.leaf("td", &[("class", &text::judged(finding))], verb)?;
        html.leaf("td", &[("class", &"text")], what.trim_start())?;
        html.close()?;
    }
    if comparison.findings.is_empty() && comparison.reasons.is_empty() {
        html.open("tr", &[])?;
        html.leaf("td", &[("class", &"text")], "none")?;
        html.close()?;
    }
    html.close()?;
    html.close()
}

fn packets(comparison: &Comparison, html: &mut Markup<impl Write>) -> io::Result<()> {
    let Some(network) = &comparison.network else {
        return Ok(());
    };
    html.leaf("h2", &[], "Packets")?;
    html.open("table", &[])?;
    html.open("thead", &[])?;
    html.open("tr", &[])?;
    for name in ["", "before", "after"] {
        html.leaf("th", &[], name)?;
    }
    html.close()?;
    html.close()?;
    html.open("tbody", &[])?;
    for (what, a, b) in network.lines() {
        html.open("tr", &[])?;
        for cell in [what, &a, &b] {
            html.leaf("td", &[], plain(cell))?;
        }
        html.close()?;
    }
    html.close()?;
    html.close()
}

fn rules(comparison: &Comparison, html: &mut Markup<impl Write>) -> io::Result<()> {
    html.leaf("h2", &[], "Rules")?;
    html.open("table", &[])?;
    html.open("thead", &[])?;
    html.open("tr", &[])?;
    for name in [
        "rule", "times", "time", "", "cpu", "waits", "read", "written",
    ] {
        html.leaf("th", &[], name)?;
    }
    html.close()?;
    html.close()?;
    html.open("tbody", &[])?;
    let times = comparison
        .rules
        .iter()
        .flat_map(|row| [&row.a, &row.b])
        .flatten();
    let longest = times.map(|facts| facts.time_ns).fold(1.0, f64::max);
    let mut rows: Vec<_> = comparison.rules.iter().collect();
    let weight = |facts: &Option<RuleFacts>| facts.as_ref().map_or(0.0, |facts| facts.time_ns);
    rows.sort_by(|x, y| {
        let heavier = |row: &super::RuleRow| weight(&row.a).max(weight(&row.b));
        heavier(y).total_cmp(&heavier(x)).then(x.rule.cmp(&y.rule))
    });
    for row in rows {
        let both = |of: &dyn Fn(&RuleFacts) -> String| {
            let one = |facts: &Option<RuleFacts>| facts.as_ref().map_or_else(|| "–".into(), of);
            let (a, b) = (one(&row.a), one(&row.b));
            if a == b { a } else { format!("{a} → {b}") }
        };
        let width = |facts| format!("width:{:.1}px", weight(facts) / longest * 120.0);
        html.open("tr", &[])?;
        html.leaf("td", &[], plain(&row.rule))?;
        html.leaf("td", &[], both(&|f| format!("{:.0}", f.executions)))?;
        html.leaf("td", &[], both(&|f| duration(f.time_ns as i64)))?;
        html.open("td", &[])?;
        html.leaf("i", &[("class", &"a"), ("style", &width(&row.a))], "")?;
        html.leaf("i", &[("class", &"b"), ("style", &width(&row.b))], "")?;
        html.close()?;
        html.leaf("td", &[], both(&|f| duration(f.cpu_ns as i64)))?;
        html.leaf("td", &[], both(&|f| duration(f.waits_ns as i64)))?;
        html.leaf("td", &[], both(&|f| bytes(f.read_bytes as i64)))?;
        html.leaf("td", &[], both(&|f| bytes(f.write_bytes as i64)))?;
        html.close()?;
    }
    html.close()?;
    html.close()
}
