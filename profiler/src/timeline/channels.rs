//! Processes that had a side of a channel open, over time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use flowtrace_schema::{ChannelEndRow, ChannelRow, SampleRow};

use super::{Channel, State, Timeline, UnderWay};
use crate::intervals::{minus, union, within};
use crate::model::{Image, ProcessId, Workflow};

/// A process that had a side open, with begin and end, ns.
type Side = (ProcessId, i64, i64);
type Sides = Vec<Side>;

/// A process has its inherited descriptors since its birth; the sampler finds them up to this time later, ns.
const AT_BIRTH: i64 = 1_000_000;

/// The sides of channels that each process has open: (reading, writing).
pub(super) fn open_sides(timeline: &Timeline) -> HashMap<ProcessId, (bool, bool)> {
    let mut holds: HashMap<ProcessId, (bool, bool)> = HashMap::new();
    for channel in &timeline.channels {
        for &(process, _, _) in &channel.readers {
            holds.entry(process).or_default().0 = true;
        }
        for &(process, _, _) in &channel.writers {
            holds.entry(process).or_default().1 = true;
        }
    }
    holds
}

/// Time at which a process was first seen to wait at each channel.
fn first_waits(samples: &[SampleRow]) -> HashMap<i64, i64> {
    let mut first: HashMap<i64, i64> = HashMap::new();
    for (channel, at) in samples
        .iter()
        .filter_map(|row| row.channel_id.zip(Some(row.t_ns)))
    {
        let earliest = first.entry(channel).or_insert(at);
        *earliest = at.min(*earliest);
    }
    first
}

pub(super) fn add_channels(
    timeline: &mut Timeline,
    workflow: &Workflow,
    rows: &[ChannelRow],
    samples: &[SampleRow],
) {
    let images: HashMap<i64, &Image> = workflow.images.iter().map(|i| (i.upid, i)).collect();
    let mut at: HashMap<i64, usize> = HashMap::new();
    for row in rows {
        at.insert(row.channel_id, timeline.channels.len());
        timeline.channels.push(Channel {
            is_token: workflow.ends.is_token(row.channel_id),
            channel_id: row.channel_id,
            kind: row.kind.as_str().into(),
            name: row.name.as_deref().map(Arc::from),
            ..Channel::default()
        });
    }
    let side_of = |end: &ChannelEndRow| {
        let (channel, image) = at.get(&end.channel_id).zip(images.get(&end.upid))?;
        let until = end.to_ns.or(image.end_ns).unwrap_or(workflow.last_ns);
        let side = (image.process, end.from_ns, until.max(end.from_ns));
        Some((*channel, side))
    };
    let mut add = |ends: &[ChannelEndRow], of: fn(&mut Channel) -> (&mut Sides, &mut Sides)| {
        for end in ends {
            let Some((channel, side)) = side_of(end) else {
                continue;
            };
            let (writing, reading) = of(&mut timeline.channels[channel]);
            if end.direction != "read" {
                writing.push(side);
            }
            if end.direction != "write" {
                reading.push(side);
            }
        }
    };
    add(&workflow.ends.idle, |channel| {
        (&mut channel.write_holders, &mut channel.read_holders)
    });
    add(&workflow.ends.active, |channel| {
        (&mut channel.writers, &mut channel.readers)
    });
    let births: Vec<i64> = workflow.processes.iter().map(|one| one.start_ns).collect();
    let first_waits = first_waits(samples);
    for channel in &mut timeline.channels {
        if matches!(&*channel.kind, "tcp" | "unix") {
            let first_wait = first_waits.get(&channel.channel_id).copied();
            was_waiting(&mut channel.writers, &births, first_wait);
            was_waiting(&mut channel.readers, &births, first_wait);
        }
    }
}

/// A process that accepts a connection lets the other side wait from the time at which the connection was
/// made: it lay in the backlog. When the backlog of a UNIX socket is full, the connecting process waits
/// before there is a connection. A process that has an end since its own birth is a child of the other side
/// instead.
fn was_waiting(sides: &mut Sides, births: &[i64], first_wait: Option<i64>) {
    let Some(&(maker, made, _)) = sides.iter().min_by_key(|side| side.1) else {
        return;
    };
    let begun = first_wait.map_or(made, |at| at.min(made));
    let birth = |process: ProcessId| births[process.0 as usize];
    let mut later = sides.iter_mut().filter(|side| side.0 != maker);
    let is_accepted = |side: &&mut Side| side.1 > birth(side.0) + AT_BIRTH;
    if let Some(accepted) = later.by_ref().filter(is_accepted).min_by_key(|side| side.1) {
        accepted.1 = begun.max(birth(accepted.0));
    }
}

/// Computes the times in which data was on its way through network connections ([`Channel::under_way`]).
pub(super) fn add_under_way(timeline: &mut Timeline) {
    let mut readings: HashMap<usize, Vec<Side>> = HashMap::new();
    let mut writings: HashMap<usize, Vec<Side>> = HashMap::new();
    for instance in &timeline.instances {
        for piece in &instance.pieces {
            let side = (instance.process, piece.from, piece.to);
            let of = match piece.state {
                State::In => &mut readings,
                State::Out => &mut writings,
                _ => continue,
            };
            let channel = piece.channel.map(|at| at as usize);
            if let Some(at) = channel.filter(|&at| timeline.channels[at].is_network()) {
                of.entry(at).or_default().push(side);
            }
        }
    }
    for (at, readings) in readings {
        let channel = &mut timeline.channels[at];
        let writings = writings.get(&at).map_or(&[][..], Vec::as_slice);
        channel.under_way = under_way(channel, &readings, writings);
    }
}

