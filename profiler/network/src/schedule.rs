//! The messages for which each send waited, from the packets alone.
//!
//! A process that sends after an arrival may have waited for it, or may have been computing while it
//! came in. Ball-in-the-court delays always assume the wait. Many repetitions distinguish the two: a
//! message on which a send depends is never late, and moves the send when it moves. So the number of a
//! partner's messages that *every* n-th send had seen is an upper bound of those it needs. If the last
//! of them was always early, the regression of the send on its arrival shows whether it was needed:
//! slope 1 if it was, slope 0 if not.

use std::collections::{BTreeMap, BTreeSet};

use super::messages::{self, Message};
use super::plain;
use super::run::Node;

mod context;
mod need;
mod phases;
mod sends;
mod slope;
mod step;
mod steps;
mod symmetry;

use context::Context;
use need::{Need, Needs};
pub(super) use phases::Round;
use sends::Sends;
pub(super) use sends::may_be_in_step;
pub use step::Step;

/// Certainty of the dependencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Certainty {
    /// Number of slots (sender, receiver, source) with a known dependency.
    pub decided: usize,
    /// Number of slots that could be either.
    pub open: usize,
    /// Number of slots that are not in step, so that only the last arrival is known.
    pub loose: usize,
}

/// All sends of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    /// The messages, in the order of sending.
    pub messages: Vec<Message>,
    /// A step per message, in the same order.
    pub steps: Vec<Step>,
    /// The messages for which the steps wait.
    links: Vec<u32>,
    /// Number of decided and open dependencies.
    pub certainty: Certainty,
    /// Number of processes.
    pub nodes: usize,
    /// True for a plain exchange: every pair is known to send without the other's message of the same
    /// round, in step, with messages of one size. Only then packets show the work of each process. In
    /// programs that take turns, work hides in waits, and if rounds differ, slots are mixed up.
    pub is_exchange: bool,
    /// True if processes answer each other: one sends only after the message of the other has come.
    pub takes_turns: bool,
    /// True if one process of each pair always sends after the other, as if they took turns.
    pub keeps_order: bool,
    /// True if nearly all messages of each pair have one size.
    pub are_alike: bool,
    /// Processes that send to every partner as soon as its message is there, whatever the others do (as
    /// the end of a chain may). Their waits cannot be distinguished from work.
    pub answering: Vec<Node>,
}

/// The messages without those that a pair of equal messages sent before the first of these: a greeting
/// would put its counts out of step.
fn without_greetings(messages: &[Message]) -> Vec<Message> {
    let plain = plain::pairs(messages);
    let is_greeting = |(i, message): (usize, &Message)| {
        let pair = plain.get(&(message.src, message.dst));
        pair.is_some_and(|pair| pair.messages.first().is_some_and(|&first| i < first))
    };
    let rest = messages.iter().enumerate();
    let rest = rest.filter(|&(i, message)| !is_greeting((i, message)));
    rest.map(|(_, message)| *message).collect()
}

/// True if the numbers and sizes of the messages alone show that their schedule would not show any
/// work: some slots are not in step, or a pair has messages of many sizes.
pub(super) fn shows_nothing(messages: &[Message]) -> bool {
    let messages = without_greetings(messages);
    let sent = messages::by_pair(&messages);
    let mut sources: BTreeMap<Node, Vec<(Node, usize)>> = BTreeMap::new();
    let mut partners: BTreeMap<Node, usize> = BTreeMap::new();
    for (&(from, to), list) in &sent {
        sources.entry(to).or_default().push((from, list.len()));
        *partners.entry(from).or_default() += 1;
    }
    let is_in_step = |(&(me, _), list): (&(Node, Node), &Vec<usize>)| {
        let mut sources = sources.get(&me).into_iter().flatten();
        let may_have_phases = phases::may_have(partners.get(&me).copied().unwrap_or(0));
        sources.all(|&(from, source)| {
            // The messages of a partner in other phases are in step with the own messages to it.
            let own = || sent.get(&(me, from)).map_or(0, Vec::len);
            may_be_in_step(list.len(), source) || may_have_phases && may_be_in_step(own(), source)
        })
    };
    !sent.iter().all(is_in_step) || !symmetry::are_alike(&messages, sent.values())
}

/// For each message, the send of the same process before it.
fn before(messages: &[Message], nodes: usize) -> Vec<Option<usize>> {
    let mut last = vec![None; nodes];
    let of = |(i, message): (usize, &Message)| {
        let last = last.get_mut(usize::from(message.src))?;
        last.replace(i)
    };
    messages.iter().enumerate().map(of).collect()
}

