//! Measures a machine: disk, memory, CPUs, network.

use std::path::Path;

use super::capacity::{Capacities, InShuffle, Measured, host_name};
use super::store::FORMAT;
use super::{disk, network, speed};
use crate::failure::Failure;

/// The measurements to make.
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

/// Measures this machine. `report` is called with the name of each measurement before it.
pub(crate) fn measure(
    plan: &Plan<'_>,
    report: &mut dyn FnMut(&str),
) -> Result<Capacities, Failure> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut found = Capacities {
        format: FORMAT.into(),
        host: host_name().unwrap_or_else(|| "?".into()),
        measured_unix_s: std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
        cores,
        directory: plan.directory.display().to_string(),
        ..Capacities::default()
    };
    report("disk");
    let disk = disk::measure(plan.directory, plan.most_bytes, plan.rounds)?;
    found.is_direct = disk.is_direct;
    found.disk_write = Measured::of(disk.write);
    found.disk_read = Measured::of(disk.read);
    found.disk_random_write = Measured::of(disk.random_write);
    found.disk_random_read = Measured::of(disk.random_read);
    report("memory");
    found.memory_copy = Measured::of((0..plan.rounds).map(|_| speed::memory()).collect());
    report("CPUs");
    found.cpu_one = Measured::of((0..plan.rounds).map(|_| speed::cpu(1)).collect());
    found.cpu_all = Measured::of((0..plan.rounds).map(|_| speed::cpu(cores)).collect());
    report("network");
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
        report("network, all to all");
        shuffle(plan, &mut found)?;
    }
    Ok(found)
}

/// Krevat's N for n nodes: the bytes that a node moves while all send to all.
pub(super) fn shuffle(plan: &Plan<'_>, found: &mut Capacities) -> Result<(), Failure> {
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