/// The times for one connection; `readings` and `writings` are the waits to read from it, and to write, in
/// the order of processes, then time.
fn under_way(channel: &Channel, readings: &[Side], writings: &[Side]) -> Vec<UnderWay> {
    let mut found = Vec::new();
    for reading in readings.chunk_by(|a, b| a.0 == b.0) {
        let receiver = reading[0].0;
        let waits: Vec<(i64, i64)> = reading.iter().map(|&(_, from, to)| (from, to)).collect();
        // Processes that may send the data, with the times in which each had it open.
        let others = channel.writers.iter().chain(&channel.write_holders);
        let mut senders: BTreeMap<ProcessId, Vec<(i64, i64)>> = BTreeMap::new();
        for &(other, from, to) in others.filter(|side| side.0 != receiver) {
            senders.entry(other).or_default().push((from, to));
        }
        let Some(begun) = senders.values().flatten().map(|&(from, _)| from).min() else {
            continue;
        };
        // The times while all of them are blocked writing, or have closed it.
        let mut free = minus(&waits, &[(i64::MIN, begun)]);
        let mut last: Option<(i64, ProcessId)> = None;
        let mut blocked: Vec<(ProcessId, Vec<(i64, i64)>)> = Vec::new();
        for (other, mut times) in senders {
            times.sort_unstable();
            let times = union(times);
            last = last.max(times.last().map(|&(_, closed)| (closed, other)));
            let own = writings.partition_point(|side| side.0 < other);
            let own = writings[own..].iter().take_while(|side| side.0 == other);
            let own: Vec<(i64, i64)> = own.map(|&(_, from, to)| (from, to)).collect();
            free = minus(&free, &minus(&times, &own));
            blocked.push((other, own));
        }
        let mut add = |times: Vec<(i64, i64)>, sender: ProcessId, is_full: bool| {
            found.extend(times.into_iter().map(|(from, to)| UnderWay {
                receiver,
                from,
                to,
                sender,
                is_full,
            }));
        };
        for (sender, own) in blocked {
            add(within(&free, &own), sender, true);
            free = minus(&free, &own);
        }
        if let Some((closed, sender)) = last {
            free.retain(|one| one.0 >= closed);
            add(free, sender, false);
        }
    }
    // By receivers, then time.
    found.sort_unstable();
    found
}

/// Processes that had a side open during an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Kept {
    /// True if the waiting process had the other side open itself.
    pub(super) by_itself: bool,
    /// Share of the interval for which another process had it open: the one that had it open longest.
    pub(super) by_others: f64,
}

impl Channel {
    /// The times within an interval in which data was on its way through the channel.
    pub fn under_way_within(&self, from: i64, to: i64) -> impl Iterator<Item = &UnderWay> {
        let mut rest = &self.under_way[..];
        let mut parts = Vec::new();
        while let Some(first) = rest.first() {
            let (of_one, others) =
                rest.split_at(rest.partition_point(|one| one.receiver == first.receiver));
            let begin = of_one.partition_point(|one| one.to <= from);
            let count = of_one[begin..].partition_point(|one| one.from < to);
            parts.push(&of_one[begin..begin + count]);
            rest = others;
        }
        parts.into_iter().flatten()
    }

    /// The other processes, and the process itself, that had the side open for which a reader (`reads`), or a
    /// writer, waits.
    pub(super) fn kept(&self, process: ProcessId, reads: bool, from: i64, to: i64) -> Kept {
        let sides = match reads {
            true => [&self.writers, &self.write_holders],
            false => [&self.readers, &self.read_holders],
        };
        let overlap = |side: &&Side| side.1 < to && side.2 > from;
        let mut kept = Kept::default();
        for side in sides.into_iter().flatten().filter(overlap) {
            let share = (side.2.min(to) - side.1.max(from)) as f64 / (to - from).max(1) as f64;
            match side.0 == process {
                // A process with a connection has one end of it.
                true => kept.by_itself |= !self.is_network(),
                false => kept.by_others = kept.by_others.max(share),
            }
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_accepts_late_had_it_in_the_backlog() {
        let (client, server, child) = (ProcessId(0), ProcessId(1), ProcessId(2));
        let births = [0, 0, 50_000_000];
        let mut sides = vec![
            (server, 90_000_000, 99_000_000),
            (client, 10_000_000, 99_000_000),
            (child, 50_000_000, 60_000_000),
        ];
        was_waiting(&mut sides, &births, Some(20_000_000));
        let begins: Vec<i64> = sides.iter().map(|side| side.1).collect();
        assert_eq!(begins, [10_000_000, 10_000_000, 50_000_000]);
        sides[0].1 = 90_000_000;
        was_waiting(&mut sides, &births, Some(4_000_000));
        assert_eq!(sides[0].1, 4_000_000, "who connected waited before");
        // No process of the run accepts.
        let mut sides = vec![(client, 10, 99), (child, 50_000_000, 60_000_000)];
        let before = sides.clone();
        was_waiting(&mut sides, &births, None);
        assert_eq!(sides, before);
    }
}
