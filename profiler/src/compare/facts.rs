//! The facts of one run that are compared.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use flowtrace_render::units;
use flowtrace_schema::{Result, Trace};
use serde::Serialize;

use super::functions::{self, Folded};
use super::network::NetworkFacts;
use super::recording::Recording;
use crate::analysis::critical_path::CriticalPath;
use crate::analysis::{data, time};
use crate::load::{Grants, load, load_activity_with_grants};
use crate::model::{Activity, Doing, ProcessId, Programs, Relation, Workflow};
use crate::paths::relative;
use crate::replay::{place, played_into};
use crate::stacks::Samples;
use crate::timeline::machine::Counters;

/// The rule of flowtrace itself, as in a replay.
const OWN: &str = "flowtrace";

/// The facts of one run that are compared.
#[derive(Clone, Debug, Default)]
pub struct RunFacts {
    /// Name of the trace.
    pub trace: String,
    /// The command of the run.
    pub command: String,
    /// Duration of the run, ns.
    pub duration_ns: i64,
    /// Length of the critical path, ns.
    pub path_ns: i64,
    /// CPU time of all processes, ns.
    pub cpu_ns: f64,
    /// Time for which processes that forked no other waited for a CPU, ns.
    pub queue_ns: f64,
    /// Mean number of CPUs that were busy with other things than the run; `None`: not counted.
    pub other_load: Option<f64>,
    /// The way the run was recorded.
    pub recording: Recording,
    /// Warnings to be shown first: the run failed, or the trace is incomplete.
    pub warnings: Vec<String>,
    /// Facts by rule.
    pub rules: BTreeMap<String, RuleFacts>,
    /// Facts of the files that were read or written, by pattern of names, where `*` is a run of digits.
    pub files: BTreeMap<String, FileFacts>,
    /// Facts of all files, by pattern of the name under which a replay places them. In the trace of a
    /// replay, by pattern of that place.
    pub placed: BTreeMap<String, FileFacts>,
    /// True if the run was a replay of another trace (`flowtrace replay`).
    pub is_replay: bool,
    /// CPU time by call stack; `None`: none were sampled.
    pub stacks: Option<Folded>,
    /// Facts from the packets of the run.
    pub network: Option<NetworkFacts>,
}

/// All processes of a rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RuleFacts {
    /// Number of executions.
    pub executions: f64,
    /// Time of those images of the rule that forked no other, less the time for which they waited for a
    /// CPU or were stopped by the tracer, ns.
    pub time_ns: f64,
    /// CPU time, ns.
    pub cpu_ns: f64,
    /// Time for which those images were neither running nor runnable, ns.
    pub waits_ns: f64,
    /// Bytes read from files.
    pub read_bytes: f64,
    /// Bytes written to files.
    pub write_bytes: f64,
    /// Calls that read files.
    pub read_calls: f64,
    /// Calls that wrote to files.
    pub write_calls: f64,
    /// Time that the rule adds to the critical path, ns.
    pub path_ns: f64,
    /// Time in which at least one of those images lived, ns.
    pub span_ns: f64,
    /// Time for which those images waited for a CPU, ns.
    pub queue_ns: f64,
    /// Time for which they waited for storage, ns.
    pub storage_ns: f64,
    /// Time for which they waited for locks, ns.
    pub lock_ns: f64,
    /// Time for which processes of the rule waited for the locks of files, by pattern of names, ns.
    pub lock_files: BTreeMap<String, f64>,
}

/// All files of a pattern.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FileFacts {
    /// Number of files.
    pub count: f64,
    /// Sum of the sizes when last seen, bytes.
    pub size_bytes: f64,
    /// True if none of them was written. A replay writes all files.
    pub is_input: bool,
    /// True if some of them were read or written, and not only opened or checked.
    pub is_used: bool,
}

impl FileFacts {
    fn add(&mut self, size_bytes: i64, is_written: bool, is_used: bool) {
        self.is_input = !is_written && (self.is_input || self.count == 0.0);
        self.count += 1.0;
        self.size_bytes += size_bytes as f64;
        self.is_used |= is_used;
    }
}

