//! Locks of files: the process that freed each one for another, whether that one waited in its call or tried
//! again until it had it.

use std::collections::{HashMap, HashSet};

use flowtrace_schema::{CallRow, LockCallRow, Op, Result, Trace};

use super::grant::Grant;
use crate::model::{Poll, ProcessId, Workflow};

/// `F_UNLCK` of `fcntl(2)`.
const UNLOCK: i64 = 2;
/// `EAGAIN` and `EACCES`, negative as results have them: another process has the lock.
const REFUSED: [i64; 2] = [-11, -13];
/// Greatest time between the end of a process, which frees its locks, and the end of the call that waited for one
/// of them, ns. Either may be the later one.
const NEAR: i64 = 20_000_000;
/// Fewer attempts by a process that never gets the lock are no polling.
const FEWEST: usize = 3;

/// For each file: times at which processes ended that had used it, with their last image, in the order of time. The
/// kernel closes the files of a process that ends, and that is no call of the process.
pub(super) type Ends = HashMap<i64, Vec<(i64, i64)>>;

pub(super) fn ends(calls: &[LockCallRow], workflow: &Workflow) -> Ends {
    let process_of = workflow.process_of_images();
    let users: HashSet<(i64, ProcessId)> = calls
        .iter()
        .filter_map(|call| Some((call.file_id, *process_of.get(&call.upid)?)))
        .collect();
    let mut ends = Ends::new();
    for (file, process) in users {
        let last = workflow.last_image(process);
        ends.entry(file)
            .or_default()
            .extend(last.end_ns.map(|at| (at, last.upid)));
    }
    ends.values_mut().for_each(|ends| ends.sort_unstable());
    ends
}

/// Waits of images for locks that others freed, in the order of time, from the calls on files with locks in that order.
pub(super) fn granted(calls: &[LockCallRow], ends: &Ends) -> HashMap<i64, Vec<Grant>> {
    let mut of_file: HashMap<i64, Vec<&LockCallRow>> = HashMap::new();
    for call in calls {
        of_file.entry(call.file_id).or_default().push(call);
    }
    let mut found: HashMap<i64, Vec<Grant>> = HashMap::new();
    for call in calls.iter().filter(|call| takes(call)) {
        let of_file = &of_file[&call.file_id];
        // The process that freed it last before the waiter had it; a request is logged when it arrives.
        let until = of_file.partition_point(|other| other.start_ns <= call.end_ns);
        let before = of_file[..until].iter().copied();
        let since_ns = call.start_ns.max(call.end_ns - NEAR);
        let freed = freed_last(before, call.start_ns, call).map(|freed| freed.upid);
        if let Some(by_upid) = freed.or_else(|| ended(ends, since_ns, call)) {
            found.entry(call.upid).or_default().push(Grant {
                from_ns: call.start_ns,
                to_ns: call.end_ns,
                by_upid,
                file_id: Some(call.file_id),
            });
        }
    }
    found
}

/// The last call since a given time that freed the lock for the waiter, of the calls before it had the lock.
fn freed_last<'a>(
    before: impl DoubleEndedIterator<Item = &'a LockCallRow>,
    since_ns: i64,
    waiter: &LockCallRow,
) -> Option<&'a LockCallRow> {
    let mut since = before.rev().take_while(|other| other.start_ns > since_ns);
    since.find(|other| other.upid != waiter.upid && frees(other, waiter))
}

/// The last image of the process that used the file and ended, of those that did since a given time, closest to the
/// end of the waiter's call.
fn ended(ends: &Ends, since_ns: i64, waiter: &LockCallRow) -> Option<i64> {
    let until_ns = waiter.end_ns + NEAR;
    let ends = ends.get(&waiter.file_id)?.iter();
    let of_others = ends.filter(|end| end.1 != waiter.upid);
    let meanwhile = of_others.filter(|end| since_ns < end.0 && end.0 < until_ns);
    let closest = meanwhile.min_by_key(|end| (end.0 - waiter.end_ns).abs());
    closest.map(|end| end.1)
}

fn is(call: &LockCallRow, op: Op) -> bool {
    call.op == op as i64
}

fn takes(call: &LockCallRow) -> bool {
    (is(call, Op::Flock) || is(call, Op::Setlk)) && call.kind != Some(UNLOCK)
}

/// Returns true if a call may free what `waiter` waits for. Locks of whole files end with the last descriptor
/// of an open, those of ranges with any descriptor that the process closes: `flock(2)`, `fcntl(2)`.
fn frees(call: &LockCallRow, waiter: &LockCallRow) -> bool {
    if is(waiter, Op::Flock) {
        return is(call, Op::Release) || is(call, Op::Flock) && call.kind == Some(UNLOCK);
    }
    is(call, Op::Flush) || is(call, Op::Setlk) && call.kind == Some(UNLOCK) && meet(call, waiter)
}

/// Returns true if the ranges of two calls overlap; `flock(2)` is of whole files.
fn meet(one: &LockCallRow, other: &LockCallRow) -> bool {
    let range = |row: &LockCallRow| {
        let begin = row.offset.unwrap_or(0);
        let length = row.length.filter(|&length| length > 0);
        (
            begin,
            length.map_or(i64::MAX, |length| begin.saturating_add(length)),
        )
    };
    let (a, b) = (range(one), range(other));
    a.0 < b.1 && b.0 < a.1
}

/// The files whose locks were refused to a process, collected as the calls are read.
#[derive(Default)]
pub(super) struct Refused(HashSet<i64>);

impl Refused {
    pub(super) fn add(&mut self, call: &CallRow) {
        let locks = matches!(call.op, Some(Op::Flock | Op::Setlk));
        if locks && REFUSED.contains(&call.result) {
            self.0.extend(call.file_id);
        }
    }

