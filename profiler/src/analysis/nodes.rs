//! The machines of a cluster beside each other: their counters over a time, what came of their samples, and
//! those that differ from the others (after Taufer and Stricker, figures 2 and 5).

use std::collections::BTreeMap;

use flowtrace_render::units::{self, plain};
use flowtrace_schema::{HostRow, NodeRow};
use serde::Serialize;

use super::counters::Watched;
use super::resources::Parts;
use crate::timeline::machine::{Counters, Usage};

/// Most machines that are listed; the others are counted.
const MOST: usize = 400;
/// A machine is compared with the others if so many have the counter.
const LEAST_NODES: usize = 4;
/// A machine differs if it is so many standard deviations, estimated from the median deviation, from the median.
const DEVIATIONS: f64 = 5.0;
/// Standard deviation of normal values in units of their median deviation.
const NORMAL: f64 = 1.4826;
/// A machine that differs does so by a quarter of the median at least.
const LEAST_SHARE: f64 = 0.25;
/// Least difference of the share of CPUs, and of a rate in bytes a second.
const LEAST_CPU: f64 = 0.1;
const LEAST_RATE: f64 = 1e6;
/// An agent is silent after so long, ns, or so many times the time between its samples.
const SILENT_NS: i64 = 5_000_000_000;
const SILENT_PERIODS: i64 = 3;

/// The machines of a cluster. Empty for a single machine that no agent watched.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Nodes {
    /// Those that are silent, cut short or different first, then by name.
    pub rows: Vec<Node>,
    /// Number of others.
    pub left_out: usize,
    /// All machines together.
    pub all: All,
    /// Begin of the charts, ns.
    pub from_ns: i64,
    /// End of the charts, ns.
    pub to_ns: i64,
    /// Bytes a second at the top of the charts of disks, and of networks.
    pub disk_top: f64,
    /// See `disk_top`.
    pub network_top: f64,
    /// Length of the time over which rates are means, ns; `None`: the whole recording.
    pub rate_ns: Option<i64>,
}

/// All machines together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct All {
    /// Number of machines.
    pub nodes: usize,
    /// Those that send samples.
    pub reporting: usize,
    /// Those whose samples do not come any more.
    pub silent: usize,
    /// Those whose last totals came.
    pub ended: usize,
    /// Those without last totals at the end of the recording.
    pub cut: usize,
    /// Those that differ from the others.
    pub differing: usize,
    /// Rates: of CPUs the mean, of the others the sum.
    pub rates: Rates,
    /// Samples a second of those that send some; at the end, of all.
    pub samples_per_second: f64,
    /// Samples that came in time.
    pub received: i64,
    /// Samples that were sent, as far as is known.
    pub sent: i64,
    /// The largest bound of the error of a clock, ns.
    pub clock_error_ns: Option<i64>,
}

/// State of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// Its samples come.
    Reporting,
    /// No sample came for some time.
    Silent,
    /// Its last totals came.
    Ended,
    /// The recording ended without its last totals.
    Cut,
    /// No agent watched it: it recorded itself.
    Recorded,
}

/// Shares and rates of a machine; `None`: not recorded, or too little to say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Share of the CPUs that were busy.
    pub cpu: Option<f64>,
    /// Bytes a second that came by network.
    pub net_in: Option<f64>,
    /// Bytes a second that went by network.
    pub net_out: Option<f64>,
    /// Bytes a second that disks read.
    pub disk_read: Option<f64>,
    /// Bytes a second that disks wrote.
    pub disk_write: Option<f64>,
}

/// Values over time in hundredths of the top of their chart, at equal distances; `null`: not known.
pub type Chart = Vec<Option<u8>>;

/// A machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its number in the trace.
    pub host_id: i64,
    /// Number of CPUs.
    pub cpus: Option<i64>,
    /// Memory, bytes.
    pub memory_bytes: Option<i64>,
    /// Its state.
    pub state: NodeState,
    /// Time since its last sample, ns; `None`: the recording has ended.
    pub quiet_ns: Option<i64>,
    /// Time of its last sample, ns.
    pub last_ns: Option<i64>,
    /// Its rates; of a machine that is silent or has ended there are none while others go on.
    pub rates: Rates,
    /// How it differs from the others, the greatest difference first.
    pub why: Vec<String>,
    /// Share of its CPUs that were busy.
    pub cpu: Chart,
    /// Bytes that came by network, and went.
    pub network: [Chart; 2],
    /// Bytes that disks read, and wrote.
    pub disk: [Chart; 2],
    /// Its time by resource, see [`super::resources`]; `None`: not asked for, or not known.
    pub parts: Option<Parts>,
    /// What came of its agent's samples.
    pub watched: Option<Watched>,
    /// Bound of the error of its times, ns; `None`: not known.
    pub clock_error_ns: Option<i64>,
}

