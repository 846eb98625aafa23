//! Stacks that are folded into a tree: calls of one function by the same callers are one node.

use std::collections::HashMap;

use super::{FunctionId, Sample, Samples};

/// A node: a function with its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The function.
    pub function: FunctionId,
    /// Place of the caller; `None`: outermost.
    pub caller: Option<u32>,
    /// Samples in which this is the innermost function.
    pub own: u64,
    /// Samples in which it is, or calls, the innermost function.
    pub all: u64,
}

/// The tree. A caller comes before those that it calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flame {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// Samples in all.
    pub samples: u64,
}

impl Flame {
    /// Folds samples.
    pub fn of<'a>(samples: &Samples, which: impl IntoIterator<Item = &'a Sample>) -> Flame {
        let mut counts: HashMap<u32, u64> = HashMap::new();
        let mut flame = Flame::default();
        for sample in which {
            *counts.entry(sample.stack).or_default() += 1;
            flame.samples += 1;
        }
        let mut places: HashMap<(Option<u32>, FunctionId), u32> = HashMap::new();
        let mut counts: Vec<(u32, u64)> = counts.into_iter().collect();
        counts.sort_unstable();
        for (stack, count) in counts {
            let mut caller = None;
            for located in samples.frames(stack) {
                let next = flame.nodes.len() as u32;
                let place = *places.entry((caller, located.function)).or_insert(next);
                if place == next {
                    flame.nodes.push(Node {
                        function: located.function,
                        caller,
                        own: 0,
                        all: 0,
                    });
                }
                flame.nodes[place as usize].all += count;
                caller = Some(place);
            }
            if let Some(place) = caller {
                flame.nodes[place as usize].own += count;
            }
        }
        flame
    }

    /// The functions of a node, outermost first.
    pub fn functions(&self, place: usize) -> Vec<FunctionId> {
        let mut found = Vec::new();
        let mut next = self.nodes.get(place);
        while let Some(node) = next {
            found.push(node.function);
            next = node
                .caller
                .and_then(|caller| self.nodes.get(caller as usize));
        }
        found.reverse();
        found
    }
}