    /// The waits for these locks: from the first attempt until the process had the lock, or gave up, with the
    /// process that freed it, or had it.
    pub(super) fn polls(self, workflow: &Workflow, trace: &Trace) -> Result<Vec<Poll>> {
        if self.0.is_empty() {
            return Ok(Vec::new());
        }
        let process_of = workflow.process_of_images();
        let calls = trace.lock_attempts(&self.0)?;
        let ends = ends(&calls, workflow);
        let polls = calls
            .chunk_by(|a, b| a.file_id == b.file_id)
            .flat_map(|calls| polls(calls, &ends));
        let poll = |(poller, from_ns, made_ns, by): (i64, i64, i64, i64)| {
            Some(Poll {
                poller: *process_of.get(&poller)?,
                from_ns,
                made_ns,
                by: *process_of.get(&by)?,
                is_lock: true,
            })
        };
        let polls = polls.filter_map(poll).filter(|poll| poll.by != poll.poller);
        Ok(polls.collect())
    }
}

/// The waits by repeated attempts, of the calls on one file in the order of time: image that waited, begin,
/// end, and image that had the lock.
fn polls(calls: &[LockCallRow], ends: &Ends) -> Vec<(i64, i64, i64, i64)> {
    // Failed attempts by image and begin of the range.
    let mut attempts: HashMap<(i64, Option<i64>), Vec<&LockCallRow>> = HashMap::new();
    let mut found = Vec::new();
    for (at, call) in calls.iter().enumerate().filter(|(_, call)| takes(call)) {
        let key = (call.upid, call.offset);
        if REFUSED.contains(&call.result) {
            attempts.entry(key).or_default().push(call);
        } else if let Some(refused) = attempts.remove(&key) {
            // It was free between the last refusal and this call.
            let (first, last) = (refused[0].start_ns, refused[refused.len() - 1].start_ns);
            let freed = freed_last(calls[..at].iter(), last, call).map(|by| by.upid);
            let freed = freed.or_else(|| ended(ends, last, call));
            found.extend(freed.map(|by| (call.upid, first, call.start_ns, by)));
        }
    }
    for attempts in attempts.into_values().filter(|all| all.len() >= FEWEST) {
        let (first, last) = (attempts[0], attempts[attempts.len() - 1]);
        let before = calls
            .iter()
            .rev()
            .skip_while(|other| other.start_ns >= last.start_ns);
        let mut before = before.filter(|other| other.upid != last.upid && meet(other, last));
        let holder = before.find(|other| takes(other) && other.result >= 0);
        found.extend(holder.map(|by| (last.upid, first.start_ns, last.start_ns, by.upid)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::grants::Grants;

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
        let grants = Grants::new(&calls, &Ends::new(), &[]);
        let granted = Grant {
            from_ns: 10,
            to_ns: 101,
            by_upid: 5,
            file_id: Some(1),
        };
        assert_eq!(grants.lock_within(2, 20, 100), Some(granted));
        assert_eq!(grants.lock_within(2, 90, 300), None, "a small part of it");
        assert_eq!(grants.lock_within(1, 0, 1), None, "it waited for nobody");
    }

    #[test]
    fn the_end_of_a_process_frees_its_locks() {
        let calls = [
            call(0, 1, 1, Op::Flock, Some(1)),
            call(10, 100_000_000, 2, Op::Flock, Some(1)),
        ];
        let by = |ends: &[(i64, i64)]| {
            let ends = Ends::from([(1, ends.to_vec())]);
            let granted = Grants::new(&calls, &ends, &[]).lock_within(2, 20, 100_000_000);
            granted.map(|grant| grant.by_upid)
        };
        // An end may be reported late.
        assert_eq!(by(&[(90_000_000, 3), (100_200_000, 1)]), Some(1));
        assert_eq!(by(&[(50_000_000, 3)]), None);
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
            let granted = Grants::new(calls, &Ends::new(), &[]).lock_within(2, 10, 100);
            granted.map(|grant| grant.by_upid)
        };
        assert_eq!(by(&[waiter.clone(), same, other.clone()]), Some(4));
        assert_eq!(by(&[waiter.clone(), other]), None);
        // Closing any descriptor of a file frees all its ranges.
        let closed = call(85, 86, 5, Op::Flush, None);
        assert_eq!(by(&[waiter, closed]), Some(5));
    }

    #[test]
    fn who_comes_back_for_a_lock_waits_for_who_has_it() {
        let range = |row| LockCallRow {
            offset: Some(7),
            length: Some(1),
            ..row
        };
        let attempt = |at, upid, result| LockCallRow {
            result,
            ..range(call(at, at + 1, upid, Op::Setlk, Some(1)))
        };
        let unlock = |at, upid| call(at, at + 1, upid, Op::Setlk, Some(UNLOCK));
        let calls = [
            attempt(0, 1, 0),
            attempt(10, 2, REFUSED[0]),
            attempt(20, 2, REFUSED[0]),
            unlock(25, 1),
            attempt(30, 2, 0),
            // These images give up.
            attempt(40, 3, REFUSED[1]),
            attempt(50, 3, REFUSED[1]),
            attempt(60, 3, REFUSED[1]),
            attempt(70, 4, REFUSED[1]),
        ];
        let mut ends = Ends::from([(1, vec![(5, 3)])]);
        assert_eq!(polls(&calls, &ends), [(2, 10, 30, 1), (3, 40, 60, 2)]);
        // Instead of a call, the end of the process that had it frees the lock.
        let calls = [&calls[..3], &calls[4..5]].concat();
        assert_eq!(polls(&calls, &ends), []);
        ends.entry(1).or_default().push((25, 1));
        assert_eq!(polls(&calls, &ends), [(2, 10, 30, 1)]);
    }
}
