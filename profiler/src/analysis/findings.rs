//! The one verdict: what could make a run shorter, over all analyses, by the time it could save.
//! No finding is better than a wrong one: each needs evidence and a saving worth a word.

mod stragglers;

use std::collections::{BTreeSet, HashMap, HashSet};

use serde::Serialize;

use crate::analysis::bottlenecks::{
    self, Bottlenecks, Cause, Confidence, Options, Resource, union,
};
use crate::analysis::bound::Bound;
use crate::analysis::critical_path::CriticalPath;
use crate::analysis::serial::{RunBy, Serial, serial};
use crate::analysis::threads::{Threads, together};
use crate::graph::Dag;
use crate::model::{ProcessId, Workflow};
use crate::text::bottlenecks::{looks, percent, want, who};
use crate::text::units;
use crate::text::waits::serial_line;
use crate::timeline::{Part, State, Timeline, sum_of};

/// Most findings.
const MOST: usize = 5;
/// A finding must promise this share of the run.
const LEAST: f64 = 0.04;
/// And this time, ns: below it a run is over before one has read about it.
const LEAST_NS: f64 = 30e6;

/// Something that could make the run shorter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// What kind of thing: cpu, disk, memory, lock, sleep, network, hand-over, serial, straggler.
    pub kind: &'static str,
    /// The step that it is about, if it is about one.
    pub step: Option<String>,
    /// What is wrong, in a sentence.
    pub title: String,
    /// How much of the run could be saved at most, ns.
    pub saving_ns: i64,
    /// What it rests on.
    pub evidence: String,
    /// How sure it is: low, medium, high.
    pub confidence: &'static str,
    /// Subcommand that shows more.
    pub command: &'static str,
}

/// Why a run took as long as it did, and what could be done about it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// What limited the run, in a line; none where that cannot be said.
    pub why: Option<String>,
    /// What it lacked, in a word.
    pub resource: Option<&'static str>,
    /// The step that did.
    pub step: Option<String>,
    /// What the critical path goes through, in a line.
    pub critical_path: Option<String>,
    /// At most five, the greatest saving first.
    pub findings: Vec<Finding>,
}

/// Judges a run. `path` bounds what findings may promise.
pub fn verdict(
    workflow: &Workflow,
    dag: &Dag,
    timeline: &Timeline,
    path: &CriticalPath,
) -> Verdict {
    let names = bottlenecks::by_rule(workflow);
    let result = bottlenecks::analyse(workflow, dag, timeline, &names, true, Options::default());
    of_bottlenecks(workflow, timeline, &result, path)
}

/// Judges a run whose bottlenecks by rule are found already.
pub fn of_bottlenecks(
    workflow: &Workflow,
    timeline: &Timeline,
    result: &Bottlenecks,
    path: &CriticalPath,
) -> Verdict {
    if timeline.length() <= 0 || workflow.is_incomplete() {
        return Verdict::default();
    }
    let stretches = serial(workflow, timeline, path);
    let bound = Bound {
        workflow,
        timeline,
        path,
    };
    let foremost = foremost(result, path);
    let first = foremost.filter(|cause| cause.share >= 0.15);
    Verdict {
        why: foremost.and_then(|foremost| why(result, foremost, timeline)),
        resource: first.map(|cause| cause.resource.name()),
        step: first.map(|cause| who(result, cause)),
        critical_path: None,
        findings: findings(&bound, result, &stretches),
    }
}

/// What is to be named first: the greatest cause. A step of which nothing is on the critical path, such as a server that others
/// end when they are done, gives way to one that is.
fn foremost<'a>(result: &'a Bottlenecks, path: &CriticalPath) -> Option<&'a Cause> {
    /// The share of the greatest that another one must have.
    const COMPARABLE: f64 = 0.5;
    let first = result.causes.first()?;
    let is_on_path = |cause: &&Cause| {
        cause.task.is_none_or(|task| {
            let members = &result.tasks.tasks[task].members;
            let processes: HashSet<ProcessId> = members.iter().map(|part| part.process).collect();
            let mut steps = path.steps.iter();
            steps.any(|step| processes.contains(&step.process))
        })
    };
    let comparable = |cause: &&Cause| cause.share >= first.share * COMPARABLE;
    let mut others = result.causes.iter().take_while(comparable);
    others.find(is_on_path).or(Some(first))
}

fn why(result: &Bottlenecks, first: &Cause, timeline: &Timeline) -> Option<String> {
    let name = |cause: &Cause| units::shorten(&units::plain(&who(result, cause)), 40);
    if first.share >= 0.3 || result.causes.len() == 1 && first.share >= 0.1 {
        return Some(format!(
            "{} limited the run for {} of it: {}",
            name(first),
            percent(first.share),
            want(first, timeline.cpus())
        ));
    }
    let parts: Vec<String> = result
        .causes
        .iter()
        .take(3)
        .filter(|cause| cause.share >= 0.05)
        .map(|cause| {
            format!(
                "{} {} ({})",
                name(cause),
                percent(cause.share),
                cause.resource.name()
            )
        })
        .collect();
    (parts.len() > 1).then(|| format!("no single step: {}", parts.join(" · ")))
}

