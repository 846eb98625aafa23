//! Waits that are sleeps, and sleeps that are waits.

use std::collections::HashMap;

use super::{Piece, State, Timeline};
use crate::intervals::union;
use crate::model::{ProcessId, Workflow};

/// Longest chain of processes that wait for each other's children.
const DEEPEST: u32 = 8;

/// A process that works for less between two waits only looks whether something came, ns.
const TICK: i64 = 10_000_000;

/// Makes waits of the waits until a time limit after which the process did nothing but wait again, as a server does
/// that looks for a request to stop twice a second. The others are sleeps: their time limit was what mattered.
pub(super) fn hide_in_vain(timeline: &mut Timeline) {
    let mut woken: HashMap<ProcessId, Vec<i64>> = HashMap::new();
    for piece in timeline.instances.iter().flat_map(|one| &one.pieces) {
        if let Some(waker) = piece.waker {
            woken.entry(waker).or_default().push(piece.to);
        }
    }
    woken.values_mut().for_each(|times| times.sort_unstable());
    for instance in &mut timeline.instances {
        let times = woken.get(&instance.process).map_or(&[][..], Vec::as_slice);
        // The wait that comes next: its begin, true if it is for channels, too, and the work before it, ns.
        let mut next = (i64::MAX, false, 0);
        for piece in instance.pieces.iter_mut().rev() {
            let acts = || {
                let first = times.partition_point(|&at| at < piece.to);
                times.get(first).is_some_and(|&at| at <= next.0)
            };
            let (_, waits_again, works_ns) = next;
            if piece.is_in_vain && waits_again && works_ns < TICK && !acts() {
                (piece.state, piece.mix) = (State::In, State::In as u32);
            }
            match piece.state {
                State::Cpu => next.2 += piece.to - piece.from,
                State::Queue => {}
                state => next = (piece.from, piece.is_in_vain || state == State::In, 0),
            }
        }
    }
}

/// Makes sleeps of the waits of processes that only wait for processes that wait for them, where a thread slept
/// meanwhile: a server sleeps before it answers while its main thread waits for its client to end, or for the
/// next connection.
pub(super) fn reveal_sleeps(
    timeline: &mut Timeline,
    workflow: &Workflow,
    children: &[Vec<ProcessId>],
) {
    let search = Search {
        timeline,
        workflow,
        children,
    };
    let instances = || timeline.instances.iter();
    if !instances().any(|one| one.pieces.iter().any(|piece| piece.sleeps)) {
        return;
    }
    let awaited = search.awaited();
    let mut found = Vec::new();
    for instance in instances() {
        let id = instance.process;
        for (place, piece) in instance.pieces.iter().enumerate() {
            let middle = piece.from.midpoint(piece.to);
            let is_awaited = || {
                let times = awaited.get(&id).map_or(&[][..], Vec::as_slice);
                let at = times.partition_point(|&(_, to)| to <= middle);
                times.get(at).is_some_and(|&(from, _)| from <= middle)
            };
            let mut others = search.others(id, piece, middle).into_iter();
            if piece.sleeps
                && is_awaited()
                && others.all(|other| search.is_kept_by(other, id, middle, DEEPEST))
            {
                found.push((id, place));
            }
        }
    }
    for (id, place) in found {
        let piece = &mut timeline.instances[id.0 as usize].pieces[place];
        *piece = Piece {
            state: State::Sleep,
            channel: None,
            child_pid: None,
            waker: None,
            mix: State::Sleep as u32,
            ..*piece
        };
    }
}

struct Search<'a> {
    timeline: &'a Timeline,
    workflow: &'a Workflow,
    children: &'a [Vec<ProcessId>],
}

impl Search<'_> {
    /// The times in which another process waited for each, in order.
    fn awaited(&self) -> HashMap<ProcessId, Vec<(i64, i64)>> {
        let mut found: HashMap<ProcessId, Vec<(i64, i64)>> = HashMap::new();
        for instance in &self.timeline.instances {
            for piece in &instance.pieces {
                let middle = piece.from.midpoint(piece.to);
                for other in self.others(instance.process, piece, middle) {
                    found.entry(other).or_default().push((piece.from, piece.to));
                }
            }
        }
        for times in found.values_mut() {
            times.sort_unstable();
            *times = union(std::mem::take(times));
        }
        found
    }

    /// The processes that a process waits for at a time, in a channel or as children.
    fn others(&self, id: ProcessId, piece: &Piece, at_ns: i64) -> Vec<ProcessId> {
        let is_open = |&&(other, from, to): &&(ProcessId, i64, i64)| {
            other != id && from <= at_ns && at_ns < to
        };
        let channel = piece.channel.map(|at| &self.timeline.channels[at as usize]);
        let sides = match (piece.state, channel) {
            (State::In, Some(channel)) => &channel.writers[..],
            (State::Out, Some(channel)) => &channel.readers[..],
            _ => &[],
        };
        let ends = sides.iter().filter(is_open).map(|side| side.0);
        let children = match piece.state {
            State::Child => &self.children[id.0 as usize][..],
            _ => &[],
        };
        let children = children.iter().copied().filter(|&child| {
            let instance = self.timeline.instance(child);
            let pid = self.workflow.process(child).pid;
            piece.child_pid.is_none_or(|waited| waited == pid)
                && instance.from <= at_ns
                && at_ns < instance.to
        });
        match piece.waker.filter(|&waker| waker != id) {
            Some(waker) if piece.state.is_waiting() => vec![waker],
            _ => ends.chain(children).collect(),
        }
    }

    /// True if at a time `other` waited for `id`, or only for children that did.
    fn is_kept_by(&self, other: ProcessId, id: ProcessId, at_ns: i64, depth: u32) -> bool {
        let pieces = self.timeline.pieces_within(other, at_ns, at_ns + 1);
        let Some(piece) = pieces.first() else {
            return false;
        };
        let others = self.others(other, piece, at_ns);
        match piece.state {
            State::Child if depth > 0 => {
                let mut children = others.iter();
                !others.is_empty()
                    && children.all(|&child| self.is_kept_by(child, id, at_ns, depth - 1))
            }
            _ => others.contains(&id),
        }
    }
}