/// The time that is shown.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// The ends of the points of charts, ns; they grow.
    pub steps: Vec<i64>,
    /// Rates are means over so long before the last sample of a machine, ns; `None`: over all its samples.
    pub rate_ns: Option<i64>,
    /// The present, ns, while a recording goes on.
    pub now_ns: Option<i64>,
    /// When a new sample was last noticed, ns, by machine, where that is known.
    pub heard_ns: BTreeMap<i64, i64>,
}

/// The machines with counters, and those that agents watched.
pub fn nodes(counters: &Counters, hosts: &[HostRow], watched: &[NodeRow], shown: &Shown) -> Nodes {
    let is_seen = |host: &&HostRow| {
        !counters.sample_times(host.host_id).is_empty()
            || watched.iter().any(|row| row.host_id == host.host_id)
    };
    let hosts: Vec<&HostRow> = hosts.iter().filter(is_seen).collect();
    if hosts.len() < 2 && watched.is_empty() {
        return Nodes::default();
    }
    let watched: BTreeMap<i64, &NodeRow> = watched.iter().map(|row| (row.host_id, row)).collect();
    let used: Vec<_> = hosts
        .iter()
        .map(|host| counters.usage(host.host_id, &shown.steps))
        .collect();
    let seconds: Vec<f64> = shown
        .steps
        .windows(2)
        .map(|pair| pair[1].saturating_sub(pair[0]).max(1) as f64 / 1e9)
        .collect();
    let top = |of: fn(&Usage) -> &[Vec<Option<f64>>; 2]| {
        let series = used.iter().flat_map(of);
        let rates = series.flat_map(|one| one.iter().zip(&seconds));
        let rates = rates.filter_map(|(bytes, seconds)| Some((*bytes)? / seconds));
        rates.fold(0.0, f64::max)
    };
    let mut nodes = Nodes {
        from_ns: shown.steps.first().copied().unwrap_or(0),
        to_ns: shown.steps.last().copied().unwrap_or(0),
        disk_top: top(|usage| &usage.disk),
        network_top: top(|usage| &usage.network),
        rate_ns: shown.rate_ns,
        ..Nodes::default()
    };
    // Values at the top of each point: shares, and bytes.
    let wholes = vec![1.0; seconds.len()];
    let tops = [nodes.network_top, nodes.disk_top].map(|top| {
        seconds
            .iter()
            .map(|seconds| top * seconds)
            .collect::<Vec<f64>>()
    });
    for (host, usage) in hosts.iter().zip(&used) {
        let own = counters.sample_times(host.host_id);
        // A point is known where the machine was sampled before and after.
        let span = own.first().copied().zip(own.last().copied());
        let chart = |values: &[Option<f64>], tops: &[f64]| -> Chart {
            let points = values.iter().zip(shown.steps.windows(2)).zip(tops);
            let point = |((value, pair), top): ((&Option<f64>, &[i64]), &f64)| {
                let (first, last) = span?;
                let is_known = first <= pair[0] && pair[1] <= last && *top > 0.0;
                let value = value.filter(|_| is_known)?;
                Some((value / top * 100.0).round().clamp(0.0, 100.0) as u8)
            };
            points.map(point).collect()
        };
        let charts = |values: &[Vec<Option<f64>>; 2], tops: &[f64]| {
            [chart(&values[0], tops), chart(&values[1], tops)]
        };
        let row = watched.get(&host.host_id);
        let last_ns = span.map(|(_, last)| last);
        let heard_ns = shown.heard_ns.get(&host.host_id).copied().max(last_ns);
        let quiet_ns = shown
            .now_ns
            .zip(heard_ns)
            .map(|(now, heard)| now.saturating_sub(heard).max(0));
        let state = match (row, quiet_ns) {
            (Some(row), _) if row.is_final != 0 => NodeState::Ended,
            (Some(row), Some(quiet)) if quiet > patience(row) => NodeState::Silent,
            (Some(_), _) if shown.now_ns.is_none() => NodeState::Cut,
            (None, _) if shown.now_ns.is_none() => NodeState::Recorded,
            _ => NodeState::Reporting,
        };
        let is_past =
            shown.now_ns.is_some() && matches!(state, NodeState::Ended | NodeState::Silent);
        nodes.rows.push(Node {
            name: plain(&host.host),
            host_id: host.host_id,
            cpus: host.cpus,
            memory_bytes: host.memory_bytes,
            state,
            quiet_ns,
            last_ns,
            rates: match is_past {
                true => Rates::default(),
                false => rates(counters, host.host_id, shown.rate_ns),
            },
            why: Vec::new(),
            cpu: chart(&usage.cpu, &wholes),
            network: charts(&usage.network, &tops[0]),
            disk: charts(&usage.disk, &tops[1]),
            parts: None,
            watched: row.map(|row| Watched::of(row, host.clock_error_ns)),
            clock_error_ns: host.clock_error_ns,
        });
    }
    let differs = compare(&mut nodes.rows);
    nodes.all = all(&nodes.rows, shown);
    let mut order: Vec<(Node, f64)> = nodes.rows.into_iter().zip(differs).collect();
    order.sort_by(|(a, how_a), (b, how_b)| {
        let rank = |node: &Node, how: f64| match node.state {
            NodeState::Silent => 0,
            _ if how > 0.0 => 1,
            NodeState::Cut => 2,
            _ => 3,
        };
        rank(a, *how_a)
            .cmp(&rank(b, *how_b))
            .then(how_b.total_cmp(how_a))
            .then_with(|| in_order(&a.name).cmp(&in_order(&b.name)))
    });
    nodes.left_out = order.len().saturating_sub(MOST);
    order.truncate(MOST);
    nodes.rows = order.into_iter().map(|(node, _)| node).collect();
    nodes
}

