//! The waits of processes: when, and for which process.

use std::collections::HashMap;

use crate::model::{Activity, Doing, ProcessId, Span, Workflow};

/// Longest chain of releases at the same time, as far as samples distinguish, that is put in order.
const LONGEST_CHAIN: u32 = 8;

/// A process that polls for the end of a child does so at intervals of less than this part of the child's
/// life.
const NOTICE: i64 = 4;

/// Event that may end a wait of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// A child that ended.
    Child(ProcessId),
    /// The other side of a channel, by an action at that time.
    Channel(ProcessId),
    /// The end of all processes that wrote into a pipe.
    Closed(ProcessId),
    /// The process found data in a pipe that had been written at that time, ns ([`super::backlog`]).
    Fed(ProcessId, i64),
}

impl Cause {
    /// The process that ended the wait.
    pub(super) fn process(self) -> ProcessId {
        match self {
            Cause::Child(id) | Cause::Channel(id) | Cause::Closed(id) | Cause::Fed(id, _) => id,
        }
    }
}

/// An instant at which a wait may have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Release {
    /// Time, ns.
    pub(super) at_ns: i64,
    /// The event that ended the wait.
    pub(super) cause: Cause,
    /// True if the wait was for a lock.
    pub(super) is_lock: bool,
}

/// A wait seen by samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeenWait {
    pub(super) from_ns: i64,
    pub(super) to_ns: i64,
    pub(super) error_ns: i64,
    pub(super) on: SeenOn,
    /// True if the wait was for a lock.
    pub(super) is_lock: bool,
}

/// Distance, in ns, below which samples with this error say nothing about the order of two instants.
pub(super) fn slack_ns(error_ns: i64) -> i64 {
    error_ns.max(1) * 2
}

impl SeenWait {
    /// Earliest instant at which the wait can have ended, by the samples, ns.
    fn earliest_end_ns(&self) -> i64 {
        let slack = slack_ns(self.error_ns);
        let middle = self.from_ns.midpoint(self.to_ns);
        middle.max(self.to_ns - slack)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeenOn {
    /// A child: that process, or any child.
    Child(Option<ProcessId>),
    /// The process at the other side of a channel.
    Channel(ProcessId),
    /// A place of a jobserver that an unknown process gave back, or the process was stopped: no work of the
    /// run.
    Nobody,
}

/// Life of every process, ns. A process whose end was not seen is taken to live to the end of the
/// recording.
pub(super) fn lives(workflow: &Workflow) -> Vec<(i64, i64)> {
    let life = |id: ProcessId| {
        let p = workflow.process(id);
        (
            p.start_ns,
            p.end_ns.unwrap_or(workflow.last_ns).max(p.start_ns),
        )
    };
    workflow.process_ids().map(life).collect()
}

/// The waits of each process, from the samples and from the holders of channels.
pub(super) struct Waits<'a> {
    pub(super) workflow: &'a Workflow,
    pub(super) activity: &'a Activity,
    lives: &'a [(i64, i64)],
    children: &'a [Vec<ProcessId>],
    /// For every process, the times at which it started its children, and at which they ended, in order,
    /// ns.
    births: Vec<Vec<i64>>,
    deaths: Vec<Vec<i64>>,
    /// For every process, the writers of the pipes that it reads.
    writers: HashMap<ProcessId, Vec<ProcessId>>,
}

impl<'a> Waits<'a> {
    pub(super) fn new(
        workflow: &'a Workflow,
        activity: &'a Activity,
        lives: &'a [(i64, i64)],
        children: &'a [Vec<ProcessId>],
    ) -> Self {
        let mut writers: HashMap<ProcessId, Vec<ProcessId>> = HashMap::new();
        for stream in workflow.streams.iter().filter(|stream| !stream.is_socket) {
            writers.entry(stream.to).or_default().push(stream.from);
        }
        let in_order = |time: fn((i64, i64)) -> i64| {
            let of_one = |own: &Vec<ProcessId>| {
                let times = own.iter().map(|child| time(lives[child.0 as usize]));
                let mut times: Vec<i64> = times.collect();
                times.sort_unstable();
                times
            };
            children.iter().map(of_one).collect()
        };
        Waits {
            workflow,
            activity,
            lives,
            children,
            births: in_order(|(start, _)| start),
            deaths: in_order(|(_, end)| end),
            writers,
        }
    }

    /// The waits for children and channels that samples saw, in the order of time.
    pub(super) fn seen(&self, process: ProcessId) -> Vec<SeenWait> {
        let spans = self.activity.of(process).iter();
        spans
            .filter_map(|span| self.seen_wait(process, span))
            .collect()
    }

