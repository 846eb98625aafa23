//! Pairs whose messages all have one size. Each message is then a repetition, and the sizes do not show
//! where an iteration begins.

use crate::quantile::usual;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::messages::{self, Message};
use super::run::{Node, Run, Unknown};

/// Least share of a pair's messages with the usual size, percent.
const USUAL_PERCENT: usize = 90;
/// Least number of messages with a usual size.
const LEAST: usize = 3;
/// Largest difference of the numbers of messages in both directions that are in step, percent; one
/// message more is allowed.
const STEP_PERCENT: usize = 2;

/// The messages of one ordered pair, all of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    /// Size of the messages, bytes.
    pub bytes: u64,
    /// Indices of the messages of that size among all.
    pub messages: Vec<usize>,
    /// Time of each send, ns.
    pub times_ns: Vec<i64>,
}

/// The ordered pairs with messages of one size.
pub type Pairs = BTreeMap<(Node, Node), Plain>;

/// [`pairs`] of a run.
///
/// # Errors
/// When the interval holds no packet.
pub(super) fn of_run(run: &Run) -> Result<Arc<Pairs>, Unknown> {
    let found = messages::messages(run)?;
    let look = || Arc::new(pairs(&found));
    Ok(run.once(look))
}

/// The ordered pairs with messages of one size. A greeting or a farewell of another size is left out.
pub fn pairs(messages: &[Message]) -> Pairs {
    let mut found = BTreeMap::new();
    for (pair, mut list) in messages::by_pair(messages) {
        let Some((bytes, n)) = usual(list.iter().map(|&i| messages[i].bytes)) else {
            continue;
        };
        // A greeting may be one of few messages.
        let is_other = |&i: &usize| messages[i].bytes != bytes;
        let ends = [list.first(), list.last()].into_iter().flatten();
        let within = list.len() - ends.filter(|i| is_other(i)).count();
        if n < LEAST || n * 100 < within * USUAL_PERCENT {
            continue;
        }
        list.retain(|&i| messages[i].bytes == bytes);
        let plain = Plain {
            bytes,
            times_ns: list.iter().map(|&i| messages[i].sent_ns.0).collect(),
            messages: list,
        };
        found.insert(pair, plain);
    }
    found
}

/// True if two counts are in step.
pub fn are_in_step(a: usize, b: usize) -> bool {
    a.abs_diff(b) * 100 <= a.max(b) * STEP_PERCENT + 100
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(sizes: &[u64]) -> Vec<Message> {
        let message = |(i, &bytes): (usize, &u64)| Message {
            src: 0,
            dst: 1,
            sent_ns: (i as i64, i as i64),
            bytes,
            segments: 1,
            ..Message::default()
        };
        sizes.iter().enumerate().map(message).collect()
    }

    #[test]
    fn a_greeting_is_no_message_of_the_pair() {
        let mut sizes = vec![1];
        sizes.extend([2000; 30]);
        let found = pairs(&messages(&sizes));
        let plain = &found[&(0, 1)];
        assert_eq!((plain.bytes, plain.messages.len()), (2000, 30));
        assert_eq!(
            pairs(&messages(&[1, 9, 9, 9, 9, 2]))[&(0, 1)].messages,
            [1, 2, 3, 4]
        );
        assert!(pairs(&messages(&[9, 9, 1, 9, 9])).is_empty());
        assert!(pairs(&messages(&[1, 2, 3, 4])).is_empty());
        assert!(are_in_step(300, 301) && !are_in_step(300, 320) && are_in_step(1, 2));
    }
}