/// Time without a sample after which an agent counts as silent, ns.
fn patience(row: &NodeRow) -> i64 {
    let period_ns = row.period_ms.saturating_mul(1_000_000);
    SILENT_NS.max(period_ns.saturating_mul(SILENT_PERIODS))
}

/// Names in the order of people: n2 before n10.
fn in_order(name: &str) -> (&str, u64, &str) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (stem, name[stem.len()..].parse().unwrap_or(0), name)
}

/// Means between two samples of a machine: its last one, and the first of the last `rate_ns` before it, or the
/// one before the last.
fn rates(counters: &Counters, host: i64, rate_ns: Option<i64>) -> Rates {
    let times = counters.sample_times(host);
    let Some(&last) = times.last() else {
        return Rates::default();
    };
    let from = rate_ns.map_or(i64::MIN, |length| last.saturating_sub(length));
    let before = times.len().saturating_sub(2);
    let first = times[times.partition_point(|&t| t < from).min(before)];
    if first == last {
        return Rates::default();
    }
    let usage = counters.usage(host, &[first, last]);
    let rate = |bytes: &[Option<f64>]| {
        bytes[0].map(|n| (n * 1e9 / last.saturating_sub(first) as f64).round())
    };
    Rates {
        cpu: usage.cpu[0].map(|share| (share * 1000.0).round() / 1000.0),
        net_in: rate(&usage.network[0]),
        net_out: rate(&usage.network[1]),
        disk_read: rate(&usage.disk[0]),
        disk_write: rate(&usage.disk[1]),
    }
}

type Of = fn(&Rates) -> Option<f64>;

/// A rate that is compared.
struct Compared {
    name: &'static str,
    of: Of,
    /// Least difference that counts.
    least: f64,
    unit: fn(f64) -> String,
}

const fn of_bytes(name: &'static str, of: Of) -> Compared {
    Compared {
        name,
        of,
        least: LEAST_RATE,
        unit: per_second,
    }
}

const COMPARED: [Compared; 5] = [
    Compared {
        name: "CPU",
        of: |rates| rates.cpu,
        least: LEAST_CPU,
        unit: units::share,
    },
    of_bytes("network in", |rates| rates.net_in),
    of_bytes("network out", |rates| rates.net_out),
    of_bytes("disk read", |rates| rates.disk_read),
    of_bytes("disk written", |rates| rates.disk_write),
];

fn per_second(rate: f64) -> String {
    format!("{}/s", units::bytes(rate as i64))
}

