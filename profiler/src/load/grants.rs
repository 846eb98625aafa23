//! Who ended a wait that began with a call of the waiter's own: freed the lock of a file, opened the other end of a FIFO,
//! made the file that it looked for, or freed the lock that it tried to get again and again.

use std::collections::HashMap;

use flowtrace_schema::{FifoEndRow, LockCallRow, Result, SampleRow, Trace};

use super::{fellows, locks};
use crate::model::Workflow;

/// How far from the last look at who waits for the other end of a FIFO the open may have ended, ns.
const NEAR: i64 = 50_000_000;

/// A wait that another process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Begin, ns.
    pub(crate) from_ns: i64,
    /// End, ns: the waiter had what it waited for.
    pub(crate) to_ns: i64,
    /// Process image that gave it.
    pub(crate) by_upid: i64,
    /// Of the lock of a file, the file.
    pub(crate) file_id: Option<i64>,
}

/// Waits by the image that waited.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    /// For locks of files, in the order of time.
    locks: HashMap<i64, Vec<Grant>>,
    /// Of samples of waits for locks the image that is taken to have freed them, where nobody told.
    shared: HashMap<i64, i64>,
    /// When an image had opened one end of a FIFO, and the image that had opened the other last.
    opens: HashMap<i64, Vec<(i64, i64)>>,
    /// When who looks for a file, or what it started for that, slept until the next look; in the order of time.
    sleeps: HashMap<i64, Vec<Sleep>>,
}

/// A wait of one who sleeps until the next look, or attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sleep {
    pub(crate) wait: Grant,
    /// For a lock, not for a file.
    pub(crate) is_for_lock: bool,
}

impl Grants {
    /// Of waits for locks that lack their samples nothing is inferred.
    pub(crate) fn read(trace: &Trace, workflow: &Workflow, samples: &[SampleRow]) -> Result<Self> {
        let shared = match trace.is_exact() {
            true => HashMap::new(),
            false => fellows::freed(workflow, samples),
        };
        Ok(Grants {
            sleeps: sleeps(workflow),
            shared,
            ..Grants::new(&trace.lock_calls()?, &trace.fifo_ends()?)
        })
    }

    /// From the calls on files with locks, in the order of time, and the ends of FIFOs, in the order of FIFOs and time.
    pub(crate) fn new(calls: &[LockCallRow], ends: &[FifoEndRow]) -> Self {
        Grants {
            locks: locks::granted(calls),
            opens: opens(ends),
            sleeps: HashMap::new(),
            shared: HashMap::new(),
        }
    }

    /// The wait of an image for a lock that most of an interval belongs to, ns.
    pub(crate) fn lock_within(&self, upid: i64, from_ns: i64, to_ns: i64) -> Option<Grant> {
        let grants = self.locks.get(&upid)?.iter();
        let overlap = |grant: &Grant| grant.to_ns.min(to_ns) - grant.from_ns.max(from_ns);
        let most = grants.max_by_key(|grant| overlap(grant)).copied()?;
        (overlap(&most) * 2 >= to_ns - from_ns).then_some(most)
    }

    /// The waits for locks of files, with the image that waited, in the order of images and time.
    pub(crate) fn lock_waits(&self) -> Vec<(i64, Grant)> {
        let of_one = |(&upid, grants): (&i64, &Vec<Grant>)| {
            let grants = grants.iter().map(move |&grant| (upid, grant));
            grants.collect::<Vec<_>>()
        };
        let mut waits: Vec<_> = self.locks.iter().flat_map(of_one).collect();
        waits.sort_unstable_by_key(|(upid, grant)| (*upid, grant.from_ns));
        waits
    }

    /// The image that is taken to have ended the wait for a lock that a sample is of, where nobody told.
    pub(crate) fn freed_by(&self, sample_id: i64) -> Option<i64> {
        self.shared.get(&sample_id).copied()
    }

    /// The wait of an image for the other end of a FIFO, seen within an interval, ns.
    pub(crate) fn open_after(&self, upid: i64, from_ns: i64, to_ns: i64) -> Option<Grant> {
        let opens = self.opens.get(&upid)?.iter();
        let distance = |at: &i64| (at - to_ns).abs();
        let &(at, by_upid) = opens.min_by_key(|(at, _)| distance(at))?;
        (at > from_ns && distance(&at) <= NEAR).then_some(Grant {
            from_ns,
            to_ns: at,
            by_upid,
            file_id: None,
        })
    }