/// Finds the messages for which every send waited. Messages must be in the order of sending.
pub fn schedule(messages: &[Message], nodes: usize) -> Schedule {
    let messages = without_greetings(messages);
    let before = before(&messages, nodes);
    let sent = messages::by_pair(&messages);
    let lists = sent.len();
    let sends = |list: Vec<usize>| Sends::new(list, &messages, &before, lists);
    let sent = sent.into_iter().map(|(pair, list)| (pair, sends(list)));
    let sent: BTreeMap<(Node, Node), Sends> = sent.collect();
    let context = Context {
        messages: &messages,
        sent: &sent,
        before: &before,
        phased: phases::phased(&sent),
    };
    let mut sources: BTreeMap<Node, Vec<Node>> = BTreeMap::new();
    for &(from, to) in sent.keys() {
        sources.entry(to).or_default().push(from);
    }
    let mut needs = Needs::new();
    let mut staying = BTreeSet::new();
    let mut loose = 0;
    for &(me, to) in sent.keys() {
        let sources = sources.get(&me).map_or(&[][..], Vec::as_slice);
        let in_step = context.in_step(me, to, sources);
        loose += sources.len() - in_step.len();
        let begins = context.begins(me, to, &in_step);
        if context.stays(me, to, &in_step, &begins) {
            staying.insert((me, to));
        }
        let found = context.needs(me, to, &in_step, begins).into_iter();
        needs.extend(found.map(|(from, need)| ((me, to, from), need)));
    }
    let order = symmetry::order(&context, &staying);
    let are_alike = symmetry::are_alike(&messages, sent.values().map(|sends| &sends.messages));
    let answering = symmetry::answering(&context, &needs, nodes);
    let all_exchange = symmetry::decide_by_symmetry(&context, &mut needs);
    let mut certainty = Certainty {
        loose,
        ..Certainty::default()
    };
    for need in needs.values() {
        match need {
            Need::Offset { .. } | Need::Hidden(_) | Need::LongAgo => certainty.decided += 1,
            Need::Either(_) => certainty.open += 1,
        }
    }
    let (steps, links) = steps::steps(&context, &needs);
    Schedule {
        steps,
        links,
        certainty,
        nodes,
        is_exchange: all_exchange && !order.takes_turns && certainty.loose == 0 && are_alike,
        takes_turns: order.takes_turns,
        keeps_order: order.is_kept,
        are_alike,
        answering,
        messages,
    }
}

impl Schedule {
    /// Messages that a step certainly needs. Those for which an earlier step of the process waited are
    /// left out.
    pub fn needs(&self, step: &Step) -> &[u32] {
        self.list(step, 0)
    }

    /// Messages that the step may need, or may only have seen.
    pub fn may_need(&self, step: &Step) -> &[u32] {
        self.list(step, 1)
    }

    /// Messages that came before the process's send before and may be needed. This shows only if other
    /// processes become faster.
    pub fn may_hold(&self, step: &Step) -> &[u32] {
        self.list(step, 2)
    }

    fn list(&self, step: &Step, which: usize) -> &[u32] {
        let length = |count: &u32| *count as usize;
        let before: usize = step.counts[..which].iter().map(length).sum();
        &self.links[step.first + before..][..length(&step.counts[which])]
    }

    /// Work of a step, ns, from the instant at which all messages that it needs were there: the least
    /// (all that it may need was needed), and the most (none of that was).
    pub fn work_ns(&self, step: &Step) -> (i64, i64) {
        let arrival = |list: &[u32]| {
            let times = list
                .iter()
                .map(|&i| self.messages[i as usize].received_ns.1);
            times.max()
        };
        let own = step.before.map(|b| self.messages[b].sent_ns.1);
        let from = own.into_iter().chain(arrival(self.needs(step))).max();
        let Some(from) = from.or_else(|| arrival(self.may_need(step))) else {
            // The first send of a process: work before the first packet is not seen.
            return (0, 0);
        };
        let most = (step.t_ns - from).max(0);
        let least =
            arrival(self.may_need(step)).map_or(most, |at| (step.t_ns - at.max(from)).max(0));
        (least, most)
    }

    /// Time between the first and the last send, s.
    pub fn run_s(&self) -> f64 {
        let ends = self.messages.first().zip(self.messages.last());
        ends.map_or(0.0, |(first, last)| {
            (last.sent_ns.1 - first.sent_ns.0) as f64 / 1e9
        })
    }

    /// The work of each process, s, as the sums of [`Schedule::work_ns`].
    pub fn work_s(&self) -> Vec<(f64, f64)> {
        let mut sums = vec![(0.0, 0.0); self.nodes];
        for step in &self.steps {
            let (least, most) = self.work_ns(step);
            if let Some(sum) = sums.get_mut(usize::from(step.process)) {
                sum.0 += least as f64 / 1e9;
                sum.1 += most as f64 / 1e9;
            }
        }
        sums
    }
}

/// True if each of several processes sends more messages than all others. Their additional work is then
/// their own, as in the middle of a mesh, and no load.
pub(crate) fn are_of_a_kind(schedule: &Schedule, several: &[Node]) -> bool {
    let mut sent = vec![0usize; schedule.nodes];
    for message in &schedule.messages {
        sent[usize::from(message.src)] += 1;
    }
    let of = |is_among: bool| {
        let nodes =
            (0..schedule.nodes).filter(move |&node| several.contains(&(node as Node)) == is_among);
        nodes.map(|node| sent[node])
    };
    let (least, most) = (of(true).min(), of(false).max());
    least
        .zip(most)
        .is_some_and(|(least, most)| least > most && !may_be_in_step(least, most))
}

#[cfg(test)]
mod tests;