    fn seen_wait(&self, process: ProcessId, span: &Span) -> Option<SeenWait> {
        let on = match span.doing {
            Doing::Poll(by, made_ns) if span.to_ns == made_ns => SeenOn::Channel(by),
            // A poll in vain.
            Doing::Poll(by, made_ns) => {
                SeenOn::Channel(self.at_work((by, made_ns), process, span.to_ns)?)
            }
            // The scheduler reported the waker. For a child, its exact end is better.
            Doing::Channels(..)
            | Doing::Place
            | Doing::Lock
            | Doing::Sleep
            | Doing::Stopped
            | Doing::Other
                if span.waker.is_some() =>
            {
                SeenOn::Channel(span.waker?)
            }
            Doing::Child(pid) => SeenOn::Child(self.child(process, pid, span)),
            Doing::Channels(at, count) => {
                match self.counterpart(process, span, (at, count), None) {
                    Some(other) => SeenOn::Channel(other),
                    None if self.has_child_then(process, span) => SeenOn::Child(None),
                    None => return None,
                }
            }
            // A process that starts others may learn of their end by a signal, a pipe to itself or
            // polling.
            Doing::Lock | Doing::Sleep | Doing::InVain | Doing::Other
                if self.may_be_for_child(process, span) =>
            {
                SeenOn::Child(None)
            }
            // A process with running jobs waits for one of them to give its place back.
            Doing::Place if self.has_child_then(process, span) => SeenOn::Child(None),
            Doing::Place | Doing::Stopped => SeenOn::Nobody,
            Doing::Busy | Doing::Lock | Doing::Sleep | Doing::InVain | Doing::Other => return None,
        };
        // The thread that sleeps delays them all.
        if span.sleeps && self.waits_back(on, process, span.from_ns.midpoint(span.to_ns)) {
            return None;
        }
        Some(SeenWait {
            from_ns: span.from_ns,
            to_ns: span.to_ns,
            error_ns: span.error_ns,
            on,
            is_lock: span.doing == Doing::Lock,
        })
    }

    /// True if the processes for which a process waits wait for it in turn.
    fn waits_back(&self, on: SeenOn, process: ProcessId, at_ns: i64) -> bool {
        let is_kept = |other| self.is_kept_by(other, process, at_ns, LONGEST_CHAIN);
        match on {
            SeenOn::Channel(other) | SeenOn::Child(Some(other)) => is_kept(other),
            SeenOn::Child(None) => {
                let mut children = self.children_at(process, None, at_ns).peekable();
                children.peek().is_some() && children.all(is_kept)
            }
            SeenOn::Nobody => false,
        }
    }

    /// The children that lived at a time: that pid, or any.
    pub(super) fn children_at(
        &self,
        process: ProcessId,
        pid: Option<i64>,
        at_ns: i64,
    ) -> impl Iterator<Item = ProcessId> {
        let pid = pid.filter(|&pid| pid > 0);
        let children = self.children[process.0 as usize].iter().copied();
        children.filter(move |&child| {
            let (start, end) = self.life(child);
            let is_named = pid.is_none_or(|pid| self.workflow.process(child).pid == pid);
            is_named && start <= at_ns && end > at_ns
        })
    }

    /// The instants at which a wait of the process may have ended, in order. `seen`: the seen waits of all
    /// processes.
    pub(super) fn releases(&self, process: ProcessId, seen: &[Vec<SeenWait>]) -> Vec<Release> {
        let (start, end) = self.lives[process.0 as usize];
        let mut found = Vec::new();
        for &child in &self.children[process.0 as usize] {
            found.push(Release {
                at_ns: self.lives[child.0 as usize].1,
                cause: Cause::Child(child),
                is_lock: false,
            });
        }
        let backlog = self.backlog(process);
        for item in &backlog {
            found.push(Release {
                at_ns: item.read_ns,
                cause: Cause::Fed(item.writer, item.written_ns),
                is_lock: false,
            });
        }
        for &writer in self.writers(process) {
            found.push(Release {
                // A reader that is behind reads the end of the pipe last.
                at_ns: match backlog.is_empty() {
                    true => self.life(writer).1,
                    false => end,
                },
                cause: Cause::Closed(writer),
                is_lock: false,
            });
        }
        // Another process may end the wait of any thread. The last waits of threads end with the process.
        let of_threads = self.activity.thread_waits_of(process).iter();
        let of_threads = of_threads
            .filter(|span| self.is_threaded(process) && end - span.to_ns > slack_ns(span.error_ns));
        let of_threads = of_threads.filter_map(|span| self.seen_wait(process, span));
        let of_process = seen[process.0 as usize].iter().copied();
        let waits: Vec<SeenWait> = of_process.chain(of_threads).collect();
        for wait in &waits {
            let SeenOn::Channel(other) = wait.on else {
                continue;
            };
            let answer_ns = self.answer_after(process, wait, &seen[other.0 as usize]);
            let did_ns = self.fork_after(process, wait).min(answer_ns);
            let wait = SeenWait {
                to_ns: wait.to_ns.min(did_ns),
                ..*wait
            };
            let other_end = self.lives[other.0 as usize].1;
            // The exact end of the other process is better than an instant between two samples.
            let is_near = (other_end - wait.to_ns).abs() <= slack_ns(wait.error_ns);
            // A process that outlives this one released it before its own end.
            let is_end = is_near && other_end <= end.min(did_ns);
            found.push(match is_end {
                true => Release {
                    at_ns: other_end,
                    cause: Cause::Closed(other),
                    is_lock: wait.is_lock,
                },
                false => Release {
                    at_ns: self
                        .let_go_at(other, wait.to_ns, wait.error_ns, seen, LONGEST_CHAIN)
                        .min(other_end)
                        .min(did_ns),
                    cause: Cause::Channel(other),
                    is_lock: wait.is_lock,
                },
            });
        }
        found.retain(|release| {
            let born = self.life(release.cause.process()).0;
            release.at_ns > start && release.at_ns <= end && release.at_ns >= born
        });
        found.sort_unstable();
        // A child that also wrote to its parent has one end, and so one release.
        found.dedup_by(|b, a| {
            a.at_ns == b.at_ns
                && matches!((a.cause, b.cause),
                    (Cause::Child(x) | Cause::Closed(x), Cause::Child(y) | Cause::Closed(y)) if x == y)
                || a == b
        });
        found
    }

