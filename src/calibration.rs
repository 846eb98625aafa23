//! What this machine can do: disk, memory, processors, network; measured in under a minute.

pub(crate) mod compare;
mod disk;
mod network;
mod speed;
mod store;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub(crate) use network::serve;
pub(crate) use store::{default_path, read, write};

use crate::failure::Failure;

/// A capacity with what is known of its spread.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Median of the rounds: bytes per second; operations per second of `cpu_*`.
    pub(crate) value: f64,
    /// Half the distance between the largest and the smallest round, as a share of the value;
    /// none after a single round.
    pub(crate) spread: Option<f64>,
    /// Rounds.
    pub(crate) rounds: usize,
}

impl Measured {
    fn of(mut rounds: Vec<f64>) -> Option<Measured> {
        rounds.retain(|value| value.is_finite() && *value > 0.0);
        rounds.sort_by(f64::total_cmp);
        let (&first, &last) = rounds.first().zip(rounds.last())?;
        let n = rounds.len();
        let value = if n % 2 == 1 {
            rounds[n / 2]
        } else {
            (rounds[n / 2 - 1] + rounds[n / 2]) / 2.0
        };
        Some(Measured {
            value,
            spread: (n > 1).then(|| (last - first) / 2.0 / value),
            rounds: n,
        })
    }
}

/// Everything that was measured of a machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Capacities {
    /// Always `flowtrace capacities`.
    pub(crate) format: String,
    pub(crate) host: String,
    pub(crate) measured_unix_s: u64,
    pub(crate) cores: usize,
    /// Directory whose disk was measured.
    pub(crate) directory: String,
    /// Whether the page cache was passed by; otherwise the disk's figures are too good.
    pub(crate) is_direct: bool,
    pub(crate) disk_read: Option<Measured>,
    pub(crate) disk_write: Option<Measured>,
    pub(crate) disk_random_read: Option<Measured>,
    pub(crate) disk_random_write: Option<Measured>,
    pub(crate) memory_copy: Option<Measured>,
    pub(crate) cpu_one: Option<Measured>,
    pub(crate) cpu_all: Option<Measured>,
    pub(crate) loopback: Option<Measured>,
    pub(crate) network: Option<Measured>,
    /// What each machine sent and received while all sent to all; then `network` is the lesser of both, the
    /// median over the machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) shuffle: Vec<InShuffle>,
}

/// A machine while all sent to all, bytes per second.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct InShuffle {
    pub(crate) peer: String,
    pub(crate) sent: Measured,
    pub(crate) received: Measured,
}

/// What to measure.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) rounds: usize,
    /// Most bytes of the file that is written.
    pub(crate) most_bytes: u64,
    /// A `flowtrace calibrate --serve` to measure the network with.
    pub(crate) peer: Option<&'a str>,
    /// Several of them that are to send to each other all at once.
    pub(crate) shuffle: &'a [String],
}

/// Name of this machine.
fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().replace('/', "_"))
}

/// Measures this machine. `tell` hears what is measured next.
pub(crate) fn measure(plan: &Plan<'_>, tell: &mut dyn FnMut(&str)) -> Result<Capacities, Failure> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut found = Capacities {
        format: store::FORMAT.into(),
        host: host_name().unwrap_or_else(|| "?".into()),
        measured_unix_s: std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
        cores,
        directory: plan.directory.display().to_string(),
        ..Capacities::default()
    };
    tell("disk");
    let disk = disk::measure(plan)?;
    found.is_direct = disk.is_direct;
    found.disk_write = Measured::of(disk.write);
    found.disk_read = Measured::of(disk.read);
    found.disk_random_write = Measured::of(disk.random_write);
    found.disk_random_read = Measured::of(disk.random_read);
    tell("memory");
    found.memory_copy = Measured::of((0..plan.rounds).map(|_| speed::memory()).collect());
    tell("processors");
    found.cpu_one = Measured::of((0..plan.rounds).map(|_| speed::cpu(1)).collect());
    found.cpu_all = Measured::of((0..plan.rounds).map(|_| speed::cpu(cores)).collect());
    tell("network");
    let loopback: Vec<f64> = (0..plan.rounds)
        .filter_map(|_| network::loopback().ok())
        .collect();
    found.loopback = Measured::of(loopback);
    if let Some(peer) = plan.peer {
        let mut rounds = Vec::new();
        for _ in 0..plan.rounds {
            rounds.push(network::to(peer).map_err(|error| {
                Failure::new(1, format!("cannot measure the network to {peer}: {error}"))
                    .hint("run `flowtrace calibrate --serve 0.0.0.0:PORT` there first")
            })?);
        }
        found.network = Measured::of(rounds);
    }
    if !plan.shuffle.is_empty() {
        tell("network, all to all");
        shuffle(plan, &mut found)?;
    }
    Ok(found)
}

/// Krevat's N for n nodes: what a node moves while all send to all.
fn shuffle(plan: &Plan<'_>, found: &mut Capacities) -> Result<(), Failure> {
    let peers = plan.shuffle;
    let (mut sent, mut received) = (vec![Vec::new(); peers.len()], vec![Vec::new(); peers.len()]);
    let mut lesser = Vec::new();
    for _ in 0..plan.rounds {
        let round = network::shuffle(peers).map_err(|error| {
            Failure::new(1, format!("cannot measure a shuffle: {error}"))
                .hint("run `flowtrace calibrate --serve 0.0.0.0:PORT` on each of these machines, of the same version")
        })?;
        let nodes = sent.iter_mut().zip(&mut received).enumerate();
        for (node, (sent, received)) in nodes {
            let (out, back) = round.of(node);
            sent.push(out);
            received.push(back);
            lesser.push(out.min(back));
        }
    }
    found.network = Measured::of(lesser);
    let nodes = peers.iter().zip(sent).zip(received);
    found.shuffle = nodes
        .filter_map(|((peer, sent), received)| {
            Some(InShuffle {
                peer: peer.clone(),
                sent: Measured::of(sent)?,
                received: Measured::of(received)?,
            })
        })
        .collect();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_round_has_no_spread() {
        assert_eq!(Measured::of(vec![5.0]).unwrap().spread, None);
        let three = Measured::of(vec![9.0, 10.0, 12.0]).unwrap();
        assert_eq!((three.value, three.rounds), (10.0, 3));
        assert!((three.spread.unwrap() - 0.15).abs() < 1e-9);
        assert!(Measured::of(vec![0.0, f64::NAN]).is_none());
    }
}
