//! The data of Figure 5 of the paper: utilisation of the CPUs over time, and below it the intervals of the
//! bottlenecks.

use super::{Bottleneck, Bottlenecks, Resource, Subject};
use crate::timeline::Timeline;

/// An interval with a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Begin, ns.
    pub from: i64,
    /// End, ns.
    pub to: i64,
    /// Share, 0 to 1.
    pub share: f64,
}

/// A bottleneck as a bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// The step, or the steps that the channel connects.
    pub name: String,
    /// True if the bottleneck is a channel.
    pub is_channel: bool,
    /// The limiting resource.
    pub resource: Resource,
    /// Intervals of the bottleneck, ns.
    pub intervals: Vec<(i64, i64)>,
    /// Share of the run.
    pub share: f64,
}

/// The data of the chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Begin and end of the run, ns.
    pub span: (i64, i64),
    /// Origin of displayed times, ns.
    pub begins_ns: i64,
    /// Utilisation of all CPUs.
    pub utilisation: Vec<Level>,
    /// True if `utilisation` is of the machine, false if it is of the run alone.
    pub is_of_machine: bool,
    /// Number of CPUs; `None`: not known.
    pub cpus: Option<i64>,
    /// The bottlenecks, the longest first.
    pub bars: Vec<Bar>,
}

impl Chart {
    /// Mean utilisation; `None`: not known.
    pub fn mean(&self) -> Option<f64> {
        let length = |level: &Level| (level.to - level.from) as f64;
        let whole: f64 = self.utilisation.iter().map(length).sum();
        let sum: f64 = self.utilisation.iter().map(|l| l.share * length(l)).sum();
        (whole > 0.0).then(|| sum / whole)
    }
}

/// Makes the chart of a run.
pub fn chart(result: &Bottlenecks, timeline: &Timeline) -> Chart {
    let is_of_machine = result.windows.iter().any(|window| window.cpu.is_some());
    let cpus = timeline.cpus();
    let utilisation = result
        .windows
        .iter()
        .filter_map(|window| {
            let own = || {
                let whole = (window.to - window.from).checked_mul(cpus?)?;
                Some((window.on_cpu_ns as f64 / whole as f64).min(1.0))
            };
            Some(Level {
                from: window.from,
                to: window.to,
                share: if is_of_machine { window.cpu? } else { own()? },
            })
        })
        .collect();
    let name = |found: &Bottleneck| match found.by_single {
        true => format!("one {}", subject_name(result, &found.subject)),
        false => subject_name(result, &found.subject),
    };
    let is_same = |one: &Bottleneck, other: &Bottleneck| {
        one.subject == other.subject && one.by_single == other.by_single
    };
    let bars = result.found.iter().map(|found| Bar {
        // A step may have several bars, one for each resource.
        name: match result
            .found
            .iter()
            .filter(|one| is_same(one, found))
            .count()
        {
            1 => name(found),
            _ => format!("{} ({})", name(found), found.resource.name()),
        },
        is_channel: matches!(found.subject, Subject::Edges(_)),
        resource: found.resource,
        intervals: found.intervals.clone(),
        share: found.share,
    });
    Chart {
        span: result.span,
        begins_ns: timeline.begins_ns,
        utilisation,
        is_of_machine,
        cpus,
        bars: bars.collect(),
    }
}

/// Name of a bottleneck: its step, or the steps at both ends of the channel.
pub fn subject_name(result: &Bottlenecks, subject: &Subject) -> String {
    let name = |task: usize| result.tasks.tasks[task].name();
    match subject {
        Subject::Tasks(tasks) => joined(tasks.iter().map(|&task| name(task)).collect()),
        Subject::Edges(edges) => {
            let of = |&edge: &usize| {
                let edge = &result.tasks.edges[edge];
                let (from, to) = edge.ends();
                format!("{} {} {}", name(from), edge.arrow(), name(to))
            };
            joined(edges.iter().map(of).collect())
        }
    }
}

fn joined(mut names: Vec<String>) -> String {
    const NAMED: usize = 3;
    names.dedup();
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let text = names.join(" + ");
    match more {
        0 => text,
        n => format!("{text} + {n} more"),
    }
}