    /// Begin and end of a process, ns.
    pub(super) fn life(&self, id: ProcessId) -> (i64, i64) {
        self.lives[id.0 as usize]
    }

    /// The processes that write into a pipe that `reader` reads.
    pub(super) fn writers(&self, reader: ProcessId) -> &[ProcessId] {
        self.writers.get(&reader).map_or(&[], Vec::as_slice)
    }

    /// The processes that `id` started.
    pub(super) fn children_of(&self, id: ProcessId) -> &[ProcessId] {
        &self.children[id.0 as usize]
    }

    /// The times at which a process started its children, in order, ns.
    pub(super) fn births(&self, id: ProcessId) -> &[i64] {
        &self.births[id.0 as usize]
    }

    /// The times at which the children of a process ended, in order, ns.
    pub(super) fn deaths(&self, id: ProcessId) -> &[i64] {
        &self.deaths[id.0 as usize]
    }

    /// The time of the first fork of the process after a wait, or never, ns. The process had been released
    /// before, even if the sample that saw it was later.
    fn fork_after(&self, process: ProcessId, wait: &SeenWait) -> i64 {
        if self.is_threaded(process) {
            return i64::MAX;
        }
        let earliest = wait.earliest_end_ns();
        let births = &self.births[process.0 as usize];
        let next = births.partition_point(|&at| at <= earliest);
        births.get(next).copied().unwrap_or(i64::MAX)
    }

    /// The time at which the other process got from this one what it waited for in its turn, or never, ns.
    /// This process had been released before: the wait that began first ended first. `of_other`: the waits
    /// of the other process.
    fn answer_after(&self, process: ProcessId, wait: &SeenWait, of_other: &[SeenWait]) -> i64 {
        if self.is_threaded(process) {
            return i64::MAX;
        }
        let ended = of_other.partition_point(|own| own.to_ns <= wait.earliest_end_ns());
        let mut later = of_other[ended..].iter();
        let answered =
            later.find(|own| own.on == SeenOn::Channel(process) && own.from_ns > wait.from_ns);
        answered.map_or(i64::MAX, |own| own.to_ns)
    }

    /// The time at which `other` released a process that samples saw wait until `at_ns`. It is not before
    /// `other` was itself released, by a child whose end is exact or by a third process. Samples of several
    /// processes say nothing about the order of events closer than their distance.
    fn let_go_at(
        &self,
        other: ProcessId,
        at_ns: i64,
        error_ns: i64,
        seen: &[Vec<SeenWait>],
        depth: u32,
    ) -> i64 {
        let slack = slack_ns(error_ns);
        let until = at_ns + slack + self.stillness_ns(other, at_ns, slack);
        let waits = &seen[other.0 as usize];
        let place = waits.partition_point(|wait| wait.to_ns <= at_ns - slack);
        let wait = waits.get(place);
        let Some(wait) = wait.filter(|wait| wait.from_ns <= at_ns - slack) else {
            return at_ns;
        };
        let has_ended = wait.to_ns <= until;
        let own_ns = match wait.on {
            // Samples show a loop that starts one child after the other as one long wait.
            SeenOn::Child(_) => {
                let deaths = &self.deaths[other.0 as usize];
                let until_then = deaths.partition_point(|&end| end <= until);
                let last = until_then.checked_sub(1).map(|last| deaths[last]);
                last.filter(|&end| end > at_ns)
            }
            SeenOn::Channel(third) if depth > 0 && has_ended => {
                Some(self.let_go_at(third, wait.to_ns, wait.error_ns, seen, depth - 1))
            }
            SeenOn::Channel(_) | SeenOn::Nobody => has_ended.then_some(wait.to_ns),
        };
        own_ns.map_or(at_ns, |own_ns| own_ns.max(at_ns))
    }

