//! Sampled call stacks for other programs.

pub mod firefox;
pub mod folded;
pub mod perfetto;
pub mod pprof;
pub mod speedscope;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use crate::model::Workflow;
use crate::stacks::Sample;

/// Samples that are shown together under a name.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// Name.
    pub name: Arc<str>,
    /// The samples in the order of time.
    pub samples: Vec<&'a Sample>,
}

impl Group<'_> {
    /// Time of the samples, ns.
    fn time_ns(&self) -> i64 {
        self.samples.iter().map(|sample| sample.time_ns).sum()
    }
}

/// The samples of each rule, the rule with most time first.
pub fn by_rule<'a>(samples: &'a [Sample], workflow: &Workflow) -> Vec<Group<'a>> {
    let mut found: HashMap<&Arc<str>, Vec<&Sample>> = HashMap::new();
    for sample in samples {
        let rule = &workflow.images[sample.image].rule;
        found.entry(rule).or_default().push(sample);
    }
    let mut groups: Vec<Group<'_>> = found
        .into_iter()
        .map(|(rule, samples)| Group {
            name: Arc::clone(rule),
            samples,
        })
        .collect();
    groups.sort_by_key(|group| (Reverse(group.time_ns()), Arc::clone(&group.name)));
    groups
}
