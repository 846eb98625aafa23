//! The verdict: findings of all analyses that could make a run shorter, ordered by the time they could
//! save. No finding is better than a wrong one: each needs evidence and a relevant saving.

mod blame;
mod finding;
mod outside;
mod small;
mod stragglers;
mod turns;

use std::collections::{HashMap, HashSet};
use std::panic::resume_unwind;

use blame::Blame;
pub use finding::Finding;
use flowtrace_render::units;
use serde::Serialize;
use stragglers::distinction;

use crate::analysis::bottlenecks::{self, Bottlenecks, Cause, Confidence, Options};
use crate::analysis::bound::Bound;
use crate::analysis::critical_path::CriticalPath;
use crate::analysis::findings::finding::{LEAST, limited};
use crate::analysis::phrases::{
    MATTERS, if_declared, nothing, percent, serial_action, serial_text, who,
};
use crate::analysis::serial::{LEAST_NS, LateStart, Serial, Starts, late_starts, serial, starts};
use crate::analysis::time::has_failed;
use crate::graph::Dag;
use crate::intervals::{divided, union};
use crate::model::{ProcessId, Workflow};
use crate::timeline::Timeline;

/// The kind of a verdict that the run waited for something that is no part of it.
pub const OUTSIDE: &str = "outside";
/// Most findings.
const MOST: usize = 5;
/// A finding that promises this share of the run explains its length, whatever step was the bottleneck.
const DECISIVE: f64 = 0.1;
/// A step that limited the run for this share of it explains its length, if nothing else does.
const LIMITS: f64 = 0.3;
/// A step that is this share of the critical path stands out.
const MOSTLY: f64 = 0.7;
/// The waits for a lock explain their time if the run without them saves this share of it.
const BY_LOCK: f64 = 0.2;

/// The reason for the length of a run, and findings that could make it shorter.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// What to do first and where, with the duration of the run now and then; `None`: nothing would help
    /// much, or the run goes on, was cut short or failed, which comes first then.
    pub action: Option<String>,
    /// The reason for the length of the run, in a line; `None`: not known.
    pub why: Option<String>,
    /// The kind of the reason: of a [`Finding`], the resource of a bottleneck without a remedy, or
    /// [`OUTSIDE`].
    pub kind: Option<&'static str>,
    /// The resource that limited the step that was the bottleneck most of the time, in a word.
    pub resource: Option<&'static str>,
    /// The step that `why` is about.
    pub step: Option<String>,
    /// The bottleneck, in a line, if `why` is something else.
    pub bottleneck: Option<String>,
    /// The steps that the critical path goes through, in a line.
    pub critical_path: Option<String>,
    /// The functions in which the limiting step was on a CPU, in a line, if call stacks were sampled.
    pub hot: Option<String>,
    /// At most five, the greatest saving first.
    pub findings: Vec<Finding>,
}

/// Judges a run. `path` bounds the savings of findings.
pub fn verdict(
    workflow: &Workflow,
    dag: &Dag,
    timeline: &Timeline,
    path: &CriticalPath,
) -> Verdict {
    if !is_judged(workflow, timeline) {
        return Verdict::default();
    }
    let names = bottlenecks::by_rule(workflow);
    // At the same time: the command line waits for both at the end of each run.
    let (result, order) = std::thread::scope(|threads| {
        let order = threads.spawn(|| Order::of(workflow, timeline, path));
        let options = Options::default();
        let result = bottlenecks::analyse(workflow, dag, timeline, &names, true, options);
        (
            result,
            order.join().unwrap_or_else(|panic| resume_unwind(panic)),
        )
    });
    judge(workflow, timeline, &result, path, &order)
}

/// What the order of the steps cost.
struct Order {
    stretches: Vec<Serial>,
    late: Vec<LateStart>,
}

