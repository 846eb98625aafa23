//! Bottlenecks of a run, with the windows and causes behind them.

use crate::analysis::bottlenecks::{Confidence, Resource, Tasks, algorithm};
use crate::intervals::union;
use crate::timeline::Limit;
/// Options of the search for bottlenecks.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Share of its time that a task must exceed in processing.
    pub alpha: f64,
    /// Share of its time that a channel must exceed in being full.
    pub beta: f64,
    /// Length of a window, ns; `None`: 5 s, or less for a short run.
    pub window_ns: Option<i64>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            alpha: 0.9,
            beta: 0.9,
            window_ns: None,
        }
    }
}

/// The tasks or channels that are a bottleneck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A task, or several that depend on each other: places in [`Tasks::tasks`].
    Tasks(Vec<usize>),
    /// The channels between tasks: places in [`Tasks::edges`].
    Edges(Vec<usize>),
}

/// A bottleneck over the whole run.
#[derive(Clone, Debug)]
pub struct Bottleneck {
    /// The tasks or channels.
    pub subject: Subject,
    /// Intervals in which it limits the run, ns; disjoint, in order.
    pub intervals: Vec<(i64, i64)>,
    /// Sum of the intervals, ns.
    pub ns: i64,
    /// Share of the run.
    pub share: f64,
    /// The blocker: the task itself, or for a full pipe the task that does not empty it. `None`: the
    /// channel itself is slow.
    pub blocker: Option<usize>,
    /// The resource that the blocker lacked.
    pub resource: Resource,
    /// True for a task of which single instances limit the run, while others have nothing to do.
    pub by_single: bool,
    /// Mean of the share that exceeded the threshold.
    pub mean: f64,
    /// Samples of its processes in the intervals.
    pub samples: u64,
    /// Confidence in the resource.
    pub confidence: Confidence,
}

/// A window and its bottlenecks.
#[derive(Clone, Debug)]
pub struct Window {
    /// Begin, ns.
    pub from: i64,
    /// End, ns.
    pub to: i64,
    /// Share of all CPUs that were busy; `None`: not known.
    pub cpu: Option<f64>,
    /// Time that processes were on a CPU, ns.
    pub on_cpu_ns: i64,
    /// Per vertex of [`Bottlenecks::graph`]: mean processing share, if an instance lived.
    pub pt: Vec<Option<f64>>,
    /// Per vertex: mean share at work of the instances that were at work for most of the window; `None`:
    /// none was.
    pub single: Vec<Option<f64>>,
    /// Per edge: mean saturated share.
    pub st: Vec<Option<f64>>,
    /// Result of the algorithms.
    pub found: algorithm::Found,
}

impl Bottleneck {
    /// Kind of the subject, in a word.
    pub const fn kind(&self) -> &'static str {
        match self.subject {
            Subject::Tasks(_) if self.by_single => "instance",
            Subject::Tasks(_) => "step",
            Subject::Edges(_) => "channel",
        }
    }
}

/// Everything about the bottlenecks of a run.
#[derive(Clone, Debug)]
pub struct Bottlenecks {
    /// The tasks and their edges.
    pub tasks: Tasks,
    /// The graph of tasks with cycles contracted.
    pub graph: algorithm::Contracted,
    /// The windows in order.
    pub windows: Vec<Window>,
    /// The bottlenecks, the longest first.
    pub found: Vec<Bottleneck>,
    /// Time without a bottleneck by reason, ns.
    pub without: Vec<(Without, i64)>,
    /// Thresholds that were used.
    pub options: Options,
    /// Length of a window, ns.
    pub window_ns: i64,
    /// Begin and end of the run, ns. If the run goes on or was cut short, it ends with the last complete
    /// window.
    pub span: (i64, i64),
    /// True if the run goes on, or was cut short.
    pub is_partial: bool,
    /// The causes with their shares of the run, the largest first.
    pub causes: Vec<Cause>,
}

/// A step or channel that limits the run for some time, and the resource that it lacked.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// The task; `None`: a channel is slow itself.
    pub task: Option<usize>,
    /// Edges that were full before the task, or that are slow: places in [`Tasks::edges`].
    pub edges: Vec<usize>,
    /// The resource that the step lacked.
    pub resource: Resource,
    /// Intervals in which the cause limits the run, ns.
    pub intervals: Vec<(i64, i64)>,
    /// Sum of the intervals, ns.
    pub ns: i64,
    /// Share of the run.
    pub share: f64,
    /// Mean share of the CPUs that were busy in the intervals; `None`: not known.
    pub cpu: Option<f64>,
    /// Set if single instances of the task limit the run: the mean number at work, and the mean number
    /// alive.
    pub at_work: Option<(f64, f64)>,
    /// The program that was at work nearly all of that time while no other instance was, a place in
    /// [`crate::model::Programs::stints`].
    pub busiest: Option<usize>,
    /// Mean number of CPUs that the run itself had in the intervals.
    pub own_cores: f64,
    /// The part of the machine that the task may use; `None`: all, or not known.
    pub limit: Option<Limit>,
    /// Number of samples that the cause rests on.
    pub samples: u64,
    /// Confidence in the resource.
    pub confidence: Confidence,
}

/// The reason for which a window has no bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Without {
    /// No step was alive, only programs that run steps.
    Nothing,
    /// Steps were alive, but their states are not known.
    Unknown,
    /// All steps waited for each other for most of the time.
    Balanced,
}

impl Without {
    /// The reason in words.
    pub const fn text(self) -> &'static str {
        match self {
            Without::Nothing => {
                "no step was running, only what runs steps (shells, launchers, managers)"
            }
            Without::Unknown => "nothing is known of what ran",
            Without::Balanced => {
                "no single step was processing, and no channel full, for most of the time"
            }
        }
    }
}

impl Bottlenecks {
    /// Length of the examined time, ns.
    pub fn length(&self) -> i64 {
        (self.span.1 - self.span.0).max(0)
    }

    /// True if the states of the steps are known for most of the time.
    pub fn is_known(&self) -> bool {
        let unknown = self
            .without
            .iter()
            .filter(|(why, _)| *why != Without::Balanced);
        let unknown: i64 = unknown.map(|&(_, ns)| ns).sum();
        2 * unknown < self.length()
    }

    /// The subjects closest to being a bottleneck in the time of [`Without::Balanced`], the busiest first,
    /// with the share of that time in which each was processing.
    pub fn nearest(&self) -> Vec<(Subject, f64)> {
        let is_balanced = |window: &&Window| window.found.is_nothing();
        let (mut sums, mut length) = (vec![0.0; self.graph.members.len()], 0.0);
        for window in self.windows.iter().filter(is_balanced) {
            let ns = (window.to - window.from) as f64;
            length += ns;
            for (sum, share) in sums.iter_mut().zip(&window.pt) {
                *sum += share.unwrap_or(0.0) * ns;
            }
        }
        let shares = self.graph.members.iter().zip(sums);
        let shares = shares.map(|(members, sum)| (Subject::Tasks(members.clone()), sum / length));
        let mut shares: Vec<_> = shares.filter(|&(_, share)| share > 0.0).collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1));
        shares
    }
}

/// Intervals in which any instance of these tasks lived: hulls of overlapping lives, in order.
pub(super) fn lives(result: &Bottlenecks, members: &[usize]) -> Vec<(i64, i64)> {
    let mut lives: Vec<(i64, i64)> = members
        .iter()
        .flat_map(|&task| &result.tasks.tasks[task].members)
        .map(|part| (part.from, part.to))
        .collect();
    lives.sort_unstable();
    union(lives)
}
