//! Who ended a wait that began with a call of the waiter's own: freed the lock of a file, opened the other end of a FIFO,
//! made the file that it looked for.

use std::collections::HashMap;

use flowtrace_schema::{FifoEndRow, LockCallRow, Op, Result, Trace};

use crate::model::Workflow;

/// `F_UNLCK` of `fcntl(2)`.
const UNLOCK: i64 = 2;
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
}

/// Waits by the image that waited.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    /// For locks of files, in the order of time.
    locks: HashMap<i64, Vec<Grant>>,
    /// When an image had opened one end of a FIFO, and the image that had opened the other last.
    opens: HashMap<i64, Vec<(i64, i64)>>,
    /// When who looks for a file, or what it started for that, slept until the next look; in the order of time.
    sleeps: HashMap<i64, Vec<Grant>>,
}

impl Grants {
    pub(crate) fn read(trace: &Trace, workflow: &Workflow) -> Result<Self> {
        Ok(Grants {
            sleeps: sleeps(workflow),
            ..Grants::new(&trace.lock_calls()?, &trace.fifo_ends()?)
        })
    }

    /// From the calls on files with locks, in the order of time, and the ends of FIFOs, in the order of FIFOs and time.
    pub(crate) fn new(calls: &[LockCallRow], ends: &[FifoEndRow]) -> Self {
        Grants {
            locks: locks(calls),
            opens: opens(ends),
            sleeps: HashMap::new(),
        }
    }

    /// The wait of an image for a lock that most of an interval belongs to, ns.
    pub(crate) fn lock_within(&self, upid: i64, from_ns: i64, to_ns: i64) -> Option<Grant> {
        let grants = self.locks.get(&upid)?.iter();
        let overlap = |grant: &Grant| grant.to_ns.min(to_ns) - grant.from_ns.max(from_ns);
        let most = grants.max_by_key(|grant| overlap(grant)).copied()?;
        (overlap(&most) * 2 >= to_ns - from_ns).then_some(most)
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
        })
    }

    /// The wait of an image, or of its parent, for a file that is not there, in which some of an interval lies, ns.
    pub(crate) fn sleep_within(&self, upid: i64, from_ns: i64, to_ns: i64) -> Option<Grant> {
        let mut grants = self.sleeps.get(&upid)?.iter().copied();
        grants.find(|grant| grant.from_ns < to_ns && grant.to_ns > from_ns)
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

fn sleeps(workflow: &Workflow) -> HashMap<i64, Vec<Grant>> {
    let mut found: HashMap<i64, Vec<Grant>> = HashMap::new();
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
                found.entry(image.upid).or_default().push(Grant {
                    from_ns: poll.from_ns,
                    to_ns: poll.made_ns,
                    by_upid,
                });
            }
        }
    }
    for grants in found.values_mut() {
        grants.sort_unstable_by_key(|grant| (grant.from_ns, grant.to_ns));
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

fn locks(calls: &[LockCallRow]) -> HashMap<i64, Vec<Grant>> {
    let mut of_file: HashMap<i64, Vec<&LockCallRow>> = HashMap::new();
    for call in calls {
        of_file.entry(call.file_id).or_default().push(call);
    }
    let mut found: HashMap<i64, Vec<Grant>> = HashMap::new();
    for call in calls.iter().filter(|call| takes(call)) {
        let of_file = &of_file[&call.file_id];
        // Whoever freed it last before the waiter had it; a request is logged when it arrives.
        let until = of_file.partition_point(|other| other.start_ns <= call.end_ns);
        let freed = of_file[..until]
            .iter()
            .rev()
            .take_while(|other| other.start_ns > call.start_ns)
            .find(|other| other.upid != call.upid && frees(other, call));
        if let Some(freed) = freed {
            found.entry(call.upid).or_default().push(Grant {
                from_ns: call.start_ns,
                to_ns: call.end_ns,
                by_upid: freed.upid,
            });
        }
    }
    found
}

fn is(call: &LockCallRow, op: Op) -> bool {
    call.op == op as i64
}

fn takes(call: &LockCallRow) -> bool {
    (is(call, Op::Flock) || is(call, Op::Setlk)) && call.kind != Some(UNLOCK)
}

/// Whether a call may free what `waiter` waits for. Locks of whole files end with the last descriptor of an open, those
/// of ranges with any that a process closes: `flock(2)`, `fcntl(2)`.
fn frees(call: &LockCallRow, waiter: &LockCallRow) -> bool {
    if is(waiter, Op::Flock) {
        return is(call, Op::Release) || is(call, Op::Flock) && call.kind == Some(UNLOCK);
    }
    let range = |row: &LockCallRow| {
        let begin = row.offset.unwrap_or(0);
        let length = row.length.filter(|&length| length > 0);
        (
            begin,
            length.map_or(i64::MAX, |length| begin.saturating_add(length)),
        )
    };
    let (a, b) = (range(call), range(waiter));
    is(call, Op::Flush)
        || is(call, Op::Setlk) && call.kind == Some(UNLOCK) && a.0 < b.1 && b.0 < a.1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(start_ns: i64, end_ns: i64, upid: i64, op: Op, kind: Option<i64>) -> LockCallRow {
        LockCallRow {
            start_ns,
            end_ns,
            upid,
            op: op as i64,
            kind,
            file_id: 1,
            ..LockCallRow::default()
        }
    }

    #[test]
    fn who_frees_a_lock_last_lets_the_waiter_go() {
        let calls = [
            call(0, 1, 1, Op::Flock, Some(1)),
            call(10, 101, 2, Op::Flock, Some(1)),
            // Closing a copy of the descriptor frees nothing.
            call(50, 51, 3, Op::Flush, None),
            call(60, 61, 4, Op::Release, None),
            call(100, 102, 5, Op::Flock, Some(2)),
            call(110, 111, 6, Op::Flock, Some(2)),
        ];
        let grants = Grants::new(&calls, &[]);
        let granted = Grant {
            from_ns: 10,
            to_ns: 101,
            by_upid: 5,
        };
        assert_eq!(grants.lock_within(2, 20, 100), Some(granted));
        assert_eq!(grants.lock_within(2, 90, 300), None, "a small part of it");
        assert_eq!(grants.lock_within(1, 0, 1), None, "it waited for nobody");
    }

    #[test]
    fn ranges_that_do_not_meet_are_different_locks() {
        let range = |offset, length, row| LockCallRow {
            offset: Some(offset),
            length: Some(length),
            ..row
        };
        let waiter = range(100, 0, call(10, 100, 2, Op::Setlk, Some(1)));
        let unlock = |at, upid| call(at, at + 1, upid, Op::Setlk, Some(2));
        let other = range(0, 100, unlock(90, 3));
        let same = range(150, 10, unlock(80, 4));
        let by = |calls: &[LockCallRow]| {
            let granted = Grants::new(calls, &[]).lock_within(2, 10, 100);
            granted.map(|grant| grant.by_upid)
        };
        assert_eq!(by(&[waiter.clone(), same, other.clone()]), Some(4));
        assert_eq!(by(&[waiter.clone(), other]), None);
        // Closing any descriptor of a file frees all its ranges.
        let closed = call(85, 86, 5, Op::Flush, None);
        assert_eq!(by(&[waiter, closed]), Some(5));
    }

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
