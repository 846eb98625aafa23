//! The answers from packets: the traffic between pairs of processes, the pattern that it forms, and the rate
//! of the program's iterations. The numbers are those of `flowtrace network`.

use std::cmp::Reverse;

use flowtrace_network::load::{By, Selection};
use flowtrace_network::run::{Run, Unit};
use flowtrace_network::{calls, matrix, page, pages, topology};
use flowtrace_render::units::plain;
use flowtrace_schema::{Result, Trace};
use serde::Serialize;

use crate::packets;

/// Processes shown at most, those with the most traffic.
const NODES: usize = 32;
/// Greatest number of points of a curve: more than a screen is wide show nothing.
const POINTS: usize = 1500;

/// The answers from packets; empty without any.
#[derive(Debug, Default, Serialize)]
pub(super) struct Network {
    /// Questions and answers.
    answers: Vec<(String, String)>,
    /// Limits of the answers.
    notes: Vec<String>,
    /// The nodes that send or receive, with the names of `flowtrace network`.
    nodes: Vec<String>,
    nodes_left_out: usize,
    /// Traffic from each node to each other.
    traffic: Vec<Direction>,
    /// The heavy directions, which are the topology.
    edges: Vec<Edge>,
    rate: Option<Series>,
    /// The reason why there is no rate.
    rate_unknown: Option<String>,
    spectrum: Option<Curve>,
    /// The reason why there is no spectrum.
    spectrum_unknown: Option<String>,
}

#[derive(Debug, Serialize)]
struct Direction {
    src: usize,
    dst: usize,
    payload_bytes: u64,
    wire_bytes: u64,
    packets: u64,
}

#[derive(Debug, Serialize)]
struct Edge {
    src: usize,
    dst: usize,
    bytes: f64,
    /// Share of the heaviest, 0 to 1.
    share: f64,
}

/// Iterations per second, mean over each step.
#[derive(Debug, Serialize)]
struct Series {
    t0_ns: i64,
    step_ns: f64,
    per_s: Vec<f32>,
}

/// Power over frequency: of neighbours on one point of the screen the highest.
#[derive(Debug, Serialize)]
struct Curve {
    hz: Vec<f32>,
    power: Vec<f32>,
    /// Spectrum of a program without a period; empty where it is not known.
    background: Vec<f32>,
    /// The conclusion from the spectrum, in a line.
    answer: Vec<String>,
    /// Periods of the program's components, s.
    periods_s: Vec<f64>,
}

/// The packets; `None`: there are none between hosts.
pub(super) fn run(trace: &Trace) -> Result<Option<Run>> {
    if trace.captures()?.is_empty() {
        return Ok(None);
    }
    let selection = Selection {
        by: Some(By::Host),
        ..Selection::default()
    };
    let run = packets::load(trace, &selection)?;
    Ok(run.ok().filter(|run| !run.nodes().is_empty()))
}

pub(super) fn of(run: &Run) -> Network {
    let overview = pages::overview(run);
    let mut network = Network {
        answers: answers(&overview),
        notes: overview
            .lines
            .iter()
            .chain(&overview.notes)
            .map(|line| plain(line))
            .collect(),
        ..Network::default()
    };
    traffic(run, &mut network);
    match calls::rir_series(run, None) {
        Ok(known) => {
            let (values, step_s) = &known.value;
            network.rate = Some(series(known.t0_ns, *step_s, values));
        }
        Err(unknown) => network.rate_unknown = Some(unknown.reason),
    }
    match calls::power_spectrum(run, None) {
        Ok(known) => network.spectrum = Some(curve(run, &known.value)),
        Err(unknown) => network.spectrum_unknown = Some(unknown.reason),
    }
    network
}

fn answers(overview: &page::Page) -> Vec<(String, String)> {
    let rows = overview.rows.iter().filter_map(|row| match row.as_slice() {
        [question, answer] => Some((question.shown(), answer.shown())),
        _ => None,
    });
    rows.collect()
}

