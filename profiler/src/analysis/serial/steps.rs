//! The steps of a script, and what each of them touched.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::managers::runner_of;
use crate::model::{Descent, FileIndex, ProcessId, Relation, Stream, Workflow};
use crate::timeline::{State, Timeline};

/// What a shell ran as one: a command with all that it started, or a pipeline.
#[derive(Clone, Debug, Default)]
pub(super) struct Step {
    /// Rule of the member that worked most.
    pub(super) name: String,
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) members: Vec<ProcessId>,
    /// Processor time of all members, ns.
    pub(super) cpu_ns: f64,
    /// Time that its longest member waited for a processor, ns.
    pub(super) queue_ns: f64,
    /// Share of its time in storage.
    pub(super) disk: f64,
    /// Whether it only lets time pass.
    pub(super) is_pause: bool,
    /// Whether the shell read what it wrote: everything after it may depend on it.
    pub(super) is_read_by_shell: bool,
    pub(super) written: BTreeSet<FileIndex>,
    pub(super) touched: BTreeSet<FileIndex>,
    /// Paths of what it made, renamed, removed or changed in mode.
    pub(super) made: HashSet<String>,
    /// Paths of everything that it touched, and of the directories above.
    pub(super) paths: HashSet<String>,
}

impl Step {
    /// How long it takes when it need not wait for a processor, ns. What others on the machine took
    /// from it is no matter of the script.
    pub(super) fn length(&self) -> i64 {
        (self.to - self.from - self.queue_ns as i64).max(1)
    }

    /// Processors that it keeps busy, at least one and at most all there are.
    pub(super) fn cores(&self, most: f64) -> f64 {
        let own = self.cpu_ns / self.length() as f64;
        own.max(1.0).min(most)
    }

    /// Adds a path and those of the directories above.
    fn add_path(&mut self, path: &str) {
        let mut part = path;
        while !part.is_empty() && self.paths.insert(part.to_owned()) {
            part = part.rsplit_once('/').map_or("", |(above, _)| above);
        }
    }
}

/// Adds the files outside the traced directories that steps may have removed, renamed or changed: of these no
/// call tells, but their arguments do, or the moment at which a name came or went.
fn add_unseen(workflow: &Workflow, steps: &mut [Step]) {
    for step in &mut *steps {
        let images = step.members.iter().flat_map(|&id| workflow.images(id));
        let given = images.flat_map(|image| workflow.names.given(image));
        let used: Vec<String> = given
            .filter(|path| !step.paths.contains(&***path))
            .map(ToString::to_string)
            .collect();
        // Who has changed something else was given it to look at.
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

/// Who runs steps, each asked for its own.
pub(super) struct Runners<'a> {
    workflow: &'a Workflow,
    timeline: &'a Timeline,
    pub(super) children: Vec<Vec<ProcessId>>,
    descent: Descent,
    handed_on: HashSet<FileIndex>,
    /// So many members of steps are still looked at.
    left: usize,
}

/// Runners, each within the one before, with which a process is looked at, on average.
const MOST_RUNNERS: usize = 32;

impl<'a> Runners<'a> {
    pub(super) fn of(workflow: &'a Workflow, timeline: &'a Timeline) -> Runners<'a> {
        let children = workflow.children();
        Runners {
            descent: Descent::of(workflow),
            handed_on: handed_on(workflow),
            left: workflow.processes.len().saturating_mul(MOST_RUNNERS),
            children,
            workflow,
            timeline,
        }
    }

    /// The steps of a shell in the order of their begins. `None`: what runs within very many shells, each within the one
    /// before, was looked at with the outermost of these.
    pub(super) fn steps(&mut self, shell: ProcessId) -> Option<Vec<Step>> {
        self.left = self.left.checked_sub(self.descent.below(shell).len())?;
        let Runners {
            workflow, timeline, ..
        } = *self;
        Some(steps(
            workflow,
            timeline,
            &self.children,
            &self.handed_on,
            shell,
        ))
    }
}

/// Files that a process read without having opened them. What a shell opens for a command (`command < file`) it does not read
/// itself.
fn handed_on(workflow: &Workflow) -> HashSet<FileIndex> {
    let accesses = workflow.accesses.iter();
    let handed = accesses.filter(|access| access.reads > 0 && access.read_opens == 0);
    handed.map(|access| access.file).collect()
}

fn streams_from(workflow: &Workflow, id: ProcessId) -> &[Stream] {
    let all = &workflow.streams;
    let first = all.partition_point(|stream| stream.from < id);
    let last = all.partition_point(|stream| stream.from <= id);
    &all[first..last]
}

/// The steps of a shell in the order of their begins. `handed_on`: files that a process reads without having opened them.
fn steps(
    workflow: &Workflow,
    timeline: &Timeline,
    children: &[Vec<ProcessId>],
    handed_on: &HashSet<FileIndex>,
    shell: ProcessId,
) -> Vec<Step> {
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
    // What a pipe joins is one step.
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
    let own: BTreeSet<FileIndex> = accesses(workflow, shell)
        .iter()
        .filter(|access| {
            access.reads > 0 || access.read_opens > 0 && !handed_on.contains(&access.file)
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
        fill(workflow, timeline, step);
        step.is_read_by_shell |= step.written.intersection(&own).next().is_some();
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

fn accesses(workflow: &Workflow, id: ProcessId) -> &[crate::model::Access] {
    let all = &workflow.accesses;
    let first = all.partition_point(|access| access.process < id);
    let last = all.partition_point(|access| access.process <= id);
    &all[first..last]
}

/// Fills in when the members of a step lived, what they did and what they touched.
pub(super) fn fill(workflow: &Workflow, timeline: &Timeline, step: &mut Step) {
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
        // Whoever works names it, not who waits for it.
        let last = workflow.last_image(id);
        let own = last.cpu_ns.unwrap_or(0) as f64;
        let works_at_last = runner_of(last.exe.as_deref(), &last.rule).is_none() && 2.0 * own > cpu;
        let weight = match instance.is_orchestrator {
            false => 1.0 + cpu,
            // What waited was only on the way to the program that worked.
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
        }
        for access in accesses(workflow, id) {
            let file = workflow.file(access.file);
            step.touched.insert(access.file);
            let relation = access.relation();
            // Whose name or mode was changed must not be used before, nor after it was removed.
            let is_altered = access.alterations > 0;
            if relation >= Relation::Write || is_altered {
                step.written.insert(access.file);
            }
            for path in workflow.names.of_file(access.file, file) {
                if relation == Relation::Create || is_altered {
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
