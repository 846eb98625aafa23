//! When a process waited, and for whom.

use std::collections::HashMap;

use crate::model::{Activity, Doing, ProcessId, Span, Workflow};

/// How many that let each other go at the same time, as far as looks tell, are put in order.
const LONGEST_CHAIN: u32 = 8;

/// Who looks now and then whether a child has ended does so in less than this part of the child's life.
const NOTICE: i64 = 4;

/// What may end a wait of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// A child that ended.
    Child(ProcessId),
    /// The other side of a channel, by what it did at that moment.
    Channel(ProcessId),
    /// The end of all who wrote into a pipe.
    Closed(ProcessId),
    /// What it found in a pipe was there, written at that moment, ns ([`super::backlog`]).
    Fed(ProcessId, i64),
}

impl Cause {
    /// Who let it go.
    pub(super) fn process(self) -> ProcessId {
        match self {
            Cause::Child(id) | Cause::Channel(id) | Cause::Closed(id) | Cause::Fed(id, _) => id,
        }
    }
}

/// A moment at which a wait may have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Release {
    /// When, ns.
    pub(super) at_ns: i64,
    /// By what.
    pub(super) cause: Cause,
    /// Whether it was for a lock.
    pub(super) is_lock: bool,
}

/// A wait seen by samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeenWait {
    pub(super) from_ns: i64,
    pub(super) to_ns: i64,
    pub(super) error_ns: i64,
    pub(super) on: SeenOn,
    /// Whether it was for a lock.
    pub(super) is_lock: bool,
}

/// Looks of this error tell no order of moments that are nearer to each other, ns.
pub(super) fn slack_ns(error_ns: i64) -> i64 {
    error_ns.max(1) * 2
}

impl SeenWait {
    /// Before this it had not ended, as far as looks tell, ns.
    fn earliest_end_ns(&self) -> i64 {
        let slack = slack_ns(self.error_ns);
        let middle = self.from_ns.midpoint(self.to_ns);
        middle.max(self.to_ns - slack)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeenOn {
    /// A child: that process, or any.
    Child(Option<ProcessId>),
    /// The process at the other side of a channel.
    Channel(ProcessId),
    /// A place to run, of which is not known who gave it back, or whoever had stopped it: nobody's work.
    Nobody,
}

/// Life of every process; one whose end was not seen is taken to live to the end of the recording.
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

/// What each process waited for; answers come from the samples and the holders of channels.
pub(super) struct Waits<'a> {
    pub(super) workflow: &'a Workflow,
    pub(super) activity: &'a Activity,
    lives: &'a [(i64, i64)],
    children: &'a [Vec<ProcessId>],
    /// Of every process when it started its children, and when they ended, in order, ns.
    births: Vec<Vec<i64>>,
    deaths: Vec<Vec<i64>>,
    /// For every process those that write into a pipe that it reads.
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
        let in_order = |moment: fn((i64, i64)) -> i64| {
            let of_one = |own: &Vec<ProcessId>| {
                let moments = own.iter().map(|child| moment(lives[child.0 as usize]));
                let mut moments: Vec<i64> = moments.collect();
                moments.sort_unstable();
                moments
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
        let has_children = !self.children[process.0 as usize].is_empty();
        let wait = |span: &Span| {
            let on = match span.doing {
                Doing::Poll(by, made_ns) if span.to_ns == made_ns => SeenOn::Channel(by),
                // A look in vain.
                Doing::Poll(by, made_ns) => {
                    SeenOn::Channel(self.at_work((by, made_ns), process, span.to_ns)?)
                }
                // The scheduler told who ended it; of a child its end is known better.
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
                        None if has_children => SeenOn::Child(None),
                        None => return None,
                    }
                }
                // Who starts others may learn of their end by a signal, a pipe to itself or a look
                // now and then.
                Doing::Lock | Doing::Sleep | Doing::Other
                    if self.may_be_for_child(process, span) =>
                {
                    SeenOn::Child(None)
                }
                // Who has jobs running waits for one of them to give its place back.
                Doing::Place if self.has_child_then(process, span) => SeenOn::Child(None),
                Doing::Place | Doing::Stopped => SeenOn::Nobody,
                Doing::Busy | Doing::Lock | Doing::Sleep | Doing::Other => return None,
            };
            Some(SeenWait {
                from_ns: span.from_ns,
                to_ns: span.to_ns,
                error_ns: span.error_ns,
                on,
                is_lock: span.doing == Doing::Lock,
            })
        };
        self.activity.of(process).iter().filter_map(wait).collect()
    }

