//! Conclusions from one pair to others, since all processes run the same program.

use std::collections::BTreeSet;

use super::context::Context;
use super::{Need, Needs};
use crate::messages::Message;
use crate::run::Node;

/// True if nearly all messages of each pair have one size.
pub(super) fn are_alike<'a>(
    messages: &[Message],
    mut pairs: impl Iterator<Item = &'a Vec<usize>>,
) -> bool {
    pairs.all(|list| {
        let mut sizes: Vec<u64> = list.iter().map(|&i| messages[i].bytes).collect();
        sizes.sort_unstable();
        let usual = sizes.get(sizes.len() / 2);
        let same = sizes.iter().filter(|size| Some(*size) == usual).count();
        same * 10 >= sizes.len() * 9
    })
}

/// Order of the two sends of each pair.
pub(super) struct Order {
    /// True if one process of every pair sends after the other, waiting for it or not.
    pub(super) is_kept: bool,
    /// True if pairs of processes take turns: one of the two sends soon after the other's message
    /// comes, whenever that is. (In an exchange a slower process may send later than the other in every
    /// round, but it does not follow it.) Pairs whose own times show that they do not wait do not
    /// count, since two processes that wait for others may send at the same distance in every round.
    pub(super) takes_turns: bool,
}

/// The order of the two sends of each pair. In the pairs of `staying` the first process does not wait
/// for the second.
pub(super) fn order(context: &Context<'_>, staying: &BTreeSet<(Node, Node)>) -> Order {
    let pairs = context.sent.keys().copied();
    let edges: BTreeSet<(Node, Node)> = pairs
        .filter(|&(a, b)| a < b && context.sent.contains_key(&(b, a)))
        .collect();
    let is_ordered = |&(a, b): &(Node, Node)| {
        // The sum, since a cut in the middle of a round shifts both.
        let sum = context.surplus(a, b, b).zip(context.surplus(b, a, a));
        sum.is_some_and(|(x, y)| x + y >= 1)
    };
    let ordered: Vec<(Node, Node)> = edges.iter().copied().filter(is_ordered).collect();
    let may_wait = |a: Node, b: Node| !staying.contains(&(a, b));
    let of = |has: &dyn Fn(Node, Node) -> bool| {
        let either = ordered.iter().filter(|&&(a, b)| has(a, b) || has(b, a));
        either.count()
    };
    // In an exchange too the slower of two sends last, but not soon after the other, and not in half of
    // all pairs.
    let takes_turns = of(&|a, b| may_wait(a, b) && context.follows(a, b)) * 4 >= edges.len().max(1)
        || of(&|a, b| may_wait(a, b) && context.answers(a, b)) * 2 >= edges.len().max(1);
    Order {
        is_kept: !edges.is_empty() && ordered.len() == edges.len(),
        takes_turns,
    }
}

/// Processes whose own times show that they need every partner's message and follow it at once. This
/// shows only before [`decide_by_symmetry`] has used the times of others.
pub(super) fn answering(context: &Context<'_>, needs: &Needs, nodes: usize) -> Vec<Node> {
    let answers_all = |&me: &Node| {
        let own = context.sent.range((me, 0)..=(me, Node::MAX));
        let own = own.map(|(&(_, to), _)| to);
        let mut partners = own
            .filter(|&to| context.sent.contains_key(&(to, me)))
            .peekable();
        partners.peek().is_some()
            && partners.all(|to| {
                let need = needs.get(&(me, to, to));
                matches!(need, Some(Need::Offset { offset: 1, .. })) && context.follows(me, to)
            })
    };
    (0..nodes as Node).filter(answers_all).collect()
}

/// Decides open pairs by those that are known, since all processes run the same program. If known pairs
/// exchange (each sends without the other's message), the open ones do too; if known pairs take turns,
/// so do the open ones.
pub(super) fn decide_by_symmetry(context: &Context<'_>, needs: &mut Needs) -> bool {
    let (mut exchanging, mut taking_turns) = (0, 0);
    let known = |a: Node, b: Node| match needs.get(&(a, b, b)) {
        Some(Need::Offset { offset, .. }) => Some(*offset),
        _ => None,
    };
    let pairs = needs.keys().filter(|(me, to, from)| to == from && me < to);
    for &(a, b, _) in pairs {
        match known(a, b).zip(known(b, a)) {
            Some((0, 0)) => exchanging += 1,
            // If neither process waited long for a message, a third process may have moved both.
            Some((1, 0)) if context.follows(a, b) => taking_turns += 1,
            Some((0, 1)) if context.follows(b, a) => taking_turns += 1,
            // A cut in the middle of a round shifts both.
            Some((x, y)) if x + y == 1 && x.min(y) < 0 => taking_turns += 1,
            _ => {}
        }
    }
    // One pair in four may be a mistake. A program that does both is neither.
    let (few, many) = (exchanging.min(taking_turns), exchanging.max(taking_turns));
    if many == 0 || few * 3 > many {
        return false;
    }
    let is_exchange = exchanging > taking_turns;
    for (&slot, need) in needs.iter_mut() {
        // Edge by edge, a send needs the message over the edge before, and none of this round from the
        // direct partner.
        let is_direct = slot.1 == slot.2;
        let offset = match *need {
            Need::Offset { offset: 1, .. } if is_direct && is_exchange => 0,
            Need::Either(floor) if is_direct && is_exchange => floor - 1,
            Need::Either(floor) if is_direct => floor,
            // In an exchange a process sends to a partner before it waits for it. So it has not waited
            // for partners to which it has not yet sent in this round.
            Need::Either(floor) | Need::Hidden(floor)
                if is_exchange && context.meets_later(slot, floor) =>
            {
                floor - 1
            }
            Need::Offset { offset, delay_ns } => {
                if offset > 0 && is_exchange {
                    let delay_ns = delay_ns.max(context.soon_ns(slot, offset).unwrap_or(0));
                    *need = Need::Offset { offset, delay_ns };
                }
                continue;
            }
            Need::Either(_) | Need::Hidden(_) | Need::LongAgo => continue,
        };
        let delay_ns = context.delay_ns(slot, offset);
        *need = Need::Offset { offset, delay_ns };
    }
    is_exchange
}
