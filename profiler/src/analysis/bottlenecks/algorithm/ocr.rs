//! The job of Battré et al., section VIII, as a simulation in whole ticks: its four stages, and the advice
//! that leads from each to the next. Nothing is random: every number is exact.

use super::*;
use crate::analysis::degrees::{Advice, Demand, balance};

/// Ticks for a record: OCR takes four times as long as PDF.
const DEMAND: [u64; 6] = [2, 40, 10, 1, 2, 1];
const NAMES: [&str; 6] = [
    "reader",
    "ocr",
    "pdf",
    "pdf writer",
    "index",
    "index writer",
];
/// Producers and consumers; the first channel is a network connection that takes three ticks for a record.
const EDGES: [(usize, usize); 5] = [(0, 1), (1, 2), (2, 3), (1, 4), (4, 5)];
const TRANSFER: u64 = 3;
/// Records that fit into a channel.
const CAPACITY: u64 = 4;
const RECORDS: u64 = 2000;
/// CPUs that the first stage runs on.
const CORES: f64 = 4.0;

/// State of an instance in a tick.
#[derive(Clone, Copy, PartialEq)]
enum Doing {
    Waiting,
    Processing(u64),
    /// The instance has a record to give to these channels.
    Giving([bool; EDGES.len()]),
}

#[derive(Clone, Copy, Default)]
struct Channel {
    sent: u64,
    arrived: u64,
    busy_until: u64,
}

/// Result of a run of the job.
struct Run {
    ticks: u64,
    /// Ticks in processing, by task.
    processing: [u64; 6],
    /// Ticks at whose end the channel was full, by channel.
    saturated: [u64; 5],
    degrees: [usize; 6],
}

fn simulate(degrees: [usize; 6]) -> Run {
    let mut doing: Vec<Vec<Doing>> = degrees.map(|n| vec![Doing::Waiting; n]).to_vec();
    let mut channels = [Channel::default(); EDGES.len()];
    let (mut made, mut ended, mut tick) = (0, 0, 0);
    let mut run = Run {
        ticks: 0,
        processing: [0; 6],
        saturated: [0; 5],
        degrees,
    };
    // Both branches end with every record.
    while ended < 2 * RECORDS {
        // The connection delivers.
        let network = &mut channels[0];
        if network.sent > 0 && tick >= network.busy_until && network.arrived < CAPACITY {
            network.sent -= 1;
            network.arrived += 1;
            network.busy_until = tick + TRANSFER;
        }
        for task in (0..6).rev() {
            for instance in &mut doing[task] {
                if *instance == Doing::Waiting {
                    let input = (0..EDGES.len()).find(|&e| EDGES[e].1 == task);
                    let has_one = match input {
                        None => made < RECORDS,
                        Some(e) => channels[e].arrived > 0,
                    };
                    if has_one {
                        match input {
                            None => made += 1,
                            Some(e) => channels[e].arrived -= 1,
                        }
                        *instance = Doing::Processing(DEMAND[task]);
                    }
                }
                if let Doing::Processing(left) = *instance {
                    run.processing[task] += 1;
                    *instance = match left {
                        1 => Doing::Giving(std::array::from_fn(|e| EDGES[e].0 == task)),
                        more => Doing::Processing(more - 1),
                    };
                    if left > 1 {
                        continue;
                    }
                }
                if let Doing::Giving(mut open) = *instance {
                    for e in (0..EDGES.len()).filter(|&e| open[e]).collect::<Vec<_>>() {
                        let channel = &mut channels[e];
                        let (records, is_network) = (channel.sent + channel.arrived, e == 0);
                        if is_network && channel.sent < CAPACITY {
                            channel.sent += 1;
                            open[e] = false;
                        } else if !is_network && records < CAPACITY {
                            channel.arrived += 1;
                            open[e] = false;
                        }
                    }
                    *instance = Doing::Giving(open);
                    if !open.contains(&true) {
                        ended += u64::from(!EDGES.iter().any(|edge| edge.0 == task));
                        *instance = Doing::Waiting;
                    }
                }
            }
        }
        for (e, channel) in channels.iter().enumerate() {
            let records = channel.sent + if e == 0 { 0 } else { channel.arrived };
            run.saturated[e] += u64::from(records >= CAPACITY);
        }
        tick += 1;
    }
    run.ticks = tick;
    run
}

impl Run {
    fn share(&self, task: usize) -> f64 {
        self.processing[task] as f64 / (self.ticks as f64 * self.degrees[task] as f64)
    }

