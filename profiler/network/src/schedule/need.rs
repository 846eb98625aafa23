//! Messages of a source that the sends of a slot need.

use std::collections::BTreeMap;

use crate::run::Node;

/// Messages of a source that the n-th send of a slot needs: the first `n + offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Those. A send within `delay_ns` of the last of them had waited for it; a later one may have
    /// been computing since before it came.
    Offset { offset: i64, delay_ns: i64 },
    /// The last of them may not be needed.
    Either(i64),
    /// The same, but the last of them nearly always came before the own send before: whether it is
    /// needed does not change the work.
    Hidden(i64),
    /// Nothing but what came many rounds before.
    LongAgo,
}

/// Needs of the sends of each slot: sender, receiver, source. A slot that is not in step has none: what
/// had arrived last is all that is known of it.
pub(super) type Needs = BTreeMap<(Node, Node, Node), Need>;