    /// The moments at which a wait of the process may have ended, in order, by what was seen of all.
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
                // Who is behind reads the end of the pipe last.
                at_ns: match backlog.is_empty() {
                    true => self.life(writer).1,
                    false => end,
                },
                cause: Cause::Closed(writer),
                is_lock: false,
            });
        }
        for wait in &seen[process.0 as usize] {
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
            // The exact end of the other is better than the moment between two looks.
            let is_near = (other_end - wait.to_ns).abs() <= slack_ns(wait.error_ns);
            // Who outlives the process let it go before its own end.
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
        // A child that also wrote to its parent: one end, one release.
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

    /// Who writes into a pipe that it reads.
    pub(super) fn writers(&self, reader: ProcessId) -> &[ProcessId] {
        self.writers.get(&reader).map_or(&[], Vec::as_slice)
    }

    /// Whom it started.
    pub(super) fn children_of(&self, id: ProcessId) -> &[ProcessId] {
        &self.children[id.0 as usize]
    }

    /// When it started its children, in order, ns.
    pub(super) fn births(&self, id: ProcessId) -> &[i64] {
        &self.births[id.0 as usize]
    }

    /// When its children ended, in order, ns.
    pub(super) fn deaths(&self, id: ProcessId) -> &[i64] {
        &self.deaths[id.0 as usize]
    }

    /// When the process started a child after a wait, or never, ns: it had been let go before, however late the look
    /// that saw it.
    fn fork_after(&self, process: ProcessId, wait: &SeenWait) -> i64 {
        if self.is_threaded(process) {
            return i64::MAX;
        }
        let earliest = wait.earliest_end_ns();
        let births = &self.births[process.0 as usize];
        let next = births.partition_point(|&at| at <= earliest);
        births.get(next).copied().unwrap_or(i64::MAX)
    }

    /// When the one whom the process waited for, of which these are the waits, had from it what it waited for in its turn,
    /// or never, ns: the process had been let go before. Who began to wait first was let go first.
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

    /// When `other` let somebody go whom looks saw wait until `at_ns`: not before it was let go itself, by a child
    /// whose end is exact or by a third. Looks at several processes tell no order within their distance.
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
            // Looks see a loop that starts one child after the other in one long wait.
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

    /// How far beyond what looks tell from each other the nearest moment lies at which a process turned to
    /// something: it is the less likely to have done anything, ns.
    pub(super) fn stillness_ns(&self, process: ProcessId, at_ns: i64, slack: i64) -> i64 {
        let turn = self.activity.nearest_turn_ns(process, at_ns);
        (turn.unwrap_or(0) - slack).max(0)
    }

    /// Whether a wait may have been for a child of which it learned by itself: one lived on, or had ended not long
    /// before, as its life goes. What goes on for longer than that is a wait of its own, as is a sleep after which somebody
    /// ended the child.
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

    /// Whether a child lived during the wait.
    fn has_child_then(&self, parent: ProcessId, span: &Span) -> bool {
        self.children[parent.0 as usize].iter().any(|child| {
            let (start, end) = self.lives[child.0 as usize];
            start < span.to_ns && end > span.from_ns
        })
    }

    /// Who worked at a moment so that later a process could do something: itself, or else of it, or of who started it, the
    /// child that ended last before, if that was at work then, and so on. `but` waits for all that.
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

    /// The child of that pid that lived during the wait.
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

    /// Who let a process go that did something, to `other`, while the samples say that it waited, and when: one of
    /// its threads was awake for a moment between two looks. Only of processes with threads.
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

    /// Whether a process had several threads at a time.
    pub(super) fn is_threaded(&self, process: ProcessId) -> bool {
        let images = self.workflow.images(process);
        images
            .iter()
            .any(|image| image.threads.is_some_and(|n| n > 1))
    }
}