impl Order {
    fn of(workflow: &Workflow, timeline: &Timeline, path: &CriticalPath) -> Order {
        Order {
            stretches: serial(workflow, timeline, path),
            late: late_starts(workflow, timeline, path),
        }
    }
}

/// Judges a run whose bottlenecks by rule are known already.
pub fn of_bottlenecks(
    workflow: &Workflow,
    timeline: &Timeline,
    result: &Bottlenecks,
    path: &CriticalPath,
) -> Verdict {
    if !is_judged(workflow, timeline) {
        return Verdict::default();
    }
    let order = Order::of(workflow, timeline, path);
    judge(workflow, timeline, result, path, &order)
}

fn is_judged(workflow: &Workflow, timeline: &Timeline) -> bool {
    timeline.length() > 0 && !workflow.is_incomplete()
}

fn judge(
    workflow: &Workflow,
    timeline: &Timeline,
    result: &Bottlenecks,
    path: &CriticalPath,
    order: &Order,
) -> Verdict {
    let bound = Bound::new(workflow, timeline, path);
    let foremost = foremost(result, path);
    let first = foremost.filter(|cause| cause.share >= 0.15);
    let limit = foremost.and_then(|foremost| why(result, foremost, timeline));
    let resource = first.map(|cause| cause.resource.name());
    let findings = findings(&bound, result, &order.stretches, &order.late);
    let decisive = findings
        .first()
        .filter(|one| one.saving_ns as f64 >= DECISIVE * timeline.length() as f64);
    let saving = decisive.map_or(0.0, |one| one.saving_ns as f64 / timeline.length() as f64);
    let limiting = first.map_or(0.0, |cause| cause.share);
    let outside = outside::outside(workflow, timeline, path);
    let outside = outside.filter(|one| one.share >= LIMITS && one.share > saving.max(limiting));
    // The critical path, in the next line, is mostly one step: that stands out.
    let shares = path.by_rule(workflow);
    let is_decided = shares
        .first()
        .is_some_and(|one| one.ns as f64 >= MOSTLY * path.length_ns() as f64);
    let (why, kind, step) = match decisive {
        _ if let Some(one) = outside => (Some(one.why), Some(OUTSIDE), Some(one.step)),
        Some(one) => (
            Some(one.why.as_ref().unwrap_or(&one.title).clone()),
            Some(one.kind),
            one.step.clone(),
        ),
        None => (
            limit
                .clone()
                .or_else(|| (result.is_known() && !is_decided).then(|| nothing(result))),
            first.map(|cause| cause.resource.kind()),
            first.map(|cause| who(result, cause)),
        ),
    };
    let has_succeeded = !timeline.is_partial && !workflow.runs.iter().any(has_failed);
    let gain = |one: &Finding| {
        let length = workflow.duration_ns();
        let shorter = units::duration((length - one.saving_ns).max(0));
        format!("{}: {} → {shorter}", one.action, units::duration(length))
    };
    // A change to the workflow comes before a wait for a better time.
    let is_change = |one: &&Finding| one.kind != "busy machine";
    let is_decisive = |one: &&Finding| one.saving_ns as f64 >= DECISIVE * timeline.length() as f64;
    let mut large = findings.iter().filter(is_decisive);
    let change = large.clone().find(is_change).or_else(|| large.next());
    Verdict {
        action: change
            .filter(|_| has_succeeded && kind != Some(OUTSIDE))
            .map(gain),
        bottleneck: limit.filter(|limit| why.as_ref() != Some(limit)),
        why,
        kind,
        resource,
        step,
        critical_path: None,
        hot: None,
        findings,
    }
}

