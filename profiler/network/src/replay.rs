//! Replay of a run with other costs: the longest path through sends and arrivals, and the effect of
//! changes on it. `T(send) = max(T(send before), T(arrivals needed)) + work`.

use std::collections::BTreeMap;

use super::links::{self, Links, Play};
use super::run::Node;
use super::schedule::{Schedule, Step};

/// Change of a run for a replay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// Factor on the work of a process; 1 if not given.
    pub work: BTreeMap<Node, f64>,
    /// Additional factor on the work of each step; 1 after the end of the list.
    pub steps: Vec<f64>,
    /// True if messages take no time on the link: each arrives earlier by the least delay of its pair.
    pub no_latency: bool,
    /// True if messages do not wait for others on a link and come in at once.
    pub no_transfer: bool,
    /// Least delay of each pair, ns. A pair without one has that of its quickest message.
    pub base_ns: BTreeMap<(Node, Node), i64>,
}

/// Reading of a dependency that the packets leave open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// A message that may be needed is needed: less work and more waiting.
    Waiting,
    /// A message that may be needed is not needed: more work and less waiting.
    Working,
}

/// A replayed run.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// Length from the first to the last event, s.
    pub seconds: f64,
    /// Time on the longest path: work by process, s.
    pub work_s: Vec<f64>,
    /// Time on the longest path: messages by ordered pair, s.
    pub network_s: BTreeMap<(Node, Node), f64>,
    /// Number of links of the path.
    pub links: usize,
}

/// The event after which a step began.
#[derive(Clone, Copy)]
enum Cause {
    Start,
    Own(usize),
    Message(usize),
}

/// Replays a schedule with the recorded times of messages; `None` without a message.
pub fn replay(schedule: &Schedule, change: &Change, reading: Reading) -> Option<Replay> {
    replay_over(schedule, change, reading, Links::wide(&schedule.messages))
}

/// Replays a schedule over these links.
pub(super) fn replay_over(
    schedule: &Schedule,
    change: &Change,
    reading: Reading,
    links: Links,
) -> Option<Replay> {
    let messages = &schedule.messages;
    let n = messages.len();
    let mut base_ns = BTreeMap::new();
    for message in messages {
        let delay = (message.received_ns.0 - message.sent_ns.0).max(0);
        let least = base_ns.entry((message.src, message.dst)).or_insert(delay);
        *least = delay.min(*least);
    }
    base_ns.extend(change.base_ns.iter().map(|(pair, ns)| (*pair, *ns)));
    let mut again = Again {
        base_ns,
        schedule,
        change,
        reading,
        first_ns: messages.first()?.sent_ns.0,
        begin: vec![0.0; n],
        end: vec![0.0; n],
        arrival: vec![0.0; n],
        cause: vec![Cause::Start; n],
        work: vec![0.0; n],
    };
    links::play(&mut again, n, links);
    again.path()
}

/// A replay in progress. Times are s since the first send.
struct Again<'a> {
    schedule: &'a Schedule,
    change: &'a Change,
    reading: Reading,
    first_ns: i64,
    /// Least delay of each pair, ns.
    base_ns: BTreeMap<(Node, Node), i64>,
    begin: Vec<f64>,
    end: Vec<f64>,
    arrival: Vec<f64>,
    cause: Vec<Cause>,
    work: Vec<f64>,
}

impl<'a> Again<'a> {
    /// The messages for whose arrival a step waits in this reading.
    fn waits(&self, step: &Step) -> impl Iterator<Item = usize> + use<'a> {
        let schedule = self.schedule;
        let (may_need, may_hold) = match self.reading {
            Reading::Waiting => (schedule.may_need(step), schedule.may_hold(step)),
            Reading::Working => (&[][..], &[][..]),
        };
        let waits = schedule.needs(step).iter().chain(may_need).chain(may_hold);
        waits.map(|&needed| needed as usize)
    }

    /// The longest path, found from the last arrival backwards.
    fn path(&self) -> Option<Replay> {
        let Again {
            schedule,
            begin,
            end,
            arrival,
            cause,
            work,
            ..
        } = self;
        let messages = &schedule.messages;
        let n = messages.len();
        let last = (0..n).max_by(|&a, &b| arrival[a].total_cmp(&arrival[b]))?;
        let mut path = Replay {
            seconds: arrival[last],
            work_s: vec![0.0; schedule.nodes],
            network_s: BTreeMap::new(),
            links: 0,
        };
        // Back from the last arrival.
        let pair = |i: usize| (messages[i].src, messages[i].dst);
        *path.network_s.entry(pair(last)).or_default() += arrival[last] - begin[last];
        let mut at = last;
        loop {
            path.work_s[usize::from(messages[at].src)] += work[at];
            path.links += 1;
            match cause[at] {
                Cause::Start => {
                    path.work_s[usize::from(messages[at].src)] += begin[at] - work[at];
                    break;
                }
                Cause::Own(before) => {
                    *path.network_s.entry(pair(before)).or_default() += end[before] - begin[before];
                    at = before;
                }
                Cause::Message(message) => {
                    *path.network_s.entry(pair(message)).or_default() +=
                        arrival[message] - begin[message];
                    at = message;
                }
            }
        }
        Some(path)
    }
}