/// Names the differences of each machine from the median of all, and returns how great its greatest one is: in
/// units of what counts as a difference; 0: there is none.
fn compare(rows: &mut [Node]) -> Vec<f64> {
    let mut found: Vec<Vec<(f64, String)>> = vec![Vec::new(); rows.len()];
    for compared in COMPARED {
        let Compared {
            name,
            of,
            least,
            unit,
        } = compared;
        let values: Vec<f64> = rows.iter().filter_map(|row| of(&row.rates)).collect();
        if values.len() < LEAST_NODES {
            continue;
        }
        let middle = median(values.clone());
        let deviation = median(values.iter().map(|value| (value - middle).abs()).collect());
        let bound = (DEVIATIONS * NORMAL * deviation)
            .max(LEAST_SHARE * middle)
            .max(least);
        for (row, found) in rows.iter().zip(&mut found) {
            let Some(value) = of(&row.rates) else {
                continue;
            };
            let how = (value - middle).abs() / bound;
            if how > 1.0 {
                let way = if value < middle { "lower" } else { "higher" };
                let (value, middle) = (unit(value), unit(middle));
                let text = format!("{name} {way} than others: {value}, median {middle}");
                found.push((how, text));
            }
        }
    }
    let mut greatest = Vec::new();
    for (row, mut found) in rows.iter_mut().zip(found) {
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        greatest.push(found.first().map_or(0.0, |(how, _)| *how));
        row.why = found.into_iter().map(|(_, text)| text).collect();
    }
    greatest
}

/// The middle value, of an even number the mean of both.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() % 2 {
        0 => values[half - 1].midpoint(values[half]),
        _ => values[half],
    }
}

fn all(rows: &[Node], shown: &Shown) -> All {
    let in_state = |state| rows.iter().filter(|row| row.state == state).count();
    let sum = |of: Of| {
        rows.iter()
            .filter_map(|row| of(&row.rates))
            .reduce(|a, b| a + b)
    };
    let cpus = rows.iter().filter(|row| row.rates.cpu.is_some()).count();
    let watched = || rows.iter().filter_map(|row| row.watched.as_ref());
    let sending = rows
        .iter()
        .filter(|row| shown.now_ns.is_none() || row.state == NodeState::Reporting);
    All {
        nodes: rows.len(),
        reporting: in_state(NodeState::Reporting),
        silent: in_state(NodeState::Silent),
        ended: in_state(NodeState::Ended),
        cut: in_state(NodeState::Cut),
        differing: rows.iter().filter(|row| !row.why.is_empty()).count(),
        rates: Rates {
            cpu: sum(|rates| rates.cpu).map(|shares| shares / cpus.max(1) as f64),
            net_in: sum(|rates| rates.net_in),
            net_out: sum(|rates| rates.net_out),
            disk_read: sum(|rates| rates.disk_read),
            disk_write: sum(|rates| rates.disk_write),
        },
        samples_per_second: sending
            .filter_map(|row| row.watched.as_ref())
            .map(|watched| watched.per_second)
            .sum(),
        received: watched().map(|watched| watched.received).sum(),
        sent: watched().map(|watched| watched.sent).sum(),
        clock_error_ns: rows.iter().filter_map(|row| row.clock_error_ns).max(),
    }
}

#[cfg(test)]
mod tests {
    use flowtrace_schema::CounterRow;

    use super::*;

    const S: i64 = 1_000_000_000;

    /// Machines with numbers from 2 on that were sampled each second for 10 s, with their use of one CPU.
    fn counters(busy: &[f64]) -> Counters {
        let mut rows = Vec::new();
        for (host_id, busy) in (2..).zip(busy) {
            for (counter, share) in [("cpu.idle", 1.0 - busy), ("cpu.user", *busy)] {
                rows.extend((0..=10).map(|second| CounterRow {
                    host_id,
                    counter: counter.into(),
                    t_ns: second * S,
                    value: (second as f64 * share * 1e9) as i64,
                }));
            }
        }
        Counters::new(rows)
    }

    fn hosts(names: &[&str]) -> Vec<HostRow> {
        let host = |(host_id, name): (i64, &&str)| HostRow {
            host_id,
            host: (*name).into(),
            ..HostRow::default()
        };
        (2..).zip(names).map(host).collect()
    }

