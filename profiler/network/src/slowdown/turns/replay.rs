//! Replay of a run whose processes take turns, with other work.
//!
//! The order of waits is known if processes take turns. A send comes when the message that it answers
//! is there and the work since the partner's answer to the process's send before is done. The work of a
//! process that answers at once is not known, except that it was done by then.

use super::round::Rounds;
use super::steps::Step;
use crate::chance::Chance;
use crate::links::{self, Links, Play};
use crate::messages::Message;
use crate::quantile;
use crate::schedule::Schedule;

/// The work of processes without their load.
pub(super) struct Unloaded<'a> {
    /// Factor on the work of each process.
    factors: Vec<f64>,
    /// Work of rounds that show it, s, and the factor that makes their work usual.
    rounds_s: &'a [f64],
    usual: f64,
    chance: Chance,
}

impl<'a> Unloaded<'a> {
    /// The work of the loaded processes is cut to `to_s` per round. Rounds that do not show their work
    /// get that of `rounds_s`, scaled to `to_s`.
    pub(super) fn new(
        rounds: &[Rounds],
        loaded: &[usize],
        rounds_s: &'a [f64],
        to_s: f64,
        seed: u64,
    ) -> Unloaded<'a> {
        let factor = |(node, rounds): (usize, &Rounds)| {
            let own = quantile::median(rounds.shown_s.iter().copied());
            match own.filter(|own| loaded.contains(&node) && *own > 0.0) {
                Some(own) => (to_s / own).min(1.0),
                None => 1.0,
            }
        };
        let middle = quantile::quantile(rounds_s, 0.5).filter(|middle| *middle > 0.0);
        Unloaded {
            factors: rounds.iter().enumerate().map(factor).collect(),
            rounds_s,
            usual: middle.map_or(1.0, |middle| to_s / middle),
            chance: Chance(0x2545_f491_4f6c_dd1d ^ seed << 32),
        }
    }

    /// Work of a step, ns.
    fn work_ns(&mut self, step: &Step) -> f64 {
        let factor = self.factors[usize::from(step.process)];
        if !step.is_at_once {
            return step.shown.work as f64 * factor;
        }
        // The work was done when the message came. Between two partners there is none.
        match step.begins && !self.rounds_s.is_empty() {
            true => {
                let round_s = self.rounds_s[self.chance.below(self.rounds_s.len())];
                (round_s * self.usual * 1e9).min(step.shown.hidden as f64)
            }
            false => 0.0,
        }
    }
}

/// Time by which the run would have ended earlier, s.
pub(super) fn saved_s(
    schedule: &Schedule,
    steps: &[Option<Step>],
    unloaded: Unloaded<'_>,
    links: Links,
) -> f64 {
    let messages = &schedule.messages;
    let Some(first) = messages.first() else {
        return 0.0;
    };
    // Time from a message to the answer of a process that waited for it, ns.
    let answers = steps.iter().zip(messages).filter_map(|(step, message)| {
        let step = step.filter(|step| step.is_at_once)?;
        Some((message.sent_ns.0 - messages[step.asked?].received_ns.1) as f64)
    });
    let mut again = Again {
        messages,
        steps,
        unloaded,
        first_ns: first.sent_ns.0,
        soon_ns: quantile::median(answers).unwrap_or(0.0),
        end: vec![0.0; messages.len()],
        there: vec![0.0; messages.len()],
    };
    links::play(&mut again, messages.len(), links);
    let ends = messages
        .iter()
        .map(|message| again.since(message.received_ns.1));
    let end = ends.fold(0.0, f64::max);
    let unloaded = again.there.iter().copied().fold(0.0, f64::max);
    ((end - unloaded) / 1e9).max(0.0)
}

/// The replay. Times are ns since the first send.
struct Again<'a> {
    messages: &'a [Message],
    steps: &'a [Option<Step>],
    unloaded: Unloaded<'a>,
    first_ns: i64,
    soon_ns: f64,
    /// Time at which each message was sent and is there.
    end: Vec<f64>,
    there: Vec<f64>,
}

impl Again<'_> {
    fn since(&self, t_ns: i64) -> f64 {
        (t_ns - self.first_ns) as f64
    }
}

impl Play for Again<'_> {
    fn needs(&self, place: usize) -> Vec<usize> {
        let of = |step: &Step| {
            [Some(step.own), step.answer, step.asked]
                .into_iter()
                .flatten()
                .collect()
        };
        self.steps[place].as_ref().map(of).unwrap_or_default()
    }

    fn begin(&mut self, place: usize) -> f64 {
        let t = self.since(self.messages[place].sent_ns.0);
        let Some(step) = &self.steps[place] else {
            return t;
        };
        // Clocks of hosts may differ, so a send waits only for earlier ones.
        let before = |at: Option<usize>| at.filter(|at| *at < place);
        let own = self.end[step.own];
        let start = before(step.answer).map_or(own, |at| self.there[at].max(own));
        let worked = start + self.unloaded.work_ns(step);
        before(step.asked).map_or(worked, |at| {
            let gap = t - self.since(self.messages[at].received_ns.1);
            let gap = if step.is_at_once {
                gap
            } else {
                gap.min(self.soon_ns)
            };
            worked.max(self.there[at] + gap)
        })
    }

    fn send(&mut self, place: usize, begin: f64, links: &mut Links) {
        let message = &self.messages[place];
        self.end[place] = begin + (message.sent_ns.1 - message.sent_ns.0) as f64;
        self.there[place] = links.carry(place, message, begin).max(begin);
    }
}