impl RuleFacts {
    /// The lives of those images, ns: on CPUs, waiting for one, or for something else.
    pub(super) fn lives_ns(&self) -> f64 {
        self.cpu_ns + self.queue_ns + self.waits_ns
    }

    /// Time for which they waited for none of CPU, storage and locks, ns.
    pub(super) fn other_waits_ns(&self) -> f64 {
        (self.waits_ns - self.storage_ns - self.lock_ns).max(0.0)
    }

    /// Mean number of them that lived at a time; at least 1.
    pub(super) fn at_a_time(&self) -> f64 {
        (self.lives_ns() / self.span_ns.max(1.0)).max(1.0)
    }

    fn fields(&mut self) -> [&mut f64; 13] {
        [
            &mut self.executions,
            &mut self.time_ns,
            &mut self.cpu_ns,
            &mut self.waits_ns,
            &mut self.read_bytes,
            &mut self.write_bytes,
            &mut self.read_calls,
            &mut self.write_calls,
            &mut self.path_ns,
            &mut self.span_ns,
            &mut self.queue_ns,
            &mut self.storage_ns,
            &mut self.lock_ns,
        ]
    }

    /// The mean over runs. A run without the rule counts as 0; `None` if no run has it.
    pub(super) fn mean<'a>(
        of_runs: impl Iterator<Item = Option<&'a RuleFacts>>,
    ) -> Option<RuleFacts> {
        let (mut sum, mut runs, mut is_there) = (RuleFacts::default(), 0, false);
        for facts in of_runs {
            runs += 1;
            if let Some(facts) = facts {
                is_there = true;
                for (sum, value) in sum.fields().into_iter().zip(facts.clone().fields()) {
                    *sum += *value;
                }
                for (file, ns) in &facts.lock_files {
                    *sum.lock_files.entry(file.clone()).or_default() += ns;
                }
            }
        }
        let runs = f64::from(runs.max(1));
        for field in sum.fields() {
            *field /= runs;
        }
        for ns in sum.lock_files.values_mut() {
            *ns /= runs;
        }
        is_there.then_some(sum)
    }

    /// The cost of the rule, in words.
    pub(super) fn cost(&self) -> String {
        let (executions, time, cpu) = (self.executions, self.time_ns as i64, self.cpu_ns as i64);
        format!(
            "{executions:.0} × · {} · {} cpu · read {} · wrote {}",
            units::duration(time),
            units::duration(cpu),
            units::bytes(self.read_bytes as i64),
            units::bytes(self.write_bytes as i64)
        )
    }
}