fn findings(bound: &Bound<'_>, result: &Bottlenecks, stretches: &[Serial]) -> Vec<Finding> {
    let timeline = bound.timeline;
    let mut found: Vec<Finding> = Vec::new();
    // What has an explanation already needs no second one.
    let mut explained: Vec<(i64, i64)> = Vec::new();
    for one in stretches.iter().take(MOST) {
        explained.push((one.from, one.to));
        found.push(of_serial(one));
    }
    for one in stragglers::stragglers(result, timeline) {
        explained.push((one.from, one.to));
        let mut finding = one.finding;
        let most = bound.without_programs(&HashMap::from([(one.program, one.excess)]));
        finding.saving_ns = finding.saving_ns.min(most);
        found.push(finding);
    }
    explained.sort_unstable();
    let explained = union(explained);
    for cause in &result.causes {
        found.extend(of_cause(bound, result, cause, &explained));
    }
    let least = (LEAST * timeline.length() as f64).max(LEAST_NS) as i64;
    found.retain(|one| one.saving_ns >= least);
    found.sort_by_key(|one| -one.saving_ns);
    found.truncate(MOST);
    found
}

fn of_serial(one: &Serial) -> Finding {
    let remedy = match one.run_by {
        RunBy::Shell => "",
        RunBy::Make => "; make -j would",
        RunBy::MakeWithJobs => {
            " if the makefile lets them (flowtrace check tells which of its orders nothing seen needs)"
        }
    };
    Finding {
        kind: "serial",
        step: one.steps.first().map(|(name, _, _)| name.clone()),
        title: format!("{}{remedy}", serial_line(one)),
        saving_ns: one.saving_ns,
        evidence: format!(
            "{} of them keep their order for a file, directory or pipe, nothing seen connects the others; on {:.0} cores {} instead of {}",
            units::counted(one.dependencies as i64, "pair", "pairs"),
            one.cores,
            units::duration(one.could_ns),
            units::duration(one.took_ns)
        ),
        // Exit codes and variables of a shell are not seen.
        confidence: Confidence::Medium.name(),
        command: "waits",
    }
}

/// The part of intervals that lies outside of others; both are in order and apart.
fn minus(intervals: &[(i64, i64)], others: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let mut rest = Vec::new();
    for &(from, to) in intervals {
        let mut at = from;
        for &(begin, end) in others.iter().filter(|other| other.1 > from && other.0 < to) {
            if begin > at {
                rest.push((at, begin));
            }
            at = at.max(end);
        }
        if at < to {
            rest.push((at, to));
        }
    }
    rest
}

