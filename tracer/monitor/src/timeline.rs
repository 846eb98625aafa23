//! The samples of one session in their order, with missing ones filled in.

use std::collections::BTreeMap;

use super::wire::{Sample, Totals};

/// Samples that wait for a missing one before them.
const WAITING: usize = 16;
/// Most samples that are filled in at one place.
const FILLED: u64 = 256;

/// Totals at a time of the collector's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Timed {
    pub(super) t_ns: i64,
    pub(super) totals: Totals,
    /// True if interpolated between its neighbours, because its datagram did not come.
    pub(super) is_interpolated: bool,
}

/// Samples of one session in the order of time.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    waiting: BTreeMap<u64, (i64, Totals)>,
    last: Option<(u64, i64, Totals)>,
    /// Different samples that came in time.
    pub(super) received: u64,
    /// Samples that came again, or after they had been filled in.
    pub(super) ignored: u64,
    /// Samples that were sent, as far as is known.
    pub(super) sent: u64,
}

impl Timeline {
    /// Takes a sample; totals that are final go to `out`, in the order of time.
    pub(super) fn add(&mut self, sample: &Sample, t_ns: i64, out: &mut Vec<Timed>) {
        let is_past = self
            .last
            .as_ref()
            .is_some_and(|(number, ..)| sample.number <= *number);
        if is_past || self.waiting.contains_key(&sample.number) {
            self.ignored += 1;
            return;
        }
        self.received += 1;
        self.sent = self.sent.max(sample.number.saturating_add(1));
        self.waiting
            .insert(sample.number, (t_ns, sample.totals.clone()));
        while self.waiting.len() > WAITING || self.is_next() {
            self.release(out);
        }
    }

    /// Gives up waiting for missing samples.
    pub(super) fn flush(&mut self, out: &mut Vec<Timed>) {
        while !self.waiting.is_empty() {
            self.release(out);
        }
    }

    /// Time of the oldest sample that waits for another.
    pub(super) fn oldest_ns(&self) -> Option<i64> {
        self.waiting.first_key_value().map(|(_, (t_ns, _))| *t_ns)
    }

    fn is_next(&self) -> bool {
        let Some((&first, _)) = self.waiting.first_key_value() else {
            return false;
        };
        match &self.last {
            Some((last, ..)) => first == last.saturating_add(1),
            None => first == 0,
        }
    }

    fn release(&mut self, out: &mut Vec<Timed>) {
        let Some((number, (t_ns, totals))) = self.waiting.pop_first() else {
            return;
        };
        // The relation of the clocks gets better: times must not run backwards for that.
        let t_ns = match &self.last {
            Some((_, last_ns, _)) => t_ns.max(last_ns.saturating_add(1)),
            None => t_ns,
        };
        if let Some((last, last_ns, before)) = &self.last {
            let steps = number - last;
            for step in (1..steps).take(if steps > FILLED { 0 } else { usize::MAX }) {
                out.push(Timed {
                    t_ns: between(*last_ns, t_ns, step, steps),
                    totals: fill(before, &totals, step, steps),
                    is_interpolated: true,
                });
            }
        }
        out.push(Timed {
            t_ns,
            totals: totals.clone(),
            is_interpolated: false,
        });
        self.last = Some((number, t_ns, totals));
    }
}

fn between(a: i64, b: i64, step: u64, steps: u64) -> i64 {
    let part = (i128::from(b) - i128::from(a)) * i128::from(step) / i128::from(steps);
    (i128::from(a) + part) as i64
}

/// Values between two totals, of the counters that both have.
fn fill(before: &Totals, after: &Totals, step: u64, steps: u64) -> Totals {
    let value = |&(counter, a): &(u8, u64)| {
        let b = after.iter().find(|(other, _)| *other == counter)?.1;
        let part = (i128::from(b) - i128::from(a)) * i128::from(step) / i128::from(steps);
        Some((counter, (i128::from(a) + part) as u64))
    };
    before.iter().filter_map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(number: u64) -> Sample {
        Sample {
            number,
            totals: vec![(0, number * 10), (5, 1000u64.wrapping_sub(number))],
            ..Sample::default()
        }
    }

    fn numbers(out: &[Timed]) -> Vec<(i64, u64, bool)> {
        out.iter()
            .map(|m| (m.t_ns, m.totals[0].1, m.is_interpolated))
            .collect()
    }

    #[test]
    fn order_is_restored_and_doubles_are_dropped() {
        let (mut timeline, mut out) = (Timeline::default(), Vec::new());
        for number in [1, 0, 1, 3, 2, 0] {
            timeline.add(&sample(number), number as i64 * 100, &mut out);
        }
        assert_eq!(
            numbers(&out),
            [
                (0, 0, false),
                (100, 10, false),
                (200, 20, false),
                (300, 30, false)
            ]
        );
        assert_eq!(
            (timeline.received, timeline.ignored, timeline.sent),
            (4, 2, 4)
        );
    }

    #[test]
    fn what_is_missing_lies_between_its_neighbours_and_is_marked() {
        let (mut timeline, mut out) = (Timeline::default(), Vec::new());
        timeline.add(&sample(0), 0, &mut out);
        timeline.add(&sample(4), 400, &mut out);
        assert_eq!(out.len(), 1, "it may come yet");
        assert_eq!(timeline.oldest_ns(), Some(400));
        timeline.flush(&mut out);
        assert_eq!(
            numbers(&out),
            [
                (0, 0, false),
                (100, 10, true),
                (200, 20, true),
                (300, 30, true),
                (400, 40, false)
            ]
        );
        assert_eq!(out[2].totals[1], (5, 998), "falling values, too");
        timeline.add(&sample(2), 200, &mut out);
        assert_eq!((out.len(), timeline.ignored), (5, 1), "too late");
    }

    #[test]
    fn memory_is_bounded_whatever_comes() {
        let (mut timeline, mut out) = (Timeline::default(), Vec::new());
        for i in 1..1000u64 {
            timeline.add(&sample(i * (1 << 50)), i as i64, &mut out);
            assert!(timeline.waiting.len() <= WAITING);
        }
        assert!(
            out.iter().all(|timed| !timed.is_interpolated),
            "gaps too long to fill"
        );
    }
}
