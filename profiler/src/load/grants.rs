//! The processes that ended waits which began with a call of the waiter: they freed the lock of a file,
//! opened the other end of a FIFO, connected, made the file that the waiter polled for, or freed the lock that it
//! tried to get again and again.

use std::collections::HashMap;

use flowtrace_schema::{LockCallRow, OpenedEndRow, Result, SampleRow, Trace};

use super::{lock_peers, locks};
use crate::intervals::{NOBODY, Stretches};
use crate::load::Grant;
use crate::model::{Poll, ProcessId, Workflow};

/// Greatest time between the last sample of a wait for the other end of a channel and the end of the open, ns.
const NEAR: i64 = 50_000_000;

/// Waits by the image that waited.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    /// For locks of files, in the order of time.
    locks: HashMap<i64, (Vec<Grant>, Stretches)>,
    /// For samples of waits for locks, the image inferred to have freed them, where no event reported it.
    shared: HashMap<i64, i64>,
    /// For each image: the times at which it had opened one end of a FIFO, or accepted a connection, in order,
    /// with the image that had opened the other end last, or had connected.
    opens: HashMap<i64, Vec<(i64, i64)>>,
    /// Sleeps of processes that poll for a file, until their next lookup.
    sleeps: Sleeps,
}

/// Waits of processes that poll for a file, or try to get a lock, again and again.
#[derive(Clone, Debug, Default)]
struct Sleeps {
    /// Waits of each such process, in the order of time. The owner of a stretch is the process that ended it.
    of: HashMap<ProcessId, (Vec<Sleep>, Stretches)>,
    /// The process of each image, its parent, and its begin; empty where no process polls.
    processes: HashMap<i64, (ProcessId, Option<ProcessId>, i64)>,
}

/// A wait of a process that sleeps until its next lookup or attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sleep {
    pub(crate) wait: Grant,
    /// True if the wait is for a lock, not for a file.
    pub(crate) is_for_lock: bool,
}

impl Grants {
    /// Nothing is inferred for waits for locks without samples.
    pub(crate) fn read(trace: &Trace, workflow: &Workflow, samples: &[SampleRow]) -> Result<Self> {
        let shared = match trace.is_exact() {
            true => HashMap::new(),
            false => lock_peers::freed(workflow, samples),
        };
        let calls = trace.lock_calls()?;
        Ok(Grants {
            sleeps: Sleeps::of(workflow),
            shared,
            ..Grants::new(
                &calls,
                &locks::ends(&calls, workflow),
                &trace.opened_ends()?,
            )
        })
    }

    /// `calls`: the calls on files with locks, in the order of time; `users`: the ends of the processes that made
    /// them; `ends`: the ends of FIFOs and connections, in the order of channels and time.
    pub(crate) fn new(calls: &[LockCallRow], users: &locks::Ends, ends: &[OpenedEndRow]) -> Self {
        let indexed = |(upid, grants): (i64, Vec<Grant>)| {
            let stretch = |grant: &Grant| (grant.from_ns, grant.to_ns, NOBODY - 1);
            let stretches = Stretches::of(grants.iter().map(stretch));
            (upid, (grants, stretches))
        };
        Grants {
            locks: locks::granted(calls, users)
                .into_iter()
                .map(indexed)
                .collect(),
            opens: opens(ends),
            sleeps: Sleeps::default(),
            shared: HashMap::new(),
        }
    }

    /// The wait of an image for a lock that covers most of an interval, ns.
    pub(crate) fn lock_within(&self, upid: i64, from_ns: i64, to_ns: i64) -> Option<Grant> {
        let (grants, stretches) = self.locks.get(&upid)?;
        let overlap = |grant: &Grant| grant.to_ns.min(to_ns) - grant.from_ns.max(from_ns);
        let meeting = stretches.meeting(from_ns, to_ns).map(|at| grants[at]);
        let most = meeting.max_by_key(overlap)?;
        (overlap(&most) * 2 >= to_ns - from_ns).then_some(most)
    }

    /// The waits for locks of files, with the image that waited, in the order of images and time.
    pub(crate) fn lock_waits(&self) -> Vec<(i64, Grant)> {
        let of_one = |(&upid, (grants, _)): (&i64, &(Vec<Grant>, Stretches))| {
            let grants = grants.iter().map(move |&grant| (upid, grant));
            grants.collect::<Vec<_>>()
        };
        let mut waits: Vec<_> = self.locks.iter().flat_map(of_one).collect();
        waits.sort_unstable_by_key(|(upid, grant)| (*upid, grant.from_ns));
        waits
    }