/// The cause to name first: the one with the largest share. A step without a part of the critical path,
/// such as a server that is ended when its clients are done, gives way to one on the path.
fn foremost<'a>(result: &'a Bottlenecks, path: &CriticalPath) -> Option<&'a Cause> {
    /// Share of the largest cause that another one must have.
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
    if first.share < MATTERS {
        return None;
    }
    if first.share >= LIMITS || result.causes.len() == 1 {
        return Some(limited(result, first, timeline));
    }
    let name = |cause: &Cause| units::shorten(&units::plain(&who(result, cause)), 40);
    // Several may limit the run at a time: the shares of all add up to at most 1.
    let all: Vec<&[(i64, i64)]> = result
        .causes
        .iter()
        .map(|cause| &*cause.intervals)
        .collect();
    let length = result.length().max(1) as f64;
    let shares = divided(&all).into_iter().map(|ns| ns / length);
    let parts: Vec<String> = result
        .causes
        .iter()
        .zip(shares)
        .take(3)
        .filter(|(_, share)| *share >= 0.05)
        .map(|(cause, share)| {
            format!(
                "{} {} ({})",
                name(cause),
                percent(share),
                cause.resource.name()
            )
        })
        .collect();
    Some(match parts.len() {
        0 | 1 => limited(result, first, timeline),
        _ => format!("no single step: {}", parts.join(" · ")),
    })
}

fn findings(
    bound: &Bound<'_>,
    result: &Bottlenecks,
    stretches: &[Serial],
    late: &[LateStart],
) -> Vec<Finding> {
    let timeline = bound.timeline;
    let mut found: Vec<Finding> = Vec::new();
    // Intervals that have an explanation already need no second one.
    let mut explained: Vec<(i64, i64)> = Vec::new();
    // A better order fills the same gaps.
    let starts = starts(bound);
    let is_new = |one: &&Serial| {
        let is_first = |name: &str| one.steps.first().is_some_and(|step| step.0 == name);
        let mut of_runner = starts.iter().filter(|starts| starts.runner == one.runner);
        let is_late = late.iter().any(|late| late.runner == one.runner);
        !is_late && !of_runner.any(|starts| is_first(&starts.name))
    };
    for one in stretches.iter().filter(is_new).take(MOST) {
        explained.extend(&one.spans);
        found.push(of_serial(one));
    }
    for one in &starts {
        explained.extend(&one.runs);
        found.push(of_starts(one));
    }
    for one in late {
        // A step that runs alone at the end does so because it began late.
        explained.push((one.began_ns, one.ended_ns));
        found.push(of_late_start(bound, one));
    }
    for one in stragglers::stragglers(bound.workflow, result, timeline) {
        explained.push((one.from, one.to));
        // An earlier begin costs nothing.
        if late
            .iter()
            .any(|late| (late.began_ns..late.ended_ns).contains(&one.from))
        {
            continue;
        }
        let mut finding = one.finding;
        let most = bound.without_programs(&HashMap::from([(one.program, one.excess)]));
        finding.saving_ns = finding.saving_ns.min(most);
        found.push(finding);
    }
    found.extend(small::small_calls(bound));
    // Intervals in which tasks waited for a lock: they also wait for a holder that sleeps.
    let mut locked: Vec<(i64, i64)> = Vec::new();
    for one in turns::turns(bound) {
        let waited: i64 = one.intervals.iter().map(|&(from, to)| to - from).sum();
        if one.finding.saving_ns as f64 >= BY_LOCK * waited as f64 {
            locked.extend(one.intervals);
            found.push(one.finding);
        }
    }
    locked.sort_unstable();
    let locked = union(locked);
    explained.sort_unstable();
    let explained = union(explained);
    for cause in &result.causes {
        let blame = Blame::of(bound, result, cause, &explained, &locked);
        found.extend(blame.iter().filter_map(Blame::foremost));
        found.extend(blame.iter().filter_map(Blame::sleeps_too));
        found.extend(blame.iter().filter_map(Blame::limited_too));
        found.extend(blame.iter().filter_map(Blame::crowded_out));
    }
    let least = |kind: &str| match kind {
        // Some process always computes alone for a while, if only at the begin.
        "cpu" => DECISIVE,
        _ => LEAST,
    };
    found.retain(|one| {
        let least = least(one.kind) * timeline.length() as f64;
        one.saving_ns as f64 >= least.max(LEAST_NS)
    });
    found.sort_by_key(|one| -one.saving_ns);
    // A step may be the bottleneck as a whole and by single instances, in turn.
    let mut reported = HashSet::new();
    found.retain(|one| one.step.is_none() || reported.insert((one.kind, one.step.clone())));
    found.truncate(MOST);
    found
}

