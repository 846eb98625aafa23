//! Programs made up in the test: rounds of computing and exchanging, simulated to the nanosecond.

use super::{Node, Packet, Run, data, delayed_run_of};

/// Deterministic noise: xorshift.
pub(in crate::network) struct Noise(pub(in crate::network) u64);

impl Noise {
    pub(in crate::network) fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    pub(in crate::network) fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// How processes exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::network) enum Style {
    /// All send to all partners, then receive.
    AllFirst,
    /// Edge by edge, both send and then receive.
    ByEdge,
    /// Edge by edge, one sends and the other answers.
    Turns,
}

impl Style {
    pub(in crate::network) const ALL: [Style; 3] = [Style::AllFirst, Style::ByEdge, Style::Turns];
}

/// A bulk-synchronous program.
#[derive(Clone)]
pub(in crate::network) struct Bsp {
    pub(in crate::network) edges: Vec<(usize, usize)>,
    /// Edges of every other eight rounds, if it goes through phases.
    pub(in crate::network) others: Option<Vec<(usize, usize)>>,
    /// Computing time of each process per round, s.
    pub(in crate::network) work_s: Vec<f64>,
    /// Its relative deviation.
    pub(in crate::network) jitter: f64,
    pub(in crate::network) rounds: usize,
    pub(in crate::network) latency_s: f64,
    pub(in crate::network) style: Style,
    /// Processes that, edge by edge, send only when the other's message is there.
    pub(in crate::network) answering: Vec<usize>,
    pub(in crate::network) seed: u64,
}

impl Bsp {
    pub(in crate::network) fn ring(n: usize) -> Bsp {
        Bsp {
            edges: (0..n)
                .map(|i| (i.min((i + 1) % n), i.max((i + 1) % n)))
                .collect(),
            others: None,
            work_s: vec![0.004; n],
            jitter: 0.05,
            rounds: 200,
            latency_s: 50e-6,
            style: Style::AllFirst,
            answering: Vec::new(),
            seed: 1,
        }
    }
}

/// What a program did.
pub(in crate::network) struct Made {
    pub(in crate::network) run: Run,
    pub(in crate::network) seconds: f64,
    /// Whole computing time by process, s.
    pub(in crate::network) work_s: Vec<f64>,
    /// When each process computed, s.
    pub(in crate::network) computing_s: Vec<Vec<(f64, f64)>>,
}

impl Made {
    /// Time that each process computed while packets went, s.
    pub(in crate::network) fn computed_s(&self) -> Vec<f64> {
        let (from, to) = self.run.span_ns();
        let (from, to) = (from as f64 / 1e9, to as f64 / 1e9);
        let within = |&(a, b): &(f64, f64)| (b.min(to) - a.max(from)).max(0.0);
        let sum = |spans: &Vec<(f64, f64)>| spans.iter().map(within).sum();
        self.computing_s.iter().map(sum).collect()
    }
}

/// Runs a program.
pub(in crate::network) fn bsp(program: &Bsp) -> Made {
    let n = program.work_s.len();
    let mut noise = Noise(program.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut clock = vec![0.0f64; n];
    let mut work = vec![0.0f64; n];
    let mut computing = vec![Vec::new(); n];
    let mut packets: Vec<Packet> = Vec::new();
    const SEND_S: f64 = 5e-6;
    let mut phases: Vec<_> = [Some(&program.edges), program.others.as_ref()]
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    for edges in &mut phases {
        edges.sort_unstable();
    }
    for round in 0..program.rounds {
        let edges = &phases[round / 8 % phases.len()];
        for (node, mean) in program.work_s.iter().enumerate() {
            let took = mean * (1.0 + program.jitter * noise.normal()).max(0.1);
            computing[node].push((clock[node], clock[node] + took));
            clock[node] += took;
            work[node] += took;
        }
        let mut send = |clock: &mut Vec<f64>, from: usize, to: usize| -> f64 {
            clock[from] += SEND_S;
            packets.push(data(
                (clock[from] * 1e9) as i64,
                from as Node,
                to as Node,
                1000,
            ));
            clock[from] + program.latency_s
        };
        match program.style {
            Style::AllFirst => {
                let mut arrivals = vec![0.0f64; n];
                for &(a, b) in edges {
                    let at = send(&mut clock, a, b);
                    arrivals[b] = arrivals[b].max(at);
                    let at = send(&mut clock, b, a);
                    arrivals[a] = arrivals[a].max(at);
                }
                for (clock, arrival) in clock.iter_mut().zip(arrivals) {
                    *clock = clock.max(arrival);
                }
            }
            Style::ByEdge => {
                for &(a, b) in edges {
                    let there = send(&mut clock, a, b);
                    if program.answering.contains(&b) {
                        clock[b] = clock[b].max(there);
                    }
                    let back = send(&mut clock, b, a);
                    clock[b] = clock[b].max(there);
                    clock[a] = clock[a].max(back);
                }
            }
            Style::Turns => {
                for &(a, b) in edges {
                    let at = send(&mut clock, a, b);
                    clock[b] = clock[b].max(at);
                    let at = send(&mut clock, b, a);
                    clock[a] = clock[a].max(at);
                }
            }
        }
    }
    packets.sort_by_key(|packet| packet.t_ns);
    Made {
        run: delayed_run_of(n, &packets, (program.latency_s * 1e9) as i64),
        seconds: clock.iter().copied().fold(0.0, f64::max),
        work_s: work,
        computing_s: computing,
    }
}