    /// The image inferred to have ended the wait for a lock that a sample is of, where no event reported it.
    pub(crate) fn freed_by(&self, sample_id: i64) -> Option<i64> {
        self.shared.get(&sample_id).copied()
    }

    /// The wait of an image for the other end of a FIFO, or for a connection, seen within an interval, ns.
    pub(crate) fn open_after(&self, upid: i64, from_ns: i64, to_ns: i64) -> Option<Grant> {
        let opens = self.opens.get(&upid)?;
        let distance = |at: &i64| (at - to_ns).abs();
        // The opens are in order: the last one before the end, or the first one after it.
        let next = opens.partition_point(|(at, _)| *at < to_ns);
        let near = opens[next.saturating_sub(1)..].iter().take(2);
        let &(at, by_upid) = near.min_by_key(|(at, _)| distance(at))?;
        (at > from_ns && distance(&at) <= NEAR).then_some(Grant {
            from_ns,
            to_ns: at,
            by_upid,
            file_id: None,
        })
    }

    /// The wait of an image, or of its parent, for a file that is not there or a lock that is not free, which
    /// overlaps an interval, ns.
    pub(crate) fn sleep_within(&self, upid: i64, from_ns: i64, to_ns: i64) -> Option<Sleep> {
        self.sleeps.within(upid, from_ns, to_ns)
    }
}

impl Sleeps {
    fn of(workflow: &Workflow) -> Sleeps {
        let mut sleeps = Sleeps::default();
        if workflow.polls.is_empty() {
            return sleeps;
        }
        let mut found: HashMap<ProcessId, Vec<(Sleep, ProcessId)>> = HashMap::new();
        for poll in &workflow.polls {
            let sleep = sleep(workflow, poll).map(|sleep| (sleep, poll.by));
            found.entry(poll.poller).or_default().extend(sleep);
        }
        for (poller, mut all) in found {
            all.sort_by_key(|(sleep, _)| (sleep.wait.from_ns, sleep.wait.to_ns));
            let stretch =
                |(sleep, by): &(Sleep, ProcessId)| (sleep.wait.from_ns, sleep.wait.to_ns, by.0);
            let stretches = Stretches::of(all.iter().map(stretch));
            let all = all.into_iter().map(|(sleep, _)| sleep).collect();
            sleeps.of.insert(poller, (all, stretches));
        }
        for id in workflow.process_ids() {
            let process = workflow.process(id);
            let images = workflow.images(id).iter();
            let of = (id, process.parent, process.start_ns);
            sleeps
                .processes
                .extend(images.map(|image| (image.upid, of)));
        }
        sleeps
    }

    /// The first wait that overlaps an interval: of an image's process, or of its parent where the parent had
    /// begun to poll when it started the process. A process that ran before does something else, and so does
    /// the process that ends the wait.
    fn within(&self, upid: i64, from_ns: i64, to_ns: i64) -> Option<Sleep> {
        let &(process, parent, start_ns) = self.processes.get(&upid)?;
        let first = |of: ProcessId, begins_until_ns, ends_after_ns, not_of| {
            let (all, stretches) = self.of.get(&of)?;
            let at = stretches.next(0, begins_until_ns, ends_after_ns, not_of)?;
            Some(all[at])
        };
        let until_ns = to_ns - 1;
        let own = first(process, until_ns, from_ns, NOBODY);
        let of_parent = parent.and_then(|parent| {
            first(
                parent,
                until_ns.min(start_ns),
                from_ns.max(start_ns),
                process.0,
            )
        });
        let both = own.into_iter().chain(of_parent);
        both.min_by_key(|sleep| (sleep.wait.from_ns, sleep.wait.to_ns))
    }
}

/// The wait of a process that polls; `None`: the process that it waited for had not begun.
fn sleep(workflow: &Workflow, poll: &Poll) -> Option<Sleep> {
    let images = workflow.images(poll.by).iter();
    let by = images.rev().find(|image| image.start_ns <= poll.made_ns)?;
    Some(Sleep {
        wait: Grant {
            from_ns: poll.from_ns,
            to_ns: poll.made_ns,
            by_upid: by.upid,
            file_id: None,
        },
        is_for_lock: poll.is_lock,
    })
}

/// Opens of one side of a FIFO, in the order of time.
struct Opens<'a> {
    all: Vec<&'a OpenedEndRow>,
    /// For each open, the place of the first neighbouring one of the same image, and the place after the
    /// last.
    runs: Vec<(usize, usize)>,
}