impl RunFacts {
    /// Gathers the facts of a trace. The result has `name` as its name.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn of(trace: &Trace, name: &str) -> Result<RunFacts> {
        let workflow = load(trace)?;
        let (activity, grants) = load_activity_with_grants(trace, &workflow)?;
        let path = CriticalPath::of(&workflow, &activity);
        let run = workflow.runs.first();
        let mut facts = RunFacts {
            trace: name.into(),
            command: run.and_then(|run| run.command.clone()).unwrap_or_default(),
            duration_ns: workflow.duration_ns(),
            path_ns: path.length_ns(),
            recording: Recording::of(&workflow),
            warnings: warnings(&workflow),
            network: NetworkFacts::of(trace)?,
            stacks: Samples::read(trace, &workflow)?
                .map(|samples| functions::folded(&samples, &workflow)),
            ..RunFacts::default()
        };
        let executions = executions(&workflow);
        for rule in time::by_rule(&workflow) {
            facts.cpu_ns += rule.cpu_ns as f64;
            facts.queue_ns += rule.leaf_queue_ns as f64;
            // A shell that only became its command is no step.
            let executions = executions.get(&rule.rule).copied().unwrap_or(0);
            if &*rule.rule == OWN || executions == 0 {
                continue;
            }
            facts.rules.insert(
                rule.rule.to_string(),
                RuleFacts {
                    executions: f64::from(executions),
                    time_ns: (rule.leaf_ns - rule.leaf_queue_ns - rule.leaf_tracer_ns).max(0)
                        as f64,
                    cpu_ns: rule.cpu_ns as f64,
                    waits_ns: rule.blocked_ns() as f64,
                    span_ns: rule.span_ns as f64,
                    queue_ns: rule.leaf_queue_ns as f64,
                    storage_ns: rule.leaf_storage_ns as f64,
                    ..RuleFacts::default()
                },
            );
        }
        let programs = Programs::of(&workflow);
        for (program, access) in workflow.accesses_by_program(&programs) {
            let rule = &workflow.program(&programs.stints[program]).rule;
            if let Some(rule) = facts.rules.get_mut(&**rule) {
                rule.read_bytes += access.read_bytes as f64;
                rule.write_bytes += access.write_bytes as f64;
                rule.read_calls += access.reads as f64;
                rule.write_calls += access.writes as f64;
            }
        }
        for step in &path.steps {
            if let Some(rule) = facts.rules.get_mut(&*workflow.program(&step.program).rule) {
                rule.path_ns += (step.to_ns - step.from_ns) as f64;
            }
        }
        facts.add_locks(&workflow, &activity, &grants);
        facts.other_load = other_load(trace, &workflow, facts.cpu_ns)?;
        facts.add_files(trace, &workflow)?;
        Ok(facts)
    }

    /// Adds the waits for locks: those of processes that forked no other are a part of the waits of their rule.
    fn add_locks(&mut self, workflow: &Workflow, activity: &Activity, grants: &Grants) {
        for span in activity.spans.iter().filter(|s| s.doing == Doing::Lock) {
            let rule = &workflow.images[workflow.image_at(span.process, span.from_ns)].rule;
            if let Some(rule) = self.rules.get_mut(&**rule) {
                rule.lock_ns += (span.to_ns - span.from_ns) as f64;
            }
        }
        for rule in self.rules.values_mut() {
            rule.lock_ns = rule.lock_ns.min(rule.waits_ns - rule.storage_ns).max(0.0);
        }
        let images = workflow.image_places();
        for (upid, wait) in grants.lock_waits() {
            let id = wait.file_id.unwrap_or_default();
            let place = workflow.files.binary_search_by_key(&id, |f| f.file_id).ok();
            let path = place.and_then(|at| workflow.files[at].path.as_deref());
            let rule = images.get(&upid).map(|&at| &workflow.images[at].rule);
            let rule = rule.and_then(|rule| self.rules.get_mut(&**rule));
            if let (Some(rule), Some(path)) = (rule, path) {
                let ns = rule.lock_files.entry(shown(workflow, path)).or_default();
                *ns += (wait.to_ns - wait.from_ns) as f64;
            }
        }
    }

    /// Adds the files of the traced directories that existed at the end. Temporary files are left out,
    /// since their names differ each time.
    fn add_files(&mut self, trace: &Trace, workflow: &Workflow) -> Result<()> {
        let names = trace.file_names()?;
        let lasting: HashSet<i64> = names
            .iter()
            .filter(|name| name.to_ns.is_none())
            .map(|name| name.file_id)
            .collect();
        let played_into = played_into(workflow);
        let roots = workflow.roots();
        let placed = |path: &str| match &played_into {
            Some(into) => {
                let below = Path::new(path).strip_prefix(into).ok()?.to_str()?;
                (!below.is_empty()).then(|| below.to_owned())
            }
            None => place(&roots, path),
        };
        self.is_replay = played_into.is_some();
        let written: HashSet<_> = workflow
            .accesses
            .iter()
            .filter(|access| access.relation() >= Relation::Write)
            .map(|access| access.file)
            .collect();
        for used in data::file_uses(workflow) {
            let file = workflow.file(used.file);
            let Some(path) = file
                .path
                .as_deref()
                .filter(|_| !file.only_opens && lasting.contains(&file.file_id))
            else {
                continue;
            };
            let size_bytes = file.size_bytes.unwrap_or(0);
            let is_written = written.contains(&used.file);
            let is_used = used.is_read || used.is_written;
            if is_used {
                let facts = self.files.entry(shown(workflow, path)).or_default();
                facts.add(size_bytes, is_written, is_used);
            }
            if let Some(name) = placed(path) {
                let facts = self.placed.entry(pattern(&name)).or_default();
                facts.add(size_bytes, is_written && !self.is_replay, is_used);
            }
        }
        Ok(())
    }
}

