//! The steps of a script, and the files that each of them touched.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::managers::runner_of;
use crate::model::{Access, Descent, FileIndex, ProcessId, Relation, Stream, Workflow};
use crate::timeline::{State, Timeline};

/// A unit that a shell ran: a command with all processes that it started, or a pipeline.
#[derive(Clone, Debug, Default)]
pub(super) struct Step {
    /// Rule of the member that worked most.
    pub(super) name: String,
    /// That member.
    pub(super) worker: ProcessId,
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) members: Vec<ProcessId>,
    /// CPU time of all members, ns.
    pub(super) cpu_ns: f64,
    /// Time that the longest member waited for a CPU, ns.
    pub(super) queue_ns: f64,
    /// Share of its time in storage.
    pub(super) disk: f64,
    /// True if the step only lets time pass.
    pub(super) is_pause: bool,
    /// True if the shell read output of the step: every later step may depend on it.
    pub(super) is_read_by_shell: bool,
    pub(super) written: BTreeSet<FileIndex>,
    pub(super) touched: BTreeSet<FileIndex>,
    /// Paths that the step made, renamed, removed or changed in mode.
    pub(super) made: HashSet<String>,
    /// Paths of all files that the step touched, and of the directories above.
    pub(super) paths: HashSet<String>,
}

impl Step {
    /// Time of the step without waits for a CPU, ns. A wait for a CPU that other work on the machine had is
    /// not due to the script.
    pub(super) fn length(&self) -> i64 {
        (self.to - self.from - self.queue_ns as i64).max(1)
    }

    /// CPUs that the step keeps busy, at least one and at most `most`.
    pub(super) fn cores(&self, most: f64) -> f64 {
        let own = self.cpu_ns / self.length() as f64;
        own.max(1.0).min(most)
    }

    /// Adds a path and the directories above.
    fn add_path(&mut self, path: &str) {
        let mut part = path;
        while !part.is_empty() && self.paths.insert(part.to_owned()) {
            part = part.rsplit_once('/').map_or("", |(above, _)| above);
        }
    }
}

/// Adds the files outside the traced directories that steps may have removed, renamed or changed. No call
/// shows that, but arguments do, or the time at which a name appeared or vanished.
fn add_unseen(workflow: &Workflow, steps: &mut [Step]) {
    for step in &mut *steps {
        let images = step.members.iter().flat_map(|&id| workflow.images(id));
        let given = images.flat_map(|image| workflow.names.given(image));
        let used: Vec<String> = given
            .filter(|path| !step.paths.contains(&***path))
            .map(ToString::to_string)
            .collect();
        // A step that has changed other files had the path as input.
        let has_other_work = !step.written.is_empty();
        for path in used {
            step.add_path(&path);
            if !has_other_work {
                step.made.insert(path);
            }
        }
    }
    let spans: Vec<(i64, i64)> = steps.iter().map(|step| (step.from, step.to)).collect();
    let has_used = |step: usize, path: &str| steps[step].paths.contains(path);
    let changed = workflow.names.changed_by(&spans, has_used);
    for (step, changed) in steps.iter_mut().zip(changed) {
        for (_, path) in changed {
            step.add_path(path);
            step.made.insert(path.to_owned());
        }
    }
}

/// Finds the steps of runners.
pub(super) struct Runners<'a> {
    workflow: &'a Workflow,
    timeline: &'a Timeline,
    pub(super) children: Vec<Vec<ProcessId>>,
    descent: Descent,
    inherited: HashSet<FileIndex>,
    logs: HashSet<FileIndex>,
    /// Number of members of steps that may still be examined.
    left: usize,
}

/// Mean number of runners, each within the one before, for which a process may be examined.
const MOST_RUNNERS: usize = 32;

impl<'a> Runners<'a> {
    pub(super) fn of(workflow: &'a Workflow, timeline: &'a Timeline) -> Runners<'a> {
        let children = workflow.children();
        Runners {
            descent: Descent::of(workflow),
            inherited: inherited(workflow),
            logs: logs(workflow),
            left: workflow.processes.len().saturating_mul(MOST_RUNNERS),
            children,
            workflow,
            timeline,
        }
    }

    /// The steps of a shell in the order of their begins. `None`: the limit of examined members is reached.
    /// If very many shells run each within the one before, only the outermost are examined.
    pub(super) fn steps(&mut self, shell: ProcessId) -> Option<Vec<Step>> {
        self.left = self.left.checked_sub(self.descent.below(shell).len())?;
        Some(steps(self, shell))
    }
}

/// Files to which processes add and that none reads: each may add before others have, as to a log of messages.
pub(super) fn logs(workflow: &Workflow) -> HashSet<FileIndex> {
    let accesses = workflow.accesses.iter();
    let added = accesses.clone().filter(|access| access.only_appends());
    let mut found: HashSet<FileIndex> = added.map(|access| access.file).collect();
    // A shell that opened a file several times may have emptied it for each program that it started.
    let may_empty = |access: &Access| access.write_opens - access.append_opens > 1;
    for access in accesses.filter(|access| access.is_reader() || may_empty(access)) {
        found.remove(&access.file);
    }
    found
}

/// Files that a process read without having opened them. If a shell opens such a file for a command
/// (`command < file`), it does not read the file itself.
fn inherited(workflow: &Workflow) -> HashSet<FileIndex> {
    let accesses = workflow.accesses.iter();
    let inherited = accesses.filter(|access| access.reads > 0 && access.read_opens == 0);
    inherited.map(|access| access.file).collect()
}

