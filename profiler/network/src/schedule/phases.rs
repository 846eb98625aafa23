//! Pairs that exchange messages in some phases of a program only.
//!
//! The n-th send to one partner belongs to the n-th message of another as long as both pairs exchange
//! messages in every round. In a program with phases, each of which has its own pairs, they get out of
//! step. But the messages of a partner are in step with those that the process sent to that partner. So
//! a send belongs to the message of a partner with the number of the process's messages to that
//! partner. While the two exchange nothing, that is the last message, which came long before.

use std::collections::BTreeMap;

use super::sends::{Sends, may_be_in_step};
use crate::run::Node;

/// Most partners of a process with phases. More are the clients of a server, which has no phases.
const MOST_PARTNERS: usize = 64;

/// True if a process with this number of partners may have phases.
pub(super) fn may_have(partners: usize) -> bool {
    partners <= MOST_PARTNERS
}

/// Numbers of the sends of a slot: sender, receiver, source.
pub(super) type Phased = BTreeMap<(Node, Node, Node), Vec<i64>>;

/// The number of the n-th send of a slot.
pub(super) fn number(numbers: Option<&[i64]>, n: usize) -> i64 {
    numbers
        .and_then(|numbers| numbers.get(n))
        .map_or(n as i64, |number| *number)
}

/// The slots whose receiver and source get messages in different phases, with the numbers of the sends.
pub(super) fn phased(sent: &BTreeMap<(Node, Node), Sends>) -> Phased {
    let mut partners: BTreeMap<Node, Vec<(Node, &Sends)>> = BTreeMap::new();
    for (&(me, to), sends) in sent {
        partners.entry(me).or_default().push((to, sends));
    }
    let mut found = Phased::new();
    for (&me, partners) in &partners {
        if !may_have(partners.len()) {
            continue;
        }
        for &(to, sends) in partners {
            for &(from, own) in partners {
                let Some(theirs) = sent.get(&(from, me)) else {
                    continue;
                };
                if may_be_in_step(own.times.len(), theirs.times.len())
                    && !take_turns_evenly(&sends.times, &own.times)
                {
                    found.insert((me, to, from), numbers(&sends.times, &own.times));
                }
            }
        }
    }
    found
}

/// True if neither of two partners gets ahead of the other: every round sends to each as often. A
/// difference of one message comes from the place in the round, and one more from a cut in the middle
/// of a round. (Equal total numbers may come in different phases.)
fn take_turns_evenly(times: &[i64], others: &[i64]) -> bool {
    let ahead = |(n, t): (usize, &i64)| others.partition_point(|other| other < t) as i64 - n as i64;
    let range = times
        .iter()
        .enumerate()
        .map(ahead)
        .fold((i64::MAX, i64::MIN), |(least, most), ahead| {
            (least.min(ahead), most.max(ahead))
        });
    range.1 - range.0 <= 2 && times.len().abs_diff(others.len()) <= 2
}

/// Number of messages to the other partner before each send. The message of the same round is not
/// counted if the other's turn comes first in a round, which holds if the time from a message to the
/// other until the send is no longer than the reverse.
fn numbers(times: &[i64], others: &[i64]) -> Vec<i64> {
    let before = |t: &i64| others.partition_point(|other| other < t);
    let counts: Vec<usize> = times.iter().map(before).collect();
    let last = |list: &[i64], t: i64| {
        let at = list.partition_point(|other| *other < t).checked_sub(1)?;
        Some(list[at])
    };
    // Only if the two alternate.
    let behind = |list: &[i64], of: &[i64]| {
        let gap = |pair: &[i64]| {
            let other = last(of, pair[1]).filter(|other| *other > pair[0])?;
            Some((pair[1] - other) as f64)
        };
        crate::quantile::median(list.windows(2).filter_map(gap))
    };
    let comes_first = behind(times, others)
        .zip(behind(others, times))
        .is_some_and(|(to, back)| to <= back);
    let same_round = i64::from(comes_first);
    counts
        .into_iter()
        .map(|count| count as i64 - same_round)
        .collect()
}

/// The partners to which a process has sent in the present round. Each partner comes once; the next
/// phase may have others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Round {
    before: Vec<Node>,
    now: Vec<Node>,
}

impl Round {
    /// True if a round begins with the next send. It goes to a partner that already got a message in
    /// this round, or to a new partner after all partners of the round before got theirs.
    pub(crate) fn begins_with(&mut self, to: Node) -> bool {
        let is_whole =
            !self.before.is_empty() && self.before.iter().all(|node| self.now.contains(node));
        let begins = self.now.contains(&to) || is_whole && !self.before.contains(&to);
        if begins {
            self.before = std::mem::take(&mut self.now);
        }
        self.now.push(to);
        begins || self.before.is_empty() && self.now.len() == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_once_to_each_partner_in_every_phase() {
        let rounds = |sends: &[Node]| {
            let mut round = Round::default();
            let begins = sends.iter().map(|&to| round.begins_with(to));
            begins
                .map(|begins| if begins { '|' } else { '.' })
                .collect::<String>()
        };
        assert_eq!(
            rounds(&[1, 3, 1, 3, 0, 1, 3, 0, 1, 3, 1, 3, 1, 3]),
            "|.|.|..|..|.|."
        );
        assert_eq!(rounds(&[1, 7, 1, 7, 2, 4, 2, 4, 1, 7]), "|.|.|.|.|.");
        assert_eq!(rounds(&[5, 5, 5]), "|||");
    }

    #[test]
    fn sends_go_with_the_own_messages_to_the_source() {
        // To the source first in each of three rounds, followed by rounds without it.
        let source = [10, 110, 210];
        let sends = [11, 111, 211, 310, 410, 510];
        assert_eq!(numbers(&sends, &source), [0, 1, 2, 2, 2, 2]);
        // To the source second.
        let source = [12, 112, 212];
        assert_eq!(numbers(&sends, &source), [0, 1, 2, 3, 3, 3]);
        assert!(!take_turns_evenly(&sends, &source));
        assert!(take_turns_evenly(&sends[..3], &source));
        // As many messages, in phases of their own.
        assert!(!take_turns_evenly(
            &[1, 2, 3, 4, 5, 6, 7, 8],
            &[11, 12, 13, 14, 15, 16, 17, 18]
        ));
        assert_eq!((number(None, 7), number(Some(&[3, 5]), 1)), (7, 5));
    }
}