    /// The wait of an image, or of its parent, for a file that is not there or a lock that is not free, in which some of an interval
    /// lies, ns.
    pub(crate) fn sleep_within(&self, upid: i64, from_ns: i64, to_ns: i64) -> Option<Sleep> {
        let mut sleeps = self.sleeps.get(&upid)?.iter().copied();
        sleeps.find(|sleep| sleep.wait.from_ns < to_ns && sleep.wait.to_ns > from_ns)
    }
}

impl Grant {
    /// An interval cut where the wait begins and ends: the parts, and whether each belongs to the wait.
    pub(crate) fn cut(self, from_ns: i64, to_ns: i64) -> impl Iterator<Item = ((i64, i64), bool)> {
        let inner = (self.from_ns.max(from_ns), self.to_ns.min(to_ns));
        let parts = [
            ((from_ns, inner.0), false),
            (inner, true),
            ((inner.1, to_ns), false),
        ];
        parts.into_iter().filter(|((from, to), _)| from < to)
    }
}

fn sleeps(workflow: &Workflow) -> HashMap<i64, Vec<Sleep>> {
    let mut found: HashMap<i64, Vec<Sleep>> = HashMap::new();
    if workflow.polls.is_empty() {
        return found;
    }
    let children = workflow.children();
    for poll in &workflow.polls {
        let images = workflow.images(poll.by).iter();
        let by = images.rev().find(|image| image.start_ns <= poll.made_ns);
        let Some(by_upid) = by.map(|image| image.upid) else {
            continue;
        };
        // Who ran before the first look does something else.
        let started = children[poll.poller.0 as usize]
            .iter()
            .copied()
            .filter(|&id| {
                let start_ns = workflow.process(id).start_ns;
                id != poll.by && (poll.from_ns..poll.made_ns).contains(&start_ns)
            });
        for id in std::iter::once(poll.poller).chain(started) {
            for image in workflow.images(id) {
                found.entry(image.upid).or_default().push(Sleep {
                    wait: Grant {
                        from_ns: poll.from_ns,
                        to_ns: poll.made_ns,
                        by_upid,
                        file_id: None,
                    },
                    is_for_lock: poll.is_lock,
                });
            }
        }
    }
    for sleeps in found.values_mut() {
        sleeps.sort_unstable_by_key(|sleep| (sleep.wait.from_ns, sleep.wait.to_ns));
    }
    found
}

fn opens(ends: &[FifoEndRow]) -> HashMap<i64, Vec<(i64, i64)>> {
    let mut found: HashMap<i64, Vec<(i64, i64)>> = HashMap::new();
    for ends in ends.chunk_by(|a, b| a.channel_id == b.channel_id) {
        let but = |direction: &str| -> Vec<&FifoEndRow> {
            ends.iter()
                .filter(|end| end.direction != direction)
                .collect()
        };
        let (readers, writers) = (but("write"), but("read"));
        for end in ends {
            // Who opens both ends waits for nobody.
            let others = match end.direction.as_str() {
                "read" => &writers,
                "write" => &readers,
                _ => continue,
            };
            // Both are seen within a moment, in any order.
            let place = others.partition_point(|other| other.from_ns < end.from_ns);
            let other = |other: &&&FifoEndRow| other.upid != end.upid;
            let before = others[..place].iter().rev().find(other);
            let after = others[place..].iter().find(other);
            let nearest = before.into_iter().chain(after);
            let nearest = nearest.min_by_key(|other| (other.from_ns - end.from_ns).abs());
            if let Some(other) = nearest {
                let opens = found.entry(end.upid).or_default();
                opens.push((end.from_ns, other.upid));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_of_a_fifo_waits_for_who_opens_the_other_end() {
        let end = |upid, from_ns: i64, direction: &str| FifoEndRow {
            channel_id: 1,
            upid,
            from_ns: from_ns * 1_000_000,
            direction: direction.into(),
        };
        let ends = [
            end(3, 100, "write"),
            end(2, 101, "read"),
            // A program that the reader became holds it, too.
            end(4, 400, "read"),
        ];
        let grants = Grants::new(&[], &ends);
        let by = |upid, from: i64, to: i64| {
            let found = grants.open_after(upid, from * 1_000_000, to * 1_000_000);
            found.map(|grant| (grant.to_ns / 1_000_000, grant.by_upid))
        };
        assert_eq!(by(2, 0, 90), Some((101, 3)));
        assert_eq!(by(2, 0, 20), None, "another wait, long before");
        assert_eq!(by(2, 110, 140), None, "it had opened it");
    }
}
