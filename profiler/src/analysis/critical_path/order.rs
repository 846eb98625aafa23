//! In which order the moments of all processes come.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::network::{Moment, NONE, Network};

impl Network {
    /// Finds the order. Two that let each other go at the same moment would wait for ever: of
    /// such a [`knot`](Network::knot) one moment is taken to depend on its own process alone.
    pub(super) fn put_in_order(&mut self) {
        let count = self.moments.len();
        let mut after: Vec<(u32, u32)> = (0..count as u32)
            .filter(|&m| self.moments[m as usize].cross != NONE)
            .map(|m| (self.moments[m as usize].cross, m))
            .collect();
        after.sort_unstable();
        let mut missing: Vec<u8> = (0..count as u32)
            .map(|m| {
                let has_cross = self.moments[m as usize].cross != NONE;
                u8::from(self.before(m).is_some()) + u8::from(has_cross)
            })
            .collect();
        let key = |moments: &[Moment], m: u32| Reverse((moments[m as usize].at_ns, m));
        let mut ready: BinaryHeap<_> = (0..count as u32)
            .filter(|&m| missing[m as usize] == 0)
            .map(|m| key(&self.moments, m))
            .collect();
        // Moments whose own process has come that far.
        let mut waiting: BinaryHeap<_> = (0..count as u32)
            .filter(|&m| missing[m as usize] == 1 && self.before(m).is_none())
            .map(|m| key(&self.moments, m))
            .collect();
        let mut is_done = vec![false; count];
        // Of each process how far it has come: the first moment that is not in order yet.
        let mut next_of: Vec<u32> = self.ends.iter().map(|&(first, _)| first).collect();
        while self.order.len() < count {
            let Some(Reverse((_, m))) = ready.pop() else {
                let Some(Reverse((_, m))) = waiting.pop() else {
                    return;
                };
                if missing[m as usize] == 1 && !is_done[m as usize] {
                    let gives_way = self.knot(m, &next_of);
                    self.moments[gives_way as usize].cross = NONE;
                    missing[gives_way as usize] = 0;
                    ready.push(key(&self.moments, gives_way));
                    // It may only stand behind the knot.
                    waiting.push(key(&self.moments, m));
                }
                continue;
            };
            if std::mem::replace(&mut is_done[m as usize], true) {
                continue;
            }
            self.order.push(m);
            next_of[self.moments[m as usize].process.0 as usize] = m + 1;
            self.fix_lateness(m);
            let next = m + 1;
            if (next as usize) < count && self.before(next).is_some() {
                missing[next as usize] -= 1;
                match missing[next as usize] {
                    0 => ready.push(key(&self.moments, next)),
                    _ => waiting.push(key(&self.moments, next)),
                }
            }
            let from = after.partition_point(|&(cross, _)| cross < m);
            for &(_, to) in after[from..].iter().take_while(|&&(cross, _)| cross == m) {
                if self.moments[to as usize].cross == m {
                    missing[to as usize] -= 1;
                    if missing[to as usize] == 0 {
                        ready.push(key(&self.moments, to));
                    }
                }
            }
        }
    }

    /// Which moment gives way in the knot that keeps `m` from its turn: the one that has waited shortest, of which least
    /// stays unexplained. Whoever waited for long before was let go by one of the others, not the other way round.
    /// `next_of`: the first moment of each process that has not had its turn.
    fn knot(&self, m: u32, next_of: &[u32]) -> u32 {
        let mut way = vec![m];
        let mut places = HashMap::from([(m, 0)]);
        let mut at = m;
        let knot = loop {
            // Nothing is ready: the process that is waited for waits for another one itself.
            let cross = self.moments[at as usize].cross;
            at = next_of[self.moments[cross as usize].process.0 as usize];
            match places.insert(at, way.len()) {
                Some(place) => break &way[place..],
                None => way.push(at),
            }
        };
        let key = |m: u32| {
            let moment = &self.moments[m as usize];
            let before = self.before(m).map(|b| self.moments[b as usize].at_ns);
            let since = before.map_or(i64::MIN, |before| before.saturating_add(moment.own_ns));
            (moment.at_ns.saturating_sub(since), moment.at_ns, m)
        };
        let shortest = knot.iter().copied().min_by_key(|&m| key(m));
        shortest.unwrap_or(m)
    }

    /// What the moments before do not explain, so that the network gives the measured times. What came later than its
    /// effect did not cause it, and no work is longer than the time it took, whatever a damaged trace says.
    fn fix_lateness(&mut self, m: u32) {
        let before = self.before(m).map(|b| self.moments[b as usize].at_ns);
        let Moment { at_ns, cross, .. } = self.moments[m as usize];
        let cross_ns = (cross != NONE).then(|| self.moments[cross as usize].at_ns);
        let is_cause = cross_ns.is_none_or(|cross_ns| cross_ns <= at_ns);
        let moment = &mut self.moments[m as usize];
        if !is_cause {
            moment.cross = NONE;
        }
        if let Some(before) = before {
            moment.own_ns = moment.own_ns.clamp(0, (at_ns - before).max(0));
        }
        let own = before.map(|before| before + moment.own_ns);
        let earliest = own.max(cross_ns.filter(|_| is_cause)).unwrap_or(0);
        moment.late_ns = at_ns - earliest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ProcessId;

    /// Moments of a process, each with its time, the work before it and what had to come first.
    fn line(network: &mut Network, moments: &[(i64, i64, u32)]) {
        let process = ProcessId(network.ends.len() as u32);
        let first = network.moments.len() as u32;
        let moments = moments.iter().map(|&(at_ns, own_ns, cross)| Moment {
            process,
            at_ns,
            own_ns,
            cross,
            late_ns: 0,
            is_lock: false,
        });
        network.moments.extend(moments);
        network.ends.push((first, network.moments.len() as u32 - 1));
    }

    #[test]
    fn in_a_knot_who_waited_shortest_gives_way() {
        // A shell waits for one of two that let each other go at the moment at which it ends; it is not of the knot, though
        // it stands before them.
        let mut network = Network::default();
        line(&mut network, &[(0, 0, NONE), (90, 1, 5), (100, 10, NONE)]);
        line(&mut network, &[(0, 0, NONE), (90, 1, 8), (90, 0, NONE)]);
        line(
            &mut network,
            &[(0, 0, NONE), (90, 85, 5), (90, 0, NONE), (95, 5, NONE)],
        );
        network.put_in_order();
        let crosses: Vec<u32> = network.moments.iter().map(|m| m.cross).collect();
        assert_eq!((crosses[1], crosses[4], crosses[7]), (5, 8, NONE));
        assert_eq!(network.moments[7].late_ns, 5);
        assert_eq!(network.order.len(), network.moments.len());
    }
}