fn traffic(run: &Run, network: &mut Network) {
    let Ok(known) = calls::traffic_matrix(run, None) else {
        return;
    };
    let found = &known.value;
    let mut sums: Vec<(Reverse<u64>, usize)> =
        (0..found.size()).map(|node| (Reverse(0), node)).collect();
    for (src, dst, traffic) in found.off_diagonal() {
        sums[src].0.0 += traffic.wire_bytes;
        sums[dst].0.0 += traffic.wire_bytes;
    }
    sums.sort_unstable();
    let mut kept: Vec<usize> = sums.iter().take(NODES).map(|&(_, node)| node).collect();
    kept.sort_unstable();
    let place = |node: usize| kept.binary_search(&node).ok();
    network.nodes = kept.iter().map(|&node| plain(&run.nodes()[node])).collect();
    network.nodes_left_out = found.size() - kept.len();
    for (src, dst, traffic) in found.off_diagonal().filter(|(.., t)| t.packets > 0) {
        if let (Some(src), Some(dst)) = (place(src), place(dst)) {
            network.traffic.push(Direction {
                src,
                dst,
                payload_bytes: traffic.payload_bytes,
                wire_bytes: traffic.wire_bytes,
                packets: traffic.packets,
            });
        }
    }
    let bytes = matrix::bytes(found, Unit::Payload);
    for edge in topology::infer(&bytes, run.settings.b_min).edges {
        if let (Some(src), Some(dst)) = (place(edge.src), place(edge.dst)) {
            network.edges.push(Edge {
                src,
                dst,
                bytes: edge.bytes,
                share: edge.ratio,
            });
        }
    }
}

/// A series with at most as many points as a screen is wide: means of neighbours.
fn series(t0_ns: i64, step_s: f64, values: &[f64]) -> Series {
    let together = values.len().div_ceil(POINTS).max(1);
    let mean = |part: &[f64]| (part.iter().sum::<f64>() / part.len() as f64) as f32;
    Series {
        t0_ns,
        step_ns: step_s * 1e9 * together as f64,
        per_s: values.chunks(together).map(mean).collect(),
    }
}

fn curve(run: &Run, found: &calls::PowerSpectrum) -> Curve {
    let spectrum = &found.spectrum;
    let bins: Vec<usize> = (1..spectrum.power.len()).collect();
    let together = bins.len().div_ceil(POINTS).max(1);
    let mut curve = Curve {
        hz: Vec::new(),
        power: Vec::new(),
        background: Vec::new(),
        answer: pages::spectrum(run, false).lines,
        periods_s: calls::super_phase(run).map_or(Vec::new(), |known| {
            let components = known.value.components.into_iter();
            components
                .flat_map(|component| component.periods)
                .map(|period| period.seconds)
                .collect()
        }),
    };
    for part in bins.chunks(together) {
        let highest = part
            .iter()
            .copied()
            .max_by(|&a, &b| spectrum.power[a].total_cmp(&spectrum.power[b]));
        let Some(k) = highest else { continue };
        curve.hz.push(spectrum.hz(k) as f32);
        curve.power.push(spectrum.power[k] as f32);
        curve
            .background
            .extend(found.background.get(k).map(|&power| power as f32));
    }
    curve
}

#[cfg(test)]
mod tests {
    use flowtrace_network::testing::{data, delayed_run_of};

    use super::*;

    #[test]
    fn long_series_become_means_of_neighbours() {
        let values: Vec<f64> = (0..3000).map(f64::from).collect();
        let found = series(5, 0.5, &values);
        assert_eq!(
            (found.per_s.len(), found.per_s[0], found.per_s[1]),
            (1500, 0.5, 2.5)
        );
        assert!((found.step_ns - 1e9).abs() < 1e-3);
        assert_eq!(series(0, 1.0, &[]).per_s, Vec::<f32>::new());
    }

    #[test]
    fn the_numbers_are_those_of_the_matrix() {
        let mut packets = Vec::new();
        for step in 0..40i64 {
            for me in 0..4u16 {
                for peer in [(me + 1) % 4, (me + 3) % 4] {
                    let bytes = 1000 + u32::from(me);
                    packets.push(data(
                        step * 20_000_000 + i64::from(me) * 1000,
                        me,
                        peer,
                        bytes,
                    ));
                }
            }
        }
        packets.sort_by_key(|packet| packet.t_ns);
        let run = delayed_run_of(4, &packets, 100_000);
        let network = of(&run);
        let known = calls::traffic_matrix(&run, None).unwrap();
        let sum: u64 = known
            .value
            .off_diagonal()
            .map(|(.., t)| t.payload_bytes)
            .sum();
        assert!(sum > 0);
        assert_eq!(
            network.traffic.iter().map(|d| d.payload_bytes).sum::<u64>(),
            sum
        );
        assert_eq!((network.nodes.len(), network.edges.len()), (4, 8));
        let rate = network.rate.unwrap();
        assert!(rate.per_s.iter().any(|&rate| rate > 0.0));
        assert!(
            network
                .answers
                .iter()
                .any(|(question, _)| question == "topology")
        );
    }
}