impl Play for Again<'_> {
    fn needs(&self, place: usize) -> Vec<usize> {
        let step = &self.schedule.steps[place];
        self.waits(step).chain(step.before).collect()
    }

    fn begin(&mut self, place: usize) -> f64 {
        let step = &self.schedule.steps[place];
        let of_process = self.change.work.get(&step.process).copied();
        let of_step = self.change.steps.get(place).copied();
        let factor = of_process.unwrap_or(1.0) * of_step.unwrap_or(1.0);
        let (least, most) = self.schedule.work_ns(step);
        let own_work = match self.reading {
            Reading::Waiting => least,
            Reading::Working => most,
        };
        let mut ready = None::<(f64, Cause)>;
        let mut consider = |t: f64, why: Cause| {
            if ready.is_none_or(|(best, _)| t > best) {
                ready = Some((t, why));
            }
        };
        if let Some(before) = step.before {
            consider(self.end[before], Cause::Own(before));
        }
        for needed in self.waits(step) {
            consider(self.arrival[needed], Cause::Message(needed));
        }
        self.work[place] = own_work as f64 / 1e9 * factor;
        match ready {
            Some((t, why)) => {
                self.cause[place] = why;
                t + self.work[place]
            }
            // The first send of a process keeps its time.
            None => (self.schedule.messages[place].sent_ns.0 - self.first_ns) as f64 / 1e9,
        }
    }

    fn send(&mut self, place: usize, begin: f64, links: &mut Links) {
        let message = &self.schedule.messages[place];
        let change = self.change;
        self.begin[place] = begin;
        self.end[place] = begin + (message.sent_ns.1 - message.sent_ns.0) as f64 / 1e9;
        self.arrival[place] = match change.no_latency || change.no_transfer {
            true => {
                let base = self.base_ns.get(&(message.src, message.dst)).copied();
                let (latency, transfer) = message.parts_ns(base.unwrap_or(0));
                let latency = if change.no_latency { 0 } else { latency };
                let transfer = if change.no_transfer { 0 } else { transfer };
                begin + (latency + transfer) as f64 / 1e9
            }
            false => (links.carry(place, message, begin * 1e9) / 1e9).max(begin),
        };
        if change.no_transfer {
            self.end[place] = begin;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages;
    use crate::schedule;
    use crate::testing::{Bsp, Style, bsp};

    fn made(program: &Bsp) -> (Schedule, f64) {
        let made = bsp(program);
        let found = messages::messages(&made.run).unwrap();
        (
            schedule::schedule(&found, program.work_s.len()),
            made.seconds,
        )
    }

    #[test]
    fn a_replay_without_a_change_is_the_run() {
        for style in Style::ALL {
            let (schedule, _) = made(&Bsp {
                style,
                ..Bsp::ring(4)
            });
            let messages = &schedule.messages;
            let last = messages.iter().map(|m| m.received_ns.1).max().unwrap();
            let truth = (last - messages[0].sent_ns.0) as f64 / 1e9;
            for reading in [Reading::Waiting, Reading::Working] {
                let path = replay(&schedule, &Change::default(), reading).unwrap();
                assert!(
                    (path.seconds / truth - 1.0).abs() < 0.02,
                    "{} of {truth}",
                    path.seconds
                );
                let sum = path.work_s.iter().sum::<f64>() + path.network_s.values().sum::<f64>();
                assert!((sum / path.seconds - 1.0).abs() < 1e-6, "shares add up");
            }
        }
    }

    #[test]
    fn the_loaded_process_leads_the_path_and_unloading_it_gives_the_unloaded_run() {
        for style in [Style::AllFirst, Style::ByEdge] {
            let balanced = Bsp {
                style,
                ..Bsp::ring(4)
            };
            let loaded = Bsp {
                work_s: vec![0.004, 0.004, 0.004, 0.008],
                ..balanced.clone()
            };
            let (schedule, _) = made(&loaded);
            let (_, unloaded_s) = made(&balanced);
            let path = replay(&schedule, &Change::default(), Reading::Working).unwrap();
            let most = (0..4).max_by(|&a, &b| path.work_s[a].total_cmp(&path.work_s[b]));
            assert_eq!(most, Some(3), "{style:?}: {:?}", path.work_s);
            let work = schedule.work_s();
            let change = Change {
                work: BTreeMap::from([(3, work[0].1 / work[3].1)]),
                ..Change::default()
            };
            let predicted = replay(&schedule, &change, Reading::Working)
                .unwrap()
                .seconds;
            assert!(
                (predicted / unloaded_s - 1.0).abs() < 0.15,
                "{style:?}: {predicted} for {unloaded_s}"
            );
        }
    }

    #[test]
    fn an_ideal_network_is_no_slower() {
        let (schedule, _) = made(&Bsp {
            latency_s: 0.002,
            ..Bsp::ring(6)
        });
        let whole = replay(&schedule, &Change::default(), Reading::Working)
            .unwrap()
            .seconds;
        let change = Change {
            no_latency: true,
            no_transfer: true,
            ..Change::default()
        };
        let ideal = replay(&schedule, &change, Reading::Working)
            .unwrap()
            .seconds;
        assert!(ideal < whole * 0.8, "{ideal} of {whole}");
        let empty = schedule::schedule(&[], 2);
        assert_eq!(replay(&empty, &Change::default(), Reading::Working), None);
    }
}
