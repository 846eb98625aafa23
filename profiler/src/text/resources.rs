//! The shares of each resource in the time of a run, for people.

use flowtrace_render::plot::{Axis, Chart, Picture, Rect, Series, Shape};
use flowtrace_render::table::{Align, Table, more};
use flowtrace_render::units::Unit;
use flowtrace_render::{blocks, units};

use crate::analysis::phrases::percent;
use crate::analysis::resources::{PARTS, Parts, Resources};
use crate::text::storage;
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

/// The whole answer as text, ended by a newline.
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
    for rule in resources.rules.iter().filter(|rule| rule.stopped_ns >= 1e6) {
        out += &format!(
            "  {} was stopped (SIGSTOP or Ctrl-Z) for {} of its waiting\n",
            units::shorten(&units::plain(&rule.name), 32),
            units::duration(rule.stopped_ns as i64)
        );
    }
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
    if !resources.has_disks {
        out += "  disks: a machine has no counters of them, and its time at disks is counted as waiting\n";
    }
    if !resources.has_network {
        out += "  network: its capacity is not known, so no time counts as waiting for it; give it as --network MB/s, or measure it with flowtrace calibrate --to HOST:PORT\n";
    }
    out
}

/// Shares over time in this number of columns, of one machine or of all; `None`: not known there.
fn binned(
    resources: &Resources,
    (from, to): (i64, i64),
    host: Option<i64>,
    columns: usize,
) -> Vec<Option<Parts>> {
    let length = (to - from).max(1) as f64;
    let place = |at: i64| ((at - from) as f64 / length * columns as f64).max(0.0);
    let mut sums = vec![([0.0; PARTS.len()], 0.0); columns];
    for interval in &resources.intervals {
        if host.is_some_and(|host| host != interval.host_id) {
            continue;
        }
        let (begin, end) = (place(interval.from), place(interval.to).min(columns as f64));
        let touched = sums.iter_mut().enumerate().take(end.ceil() as usize);
        for (column, (sum, weight)) in touched.skip(begin as usize) {
            let overlap = end.min(column as f64 + 1.0) - begin.max(column as f64);
            if overlap > 0.0 {
                for (sum, share) in sum.iter_mut().zip(interval.shares) {
                    *sum += share * overlap;
                }
                *weight += overlap;
            }
        }
    }
    let mean = |(sum, weight): (Parts, f64)| (weight > 0.0).then(|| sum.map(|part| part / weight));
    sums.into_iter().map(mean).collect()
}