pub(super) fn streams_from(workflow: &Workflow, id: ProcessId) -> &[Stream] {
    let all = &workflow.streams;
    let first = all.partition_point(|stream| stream.from < id);
    let last = all.partition_point(|stream| stream.from <= id);
    &all[first..last]
}

fn steps(runners: &Runners<'_>, shell: ProcessId) -> Vec<Step> {
    let Runners {
        workflow,
        timeline,
        children,
        inherited,
        logs,
        ..
    } = runners;
    let jobs = &children[shell.0 as usize];
    let mut job_of: HashMap<ProcessId, usize> = HashMap::new();
    let mut members: Vec<Vec<ProcessId>> = vec![Vec::new(); jobs.len()];
    for (at, &job) in jobs.iter().enumerate() {
        let mut next = vec![job];
        while let Some(id) = next.pop() {
            job_of.insert(id, at);
            members[at].push(id);
            next.extend(&children[id.0 as usize]);
        }
    }
    // Processes joined by a pipe are one step.
    let mut leader: Vec<usize> = (0..jobs.len()).collect();
    let mut read_by_shell = vec![false; jobs.len()];
    let streams = job_of.keys().flat_map(|&id| streams_from(workflow, id));
    for stream in streams {
        match (job_of.get(&stream.from), job_of.get(&stream.to)) {
            (Some(&a), Some(&b)) => {
                let (a, b) = (find(&leader, a), find(&leader, b));
                leader[a.max(b)] = a.min(b);
            }
            (Some(&from), None) if stream.to == shell => read_by_shell[from] = true,
            _ => {}
        }
    }
    let own: BTreeSet<FileIndex> = workflow
        .accesses_of(shell)
        .iter()
        .filter(|access| {
            access.reads > 0 || access.read_opens > 0 && !inherited.contains(&access.file)
        })
        .map(|access| access.file)
        .collect();
    let mut steps: Vec<Step> = Vec::new();
    let mut at: HashMap<usize, usize> = HashMap::new();
    for job in 0..jobs.len() {
        let first = find(&leader, job);
        let place = *at.entry(first).or_insert_with(|| {
            steps.push(Step {
                from: i64::MAX,
                to: i64::MIN,
                ..Step::default()
            });
            steps.len() - 1
        });
        let step = &mut steps[place];
        step.is_read_by_shell |= read_by_shell[job];
        step.members.extend(&members[job]);
    }
    for step in &mut steps {
        fill(workflow, timeline, logs, step);
        step.is_read_by_shell |= step.written.intersection(&own).next().is_some();
        // Snakemake notes the contents of outputs; the rules decide what comes next.
        step.is_read_by_shell &= &**workflow.rule(shell) != "snakemake";
    }
    add_unseen(workflow, &mut steps);
    steps.sort_by_key(|step| (step.from, step.to));
    steps
}

fn find(leader: &[usize], mut at: usize) -> usize {
    while leader[at] != at {
        at = leader[at];
    }
    at
}

/// Fills in the life of a step, its times by state and the files that it touched. What it adds to `logs` connects
/// it with no other step that adds to them.
pub(super) fn fill(
    workflow: &Workflow,
    timeline: &Timeline,
    logs: &HashSet<FileIndex>,
    step: &mut Step,
) {
    let mut most = (-1.0, String::new());
    let mut longest = 0;
    let (mut storage, mut pause, mut life) = (0.0, 0.0, 0.0);
    for id in step.members.clone() {
        let instance = timeline.instance(id);
        step.from = step.from.min(instance.from);
        step.to = step.to.max(instance.to);
        let cpu = instance.cpu_ns();
        step.cpu_ns += cpu;
        if !instance.is_orchestrator && instance.to - instance.from > longest {
            longest = instance.to - instance.from;
            step.queue_ns = instance.totals[State::Queue as usize];
        }
        storage += crate::timeline::sum_of(&instance.totals, State::is_storage);
        if !instance.is_orchestrator {
            pause += instance.totals[State::Sleep as usize];
            life += (instance.to - instance.from) as f64;
        }
        // The member that works names the step, not one that waits for it.
        let last = workflow.last_image(id);
        let own = last.cpu_ns.unwrap_or(0) as f64;
        let works_at_last = runner_of(last.exe.as_deref(), &last.rule).is_none() && 2.0 * own > cpu;
        let weight = match instance.is_orchestrator {
            false => 1.0 + cpu,
            // A program that only waited was on the way to the program that worked.
            true if works_at_last => 1.0 + own,
            true => 0.0,
        };
        if weight > most.0 {
            let longest = timeline.programs.longest(workflow, id);
            let program = workflow.program(&timeline.programs.stints[longest]);
            let named = if instance.is_orchestrator && works_at_last {
                last
            } else {
                program
            };
            most = (weight, named.rule.to_string());
            step.worker = id;
        }
        for access in workflow.accesses_of(id) {
            let file = workflow.file(access.file);
            step.touched.insert(access.file);
            let relation = access.relation();
            // A file whose name or mode was changed must not be used before, nor after it was removed.
            let is_altered = access.alterations > 0;
            let adds = access.only_appends() && logs.contains(&access.file);
            if !adds && (relation >= Relation::Write || is_altered) {
                step.written.insert(access.file);
            }
            for path in workflow.names.of_file(access.file, file) {
                if !adds && (relation == Relation::Create || is_altered) {
                    step.made.insert(path.to_owned());
                }
                step.add_path(path);
            }
        }
    }
    step.name = most.1;
    let length = (step.to - step.from).max(1) as f64;
    step.disk = (storage / length).min(1.0);
    step.is_pause = life > 0.0 && pause > 0.8 * life;
}