impl<'a> Opens<'a> {
    fn of(all: impl Iterator<Item = &'a OpenedEndRow>) -> Opens<'a> {
        let all: Vec<&OpenedEndRow> = all.collect();
        let mut runs = Vec::with_capacity(all.len());
        for run in all.chunk_by(|a, b| a.upid == b.upid) {
            let from = runs.len();
            runs.resize(from + run.len(), (from, from + run.len()));
        }
        Opens { all, runs }
    }

    /// The last open before a place that is of another image.
    fn before(&self, place: usize, upid: i64) -> Option<&'a OpenedEndRow> {
        let last = place.checked_sub(1)?;
        match self.all[last].upid == upid {
            true => Some(self.all[self.runs[last].0.checked_sub(1)?]),
            false => Some(self.all[last]),
        }
    }

    /// The first open from a place on that is of another image.
    fn after(&self, place: usize, upid: i64) -> Option<&'a OpenedEndRow> {
        let first = *self.all.get(place)?;
        match first.upid == upid {
            true => self.all.get(self.runs[place].1).copied(),
            false => Some(first),
        }
    }
}

fn opens(ends: &[OpenedEndRow]) -> HashMap<i64, Vec<(i64, i64)>> {
    let mut found: HashMap<i64, Vec<(i64, i64)>> = HashMap::new();
    for ends in ends.chunk_by(|a, b| a.channel_id == b.channel_id) {
        // Who accepts a connection has it later than who connected.
        let accepted = ends
            .iter()
            .filter(|end| end.is_connection && !end.is_inherited);
        for end in accepted.filter(|end| end.upid != ends[0].upid) {
            let opens = found.entry(end.upid).or_default();
            opens.push((end.from_ns, ends[0].upid));
        }
        let but = |direction: &str| Opens::of(ends.iter().filter(|end| end.direction != direction));
        let (readers, writers) = (but("write"), but("read"));
        for end in ends {
            // A process that opens both ends waits for no other.
            let others = match end.direction.as_str() {
                _ if end.is_connection => continue,
                "read" => &writers,
                "write" => &readers,
                _ => continue,
            };
            // Both opens are seen at nearly the same time, in any order.
            let place = others
                .all
                .partition_point(|other| other.from_ns < end.from_ns);
            let before = others.before(place, end.upid);
            let after = others.after(place, end.upid);
            let nearest = before.into_iter().chain(after);
            let nearest = nearest.min_by_key(|other| (other.from_ns - end.from_ns).abs());
            if let Some(other) = nearest {
                let opens = found.entry(end.upid).or_default();
                opens.push((end.from_ns, other.upid));
            }
        }
    }
    // An image may have opened several FIFOs.
    for opens in found.values_mut() {
        opens.sort_by_key(|&(at, _)| at);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_of_a_fifo_waits_for_who_opens_the_other_end() {
        let end = |upid, from_ns: i64, direction: &str| OpenedEndRow {
            channel_id: 1,
            upid,
            from_ns: from_ns * 1_000_000,
            direction: direction.into(),
            is_connection: false,
            is_inherited: false,
        };
        let ends = [
            end(3, 100, "write"),
            end(2, 101, "read"),
            // The program that the reader became has it open, too.
            end(4, 400, "read"),
        ];
        let grants = Grants::new(&[], &HashMap::new(), &ends);
        let by = |upid, from: i64, to: i64| {
            let found = grants.open_after(upid, from * 1_000_000, to * 1_000_000);
            found.map(|grant| (grant.to_ns / 1_000_000, grant.by_upid))
        };
        assert_eq!(by(2, 0, 90), Some((101, 3)));
        assert_eq!(by(2, 0, 20), None, "another wait, long before");
        assert_eq!(by(2, 110, 140), None, "it had opened it");
    }

    #[test]
    fn who_accepts_a_connection_waits_for_who_connects() {
        let end = |upid, from_ns: i64, is_inherited| OpenedEndRow {
            channel_id: 1,
            upid,
            from_ns: from_ns * 1_000_000,
            direction: "both".into(),
            is_connection: true,
            is_inherited,
        };
        let ends = [end(3, 100, false), end(2, 101, false), end(4, 150, true)];
        let grants = Grants::new(&[], &HashMap::new(), &ends);
        let by = |upid| {
            let found = grants.open_after(upid, 0, 101_000_000);
            found.map(|grant| (grant.to_ns / 1_000_000, grant.by_upid))
        };
        assert_eq!(by(2), Some((101, 3)));
        assert_eq!(by(3), None, "it connected");
        assert_eq!(by(4), None, "a child of the one or the other");
    }
}