    fn watched(finals: &[i64]) -> Vec<NodeRow> {
        let row = |(host_id, &is_final): (i64, &i64)| NodeRow {
            host_id,
            received: 9,
            expected: 10,
            period_ms: 1000,
            is_final,
            ..NodeRow::default()
        };
        (2..).zip(finals).map(row).collect()
    }

    fn shown(now_ns: Option<i64>) -> Shown {
        Shown {
            steps: (-1..=11).map(|second| second * S).collect(),
            now_ns,
            ..Shown::default()
        }
    }

    fn of(busy: &[f64], names: &[&str], finals: &[i64], shown: &Shown) -> Nodes {
        nodes(&counters(busy), &hosts(names), &watched(finals), shown)
    }

    fn names(nodes: &Nodes) -> Vec<&str> {
        nodes.rows.iter().map(|row| row.name.as_str()).collect()
    }

    #[test]
    fn a_machine_far_from_the_median_is_named_if_there_are_enough_to_compare() {
        let busy = [0.8, 0.82, 0.2, 0.79, 0.75];
        let found = of(
            &busy,
            &["n10", "n2", "n3", "n4", "n1"],
            &[1; 5],
            &shown(None),
        );
        assert_eq!(names(&found), ["n3", "n1", "n2", "n4", "n10"]);
        assert_eq!(
            found.rows[0].why,
            ["CPU lower than others: 20 %, median 79 %"]
        );
        assert!(found.rows[1..].iter().all(|row| row.why.is_empty()));
        assert_eq!((found.all.differing, found.all.ended), (1, 5));
        assert_eq!((found.all.received, found.all.sent), (45, 50));
        let three = of(&busy[..3], &["n1", "n2", "n3"], &[1; 3], &shown(None));
        assert_eq!(three.all.differing, 0);
        // All alike but for a difference that nobody would mind.
        let alike = of(
            &[0.8, 0.8, 0.8, 0.8, 0.71],
            &["a", "b", "c", "d", "e"],
            &[1; 5],
            &shown(None),
        );
        assert_eq!(alike.all.differing, 0);
    }

    #[test]
    fn machines_are_silent_cut_short_or_ended() {
        let states =
            |found: &Nodes| -> Vec<NodeState> { found.rows.iter().map(|row| row.state).collect() };
        let at = |now_ns| of(&[0.5, 0.5], &["a", "b"], &[0, 1], &shown(now_ns));
        let live = at(Some(14 * S));
        assert_eq!(states(&live), [NodeState::Reporting, NodeState::Ended]);
        assert_eq!(live.rows[0].rates.cpu, Some(0.5));
        assert_eq!(live.rows[1].rates, Rates::default(), "it does nothing now");
        let later = at(Some(16 * S));
        assert_eq!(states(&later), [NodeState::Silent, NodeState::Ended]);
        assert_eq!(later.rows[0].quiet_ns, Some(6 * S));
        assert_eq!(later.all.samples_per_second, 0.0);
        let end = at(None);
        assert_eq!(states(&end), [NodeState::Cut, NodeState::Ended]);
        assert_eq!(end.rows[1].rates.cpu, Some(0.5));
        // Its last sample had only values that had not changed.
        let heard = Shown {
            heard_ns: [(2, 12 * S)].into(),
            // No sample but the last one is so new.
            rate_ns: Some(S / 2),
            ..shown(Some(16 * S))
        };
        let heard = of(&[0.5, 0.5], &["a", "b"], &[0, 1], &heard);
        assert_eq!(heard.rows[0].rates.cpu, Some(0.5));
        assert_eq!(states(&heard), [NodeState::Reporting, NodeState::Ended]);
    }

    #[test]
    fn a_chart_has_values_where_the_machine_was_sampled() {
        let found = of(&[0.25], &["a"], &[1], &shown(None));
        let chart = &found.rows[0].cpu;
        assert_eq!(chart.len(), 12);
        assert_eq!(
            (chart[0], chart[1], chart[10], chart[11]),
            (None, Some(25), Some(25), None)
        );
        assert_eq!(found.rows[0].rates.net_in, None, "not recorded");
        assert_eq!(found.rows[0].network[0], [None; 12]);
        // One machine that recorded itself is not a cluster.
        let alone = nodes(&counters(&[0.25]), &hosts(&["a"]), &[], &shown(None));
        assert_eq!(alone, Nodes::default());
    }
}
