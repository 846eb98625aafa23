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
    /// Time of the samples in which this is the innermost function, ns.
    pub own_ns: i64,
    /// Time of those in which it is, or calls, the innermost function, ns.
    pub all_ns: i64,
}

/// The tree. A caller comes before those that it calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flame {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// Number of samples.
    pub samples: u64,
    /// Their time, ns.
    pub time_ns: i64,
}

impl Flame {
    /// Folds samples.
    pub fn of<'a>(samples: &Samples, which: impl IntoIterator<Item = &'a Sample>) -> Flame {
        let mut times: HashMap<u32, i64> = HashMap::new();
        let mut flame = Flame::default();
        for sample in which {
            *times.entry(sample.stack).or_default() += sample.time_ns;
            flame.samples += 1;
            flame.time_ns += sample.time_ns;
        }
        let mut places: HashMap<(Option<u32>, FunctionId), u32> = HashMap::new();
        let mut times: Vec<(u32, i64)> = times.into_iter().collect();
        times.sort_unstable();
        for (stack, time_ns) in times {
            let mut caller = None;
            for located in samples.frames(stack) {
                let next = flame.nodes.len() as u32;
                let place = *places.entry((caller, located.function)).or_insert(next);
                if place == next {
                    flame.nodes.push(Node {
                        function: located.function,
                        caller,
                        own_ns: 0,
                        all_ns: 0,
                    });
                }
                flame.nodes[place as usize].all_ns += time_ns;
                caller = Some(place);
            }
            if let Some(place) = caller {
                flame.nodes[place as usize].own_ns += time_ns;
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
