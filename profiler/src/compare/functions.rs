//! CPU time by function, from sampled call stacks: which functions take more or less than before.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Serialize;

use crate::model::Workflow;
use crate::stacks::Samples;

/// Functions with the greatest differences that are kept.
const MOST: usize = 100;

/// A stack: the rule, and the functions from the outermost to the innermost.
pub type Stack = Vec<Arc<str>>;

/// CPU time of each stack of a run, ns.
pub type Folded = BTreeMap<Stack, f64>;

/// Folds the samples of a run.
pub(super) fn folded(samples: &Samples, workflow: &Workflow) -> Folded {
    let mut counts: HashMap<(&Arc<str>, u32), u32> = HashMap::new();
    for sample in &samples.samples {
        let rule = &workflow.images[sample.image].rule;
        *counts.entry((rule, sample.stack)).or_default() += 1;
    }
    let mut folded = Folded::new();
    for ((rule, stack), count) in counts {
        let frames = samples.without_interrupt(stack).into_iter();
        let names = frames.map(|located| Arc::clone(&samples.function(located.function).name));
        let stack = std::iter::once(Arc::clone(rule)).chain(names).collect();
        *folded.entry(stack).or_default() += f64::from(count) * samples.period_ns as f64;
    }
    folded
}

/// The CPU time of a function of a step on both sides, without that of the functions that it calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FunctionRow {
    /// The step.
    pub rule: String,
    /// The function.
    pub function: String,
    /// Mean of the first side, ns.
    pub a_ns: f64,
    /// Mean of the second side, ns.
    pub b_ns: f64,
}

/// A box of a differential flame graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Difference {
    /// Rule or function.
    pub name: String,
    /// Place of the caller; `None`: outermost.
    pub caller: Option<usize>,
    /// CPU time with all that it calls, mean of the first side, ns.
    pub a_ns: f64,
    /// The same of the second side, ns.
    pub b_ns: f64,
}

/// CPU time by function of both sides, where every run has sampled stacks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Functions {
    /// The functions with the greatest differences first.
    pub rows: Vec<FunctionRow>,
    /// The boxes of both sides' flame graph; a caller comes before those that it calls.
    pub boxes: Vec<Difference>,
    /// CPU time that was sampled, means of both sides, ns.
    pub all_ns: (f64, f64),
}

impl Functions {
    /// Compares the runs of both sides.
    pub(super) fn of(a: &[&Folded], b: &[&Folded]) -> Functions {
        let mut functions = Functions::default();
        let mut own: BTreeMap<(&str, &str), (f64, f64)> = BTreeMap::new();
        let mut places: HashMap<(Option<usize>, &str), usize> = HashMap::new();
        for (runs, is_b) in [(a, false), (b, true)] {
            let part = |ns: f64| ns / runs.len().max(1) as f64;
            let add = |(a_ns, b_ns): (&mut f64, &mut f64), ns: f64| match is_b {
                true => *b_ns += part(ns),
                false => *a_ns += part(ns),
            };
            for (stack, &ns) in runs.iter().copied().flatten() {
                add((&mut functions.all_ns.0, &mut functions.all_ns.1), ns);
                if let (Some(rule), Some(function)) = (stack.first(), stack.last()) {
                    let (a_ns, b_ns) = own.entry((rule, function)).or_default();
                    add((a_ns, b_ns), ns);
                }
                let mut caller = None;
                for name in stack {
                    let boxes = &mut functions.boxes;
                    let next = boxes.len();
                    let place = *places.entry((caller, name)).or_insert(next);
                    if place == next {
                        boxes.push(Difference {
                            name: name.to_string(),
                            caller,
                            ..Difference::default()
                        });
                    }
                    let found = &mut boxes[place];
                    add((&mut found.a_ns, &mut found.b_ns), ns);
                    caller = Some(place);
                }
            }
        }
        let row = |((rule, function), (a_ns, b_ns)): ((&str, &str), (f64, f64))| FunctionRow {
            rule: rule.to_owned(),
            function: function.to_owned(),
            a_ns,
            b_ns,
        };
        functions.rows = own.into_iter().map(row).collect();
        let change = |row: &FunctionRow| (row.b_ns - row.a_ns).abs();
        functions
            .rows
            .sort_by(|x, y| change(y).total_cmp(&change(x)));
        functions.rows.truncate(MOST);
        functions
    }
}