    /// Distance between `at_ns` and the nearest change of activity of a process, beyond the distance that
    /// samples cannot distinguish, ns. The larger it is, the less likely the process did anything at that
    /// time.
    pub(super) fn stillness_ns(&self, process: ProcessId, at_ns: i64, slack: i64) -> i64 {
        let turn = self.activity.nearest_turn_ns(process, at_ns);
        (turn.unwrap_or(0) - slack).max(0)
    }

    /// True if a wait may have been for a child whose end the process noticed by itself. A child must have
    /// lived on, or ended shortly before, relative to its life. A longer wait is a wait for something else.
    /// So is a sleep after which the child was killed.
    fn may_be_for_child(&self, parent: ProcessId, span: &Span) -> bool {
        let slack = slack_ns(span.error_ns);
        self.children[parent.0 as usize].iter().any(|child| {
            let (start, end) = self.lives[child.0 as usize];
            let notice = slack.max((end - start) / NOTICE);
            let is_near = start < span.to_ns && end > span.from_ns && end + notice >= span.to_ns;
            let is_ended = span.doing == Doing::Sleep && self.workflow.process(*child).was_killed();
            is_near && !is_ended
        })
    }

    /// True if a child lived during the wait.
    fn has_child_then(&self, parent: ProcessId, span: &Span) -> bool {
        self.children[parent.0 as usize].iter().any(|child| {
            let (start, end) = self.lives[child.0 as usize];
            start < span.to_ns && end > span.from_ns
        })
    }

    /// The process that worked at `at_ns` for a later action of `by`: `by` itself, or its ancestor that
    /// lived at that time, or the descendant that this one waited for, found from child to child: always
    /// the child that ended last before the action. `but` is excluded, for it waits for all that.
    fn at_work(
        &self,
        (by, does_ns): (ProcessId, i64),
        but: ProcessId,
        at_ns: i64,
    ) -> Option<ProcessId> {
        let (mut id, mut until) = (by, does_ns);
        while self.life(id).0 > at_ns {
            until = self.life(id).0;
            id = self.workflow.process(id).parent?;
        }
        loop {
            let lives = |child: &&ProcessId| {
                let (start, end) = self.life(**child);
                **child != but && start <= at_ns && end > at_ns && end <= until
            };
            let children = self.children[id.0 as usize].iter().filter(lives);
            let Some(&child) = children.max_by_key(|child| self.life(**child).1) else {
                break;
            };
            (id, until) = (child, self.life(child).1);
        }
        (id != but && Some(id) != self.workflow.process(but).parent).then_some(id)
    }

    /// The child with that pid that lived during the wait.
    fn child(&self, parent: ProcessId, pid: Option<i64>, span: &Span) -> Option<ProcessId> {
        let pid = pid.filter(|&pid| pid > 0)?;
        let children = self.children[parent.0 as usize].iter().copied();
        children
            .filter(|&child| {
                let (start, end) = self.lives[child.0 as usize];
                self.workflow.process(child).pid == pid && start < span.to_ns && end > span.from_ns
            })
            .max_by_key(|&child| self.lives[child.0 as usize].1)
    }

    /// The process that released `process`, and when, if `process` acted on `other` although the samples
    /// say that it waited: one of its threads was awake for a short time between two samples. Only for
    /// processes with threads.
    pub(super) fn let_go_meanwhile(
        &self,
        process: ProcessId,
        at_ns: i64,
        other: ProcessId,
        seen: &[Vec<SeenWait>],
    ) -> Option<(ProcessId, i64)> {
        let spans = self.activity.of(process);
        let place = spans.partition_point(|span| span.to_ns + span.error_ns * 2 < at_ns);
        let span = spans.get(place).filter(|span| span.from_ns < at_ns)?;
        let Doing::Channels(at, count) = span.doing else {
            return None;
        };
        let to_ns = span.to_ns.min(at_ns);
        let until_then = Span { to_ns, ..*span };
        let by = self.counterpart(process, &until_then, (at, count), Some(other))?;
        let (start, end) = self.lives[by.0 as usize];
        let by_ns = self.let_go_at(by, at_ns, span.error_ns, seen, LONGEST_CHAIN);
        (start < at_ns && by_ns <= end).then_some((by, by_ns))
    }

    /// True if a process had several threads at a time.
    pub(super) fn is_threaded(&self, process: ProcessId) -> bool {
        let images = self.workflow.images(process);
        images
            .iter()
            .any(|image| image.threads.is_some_and(|n| n > 1))
    }
}
