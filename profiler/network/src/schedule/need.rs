//! The messages of a source that the sends of a slot need.

use std::collections::BTreeMap;

use crate::run::Node;

/// The messages of a source that the n-th send of a slot needs: the first `n + offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// These messages are needed. A send within `delay_ns` of the last one had waited for it; a later
    /// one may have been computing since before it came.
    Offset { offset: i64, delay_ns: i64 },
    /// The last of them may not be needed.
    Either(i64),
    /// As `Either`, but the last message nearly always came before the process's send before, so that
    /// the need for it does not change the work.
    Hidden(i64),
    /// Only messages that came many rounds before are needed.
    LongAgo,
}

/// Needs of the sends of each slot: sender, receiver, source. A slot that is not in step has none; only
/// the last arrival is known for it.
pub(super) type Needs = BTreeMap<(Node, Node, Node), Need>;
