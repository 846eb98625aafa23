//! Where the time went, by resource, for people.

use crate::analysis::resources::{Parts, Resources};
use crate::text::bottlenecks::percent;
use crate::text::storage;
use crate::text::table::{Align, Table, more};
use crate::text::{plot, units};
use crate::timeline::Timeline;

/// Rows of a table; more are counted.
const SHOWN: usize = 15;
const HEADS: [&str; 7] = [
    "CPU",
    "queue",
    "memory",
    "disk seq.",
    "disk other",
    "network",
    "waiting",
];

/// The answer in a line.
pub fn answer(resources: &Resources) -> String {
    let Some(run) = resources.run else {
        return "no counters of the machine were recorded; by process:".into();
    };
    let mut named: Vec<(usize, f64)> = run.iter().copied().enumerate().collect();
    named.sort_by(|a, b| b.1.total_cmp(&a.1));
    let parts: Vec<String> = named
        .iter()
        .filter(|(_, share)| *share >= 0.005)
        .map(|&(at, share)| format!("{} {}", HEADS[at], percent(share)))
        .collect();
    format!("the machine's time: {}", parts.join(" · "))
}

fn cells(parts: &Parts, whole: f64) -> Vec<String> {
    let cell = |&part: &f64| match part / whole.max(1e-9) {
        share if share <= 0.0 => "-".into(),
        share => percent(share),
    };
    parts.iter().map(cell).collect()
}

fn table(first: &str, more: &[(&str, Align)]) -> Table {
    let mut columns = vec![(first, Align::Left)];
    columns.extend(more);
    columns.extend(HEADS.map(|head| (head, Align::Right)));
    Table::new(&columns)
}

/// All of it as text, ended by a newline.
pub fn text(resources: &Resources, timeline: &Timeline) -> String {
    let mut out = format!("flowtrace: {}\n\n", answer(resources));
    if !resources.hosts.is_empty() {
        let mut hosts = table("machine", &[]);
        for (name, parts) in &resources.hosts {
            let mut row = vec![units::plain(name)];
            row.extend(cells(parts, 1.0));
            hosts.row(row);
        }
        out += &hosts.finish("  ");
        out.push('\n');
        out += &over_time(resources, timeline);
    }
    let mut rules = table(
        "step",
        &[("processes", Align::Right), ("life", Align::Right)],
    );
    for rule in resources.rules.iter().take(SHOWN) {
        let mut row = vec![
            units::shorten(&units::plain(&rule.name), 32),
            units::count(rule.processes as i64),
            units::duration(rule.life_ns as i64),
        ];
        row.extend(cells(&rule.parts, rule.life_ns));
        rules.row(row);
    }
    out += &rules.finish("  ");
    out += &more(resources.rules.len(), SHOWN);
    let waits = storage::table(&timeline.storage, SHOWN);
    if !waits.is_empty() {
        out += &format!("\n{waits}");
    }
    if let Some(share) = resources.sequential {
        out += &format!(
            "  {} of the bytes of file calls moved in sequence\n",
            percent(share)
        );
    }
    if !resources.has_network {
        out += "  network: no capacity is known, so it is charged to nobody; --network MB/s, or flowtrace calibrate\n";
    }
    out
}

/// A line for each resource: its share over time.
fn over_time(resources: &Resources, timeline: &Timeline) -> String {
    const COLUMNS: usize = 60;
    let (from, to) = timeline.span;
    let length = (to - from).max(1) as f64;
    let mut out = String::new();
    for (part, head) in HEADS.iter().enumerate() {
        let mut sums = [(0.0, 0.0); COLUMNS];
        for interval in &resources.intervals {
            let place = |at: i64| ((at - from) as f64 / length * COLUMNS as f64).max(0.0);
            let (begin, end) = (place(interval.from), place(interval.to).min(COLUMNS as f64));
            for (column, sum) in sums.iter_mut().enumerate() {
                let overlap = end.min(column as f64 + 1.0) - begin.max(column as f64);
                if overlap > 0.0 {
                    sum.0 += interval.shares[part] * overlap;
                    sum.1 += overlap;
                }
            }
        }
        if sums.iter().all(|sum| sum.0 < 0.01) {
            continue;
        }
        let cells: String = sums
            .iter()
            .map(|&(sum, weight)| plot::eighth(if weight > 0.0 { sum / weight } else { 0.0 }))
            .collect();
        out += &format!("  {head:<10} {cells}\n");
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

/// Several runs beside each other, by the number of their machines: Taufer's Figure 4.
pub fn against_hosts(runs: &[(String, usize, Resources)]) -> String {
    let mut rows = table("run", &[("machines", Align::Right)]);
    for (name, hosts, resources) in runs {
        let mut row = vec![
            units::shorten_path(&units::plain(name), 40),
            units::count(*hosts as i64),
        ];
        row.extend(match &resources.run {
            Some(parts) => cells(parts, 1.0),
            None => vec!["?".into(); HEADS.len()],
        });
        rows.row(row);
    }
    rows.finish("")
}
