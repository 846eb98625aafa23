//! Made-up programs: rounds of computing and exchanging, simulated to the nanosecond.

use std::collections::{BTreeMap, VecDeque};

use super::streams::{data, run_with_delays};
use crate::run::{Node, Packet, Run};

/// Deterministic noise: xorshift.
pub struct Noise(
    /// State; not 0.
    pub u64,
);

impl Noise {
    /// The next number, evenly distributed between 0 and 1.
    pub fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// The next number of the standard normal distribution.
    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// Order in which processes exchange messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// All send to all partners, then receive.
    AllFirst,
    /// Edge by edge, both send and then receive.
    ByEdge,
    /// Edge by edge, one sends and the other answers.
    Turns,
}

impl Style {
    /// Every style.
    pub const ALL: [Style; 3] = [Style::AllFirst, Style::ByEdge, Style::Turns];
}

/// A bulk-synchronous program.
#[derive(Clone)]
pub struct Bsp {
    /// Pairs of processes that exchange a message in each direction per round.
    pub edges: Vec<(usize, usize)>,
    /// Edges of every other eight rounds, if the program has phases.
    pub others: Option<Vec<(usize, usize)>>,
    /// Computing time of each process per round, s.
    pub work_s: Vec<f64>,
    /// Relative deviation of the computing time.
    pub jitter: f64,
    /// Number of rounds.
    pub rounds: usize,
    /// Transfer time of every message, s.
    pub latency_s: f64,
    /// A process with a slow link, and the time that each message keeps the link busy, s. The link
    /// carries one message at a time in each direction.
    pub slow_link: Option<(usize, f64)>,
    /// Order of sends and receives.
    pub style: Style,
    /// Share of the rounds of each process that are delayed by about their own length.
    pub pauses: f64,
    /// A process that shares its CPU with another program, and the time slice of that program, s.
    pub sharing: Option<(usize, f64)>,
    /// Processes that, edge by edge, send only after the other's message is there.
    pub answering: Vec<usize>,
    /// Seed of the noise.
    pub seed: u64,
}

impl Bsp {
    /// A program of `n` processes with equal work, each of which exchanges messages with the one before
    /// and the one after.
    pub fn ring(n: usize) -> Bsp {
        Bsp {
            edges: (0..n)
                .map(|i| (i.min((i + 1) % n), i.max((i + 1) % n)))
                .collect(),
            others: None,
            work_s: vec![0.004; n],
            jitter: 0.05,
            rounds: 200,
            latency_s: 50e-6,
            slow_link: None,
            style: Style::AllFirst,
            pauses: 0.0,
            sharing: None,
            answering: Vec::new(),
            seed: 1,
        }
    }
}

/// The run of a made-up program, and the truth about it.
pub struct Made {
    /// Packets as in the captures.
    pub run: Run,
    /// Length of the run, s.
    pub seconds: f64,
    /// Sum of the computing time of each process, s.
    pub work_s: Vec<f64>,
    /// Intervals in which each process computed, s.
    pub computing_s: Vec<Vec<(f64, f64)>>,
}

impl Made {
    /// Computing time of each process between the first and the last packet, s.
    pub fn computed_s(&self) -> Vec<f64> {
        let (from, to) = self.run.span_ns();
        let (from, to) = (from as f64 / 1e9, to as f64 / 1e9);
        let within = |&(a, b): &(f64, f64)| (b.min(to) - a.max(from)).max(0.0);
        let sum = |spans: &Vec<(f64, f64)>| spans.iter().map(within).sum();
        self.computing_s.iter().map(sum).collect()
    }
}

/// A link that carries one message at a time.
#[derive(Default)]
struct Link {
    /// Time from which the link is free, s.
    free: f64,
}

impl Link {
    /// Carries a message that comes at the instant `at`, s, and keeps the link busy for `takes_s`.
    /// Returns the end of that.
    fn takes(&mut self, at: f64, takes_s: f64) -> f64 {
        self.free = self.free.max(at) + takes_s;
        self.free
    }
}

/// Next operation of a process.
#[derive(Clone, Copy)]
enum Op {
    /// Computes for this time, s.
    Work(f64),
    Send(usize),
    Receive(usize),
}