fn of_cause(
    bound: &Bound<'_>,
    result: &Bottlenecks,
    cause: &Cause,
    explained: &[(i64, i64)],
) -> Option<Finding> {
    let timeline = bound.timeline;
    let intervals = match cause.resource {
        // Who sleeps is explained by that, whatever else ran or could have run.
        Resource::Sleep => cause.intervals.clone(),
        _ => minus(&cause.intervals, explained),
    };
    let ns: i64 = intervals.iter().map(|&(from, to)| to - from).sum();
    if (ns as f64) < LEAST * timeline.length() as f64 {
        return None;
    }
    let name = units::shorten(&units::plain(&who(result, cause)), 48);
    let share = percent(ns as f64 / timeline.length().max(1) as f64);
    let looks = looks(cause.samples, timeline);
    let finding = |kind, title, saving_ns, evidence, command| Finding {
        kind,
        step: Some(who(result, cause)),
        title,
        saving_ns,
        evidence,
        confidence: cause.confidence.name(),
        command,
    };
    let members: Vec<usize> = match cause.task {
        Some(task) => vec![task],
        None => {
            let edges = cause.edges.iter().map(|&edge| &result.tasks.edges[edge]);
            edges.flat_map(|edge| [edge.from, edge.to]).collect()
        }
    };
    let (sums, _) = bottlenecks::cause::states(result, timeline, &members, &intervals);
    let life: f64 = sums.iter().sum::<f64>().max(1.0);
    let parts: Vec<Part> = members
        .iter()
        .flat_map(|&task| result.tasks.tasks[task].members.iter().copied())
        .collect();
    let part = |of: fn(State) -> bool| {
        let seen = (sum_of(&sums, of) / life * ns as f64) as i64;
        seen.min(bound.without_states(&parts, of))
    };
    let evidence = format!("the bottleneck for {share} of the run, {looks}");
    match cause.resource {
        Resource::Cpu => {
            let (saving, free) = by_one_more(timeline, result, cause, &intervals, ns)?;
            let saving = saving.min(bound.without_states(&parts, State::is_processing));
            let cpus = timeline.cpus().unwrap_or(1) as f64;
            let is_taken = cause
                .cpu
                .is_some_and(|busy| cpus * (1.0 - busy) < free / 2.0);
            let evidence = format!(
                "{evidence}; the run had no work for {free:.1} cores meanwhile{}",
                if is_taken {
                    ", others of the machine had"
                } else {
                    ""
                }
            );
            let processes: BTreeSet<ProcessId> = parts.iter().map(|part| part.process).collect();
            let threads = together(&name, timeline, processes.into_iter());
            if let Some(threads) = threads.filter(Threads::keep_each_other_waiting) {
                return Some(finding(
                    "lock",
                    format!(
                        "{name} keeps {:.1} of its {:.0} threads at work, the others wait for each other: less to wait for (locks, unequal shares), or faster code",
                        threads.at_work,
                        threads.alive - threads.idle
                    ),
                    saving,
                    format!(
                        "{evidence}; {} of waits between threads",
                        units::duration(threads.waited_ns)
                    ),
                    "waits",
                ));
            }
            let title = match is_taken {
                false => format!(
                    "{name} computes while others wait for it or processors idle: one more of it, or faster code"
                ),
                true => format!(
                    "{name} computes while others wait for it: faster code, or one more of it where nobody else takes the processors"
                ),
            };
            Some(finding("cpu", title, saving, evidence, "bottlenecks"))
        }
        // All processors are taken: only more of them, or less work, would help.
        // Without tracing the calls would not wait.
        Resource::Processors
        | Resource::View
        | Resource::Stopped
        | Resource::Tracer
        | Resource::Other => None,
        Resource::Disk => Some(finding(
            "disk",
            format!("{name} waits for storage"),
            part(State::is_storage),
            evidence,
            "resources",
        )),
        Resource::Memory => Some(finding(
            "memory",
            format!("{name} waits for memory: it does not fit"),
            part(State::is_storage),
            format!(
                "{evidence}; {} page faults that read",
                faults(timeline, result, &members)
            ),
            "resources",
        )),
        Resource::Lock => Some(finding(
            "lock",
            match is_between_threads(timeline, &parts) {
                true => format!("threads of {name} wait for each other"),
                false => format!("instances of {name} wait for each other's locks"),
            },
            part(|state| state == State::Lock),
            evidence,
            "waits",
        )),
        Resource::Sleep => Some(finding(
            "sleep",
            format!("{name} sleeps"),
            part(|state| state == State::Sleep),
            evidence,
            "waits",
        )),
        Resource::Network => Some(finding(
            "network",
            format!("the connection {name} is full while its reader waits: the network is slow"),
            ns,
            evidence,
            "bottlenecks",
        )),
        Resource::HandOver => Some(finding(
            "hand-over",
            format!("{name} passes data in pieces so small that both sides wait"),
            ns / 2,
            evidence,
            "waits",
        )),
    }
}

/// Whether most of the waiting for locks is that of threads for others of their own process.
fn is_between_threads(timeline: &Timeline, parts: &[Part]) -> bool {
    let books = || {
        parts
            .iter()
            .map(|part| &timeline.instance(part.process).books)
    };
    let all: i64 = books().map(|books| books.lock_ns).sum();
    books().map(|books| books.thread_lock_ns).sum::<i64>() * 2 > all
}

fn faults(timeline: &Timeline, result: &Bottlenecks, members: &[usize]) -> String {
    let ids = members
        .iter()
        .flat_map(|&task| &result.tasks.tasks[task].members);
    units::short_count(
        ids.map(|part| timeline.instance(part.process).books.major_faults)
            .sum(),
    )
}

/// What one more instance of a step that computes could save within some intervals, ns, and how
/// many processors the run had no work for. `None`: nothing, because it had work for all of them.
fn by_one_more(
    timeline: &Timeline,
    result: &Bottlenecks,
    cause: &Cause,
    intervals: &[(i64, i64)],
    ns: i64,
) -> Option<(i64, f64)> {
    let cpus = timeline.cpus()? as f64;
    // What others on the machine took is not the run's to change, and may be different next time:
    // who was ready to run counts as if it had run, else a busy machine looks like a lazy program.
    let busy = (bottlenecks::cause::own_load(timeline, intervals).1 / cpus).min(1.0);
    let free = cpus * (1.0 - busy);
    if free < 0.4 {
        return None;
    }
    let task = cause.task?;
    let alive: i64 = result.tasks.tasks[task]
        .members
        .iter()
        .map(|part| {
            let within = |&(from, to): &(i64, i64)| (part.to.min(to) - part.from.max(from)).max(0);
            intervals.iter().map(within).sum::<i64>()
        })
        .sum();
    let degree = (alive as f64 / ns.max(1) as f64).max(1.0);
    // The next slowest stage, and all work on all processors, bound what can be gained.
    let mut bound = ns as f64 * busy;
    for other in 0..result.tasks.tasks.len() {
        if other != task {
            let (sums, _) = bottlenecks::cause::states(result, timeline, &[other], intervals);
            let members = result.tasks.tasks[other].members.len().max(1) as f64;
            bound = bound.max(sum_of(&sums, State::is_processing) / members);
        }
    }
    let shorter = (ns as f64 * degree / (degree + 1.0)).max(bound);
    Some(((ns as f64 - shorter) as i64, free))
}