fn of_starts(one: &Starts) -> Finding {
    let name = units::shorten(&units::plain(&one.name), 40);
    let runs = units::counted(one.runs.len() as i64, "run", "runs");
    let each = units::duration((one.took_ns / one.runs.len().max(1) as f64) as i64);
    let synced = match one.sync_ns > 0.1 * one.start_ns {
        true => format!(", and {} in fsync", units::duration(one.sync_ns as i64)),
        false => String::new(),
    };
    Finding {
        kind: "small runs",
        step: Some(one.name.clone()),
        title: format!(
            "{} starts {name} again and again, {runs} of {each} each: one run for all would start once",
            units::plain(&one.runner_name)
        ),
        saving_ns: one.saving_ns,
        evidence: format!(
            "at work for {} in all, {} of that before they read a file and after they used one{synced}",
            units::duration(one.took_ns as i64),
            units::duration(one.start_ns as i64)
        ),
        // No trace shows if one run can do the work of all.
        confidence: Confidence::Medium.name(),
        command: "stats",
        action: format!("start one {name} for all instead of {runs} of {each} each"),
        why: None,
    }
}

fn of_late_start(bound: &Bound<'_>, one: &LateStart) -> Finding {
    let timeline = bound.timeline;
    let instant = |ns| units::since_begin(ns, timeline.begins_ns);
    let program = |id: &ProcessId| timeline.programs.longest(bound.workflow, *id);
    let others: Vec<usize> = one.others.iter().map(program).collect();
    let name = match others.is_empty() {
        true => units::plain(&one.name),
        false => {
            let which = distinction(bound.workflow, timeline, program(&one.process), &others);
            format!("{} ({which})", units::plain(&one.name))
        }
    };
    Finding {
        kind: "late start",
        step: Some(one.name.clone()),
        title: format!(
            "{name} begins at {} and decides when {} is done; what it uses was there at {}: run it before the others{}",
            instant(one.began_ns),
            units::plain(&one.runner_name),
            instant(one.ready_ns),
            if_declared(one.needs.as_ref()),
        ),
        saving_ns: one.saving_ns,
        evidence: format!(
            "{}, at most {} at a time, took {}; first those with the longest way to the end, {} (as far as files and pipes show what depends on what)",
            units::counted(one.steps as i64, "step", "steps"),
            one.jobs,
            units::duration(one.took_ns),
            units::duration(one.could_ns)
        ),
        // Orders that a makefile or a workflow states are not seen.
        confidence: "medium",
        command: "critical-path",
        action: format!(
            "run {name} before the other steps of {}",
            units::plain(&one.runner_name)
        ),
        why: None,
    }
}

fn of_serial(one: &Serial) -> Finding {
    Finding {
        kind: "serial",
        step: one.steps.first().map(|(name, _, _)| name.clone()),
        title: serial_text(one, ""),
        saving_ns: one.saving_ns,
        evidence: format!(
            "{} of them must stay in order (one uses a file, directory or pipe of the other); nothing recorded connects the others; on {:.0} cores the steps take {} instead of {}",
            units::counted(one.dependencies as i64, "pair", "pairs"),
            one.cores,
            units::duration(one.could_ns),
            units::duration(one.took_ns)
        ),
        // Exit codes and variables of a shell are not seen.
        confidence: Confidence::Medium.name(),
        command: "waits",
        action: serial_action(one),
        why: None,
    }
}
