//! Findings about the resource that a step or channel lacked while it limited the run.

use std::collections::{BTreeMap, BTreeSet};

use flowtrace_render::units;

use super::finding::{Finding, LEAST, limited};
use super::stragglers::distinction;
use crate::analysis::bottlenecks::{self, Bottlenecks, Cause, Confidence, Resource};
use crate::analysis::bound::Bound;
use crate::analysis::degrees::jobs_of;
use crate::analysis::phrases::{of_its, percent, samples_of, who};
use crate::analysis::serial::Work;
use crate::analysis::threads::together;
use crate::intervals::{at_once, minus};
use crate::model::ProcessId;
use crate::timeline::{Part, Shares, State, Timeline, sum_of};

/// A cause, in the intervals that nothing else explains.
pub(super) struct Blame<'a> {
    bound: &'a Bound<'a>,
    result: &'a Bottlenecks,
    cause: &'a Cause,
    name: String,
    intervals: Vec<(i64, i64)>,
    /// Sum of `intervals`, ns.
    ns: i64,
    parts: Vec<Part>,
    /// States of `parts` in the intervals.
    sums: Shares,
    evidence: String,
}

impl<'a> Blame<'a> {
    /// `explained`: intervals that another finding explains; `locked`: intervals that waits for locks
    /// explain. `None`: too little time is left.
    pub(super) fn of(
        bound: &'a Bound<'a>,
        result: &'a Bottlenecks,
        cause: &'a Cause,
        explained: &[(i64, i64)],
        locked: &[(i64, i64)],
    ) -> Option<Blame<'a>> {
        let timeline = bound.timeline;
        let intervals = match cause.resource {
            // A sleep explains itself, whatever else ran, could have run, or waited for a lock meanwhile.
            Resource::Sleep => cause.intervals.clone(),
            _ => minus(&minus(&cause.intervals, locked), explained),
        };
        let ns: i64 = intervals.iter().map(|&(from, to)| to - from).sum();
        if (ns as f64) < LEAST * timeline.length() as f64 {
            return None;
        }
        let members: Vec<usize> = match cause.task {
            Some(task) => vec![task],
            None => {
                let edges = cause.edges.iter().map(|&edge| &result.tasks.edges[edge]);
                edges.flat_map(|edge| [edge.from, edge.to]).collect()
            }
        };
        let (mut sums, _) = bottlenecks::cause::states(result, timeline, &members, &intervals);
        if cause.at_work.is_some() {
            sums = bottlenecks::cause::at_work(sums);
        }
        let parts = members
            .iter()
            .flat_map(|&task| result.tasks.tasks[task].members.iter().copied())
            .collect();
        let share = percent(ns as f64 / timeline.length().max(1) as f64);
        let samples = samples_of(cause.samples, timeline);
        Some(Blame {
            bound,
            result,
            cause,
            name: units::shorten(&units::plain(&who(result, cause)), 48),
            intervals,
            ns,
            parts,
            sums,
            evidence: format!("the bottleneck for {share} of the run, {samples}"),
        })
    }

    fn finding(
        &self,
        kind: &'static str,
        (title, action): (String, String),
        saving_ns: i64,
        evidence: String,
        command: &'static str,
    ) -> Finding {
        Finding {
            kind,
            step: Some(who(self.result, self.cause)),
            title,
            saving_ns,
            evidence,
            confidence: self.cause.confidence.name(),
            command,
            action,
            why: Some(limited(self.result, self.cause, self.bound.timeline)),
        }
    }

    /// Time of the intervals spent in such states, ns.
    fn spent(&self, of: fn(State) -> bool) -> i64 {
        let life: f64 = self.sums.iter().sum::<f64>().max(1.0);
        (sum_of(&self.sums, of) / life * self.ns as f64) as i64
    }

    /// Number of calls such as fsync(2), if the step was in storage mostly for them.
    fn syncs(&self) -> Option<i64> {
        let workflow = self.bound.workflow;
        let processes: BTreeSet<ProcessId> = self.parts.iter().map(|part| part.process).collect();
        let accesses = processes.iter().flat_map(|&id| workflow.accesses_of(id));
        let (count, ns) = accesses.fold((0, 0), |sum, access| {
            (sum.0 + access.syncs, sum.1 + access.sync_time_ns)
        });
        let in_storage = self.spent(State::is_storage);
        (count > 0 && 2 * ns >= in_storage).then_some(count)
    }

    /// Largest saving without such states, ns.
    fn part(&self, of: fn(State) -> bool) -> i64 {
        let saved = self.bound.without_states(&self.parts, of);
        self.spent(of).min(saved)
    }

    /// A finding about the resource that the step mostly lacked.
    pub(super) fn foremost(&self) -> Option<Finding> {
        let (name, evidence) = (&self.name, self.evidence.clone());
        match self.cause.resource {
            Resource::Cpu => self.computes(),
            // All CPUs are taken: only more of them, or less work, would help.
            // Without tracing the calls would not wait.
            Resource::Cpus
            | Resource::Mount
            | Resource::Stopped
            | Resource::Tracer
            | Resource::Other => None,
            Resource::Limit => Some(self.limited(evidence)),
            Resource::Disk => {
                let text = match self.syncs() {
                    Some(count) => (
                        format!(
                            "{name} waits for storage, mostly in {}",
                            units::counted(count, "fsync", "fsyncs")
                        ),
                        format!("let {name} call fsync less often, or give it faster storage"),
                    ),
                    None => (
                        format!("{name} waits for storage"),
                        format!("give {name} faster storage, or less to read and write"),
                    ),
                };
                let saving = self.part(State::is_storage);
                Some(self.finding("disk", text, saving, evidence, "resources"))
            }
            Resource::Memory => Some(self.finding(
                "memory",
                (
                    format!("{name} waits for memory: it does not fit"),
                    format!("give {name} more memory"),
                ),
                self.part(State::is_storage),
                format!(
                    "{evidence}; {} page faults that read",
                    faults(self.bound.timeline, &self.parts)
                ),
                "resources",
            )),
            Resource::Lock => Some(self.finding(
                "lock",
                match is_between_threads(self.bound.timeline, &self.parts) {
                    true => (
                        format!("threads of {name} wait for each other"),
                        format!("let the threads of {name} wait less for each other"),
                    ),
                    false if self.parts.len() == 1 => (
                        format!("{name} waits for a lock that others have"),
                        format!("shorten the time for which others have the lock of {name}"),
                    ),
                    false => (
                        format!(
                            "instances of {name} wait for each other: locks, or unequal shares"
                        ),
                        format!("let the {name} wait less for each other"),
                    ),
                },
                self.part(|state| state == State::Lock),
                evidence,
                "waits",
            )),
            Resource::Sleep => Some(self.sleeps(evidence)),
            Resource::Network => Some(self.finding(
                "network",
                (
                    format!(
                        "the connection {name} is full while its reader waits: the network is slow"
                    ),
                    format!("send less through {name}, or use a faster network"),
                ),
                self.ns,
                evidence,
                "bottlenecks",
            )),
            Resource::HandOver => Some(self.finding(
                "hand-over",
                (
                    format!("{name} passes data in pieces so small that both sides wait"),
                    format!("pass larger pieces of data through {name}"),
                ),
                self.ns / 2,
                evidence,
                "waits",
            )),
        }
    }

    /// A finding that the step also waited for CPUs that it may not use. The cause has only the resource
    /// that the step lacked most.
    pub(super) fn limited_too(&self) -> Option<Finding> {
        /// Least share of the time for that.
        const MUCH: f64 = 0.1;
        let limit = self.cause.limit.as_ref()?;
        let waited = self.spent(|state| state == State::Queue);
        let wanted = sum_of(&self.sums, State::is_active) / self.ns.max(1) as f64;
        if self.cause.resource != Resource::Cpu
            || wanted <= limit.cores
            || (waited as f64) < MUCH * self.ns as f64
        {
            return None;
        }
        Some(Finding {
            why: None,
            ..self.limited(self.evidence_of(waited))
        })
    }

    /// A finding that the step mostly waited for CPUs that other programs on the machine used, although it
    /// may use them and the run itself wants no more than there are.
    pub(super) fn crowded_out(&self) -> Option<Finding> {
        /// Least share of the bottleneck's time for that.
        const MOST: f64 = 0.7;
        let waited = self.spent(|state| state == State::Queue);
        if self.cause.resource != Resource::Cpu || (waited as f64) < MOST * self.ns as f64 {
            return None;
        }
        let name = &self.name;
        let title = format!(
            "{name} waits for CPUs that other programs on the machine use: run it when the machine is idle"
        );
        let finding = self.finding(
            "busy machine",
            (title, format!("run {name} when the machine is idle")),
            self.part(|state| state == State::Queue),
            self.evidence_of(waited),
            "resources",
        );
        Some(Finding {
            why: None,
            ..finding
        })
    }

    /// The time that a wait had of the bottleneck's time, in words.
    fn evidence_of(&self, waited: i64) -> String {
        format!(
            "{} of the {} for which it is the bottleneck, {}",
            units::duration(waited),
            units::duration(self.ns),
            samples_of(self.cause.samples, self.bound.timeline)
        )
    }

    fn limited(&self, evidence: String) -> Finding {
        let name = &self.name;
        let title = match &self.cause.limit {
            Some(limit) => format!("{name} waits for a CPU: {}", limit.text()),
            None => format!(
                "{name} waits for a CPU while others are idle: an affinity mask or a quota keeps it from them"
            ),
        };
        let waited = self.spent(|state| state == State::Queue);
        let saving = waited.min(self.bound.without_limit(&self.parts));
        self.finding(
            Resource::Limit.kind(),
            (title, format!("let {name} use more CPUs")),
            saving,
            evidence,
            "bottlenecks",
        )
    }

    /// A finding that the step also slept for much of the time. The cause has only the resource that the
    /// step lacked most. Only for steps of one thread: one of several threads may sleep without making the
    /// others wait.
    pub(super) fn sleeps_too(&self) -> Option<Finding> {
        /// Least share of the time for that.
        const MUCH: f64 = 0.1;
        let timeline = self.bound.timeline;
        let is_single = |part: &Part| timeline.instance(part.process).accounting.threads <= 1;
        let slept = self.spent(|state| state == State::Sleep);
        if self.cause.resource == Resource::Sleep
            || self.cause.task.is_none()
            || self.cause.at_work.is_some()
            || (slept as f64) < MUCH * self.ns as f64
            || !self.parts.iter().all(is_single)
        {
            return None;
        }
        Some(self.sleeps(format!(
            "{} of the {} for which it is the bottleneck, {}",
            units::duration(slept),
            units::duration(self.ns),
            samples_of(self.cause.samples, timeline)
        )))
    }

    fn sleeps(&self, evidence: String) -> Finding {
        /// Least number of sleeping processes that make a loop.
        const LOOP: usize = 5;
        // The program sleep does nothing else: how often it runs does not matter.
        let is_pause = self.name == "sleep";
        let is_loop = self.parts.len() >= LOOP && !is_pause;
        let pause = self.longest_pause().filter(|_| is_pause);
        // Other calls of sleep, beside it, would still last.
        let is_removed = |part: &&Part| match &pause {
            Some((command, _, true)) => {
                let program = &self.bound.timeline.programs.stints[part.program];
                self.bound.workflow.program(program).command.as_deref() == Some(*command)
            }
            _ => true,
        };
        let removed: Vec<Part> = self.parts.iter().filter(is_removed).copied().collect();
        // Who waits for a lock meanwhile waits for one that sleeps with it.
        let others = sum_of(&self.sums, |state| state != State::Lock).max(1.0);
        let slept = self.sums[State::Sleep as usize] / others * self.ns as f64;
        let saving = self
            .bound
            .without_states(&removed, |state| state == State::Sleep)
            .min(slept as i64);
        let short = |name: &str| units::shorten(&units::plain(name), 40);
        let named =
            pause.map(|(command, caller, is_only)| (short(command), short(caller), is_only));
        let name = &self.name;
        let text = match named {
            _ if is_loop => (
                format!(
                    "{name} sleeps again and again: pauses, or a wait for something that was not seen"
                ),
                format!("shorten the pauses of {name}, or that for which it waits"),
            ),
            Some((command, caller, true)) => (
                format!("{caller} pauses in {command}"),
                format!("remove {command} from {caller}"),
            ),
            Some((command, caller, false)) => (
                format!("{caller} pauses in sleep, mostly in {command}"),
                format!("remove the calls of sleep from {caller}, first of all {command}"),
            ),
            None => (
                format!("{name} sleeps"),
                format!("remove the sleep in {name}"),
            ),
        };
        let mut finding = self.finding("sleep", text, saving, evidence, "waits");
        if is_loop {
            finding.confidence = Confidence::Low.name();
        }
        finding
    }

    /// The command of the step that takes the longest part of the critical path, the rule of the program that
    /// called it, and true if the path has no other one.
    fn longest_pause(&self) -> Option<(&str, &str, bool)> {
        let workflow = self.bound.workflow;
        let mut pauses: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        for step in &self.bound.path.steps {
            let (program, process) = (
                workflow.program(&step.program),
                workflow.process(step.process),
            );
            if *program.rule == *self.name
                && let (Some(command), Some(parent)) = (&program.command, process.parent)
            {
                let caller = &*workflow.images[workflow.image_at(parent, process.start_ns)].rule;
                *pauses.entry((command, caller)).or_default() += step.to_ns - step.from_ns;
            }
        }
        let longest = pauses.iter().max_by_key(|&(_, &ns)| ns);
        longest.map(|(&(command, caller), _)| (command, caller, pauses.len() == 1))
    }

    fn computes(&self) -> Option<Finding> {
        let (name, timeline) = (&self.name, self.bound.timeline);
        let (saving, free) = self.by_one_more()?;
        let saving = saving.min(self.part(State::is_processing));
        let cpus = timeline.cpus().unwrap_or(1) as f64;
        let busy = self.cause.cpu;
        let is_taken = busy.is_some_and(|busy| cpus * (1.0 - busy) < free / 2.0);
        let others = match is_taken {
            true => ", which other programs of the machine used",
            false => "",
        };
        let evidence = format!(
            "{}; the run left {free:.1} cores unused meanwhile{others}",
            self.evidence
        );
        let processes: BTreeSet<ProcessId> = self.parts.iter().map(|part| part.process).collect();
        let threads = together(name, timeline, processes.into_iter());
        if let Some(threads) = threads
            .as_ref()
            .filter(|threads| threads.keep_each_other_waiting())
        {
            return Some(self.finding(
                "lock",
                (
                    format!(
                        "{name} keeps {:.1} of its {:.0} threads at work, the others wait for each other: less to wait for (locks, unequal shares), or faster code",
                        threads.at_work,
                        threads.alive - threads.idle
                    ),
                    format!("let the threads of {name} wait less for each other, or speed it up"),
                ),
                saving,
                format!(
                    "{evidence}; {} of waits between threads",
                    units::duration(threads.waited_ns)
                ),
                "waits",
            ));
        }
        if let Some(threads) = threads
            .as_ref()
            .filter(|threads| threads.have_nothing_to_do())
        {
            return Some(self.finding(
                "cpu",
                (
                    format!(
                        "{name} computes with {:.1} of its {:.0} threads, the others have nothing to do: work for more of them, or faster code",
                        threads.at_work, threads.alive
                    ),
                    format!("give more threads of {name} work, or speed it up"),
                ),
                saving,
                evidence,
                "bottlenecks",
            ));
        }
        if let Some((at_work, alive)) = self.keep_each_other_waiting() {
            return Some(self.finding(
                "lock",
                (
                    format!(
                        "{name} keeps {at_work:.1} of its {alive:.1} instances at work, the others wait for each other: less to wait for (locks, unequal shares), or faster code"
                    ),
                    format!("let the {name} wait less for each other, or speed them up"),
                ),
                saving,
                evidence,
                "waits",
            ));
        }
        let evenly = format!("share the work of {name} evenly");
        if let Some((program, (_, alive))) = self.cause.busiest.zip(self.cause.at_work) {
            let peers: Vec<usize> = self.parts.iter().map(|part| part.program).collect();
            let which = distinction(self.bound.workflow, timeline, program, &peers);
            let title = format!(
                "one of {alive:.0} {name}, {which}, computes while the others wait for it: more even shares, or faster code"
            );
            let finding = self.finding("cpu", (title, evenly), saving, evidence, "bottlenecks");
            return Some(Finding {
                why: None,
                ..finding
            });
        }
        if let Some(at_work) = self.cause.at_work {
            let title = format!(
                "{name} computes with {}, the others wait: more even shares, or faster code",
                of_its(at_work)
            );
            return Some(self.finding("cpu", (title, evenly), saving, evidence, "bottlenecks"));
        }
        let more = self.more();
        let meanwhile = match is_taken {
            false => " while others wait for it or CPUs are idle",
            true => "",
        };
        let title = format!("{name} computes{meanwhile}: speed it up, or {more}");
        let action = format!("speed up {name}, or {more}");
        Some(self.finding("cpu", (title, action), saving, evidence, "bottlenecks"))
    }

    /// A way to do more of the step at a time: more of its jobs, as long as there are jobs that do not run yet.
    fn more(&self) -> String {
        let divide = || String::from("divide its work");
        let Some((&(from, _), &(_, to))) = self.intervals.first().zip(self.intervals.last()) else {
            return divide();
        };
        let (workflow, timeline) = (self.bound.workflow, self.bound.timeline);
        let task = self.cause.task.map(|task| &self.result.tasks.tasks[task]);
        let lives: Vec<(i64, i64)> = self.parts.iter().map(|one| (one.from, one.to)).collect();
        let Some(task) = task else { return divide() };
        let jobs = jobs_of(timeline, task, (from, to));
        let now = at_once(&lives);
        let one_more = match now {
            1 => String::from("run two in parallel"),
            now => format!("run {} in parallel", now + 1),
        };
        match Work::of(workflow, timeline, &jobs, to - from) {
            Work::InTurn => "divide the work of each answer".into(),
            Work::Stream(Some(most)) if jobs.len() == 1 => {
                format!("let it answer up to {most} at a time")
            }
            Work::Stream(_) if jobs.len() > now || now > 1 => one_more,
            Work::Jobs(jobs)
                if jobs.count() > now && jobs.makespan(usize::MAX) <= 0.95 * jobs.makespan(now) =>
            {
                one_more
            }
            Work::Jobs(jobs) if jobs.need_each_other() => {
                "divide the work of each run, because the runs must stay in order".into()
            }
            Work::Stream(_) | Work::Jobs(_) => divide(),
        }
    }

    /// The mean number of instances at work and of instances alive, if the others waited for locks and the
    /// instances take turns: none has more of the work than the others.
    fn keep_each_other_waiting(&self) -> Option<(f64, f64)> {
        let mean = |of: fn(State) -> bool| sum_of(&self.sums, of) / self.ns.max(1) as f64;
        let (alive, at_work) = (mean(|_| true), mean(State::is_at_work));
        let waits = mean(|state| state == State::Lock) >= 0.5 && at_work < 0.7 * alive;
        (waits && self.cause.at_work.is_none()).then_some((at_work, alive))
    }

    /// The time by which the run could be shorter with one more instance of a step that computes, ns, and
    /// the number of CPUs that the run had no work for. `None`: no time, because it had work for all CPUs.
    ///
    /// The prediction is for a machine that does nothing else: waits for a CPU are left out, of the step
    /// and of all others.
    fn by_one_more(&self) -> Option<(i64, f64)> {
        let (timeline, result, intervals) = (self.bound.timeline, self.result, &self.intervals);
        let cpus = self.cause.limit.as_ref().map(|limit| limit.cores);
        let cpus = cpus.or(timeline.cores())?;
        let task = self.cause.task?;
        // More instances share the work. A sleep is none, and has a finding of its own.
        let is_work =
            |state: State| state.is_own() && !matches!(state, State::Queue | State::Sleep);
        let own = |sums: &Shares| sum_of(sums, is_work);
        let alive = self.parts.iter().map(|part| {
            let within = |&(from, to): &(i64, i64)| (part.to.min(to) - part.from.max(from)).max(0);
            intervals.iter().map(within).sum::<i64>()
        });
        let ns = self.ns as f64;
        // Instances side by side, and the number that could take part in their work.
        let (least_free, degree, could) = match self.cause.at_work {
            Some((at_work, alive)) => (0.25, at_work.max(1.0), alive),
            None => {
                let degree = (alive.sum::<i64>() as f64 / ns.max(1.0)).max(1.0);
                (0.4, degree, degree + 1.0)
            }
        };
        // Time of one instance alone, the least time that the CPUs take for all, and the time of the next
        // slowest step.
        let alone = own(&self.sums) / degree;
        // A step that mostly waited for a CPU says little about its time on a free machine. If one instance
        // has all the work, its CPU time does.
        let of = |state: State| self.sums[state as usize];
        let is_starved = of(State::Queue) > of(State::Cpu);
        if alone <= 0.0 || is_starved && self.cause.busiest.is_none() {
            return None;
        }
        let all = bottlenecks::cause::own_load(timeline, intervals).0 * ns;
        let free = cpus - all / alone;
        if free < least_free {
            return None;
        }
        let mut least = all / cpus;
        for other in (0..result.tasks.tasks.len()).filter(|&other| other != task) {
            let (sums, _) = bottlenecks::cause::states(result, timeline, &[other], intervals);
            let members = result.tasks.tasks[other].members.len().max(1) as f64;
            least = least.max(own(&sums) / members);
        }
        let shorter = (alone * degree / could).max(least) / alone;
        let awake = (self.ns - self.spent(|state| state == State::Sleep)) as f64;
        let now = if is_starved { alone.min(ns) } else { awake };
        Some(((now * (1.0 - shorter)).max(0.0) as i64, free))
    }
}

/// True if most waits for locks are those of threads for others of their own process.
fn is_between_threads(timeline: &Timeline, parts: &[Part]) -> bool {
    let accounts = || {
        parts
            .iter()
            .map(|part| &timeline.instance(part.process).accounting)
    };
    let all: i64 = accounts().map(|one| one.lock_ns).sum();
    accounts().map(|one| one.thread_lock_ns).sum::<i64>() * 2 > all
}

fn faults(timeline: &Timeline, parts: &[Part]) -> String {
    let faults = parts
        .iter()
        .map(|part| timeline.instance(part.process).accounting.major_faults);
    units::short_count(faults.sum())
}
