//! Puts the instants of all processes in the order of their dependencies.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::network::{Instant, NONE, Network};

impl Network {
    /// Finds the order. Two instants may depend on each other, if two processes released each other at the
    /// same time. In such a [`knot`](Network::knot), one instant gives up its dependency on another
    /// process.
    pub(super) fn put_in_order(&mut self) {
        let count = self.instants.len();
        let mut after: Vec<(u32, u32)> = (0..count as u32)
            .filter(|&m| self.instants[m as usize].cross != NONE)
            .map(|m| (self.instants[m as usize].cross, m))
            .collect();
        after.sort_unstable();
        let mut missing: Vec<u8> = (0..count as u32)
            .map(|m| {
                let has_cross = self.instants[m as usize].cross != NONE;
                u8::from(self.before(m).is_some()) + u8::from(has_cross)
            })
            .collect();
        let key = |instants: &[Instant], m: u32| Reverse((instants[m as usize].at_ns, m));
        let mut ready: BinaryHeap<_> = (0..count as u32)
            .filter(|&m| missing[m as usize] == 0)
            .map(|m| key(&self.instants, m))
            .collect();
        // Instants whose own process has reached them.
        let mut waiting: BinaryHeap<_> = (0..count as u32)
            .filter(|&m| missing[m as usize] == 1 && self.before(m).is_none())
            .map(|m| key(&self.instants, m))
            .collect();
        let mut is_done = vec![false; count];
        // For each process, the first instant that is not in order yet.
        let mut next_of: Vec<u32> = self.ends.iter().map(|&(first, _)| first).collect();
        while self.order.len() < count {
            let Some(Reverse((_, m))) = ready.pop() else {
                let Some(Reverse((_, m))) = waiting.pop() else {
                    return;
                };
                if missing[m as usize] == 1 && !is_done[m as usize] {
                    let gives_way = self.knot(m, &next_of);
                    self.instants[gives_way as usize].cross = NONE;
                    missing[gives_way as usize] = 0;
                    ready.push(key(&self.instants, gives_way));
                    // The instant may stand behind the knot without being part of it.
                    waiting.push(key(&self.instants, m));
                }
                continue;
            };
            if std::mem::replace(&mut is_done[m as usize], true) {
                continue;
            }
            self.order.push(m);
            next_of[self.instants[m as usize].process.0 as usize] = m + 1;
            self.fix_lateness(m);
            let next = m + 1;
            if (next as usize) < count && self.before(next).is_some() {
                missing[next as usize] -= 1;
                match missing[next as usize] {
                    0 => ready.push(key(&self.instants, next)),
                    _ => waiting.push(key(&self.instants, next)),
                }
            }
            let from = after.partition_point(|&(cross, _)| cross < m);
            for &(_, to) in after[from..].iter().take_while(|&&(cross, _)| cross == m) {
                if self.instants[to as usize].cross == m {
                    missing[to as usize] -= 1;
                    if missing[to as usize] == 0 {
                        ready.push(key(&self.instants, to));
                    }
                }
            }
        }
    }

    /// The instant that gives up its cross dependency in the knot that keeps `m` from its turn. That is the
    /// instant with the shortest wait, which leaves the least time unexplained: a process that had waited
    /// for long was released by one of the others, not the other way round. `next_of`: the first instant of
    /// each process that has not had its turn.
    fn knot(&self, m: u32, next_of: &[u32]) -> u32 {
        let mut way = vec![m];
        let mut places = HashMap::from([(m, 0)]);
        let mut at = m;
        let knot = loop {
            // Nothing is ready, so the process that is waited for itself waits for another one.
            let cross = self.instants[at as usize].cross;
            at = next_of[self.instants[cross as usize].process.0 as usize];
            match places.insert(at, way.len()) {
                Some(place) => break &way[place..],
                None => way.push(at),
            }
        };
        let key = |m: u32| {
            let instant = &self.instants[m as usize];
            let before = self.before(m).map(|b| self.instants[b as usize].at_ns);
            let since = before.map_or(i64::MIN, |before| before.saturating_add(instant.own_ns));
            (instant.at_ns.saturating_sub(since), instant.at_ns, m)
        };
        let shortest = knot.iter().copied().min_by_key(|&m| key(m));
        shortest.unwrap_or(m)
    }

    /// Sets `late_ns` to the time that earlier instants do not explain, so that the network gives the
    /// measured times. An instant later than its supposed effect did not cause it. Work is never longer
    /// than the time between the instants, even in a damaged trace.
    fn fix_lateness(&mut self, m: u32) {
        let before = self.before(m).map(|b| self.instants[b as usize].at_ns);
        let Instant { at_ns, cross, .. } = self.instants[m as usize];
        let cross_ns = (cross != NONE).then(|| self.instants[cross as usize].at_ns);
        let is_cause = cross_ns.is_none_or(|cross_ns| cross_ns <= at_ns);
        let instant = &mut self.instants[m as usize];
        if !is_cause {
            instant.cross = NONE;
        }
        if let Some(before) = before {
            instant.own_ns = instant.own_ns.clamp(0, (at_ns - before).max(0));
        }
        let own = before.map(|before| before + instant.own_ns);
        let earliest = own.max(cross_ns.filter(|_| is_cause)).unwrap_or(0);
        instant.late_ns = at_ns - earliest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ProcessId;

    /// Adds the instants of a process, each with its time, the work before it and its cross dependency.
    fn line(network: &mut Network, instants: &[(i64, i64, u32)]) {
        let process = ProcessId(network.ends.len() as u32);
        let first = network.instants.len() as u32;
        let instants = instants.iter().map(|&(at_ns, own_ns, cross)| Instant {
            process,
            at_ns,
            own_ns,
            cross,
            late_ns: 0,
            is_lock: false,
        });
        network.instants.extend(instants);
        network
            .ends
            .push((first, network.instants.len() as u32 - 1));
    }

    #[test]
    fn in_a_knot_who_waited_shortest_gives_way() {
        // A shell waits for one of two processes that release each other at the instant at which the shell
        // ends. The shell stands before the knot but is not part of it.
        let mut network = Network::default();
        line(&mut network, &[(0, 0, NONE), (90, 1, 5), (100, 10, NONE)]);
        line(&mut network, &[(0, 0, NONE), (90, 1, 8), (90, 0, NONE)]);
        line(
            &mut network,
            &[(0, 0, NONE), (90, 85, 5), (90, 0, NONE), (95, 5, NONE)],
        );
        network.put_in_order();
        let crosses: Vec<u32> = network.instants.iter().map(|m| m.cross).collect();
        assert_eq!((crosses[1], crosses[4], crosses[7]), (5, 8, NONE));
        assert_eq!(network.instants[7].late_ns, 5);
        assert_eq!(network.order.len(), network.instants.len());
    }
}
