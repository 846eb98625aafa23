//! The comparison as one HTML file that needs nothing else.

use std::fmt::Write;

use super::{Comparison, RuleFacts, text};
use crate::text::units::{bytes, duration};

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
pub fn page(comparison: &Comparison) -> String {
    let mut page =
        String::from("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
    page += "<meta name=\"viewport\" content=\"width=device-width\"><title>flowtrace compare</title>\n<style>";
    page += STYLE;
    page += "</style></head><body>\n";
    // Writing to a String cannot fail.
    let _ = writeln!(page, "<h1>{}</h1>", escape(&text::headline(comparison)));
    for warning in &comparison.warnings {
        let _ = writeln!(page, "<p class=\"warning\">{}</p>", escape(warning));
    }
    for note in &comparison.notes {
        let _ = writeln!(page, "<p>{}</p>", escape(note));
    }
    for (side, word, runs) in [
        ("a", "before", &comparison.a),
        ("b", "after", &comparison.b),
    ] {
        for run in runs {
            let _ = writeln!(
                page,
                "<div><i class=\"{side}\" style=\"display:inline-block;width:.8rem;height:.8rem\"></i> <span class=\"side\">{word}</span> {} · {} <small>{}</small></div>",
                escape(&run.trace),
                duration(run.duration_ns),
                escape(&run.command)
            );
        }
    }
    page += "<h2>Findings</h2>\n<table class=\"findings\"><tbody>\n";
    for finding in &comparison.findings {
        let sentence = text::sentence(finding);
        let (verb, what) = sentence.split_once(' ').unwrap_or((&sentence, ""));
        let _ = writeln!(
            page,
            "<tr><td class=\"{}\">{}</td><td class=\"text\">{}</td></tr>",
            text::judged(finding),
            escape(verb),
            escape(what.trim_start())
        );
    }
    if comparison.findings.is_empty() {
        page += "<tr><td class=\"text\">none</td></tr>\n";
    }
    if let Some(network) = &comparison.network {
        page += "</tbody></table>\n<h2>Packets</h2>\n<table><thead><tr><th></th><th>before</th><th>after</th></tr></thead><tbody>\n";
        for (what, a, b) in network.lines() {
            let cells = [what, &a, &b].map(escape);
            let _ = writeln!(
                page,
                "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
                cells[0], cells[1], cells[2]
            );
        }
    }
    page += "</tbody></table>\n<h2>Rules</h2>\n<table><thead><tr><th>rule</th><th>times</th><th>time</th><th></th><th>cpu</th><th>waits</th><th>read</th><th>written</th></tr></thead><tbody>\n";
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
        let bar = |facts: &Option<RuleFacts>, side: &str| {
            format!(
                "<i class=\"{side}\" style=\"width:{:.1}px\"></i>",
                weight(facts) / longest * 120.0
            )
        };
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&row.rule),
            both(&|f| format!("{:.0}", f.executions)),
            both(&|f| duration(f.time_ns as i64)),
            bar(&row.a, "a"),
            bar(&row.b, "b"),
            both(&|f| duration(f.cpu_ns as i64)),
            both(&|f| duration(f.waits_ns as i64)),
            both(&|f| bytes(f.read_bytes as i64)),
            both(&|f| bytes(f.write_bytes as i64)),
        );
    }
    let _ = writeln!(
        page,
        "</tbody></table>\n<p><small>compared {}</small></p>\n</body></html>",
        escape(&text::how(comparison))
    );
    page
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
