//! The functions in which the steps of the critical path used the CPU, by sampled call stacks.

use std::collections::HashMap;
use std::sync::Arc;

use flowtrace_render::units;
use serde::Serialize;

use crate::analysis::critical_path::CriticalPath;
use crate::analysis::phrases::percent;
use crate::model::Workflow;
use crate::stacks::{FunctionId, Sample, Samples};

/// Fewest samples of a step of which shares are given.
const FEWEST: usize = 10;
/// Functions that are named.
const NAMED: usize = 3;
/// Least share of a function that is named.
const LEAST: f64 = 0.02;

/// A function and its share of the CPU time of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hot {
    /// Name.
    pub function: String,
    /// Source file with the line that has most samples, else the file that has the code.
    pub place: String,
    /// Samples in it, without the functions that it calls.
    pub samples: u64,
    /// Share of all samples of the step, from 0 to 1.
    pub share: f64,
}

/// A sample on the path, with the rule of its step.
pub type OnPath<'a> = (&'a Sample, &'a Arc<str>);

/// The samples on the critical path: those of the process of each step within the time of the step.
pub fn on_path<'a>(
    samples: &'a Samples,
    workflow: &'a Workflow,
    path: &CriticalPath,
) -> Vec<OnPath<'a>> {
    let steps = &path.steps;
    let of = |sample: &'a Sample| {
        let after = steps.partition_point(|step| step.from_ns <= sample.t_ns);
        let step = steps[..after]
            .last()
            .filter(|step| sample.t_ns < step.to_ns)?;
        (workflow.images[sample.image].process == step.process)
            .then(|| (sample, &workflow.program(&step.program).rule))
    };
    samples.samples.iter().filter_map(of).collect()
}

/// Samples by line.
type Lines = HashMap<Option<i64>, u64>;

/// The functions that worked in samples, the one with most samples first.
pub fn hottest<'a>(samples: &Samples, which: impl IntoIterator<Item = &'a Sample>) -> Vec<Hot> {
    // Several programs may have a function of one name and file, as of a library that is part of each.
    let mut found: HashMap<(&str, Option<&str>), (FunctionId, Lines)> = HashMap::new();
    let mut all = 0;
    for sample in which {
        all += 1;
        if let Some(located) = samples.at_work(sample.stack) {
            let function = samples.function(located.function);
            let place = function.file.as_deref().or(function.module.as_deref());
            let entry = found.entry((&function.name, place));
            let (_, lines) = entry.or_insert_with(|| (located.function, Lines::new()));
            *lines.entry(located.line).or_default() += 1;
        }
    }
    let mut hot: Vec<Hot> = found
        .into_values()
        .map(|(id, lines)| {
            let function = samples.function(id);
            let line = lines.iter().max_by_key(|(line, count)| (**count, **line));
            let count: u64 = lines.values().sum();
            Hot {
                function: function.name.to_string(),
                place: function.place(line.and_then(|(line, _)| *line)),
                samples: count,
                share: count as f64 / f64::from(all.max(1)),
            }
        })
        .collect();
    hot.sort_by(|a, b| (b.samples, &a.function).cmp(&(a.samples, &b.function)));
    hot
}

/// The functions of the step that limits the run, in a line; `step` is its name where it is known, else the
/// step with most time on the path counts. `None`: there are too few samples.
pub fn line(
    samples: &Samples,
    workflow: &Workflow,
    path: &CriticalPath,
    step: Option<&str>,
) -> Option<String> {
    let on_path = on_path(samples, workflow, path);
    let named = |rule: &str| on_path.iter().filter(|(_, own)| &***own == rule).count();
    let is_step = |rule: &str| {
        let rest = step.and_then(|step| step.strip_prefix(rule));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(" ("))
    };
    let rules = path.by_rule(workflow);
    let rule = rules.iter().find(|rule| is_step(&rule.rule));
    let rule = &rule.or(rules.first())?.rule;
    if named(rule) < FEWEST {
        return None;
    }
    let own = on_path.iter().filter(|(_, other)| *other == rule);
    let hot = hottest(samples, own.map(|(sample, _)| *sample));
    let hot = hot.iter().filter(|hot| hot.share >= LEAST).take(NAMED);
    let phrases: Vec<String> = hot.map(phrase).collect();
    (!phrases.is_empty()).then(|| {
        let rule = units::shorten(&units::plain(rule), 32);
        format!("{rule} on that path: {}", phrases.join(", "))
    })
}

/// `61 % in computeOverlap (mProject.c:1204)`.
fn phrase(hot: &Hot) -> String {
    let name = units::shorten(&units::plain(&hot.function), 60);
    let share = percent(hot.share);
    match hot.place.is_empty() {
        true => format!("{share} in {name}"),
        false => format!("{share} in {name} ({})", units::plain(&hot.place)),
    }
}
