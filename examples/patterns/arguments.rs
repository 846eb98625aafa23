//! The arguments of a rank.

use std::net::IpAddr;
use std::str::FromStr;

use super::pattern::{self, Edge};

pub(super) struct Arguments {
    pub(super) rank: usize,
    pub(super) hosts: Vec<IpAddr>,
    pub(super) port: u16,
    pub(super) bytes: usize,
    pub(super) iterations: usize,
    pub(super) compute_us: u64,
    /// Ranks that compute so many times as long.
    pub(super) slow: Vec<(usize, f64)>,
    /// Computes asleep, as a rank does that has a processor of its own: no two take turns at one.
    pub(super) asleep: bool,
    /// Both messages of an edge at the same time.
    pub(super) exchange: bool,
    /// Iterations of one super-phase.
    pub(super) phase: usize,
    /// The edges of each super-phase.
    pub(super) edges: Vec<Vec<Edge>>,
    patterns: Vec<String>,
}

impl Arguments {
    pub(super) fn parse(arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
        let mut parsed = Arguments {
            rank: usize::MAX,
            hosts: Vec::new(),
            port: 7000,
            bytes: 20_000,
            iterations: 50,
            compute_us: 1000,
            slow: Vec::new(),
            asleep: false,
            exchange: false,
            phase: usize::MAX,
            edges: Vec::new(),
            patterns: vec!["ring".into()],
        };
        let mut arguments = arguments;
        while let Some(name) = arguments.next() {
            match name.as_str() {
                "--exchange" => parsed.exchange = true,
                "--asleep" => parsed.asleep = true,
                _ => {}
            }
            if matches!(name.as_str(), "--exchange" | "--asleep") {
                continue;
            }
            let value = arguments
                .next()
                .ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--rank" => parsed.rank = number(&name, &value)?,
                "--hosts" => {
                    let hosts = value.split(',').map(|host| number(&name, host));
                    parsed.hosts = hosts.collect::<Result<_, _>>()?;
                }
                "--port" => parsed.port = number(&name, &value)?,
                "--bytes" => parsed.bytes = number(&name, &value)?,
                "--iterations" => parsed.iterations = number(&name, &value)?,
                "--compute-us" => parsed.compute_us = number(&name, &value)?,
                "--phase" => parsed.phase = number::<usize>(&name, &value)?.max(1),
                "--pattern" => parsed.patterns = value.split(',').map(String::from).collect(),
                "--slow" => {
                    let (rank, factor) = value.split_once(':').ok_or("--slow needs RANK:FACTOR")?;
                    let slow = (number(&name, rank)?, number(&name, factor)?);
                    parsed.slow.push(slow);
                }
                _ => return Err(format!("{name} is unknown")),
            }
        }
        if parsed.rank >= parsed.hosts.len() || parsed.hosts.len() > 200 {
            return Err("--rank must be one of --hosts, of which there are at most 200".into());
        }
        let ranks = parsed.hosts.len();
        let edges = parsed.patterns.iter().map(|p| pattern::edges(p, ranks));
        parsed.edges = edges.collect::<Result<_, _>>()?;
        Ok(parsed)
    }

    /// The ranks that this one talks to in any phase.
    pub(super) fn neighbours(&self) -> Vec<usize> {
        let edges = self.edges.iter().flatten();
        let mut found: Vec<usize> = edges
            .filter_map(|&(a, b)| match self.rank {
                rank if rank == a => Some(b),
                rank if rank == b => Some(a),
                _ => None,
            })
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Whether messages go from the first to the second rank of an edge alone.
    pub(super) fn is_one_way(&self, from: usize, to: usize) -> bool {
        // In a tree from child to parent; all other edges begin at the lower rank.
        from > to
    }
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("{name} cannot be {value}"))
}