/// Number of executions by rule. An image counts if it was the last of its process, worked, or started
/// others.
fn executions(workflow: &Workflow) -> HashMap<Arc<str>, u32> {
    let mut counts: HashMap<Arc<str>, u32> = HashMap::new();
    let children = workflow.children();
    for id in workflow.process_ids() {
        let images = workflow.images(id);
        for (at, image) in images.iter().enumerate() {
            let is_last = at + 1 == images.len();
            let began = |child: &ProcessId| workflow.process(*child).start_ns;
            let until = image.end_ns.unwrap_or(i64::MAX);
            let starts = children[id.0 as usize]
                .iter()
                .any(|child| image.start_ns <= began(child) && began(child) < until);
            if !image.is_fork && (is_last || image.has_worked || starts) {
                *counts.entry(Arc::clone(&image.rule)).or_default() += 1;
            }
        }
    }
    counts
}

/// Mean number of CPUs that were busy with neither the processes of the run nor flowtrace; `None`: the machines
/// have no counters.
fn other_load(trace: &Trace, workflow: &Workflow, cpu_ns: f64) -> Result<Option<f64>> {
    let counters = Counters::new(trace.host_counters()?);
    let (from, to) = (workflow.begins_ns(), workflow.last_ns);
    let length_ns = to.saturating_sub(from) as f64;
    let mut others = None;
    for host in trace.hosts()? {
        let busy = counters.cpu_busy(host.host_id, from, to);
        if let Some((busy, cpus)) = busy.zip(host.cpus) {
            let own = counters.growth(host.host_id, "flowtrace.cpu", from, to);
            let others = others.get_or_insert(-cpu_ns);
            *others += busy * cpus as f64 * length_ns - own.unwrap_or(0.0);
        }
    }
    Ok(others.map(|ns| ns.max(0.0) / length_ns.max(1.0)))
}

/// The pattern of a path below the directory of the run.
fn shown(workflow: &Workflow, path: &str) -> String {
    let cwd = workflow.runs.first().map_or("", |run| run.cwd.as_str());
    pattern(relative(path, cwd))
}

/// A name with `*` for each run of digits.
fn pattern(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for c in path.chars() {
        match (c.is_ascii_digit(), text.ends_with('*')) {
            (true, true) => {}
            (true, false) => text.push('*'),
            (false, _) => text.push(c),
        }
    }
    text
}

fn warnings(workflow: &Workflow) -> Vec<String> {
    let mut warnings = Vec::new();
    if workflow.is_live {
        warnings.push("it is still being recorded".into());
    } else if workflow.is_cut_short() {
        let cut = || "its recording was cut short".into();
        warnings.push(workflow.unrecorded.clone().unwrap_or_else(cut));
    }
    for run in &workflow.runs {
        match (run.exit_signal, run.exit_code) {
            (Some(signal), _) => warnings.push(format!(
                "the command was ended by {}",
                crate::signals::signal_name(signal)
            )),
            (None, Some(code)) if code != 0 => {
                warnings.push(format!("the command failed: exit {code}"));
            }
            _ => {}
        }
    }
    for loss in &workflow.losses {
        if loss.has_lost_data() {
            warnings.push(format!(
                "rows are missing: {} × {}",
                loss.value, loss.meaning
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_a_pattern() {
        assert_eq!(pattern("out/t001_2.fits"), "out/t*_*.fits");
        assert_eq!(pattern("a*1"), "a*");
        assert_eq!(pattern("plain"), "plain");
    }
}
