//! Bottlenecks of a run, with the windows and causes behind them.

use crate::analysis::bottlenecks::{Confidence, Resource, Tasks, algorithm};
use crate::intervals::union;
use crate::timeline::Limit;
/// How to look for bottlenecks.
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

/// What a bottleneck is.
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
    /// What it is.
    pub subject: Subject,
    /// When, ns; apart from each other, in order.
    pub intervals: Vec<(i64, i64)>,
    /// Sum of the intervals, ns.
    pub ns: i64,
    /// Share of the run.
    pub share: f64,
    /// The task to blame: of a task itself, of a full pipe the one that does not empty it. `None`:
    /// the channel itself is slow.
    pub culprit: Option<usize>,
    /// What it lacked.
    pub resource: Resource,
    /// Of a task whether single instances of it make it one, while others have nothing to do.
    pub by_single: bool,
    /// Mean of the share that made it one.
    pub mean: f64,
    /// Looks at its processes in the intervals.
    pub samples: u64,
    /// How sure that is.
    pub confidence: Confidence,
}

/// A window and what was found in it.
#[derive(Clone, Debug)]
pub struct Window {
    /// Begin, ns.
    pub from: i64,
    /// End, ns.
    pub to: i64,
    /// Share of all processors that were busy; `None`: not known.
    pub cpu: Option<f64>,
    /// Time that processes were on a processor, ns.
    pub on_cpu_ns: i64,
    /// Per vertex of [`Bottlenecks::graph`]: mean processing share, where an instance lived.
    pub pt: Vec<Option<f64>>,
    /// Per vertex: mean share at work of those instances that were for most of the window; `None`: none was.
    pub single: Vec<Option<f64>>,
    /// Per edge: mean saturated share.
    pub st: Vec<Option<f64>>,
    /// What the algorithms say.
    pub found: algorithm::Found,
}

impl Bottleneck {
    /// What kind of thing it is, in a word.
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
    /// The same with cycles contracted.
    pub graph: algorithm::Contracted,
    /// The windows in order.
    pub windows: Vec<Window>,
    /// The bottlenecks, the longest first.
    pub found: Vec<Bottleneck>,
    /// Time without any, ns, and why.
    pub without: Vec<(Without, i64)>,
    /// Thresholds that were used.
    pub options: Options,
    /// Length of a window, ns.
    pub window_ns: i64,
    /// Begin and end of the run, ns; of one that goes on, or was cut short, the end of the last window that is complete.
    pub span: (i64, i64),
    /// Whether the run goes on, or was cut short.
    pub is_partial: bool,
    /// Who is to blame for how much of the run, the most first.
    pub causes: Vec<Cause>,
}

/// A step or channel that is to blame for some of the run, and what it lacked.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// The task; `None`: a channel is slow itself.
    pub task: Option<usize>,
    /// Edges that were full before it, or that are slow: places in [`Tasks::edges`].
    pub edges: Vec<usize>,
    /// What it lacked.
    pub resource: Resource,
    /// When, ns.
    pub intervals: Vec<(i64, i64)>,
    /// Sum of the intervals, ns.
    pub ns: i64,
    /// Share of the run.
    pub share: f64,
    /// Mean share of the processors that were busy then; `None`: not known.
    pub cpu: Option<f64>,
    /// Where single instances of the task limit the run: how many of its instances were at work on average, and how many lived.
    pub at_work: Option<(f64, f64)>,
    /// Of these the program that was at work nearly all of that time while no other was, a place in [`crate::model::Programs::stints`].
    pub busiest: Option<usize>,
    /// Processors that the run itself had then, on average.
    pub own_cores: f64,
    /// The part of the machine that the task may use; `None`: all, or it is not known.
    pub limit: Option<Limit>,
    /// Looks that it rests on.
    pub samples: u64,
    /// How sure that is.
    pub confidence: Confidence,
}

/// Why a window has no bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Without {
    /// No step was alive, only what runs steps.
    Nothing,
    /// Steps were alive, but nothing is known of what they did.
    Unknown,
    /// All of them waited for each other for most of the time.
    Balanced,
}

impl Without {
    /// In words.
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
    /// Length of the time that was judged, ns.
    pub fn length(&self) -> i64 {
        (self.span.1 - self.span.0).max(0)
    }

    /// True where the doings of the steps are known for most of the time.
    pub fn is_known(&self) -> bool {
        let unknown = self
            .without
            .iter()
            .filter(|(why, _)| *why != Without::Balanced);
        let unknown: i64 = unknown.map(|&(_, ns)| ns).sum();
        2 * unknown < self.length()
    }

    /// What was closest to being one in the time of [`Without::Balanced`], the busiest first, with the share of
    /// that time in which it was processing.
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

/// When any instance of these tasks lived: hulls of overlapping lives, in order.
pub(super) fn lives(result: &Bottlenecks, members: &[usize]) -> Vec<(i64, i64)> {
    let mut lives: Vec<(i64, i64)> = members
        .iter()
        .flat_map(|&task| &result.tasks.tasks[task].members)
        .map(|part| (part.from, part.to))
        .collect();
    lives.sort_unstable();
    union(lives)
}
