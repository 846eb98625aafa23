//! Work that each send shows if processes take turns.

use std::collections::BTreeMap;

use crate::run::Node;
use crate::schedule::{Round, Schedule};

/// Largest share of the time since the process's own event before that may pass between the partner's
/// message and a send that follows it at once.
const AT_ONCE: f64 = 0.1;

/// Work that one send shows, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shown {
    /// Work that is certain.
    pub(super) work: i64,
    /// Further work that may be hidden in the wait.
    pub(super) hidden: i64,
}

impl Shown {
    pub(super) fn and(self, next: Shown) -> Shown {
        Shown {
            work: self.work + next.work,
            hidden: self.hidden + next.hidden,
        }
    }
}

/// A send and the events of its process before it. Messages are places in the schedule's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) process: Node,
    /// The process's message before.
    pub(super) own: usize,
    /// The partner's answer to that message, if it had come.
    pub(super) answer: Option<usize>,
    /// The message that the send answers or follows at once.
    pub(super) asked: Option<usize>,
    /// True if the send follows that message at once, so that the process had done its work before.
    pub(super) is_at_once: bool,
    /// True if a round of the process begins with this send.
    pub(super) begins: bool,
    pub(super) shown: Shown,
}

/// The sends of a schedule in its order; `None` for the first one of a process.
///
/// Of two partners one begins and the other answers, or both send and then receive. In both cases the
/// next work of a process begins when the partner's message of the same round is there.
pub(super) fn steps(schedule: &Schedule) -> Vec<Option<Step>> {
    let messages = &schedule.messages;
    let mut pairs: BTreeMap<(Node, Node), Vec<usize>> = BTreeMap::new();
    let mut arrivals: Vec<Vec<(i64, usize)>> = vec![Vec::new(); schedule.nodes];
    for (i, message) in messages.iter().enumerate() {
        pairs.entry((message.src, message.dst)).or_default().push(i);
        if let Some(of) = arrivals.get_mut(usize::from(message.dst)) {
            of.push((message.received_ns.1, i));
        }
    }
    for of in &mut arrivals {
        of.sort_unstable();
    }
    let mut number: BTreeMap<(Node, Node), usize> = BTreeMap::new();
    // The process's send before, and the answer to it.
    let mut before: Vec<Option<(usize, Option<usize>)>> = vec![None; schedule.nodes];
    let mut partners = vec![Round::default(); schedule.nodes];
    let there = |i: usize| messages[i].received_ns.1;
    let of = |(i, message): (usize, &crate::messages::Message)| {
        let (me, to, t) = (message.src, message.dst, message.sent_ns.0);
        let n = number.entry((me, to)).or_default();
        let theirs = pairs.get(&(to, me)).and_then(|list| list.get(*n)).copied();
        *n += 1;
        let begins = partners.get_mut(usize::from(me))?.begins_with(to);
        let (own, answer) = before.get_mut(usize::from(me))?.replace((i, theirs))?;
        let answer = answer.filter(|&at| there(at) <= t);
        let base = messages[own].sent_ns.1;
        let base = answer.map_or(base, |at| there(at).max(base)).min(t);
        let at_once = (AT_ONCE * (t - base) as f64) as i64;
        // The last message before it, from any process, for which it may have waited.
        let came = &arrivals[usize::from(me)];
        let latest = came.partition_point(|(at, _)| *at <= t).checked_sub(1);
        let latest = latest.map(|at| came[at]);
        let waited = latest.filter(|(at, _)| *at > base && t - at <= at_once);
        let ready = waited.map_or(base, |(at, _)| at);
        let asked = theirs.filter(|&at| there(at) <= t && there(at) > base);
        Some(Step {
            process: me,
            own,
            answer,
            asked: waited.map(|(_, at)| at).or(asked),
            is_at_once: waited.is_some(),
            begins,
            shown: Shown {
                work: t - ready,
                hidden: ready - base,
            },
        })
    };
    messages.iter().enumerate().map(of).collect()
}