    /// The bottleneck by Algorithms 1 to 3.
    fn bottleneck(&self) -> String {
        let graph = contract(6, &EDGES);
        let mut pt = vec![Load::default(); 6];
        let mut st = vec![Load::default(); EDGES.len()];
        for task in 0..6 {
            pt[graph.vertex_of[task]].add(Load::of(self.share(task)));
        }
        for (e, &full) in self.saturated.iter().enumerate() {
            let edge = graph.edge_of[e].unwrap();
            st[edge].add(Load::of(full as f64 / self.ticks as f64));
        }
        let found = detect(&graph, &pt, &pt, &st, (0.9, 0.9));
        let name = |vertex: usize| NAMES[graph.members[vertex][0]];
        let tasks = (0..6).filter(|&v| found.cpu[v]).map(|v| name(v).to_owned());
        let edges = (0..EDGES.len()).filter(|&e| found.io[e]).map(|e| {
            let (from, to) = graph.edges[e];
            format!("{} → {}", name(from), name(to))
        });
        tasks.chain(edges).collect::<Vec<_>>().join(", ")
    }

    fn advice(&self, cores: usize) -> Advice {
        let demand = |task: usize| Demand {
            task,
            name: NAMES[task].into(),
            degree: self.degrees[task],
            instances: self.degrees[task],
            processing_ns: self.processing[task] as f64,
            cpu_ns: self.processing[task] as f64,
            read_bytes: None,
            jobs: None,
            times_ns: Vec::new(),
            advised: 0,
        };
        let binding = (0..6)
            .max_by(|&a, &b| self.share(a).total_cmp(&self.share(b)))
            .unwrap();
        balance(
            (0..6).map(demand).collect(),
            binding,
            cores,
            (0, self.ticks as i64),
        )
    }
}

#[test]
fn one_of_each_ocr_limits_and_a_third_of_the_cpus_work() {
    let run = simulate([1; 6]);
    assert_eq!(run.bottleneck(), "ocr");
    // A record each 40 ticks, plus the times of the first record to come and of the last to go.
    assert!(
        (run.ticks as i64 - 40 * RECORDS as i64).abs() < 60,
        "{}",
        run.ticks
    );
    let busy = run.processing.iter().sum::<u64>() as f64 / (run.ticks as f64 * CORES);
    assert!((busy - 0.35).abs() < 0.001, "{busy}");
}

#[test]
fn four_of_ocr_pdf_limits() {
    let run = simulate([1, 4, 1, 1, 1, 1]);
    assert!(
        run.share(1) > 0.9 && run.share(2) > 0.9,
        "both, and the later one counts"
    );
    assert_eq!(run.bottleneck(), "pdf");
}

#[test]
fn sixteen_and_four_the_connection_limits_and_more_change_nothing() {
    let run = simulate([1, 16, 4, 1, 1, 1]);
    assert_eq!(run.bottleneck(), "reader → ocr");
    let more = simulate([1, 20, 5, 1, 1, 1]);
    assert_eq!(more.bottleneck(), "reader → ocr");
    assert!((more.ticks as i64 - run.ticks as i64).abs() < 60);
    // Each record takes three ticks on the connection, so that bounds the run.
    assert!(
        (run.ticks as i64 - (TRANSFER * RECORDS) as i64).abs() < 120,
        "{}",
        run.ticks
    );
}

#[test]
fn the_advice_leads_from_stage_to_stage_as_predicted() {
    let first = simulate([1; 6]).advice(5);
    assert_eq!(
        first.demands.iter().map(|d| d.advised).collect::<Vec<_>>(),
        [1, 4, 1, 1, 1, 1]
    );
    let on_eight = simulate([1; 6]).advice(8);
    assert_eq!(
        (on_eight.enough, on_eight.then),
        (4, Some(2)),
        "beyond four of OCR, PDF limits"
    );
    let second = simulate([1, 4, 1, 1, 1, 1]);
    assert!(
        (second.ticks as f64 / first.balanced_ns.unwrap() - 1.0).abs() < 0.15,
        "{} for {}",
        first.balanced_ns.unwrap(),
        second.ticks
    );
    let one_more = simulate([1, 2, 1, 1, 1, 1]);
    assert!((one_more.ticks as f64 / first.one_more_ns.unwrap() - 1.0).abs() < 0.02);
    let third = second.advice(24);
    let advised: Vec<usize> = third.demands.iter().map(|d| d.advised).collect();
    assert!(advised[1] >= 15 && advised[2] == 4, "{advised:?}");
}