/// A line for each resource: its share over time.
fn over_time(resources: &Resources, timeline: &Timeline) -> String {
    let mut out = String::new();
    let columns = binned(resources, timeline.span, None, 60);
    for (part, head) in HEADS.iter().enumerate() {
        let share = |column: &Option<Parts>| column.map_or(0.0, |shares| shares[part]);
        if columns.iter().all(|column| share(column) < 0.01) {
            continue;
        }
        let cells: String = columns
            .iter()
            .map(|column| blocks::eighth(share(column)))
            .collect();
        out += &format!("  {head:<10} {cells}\n");
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

/// One of several runs of the same work.
#[derive(Clone, Debug)]
pub struct Compared {
    /// Name of the trace.
    pub name: String,
    /// Number of its machines.
    pub machines: usize,
    /// Duration of the run, ns.
    pub length_ns: i64,
    /// Shares of the resources in its time.
    pub resources: Resources,
}

/// Factor by which each run was faster than the first; `None`: one of them took no time.
fn speed_ups(runs: &[Compared]) -> Vec<Option<f64>> {
    let first = runs.first().map_or(0, |run| run.length_ns);
    let speed_up = |run: &Compared| {
        let is_known = first > 0 && run.length_ns > 0;
        is_known.then(|| first as f64 / run.length_ns as f64)
    };
    runs.iter().map(speed_up).collect()
}

/// Several runs beside each other, by the number of their machines: Taufer's Figure 4.
pub fn against_hosts(runs: &[Compared]) -> String {
    let right = ["machines", "time", "speed-up"].map(|name| (name, Align::Right));
    let mut rows = table("run", &right);
    for (run, speed_up) in runs.iter().zip(speed_ups(runs)) {
        let mut row = vec![
            units::shorten_path(&units::plain(&run.name), 40),
            units::count(run.machines as i64),
            units::duration(run.length_ns),
            speed_up.map_or("?".into(), |factor| format!("{factor:.2}")),
        ];
        row.extend(match &run.resources.run {
            Some(parts) => cells(parts, 1.0),
            None => vec!["?".into(); HEADS.len()],
        });
        rows.row(row);
    }
    rows.finish("") + "  speed-up: against the run in the first row, where both did the same work\n"
}

/// The same runs as a picture: speed-up on the left side of the figure, and shares of the time by resource.
pub fn picture_against_hosts(runs: &[Compared]) -> Picture {
    let names: Vec<String> = runs
        .iter()
        .map(|run| {
            let name = std::path::Path::new(&run.name)
                .file_name()
                .unwrap_or_default();
            let machines = units::counted(run.machines as i64, "machine", "machines");
            format!("{} · {machines}", name.to_string_lossy())
        })
        .collect();
    let y = || Axis {
        names: names.clone(),
        ..Axis::default()
    };
    let row = |at: usize| (at as f64 - 0.35, at as f64 + 0.35);
    let speed_ups = (0..).zip(speed_ups(runs));
    let bars = speed_ups.filter_map(|(at, factor)| Some(((0.0, factor?), row(at))));
    let first = runs.first().map_or(1, |run| run.machines.max(1)) as f64;
    let ideal = runs.iter().enumerate().map(|(at, run)| {
        let factor = run.machines as f64 / first;
        (at as f64, [factor; 3])
    });
    let mut parts: Vec<Vec<Rect>> = vec![Vec::new(); PARTS.len()];
    for (at, run) in runs.iter().enumerate() {
        let shares = run.resources.run.unwrap_or([0.0; PARTS.len()]);
        stack(&shares, |part, begin, end| {
            parts[part].push(((begin, end), row(at)));
        });
    }
    vec![
        Chart {
            title: "Speed-up".into(),
            x: Axis {
                label: "time of the run at the top over that of each".into(),
                ..Axis::default()
            },
            y: y(),
            series: vec![
                Series {
                    name: "measured".into(),
                    shape: Shape::Boxes(bars.collect()),
                },
                Series {
                    name: "machines over its".into(),
                    shape: Shape::Ranges(ideal.collect()),
                },
            ],
            ..Chart::default()
        },
        Chart {
            title: "Where the time of the machines went".into(),
            x: Axis {
                label: "share of the time".into(),
                unit: Unit::Share,
                range: Some((0.0, 1.0)),
                ..Axis::default()
            },
            y: y(),
            series: named(parts),
            ..Chart::default()
        },
    ]
    .into()
}

/// Shares of the time by resource over time, a plot for each machine.
pub fn picture(resources: &Resources, timeline: &Timeline) -> Picture {
    const COLUMNS: usize = 150;
    let (from, to) = timeline.span;
    let step = (to - from).max(1) as f64 / COLUMNS as f64;
    let mut hosts: Vec<i64> = resources.intervals.iter().map(|i| i.host_id).collect();
    hosts.dedup();
    let chart = |(host, (name, shares)): (&i64, &(String, Parts))| {
        let mut parts: Vec<Vec<Rect>> = vec![Vec::new(); PARTS.len()];
        let columns = binned(resources, timeline.span, Some(*host), COLUMNS);
        for (at, shares) in columns.iter().enumerate() {
            let x = (at as f64 * step, (at as f64 + 1.0) * step);
            if let Some(shares) = shares {
                stack(shares, |part, begin, end| {
                    parts[part].push((x, (begin, end)));
                });
            }
        }
        let busy = 1.0 - shares[PARTS.len() - 1];
        Chart {
            title: format!("{name}: used for {}", percent(busy)),
            x: Axis {
                label: "time since the start of the recording".into(),
                unit: Unit::Ns,
                range: Some((0.0, (to - from) as f64)),
                ..Axis::default()
            },
            y: Axis {
                label: "share of the time".into(),
                unit: Unit::Share,
                range: Some((0.0, 1.0)),
                ..Axis::default()
            },
            series: named(parts),
            ..Chart::default()
        }
    };
    let charts: Vec<Chart> = hosts.iter().zip(&resources.hosts).map(chart).collect();
    charts.into()
}

/// Stacks shares upon each other; waiting, which is the rest, is left blank.
fn stack(shares: &Parts, mut add: impl FnMut(usize, f64, f64)) {
    let mut begin = 0.0;
    for (part, share) in shares.iter().enumerate().take(PARTS.len() - 1) {
        if *share > 0.0 {
            add(part, begin, begin + share);
        }
        begin += share;
    }
}

/// The parts with their names; those of resources that were not used are left out.
fn named(parts: Vec<Vec<Rect>>) -> Vec<Series> {
    let named = HEADS.iter().zip(parts);
    named
        .filter(|(_, boxes)| !boxes.is_empty())
        .map(|(head, boxes)| Series {
            name: (*head).into(),
            shape: Shape::Boxes(boxes),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::resources::Interval;

    fn run(name: &str, machines: usize, length_ns: i64, cpu: f64) -> Compared {
        let mut parts = [0.0; PARTS.len()];
        (parts[0], parts[6]) = (cpu, 1.0 - cpu);
        let resources = Resources {
            run: Some(parts),
            ..Resources::default()
        };
        Compared {
            name: name.into(),
            machines,
            length_ns,
            resources,
        }
    }

    #[test]
    fn speed_up_is_the_time_of_the_first_run_over_that_of_each() {
        let runs = [
            run("a.db", 1, 60, 0.9),
            run("b.db", 3, 30, 0.5),
            run("c.db", 6, 0, 0.1),
        ];
        assert_eq!(speed_ups(&runs), [Some(1.0), Some(2.0), None]);
        let text = against_hosts(&runs);
        assert!(text.contains("speed-up") && text.contains("2.00"), "{text}");
        let picture = picture_against_hosts(&runs);
        let Shape::Boxes(bars) = &picture.charts[0].series[0].shape else {
            panic!("{picture:?}")
        };
        assert_eq!(bars[1].0, (0.0, 2.0));
        // Only CPU was used, and waiting is blank.
        assert_eq!(picture.charts[1].series.len(), 1);
    }

    #[test]
    fn what_a_column_holds_is_weighted_by_its_time() {
        let interval = |host_id, from, to, cpu: f64| Interval {
            host_id,
            from,
            to,
            shares: [cpu, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0 - cpu],
        };
        let resources = Resources {
            intervals: vec![
                interval(1, 0, 30, 1.0),
                interval(1, 30, 50, 0.0),
                interval(2, 0, 50, 0.5),
            ],
            ..Resources::default()
        };
        let columns = binned(&resources, (0, 100), Some(1), 2);
        assert!((columns[0].unwrap()[0] - 0.6).abs() < 1e-9 && columns[1].is_none());
        let all = binned(&resources, (0, 100), None, 2);
        assert!((all[0].unwrap()[0] - 0.55).abs() < 1e-9);
    }
}