/// Adds the exchange of a round to the operations of each process, after its work.
fn talk(program: &Bsp, edges: &[(usize, usize)], ops: &mut [VecDeque<Op>]) {
    for &(a, b) in edges {
        ops[a].push_back(Op::Send(b));
        let is_answer = program.style == Style::Turns
            || program.style == Style::ByEdge && program.answering.contains(&b);
        if is_answer {
            ops[b].push_back(Op::Receive(a));
        }
        ops[b].push_back(Op::Send(a));
        if program.style != Style::AllFirst {
            ops[a].push_back(Op::Receive(b));
            if !is_answer {
                ops[b].push_back(Op::Receive(a));
            }
        }
    }
    if program.style == Style::AllFirst {
        for &(a, b) in edges {
            ops[a].push_back(Op::Receive(b));
            ops[b].push_back(Op::Receive(a));
        }
    }
}

/// Simulates a program.
pub fn bsp(program: &Bsp) -> Made {
    const SEND_S: f64 = 5e-6;
    let n = program.work_s.len();
    let mut noise = Noise(program.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    // A random stream of its own, so that the rest of the program is the same with and without it.
    let mut sliced = Noise(program.seed.wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1);
    let mut phases: Vec<_> = [Some(&program.edges), program.others.as_ref()]
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    for edges in &mut phases {
        edges.sort_unstable();
    }
    let mut ops = vec![VecDeque::new(); n];
    for round in 0..program.rounds {
        for (node, (ops, mean)) in ops.iter_mut().zip(&program.work_s).enumerate() {
            let mut took = mean * (1.0 + program.jitter * noise.normal()).max(0.1);
            if program.pauses > 0.0 && noise.uniform() < program.pauses {
                took += mean * -noise.uniform().ln();
            }
            if let Some((_, slice_s)) = program.sharing.filter(|shared| shared.0 == node) {
                // The rest of the slice when the work begins.
                took += slice_s * (took / slice_s + sliced.uniform()).floor();
            }
            ops.push_back(Op::Work(took));
        }
        talk(program, &phases[round / 8 % phases.len()], &mut ops);
    }
    let mut clock = vec![0.0f64; n];
    let mut work = vec![0.0f64; n];
    let mut computing = vec![Vec::new(); n];
    let mut packets: Vec<(Packet, i64)> = Vec::new();
    let mut links = [Link::default(), Link::default()];
    // Arrivals of messages that were sent and not yet received, s.
    let mut inbox: BTreeMap<(usize, usize), VecDeque<f64>> = BTreeMap::new();
    // Always the process that is least advanced, so that messages come to the link in the order of
    // time.
    let next = |clock: &[f64],
                ops: &[VecDeque<Op>],
                inbox: &BTreeMap<(usize, usize), VecDeque<f64>>| {
        let is_ready = |&me: &usize| match ops[me].front() {
            Some(&Op::Receive(from)) => inbox.get(&(from, me)).is_some_and(|list| !list.is_empty()),
            other => other.is_some(),
        };
        (0..n)
            .filter(is_ready)
            .min_by(|&a, &b| clock[a].total_cmp(&clock[b]))
    };
    while let Some(me) = next(&clock, &ops, &inbox) {
        match ops[me].pop_front() {
            Some(Op::Work(took)) => {
                computing[me].push((clock[me], clock[me] + took));
                clock[me] += took;
                work[me] += took;
            }
            Some(Op::Receive(from)) => {
                let there = inbox.get_mut(&(from, me)).and_then(VecDeque::pop_front);
                clock[me] = clock[me].max(there.unwrap_or(0.0));
            }
            Some(Op::Send(to)) => {
                clock[me] += SEND_S;
                let mut there = clock[me];
                if let Some((node, takes_s)) = program.slow_link
                    && [me, to].contains(&node)
                {
                    // To the process with the slow link, and from it.
                    there = links[usize::from(me == node)].takes(there, takes_s);
                }
                there += program.latency_s;
                inbox.entry((me, to)).or_default().push_back(there);
                let t_ns = (clock[me] * 1e9) as i64;
                packets.push((
                    data(t_ns, me as Node, to as Node, 1000),
                    (there * 1e9) as i64 - t_ns,
                ));
            }
            None => {}
        }
    }
    packets.sort_by_key(|packet| packet.0.t_ns);
    Made {
        run: run_with_delays(n, &packets),
        seconds: clock.iter().copied().fold(0.0, f64::max),
        work_s: work,
        computing_s: computing,
    }
}
