//! The bottlenecks of a run as machine-readable output. Times are nanoseconds, shares 0 to 1.

use serde::Serialize;

use super::chart::subject_name;
use super::{Bottlenecks, Cause, Subject};
use crate::analysis::degrees::Advice;
use crate::timeline::Limit;

/// The output of `flowtrace bottlenecks --format json`.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub struct Facts {
    /// The answer in a line.
    pub answer: String,
    /// The reason for the length of the run, in a line, if it is no bottleneck, or a bottleneck with more
    /// to say.
    pub why: Option<String>,
    /// Length of the run; if it goes on or was cut short, up to the last complete window.
    pub duration_ns: i64,
    /// True if that is all of the run.
    pub is_complete: bool,
    /// The causes, the one with the largest share first.
    pub causes: Vec<CauseFact>,
    /// Results of the algorithms, the longest first.
    pub bottlenecks: Vec<BottleneckFact>,
    /// Time without a bottleneck, and why.
    pub without: Vec<WithoutFact>,
    /// The subjects closest to being a bottleneck in the time without one, the busiest first.
    pub nearest: Vec<NearestFact>,
    /// Advised number of instances of each step; none if no step is a cause.
    pub advice: Option<Advice>,
    /// Threshold for tasks.
    pub alpha: f64,
    /// Threshold for channels.
    pub beta: f64,
    /// Length of a window.
    pub window_ns: i64,
    /// Steps and channels window by window.
    pub windows: Vec<WindowFact>,
}

/// A cause and its share of the run.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub struct CauseFact {
    pub step: Option<String>,
    pub channel: Option<String>,
    pub resource: &'static str,
    pub ns: i64,
    pub share: f64,
    pub cpu_busy: Option<f64>,
    /// Set if single instances of the step limit the run: the mean number at work, and the mean number
    /// alive.
    pub instances: Option<(f64, f64)>,
    /// The part of the machine that the step may use, if it is less than all and known.
    pub limit: Option<String>,
    pub samples: u64,
    pub confidence: &'static str,
    pub intervals: Vec<(i64, i64)>,
}

/// A result of the algorithms.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub struct BottleneckFact {
    pub name: String,
    pub kind: &'static str,
    pub resource: &'static str,
    #[serde(rename = "culprit")]
    pub blocker: Option<String>,
    pub ns: i64,
    pub share: f64,
    pub mean: f64,
    pub samples: u64,
    pub confidence: &'static str,
    pub intervals: Vec<(i64, i64)>,
}

/// Time without a bottleneck.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub struct WithoutFact {
    pub why: &'static str,
    pub ns: i64,
}

/// A subject that would be a bottleneck next.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub struct NearestFact {
    pub name: String,
    pub share: f64,
}

/// A step or channel in a window.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub struct WindowFact {
    pub from_ns: i64,
    pub to_ns: i64,
    pub kind: &'static str,
    pub name: String,
    /// Share of the window in which the step was processing or the channel saturated.
    pub share: f64,
    pub is_bottleneck: bool,
}

/// Makes the facts. `answer` is the first line for people.
pub fn facts(result: &Bottlenecks, answer: String) -> Facts {
    let name = |task: usize| result.tasks.tasks[task].name();
    let cause = |cause: &Cause| CauseFact {
        step: cause.task.map(name),
        channel: (!cause.edges.is_empty())
            .then(|| subject_name(result, &Subject::Edges(cause.edges.clone()))),
        resource: cause.resource.name(),
        ns: cause.ns,
        share: cause.share,
        cpu_busy: cause.cpu,
        instances: cause.at_work,
        limit: cause.limit.as_ref().map(Limit::text),
        samples: cause.samples,
        confidence: cause.confidence.name(),
        intervals: cause.intervals.clone(),
    };
    Facts {
        answer,
        why: None,
        duration_ns: result.length(),
        is_complete: !result.is_partial,
        causes: result.causes.iter().map(cause).collect(),
        bottlenecks: result
            .found
            .iter()
            .map(|found| BottleneckFact {
                name: subject_name(result, &found.subject),
                kind: found.kind(),
                resource: found.resource.name(),
                blocker: found.blocker.map(name),
                ns: found.ns,
                share: found.share,
                mean: found.mean,
                samples: found.samples,
                confidence: found.confidence.name(),
                intervals: found.intervals.clone(),
            })
            .collect(),
        without: result
            .without
            .iter()
            .map(|&(why, ns)| WithoutFact {
                why: why.text(),
                ns,
            })
            .collect(),
        nearest: nearest(result),
        advice: None,
        alpha: result.options.alpha,
        beta: result.options.beta,
        window_ns: result.window_ns,
        windows: windows(result),
    }
}

fn nearest(result: &Bottlenecks) -> Vec<NearestFact> {
    let nearest = result.nearest();
    let fact = |(subject, share): &(Subject, f64)| NearestFact {
        name: subject_name(result, subject),
        share: *share,
    };
    nearest.iter().map(fact).collect()
}

fn windows(result: &Bottlenecks) -> Vec<WindowFact> {
    let vertex = |v: usize| Subject::Tasks(result.graph.members[v].clone());
    let edge = |e: usize| {
        let of = |i: &usize| result.graph.edge_of[*i] == Some(e);
        Subject::Edges((0..result.tasks.edges.len()).filter(of).collect())
    };
    let vertices: Vec<String> = (0..result.graph.members.len())
        .map(|v| subject_name(result, &vertex(v)))
        .collect();
    let edges: Vec<String> = (0..result.graph.edges.len())
        .map(|e| subject_name(result, &edge(e)))
        .collect();
    let mut rows = Vec::new();
    for window in &result.windows {
        let row = |kind, name: &String, share, is_bottleneck| WindowFact {
            from_ns: window.from,
            to_ns: window.to,
            kind,
            name: name.clone(),
            share,
            is_bottleneck,
        };
        for (v, share) in window.pt.iter().enumerate() {
            if let Some(share) = *share {
                rows.push(row("step", &vertices[v], share, window.found.cpu[v]));
            }
        }
        for (e, share) in window.st.iter().enumerate() {
            if let Some(share) = *share {
                rows.push(row("channel", &edges[e], share, window.found.io[e]));
            }
        }
    }
    rows
}
