//! Infers the process that freed a lock, a semaphore or a barrier between processes for another one that
//! waited, where no event reported it.
//!
//! It was one of the lock peers of the process that waited: of the same program, started beside it or as its
//! parent, or of any program that has the same shared memory. It is a peer that did not wait itself when the
//! wait ended: it had the lock, or came to the barrier last.

use std::collections::{BTreeSet, HashMap};

use flowtrace_schema::{Activity, SampleRow};

use crate::intervals::Stretches;
use crate::model::{FileIndex, ProcessId, Workflow};

/// Directory in which shared memory has names (`shm_overview(7)`, `sem_overview(7)`).
const SHARED_MEMORY: &str = "/dev/shm/";
/// With more lock peers than this nothing is inferred.
const MOST: usize = 256;
/// The last part of a wait, as a fraction, in which the process that ended it is sought.
const LAST: i64 = 4;

/// The image that freed the lock, by the sample of the wait for it. The samples come by image, thread and
/// time.
pub(super) fn freed(workflow: &Workflow, samples: &[SampleRow]) -> HashMap<i64, i64> {
    if !samples.iter().any(is_lock) {
        return HashMap::new();
    }
    let process_of = workflow.process_of_images();
    let mut seen: HashMap<ProcessId, Vec<&[SampleRow]>> = HashMap::new();
    for rows in samples.chunk_by(|a, b| (a.upid, a.tid) == (b.upid, b.tid)) {
        if let Some(&process) = process_of.get(&rows[0].upid) {
            seen.entry(process).or_default().push(rows);
        }
    }
    let groups = Groups::of(workflow);
    let mut found = HashMap::new();
    for rows in samples.chunk_by(|a, b| a.upid == b.upid) {
        let is_single = is_single(rows);
        // The threads of one process wait for each other in futex(2).
        let waits = |row: &&SampleRow| is_lock(row) && (is_single || !row.is_futex);
        let mut waits = rows.iter().filter(waits).peekable();
        let Some(&process) = process_of
            .get(&rows[0].upid)
            .filter(|_| waits.peek().is_some())
        else {
            continue;
        };
        let Some(peers) = groups.peers(workflow, process) else {
            continue;
        };
        for wait in waits {
            let ranked = peers.iter().filter_map(|&peer| {
                let seen = seen.get(&peer).map_or(&[][..], Vec::as_slice);
                Some((rank(seen, wait)?, peer))
            });
            if let Some((_, peer)) = ranked.max_by_key(|(rank, _)| *rank) {
                let images = workflow.images(peer).iter().rev();
                let mut images = images.skip_while(|image| image.start_ns > wait.end_ns);
                found.extend(images.next().map(|image| (wait.sample_id, image.upid)));
            }
        }
    }
    found
}

/// Returns true if all samples of an image, which come by thread, are of one thread.
pub(crate) fn is_single(rows: &[SampleRow]) -> bool {
    rows.windows(2).all(|pair| pair[0].tid == pair[1].tid)
}

fn is_lock(row: &SampleRow) -> bool {
    row.activity == Activity::Lock as i64
}

fn is_work(row: &SampleRow) -> bool {
    Activity::of_number(row.activity).is_some_and(Activity::is_at_work)
}

/// Rank of a process, by the samples of its threads, as the one that ended a wait. `None`: it waited itself,
/// or nothing is known of it. A process that got the lock meanwhile comes before one that was at work, and
/// that before one that only existed.
fn rank(threads: &[&[SampleRow]], wait: &SampleRow) -> Option<(bool, i64, i64)> {
    let length = wait.end_ns - wait.t_ns;
    let whole = (wait.t_ns, wait.end_ns);
    let last = (wait.end_ns - length / LAST, wait.end_ns);
    let within = || {
        threads.iter().flat_map(|rows| {
            let from = rows.partition_point(|row| row.end_ns <= whole.0);
            let to = rows.partition_point(|row| row.t_ns < whole.1);
            &rows[from..to.max(from)]
        })
    };
    let sum = |of: fn(&SampleRow) -> bool, (from, to): (i64, i64)| -> i64 {
        let overlap = |row: &SampleRow| (row.end_ns.min(to) - row.t_ns.max(from)).max(0);
        within().filter(|row| of(row)).map(overlap).sum()
    };
    let known = sum(|_| true, last);
    let worked = sum(is_work, last);
    let waited = sum(
        |row| is_lock(row) || row.activity == Activity::Child as i64,
        last,
    );
    let is_at_work = 2 * worked >= last.1 - last.0;
    if known == 0 || !is_at_work && 2 * waited > known {
        return None;
    }
    let got_it = within().any(|row| is_lock(row) && row.t_ns < whole.0 && row.end_ns < last.0);
    Some((got_it && worked > 0, worked, sum(is_work, whole)))
}

/// Relations between processes.
struct Groups<'a> {
    /// The children of one parent with one rule, in the order of their begins, and their lives.
    siblings: HashMap<(ProcessId, &'a str), (Vec<ProcessId>, Stretches)>,
    /// Processes that opened each named shared memory.
    sharing: Vec<Vec<ProcessId>>,
    /// Indices into `sharing` by process.
    shares: HashMap<ProcessId, Vec<usize>>,
}

impl<'a> Groups<'a> {
    fn of(workflow: &'a Workflow) -> Groups<'a> {
        let mut siblings: HashMap<(ProcessId, &str), Vec<ProcessId>> = HashMap::new();
        for id in workflow.children().into_iter().flatten() {
            if let Some(parent) = workflow.process(id).parent {
                let alike = siblings.entry((parent, workflow.rule(id)));
                alike.or_default().push(id);
            }
        }
        let indexed = |(key, all): (_, Vec<ProcessId>)| {
            let life = |&id: &ProcessId| {
                let (from, to) = life(workflow, id);
                (from, to, id.0)
            };
            let lives = Stretches::of(all.iter().map(life));
            (key, (all, lives))
        };
        let mut sharing: HashMap<FileIndex, Vec<ProcessId>> = HashMap::new();
        let mut shares: HashMap<ProcessId, Vec<usize>> = HashMap::new();
        for access in &workflow.accesses {
            let path = workflow.files[access.file.0 as usize].path.as_deref();
            if path.is_some_and(|path| path.starts_with(SHARED_MEMORY)) {
                sharing.entry(access.file).or_default().push(access.process);
            }
        }
        let several = sharing.into_values().filter(|all| all.len() > 1);
        let sharing: Vec<Vec<ProcessId>> = several.collect();
        for (number, all) in sharing.iter().enumerate() {
            for &id in all {
                shares.entry(id).or_default().push(number);
            }
        }
        Groups {
            siblings: siblings.into_iter().map(indexed).collect(),
            sharing,
            shares,
        }
    }

    /// The lock peers of a process; `None`: more than [`MOST`].
    fn peers(&self, workflow: &Workflow, process: ProcessId) -> Option<Vec<ProcessId>> {
        let rule = workflow.rule(process);
        let (from, to) = life(workflow, process);
        let meets = |id: &ProcessId| {
            let other = life(workflow, *id);
            other.0 < to && other.1 > from
        };
        let parent = workflow.process(process).parent;
        let is_alike = |id: &ProcessId| workflow.rule(*id) == rule && meets(id);
        let alike = parent.and_then(|parent| self.siblings.get(&(parent, rule)));
        let alike = alike.into_iter().flat_map(|(all, lives)| {
            let meeting = lives.meeting(from, to);
            meeting.map(|at| all[at]).filter(meets)
        });
        let shares = self.shares.get(&process).into_iter().flatten();
        let sharing = shares.flat_map(|&number| self.sharing[number].iter().copied());
        let mut peers = BTreeSet::new();
        for id in parent
            .filter(is_alike)
            .into_iter()
            .chain(alike)
            .chain(sharing)
        {
            if id != process {
                peers.insert(id);
            }
            if peers.len() > MOST {
                return None;
            }
        }
        Some(peers.into_iter().collect())
    }
}

/// Begin and end of a process, ns.
fn life(workflow: &Workflow, id: ProcessId) -> (i64, i64) {
    let process = workflow.process(id);
    (process.start_ns, process.end_ns.unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(t_ns: i64, end_ns: i64, activity: Activity) -> SampleRow {
        SampleRow {
            t_ns,
            end_ns,
            activity: activity as i64,
            ..SampleRow::default()
        }
    }

    /// Number of the process inferred to have ended a wait from 0 to 100.
    fn who(peers: &[&[SampleRow]]) -> Option<usize> {
        let wait = row(0, 100, Activity::Lock);
        let ranked = peers
            .iter()
            .enumerate()
            .filter_map(|(at, rows)| Some((rank(&[rows], &wait)?, at)));
        ranked.max_by_key(|(rank, _)| *rank).map(|(_, at)| at)
    }

    #[test]
    fn the_last_one_at_a_barrier_lets_the_others_go() {
        let slow = [row(-20, 101, Activity::Running)];
        let fast = [
            row(-20, 10, Activity::Running),
            row(10, 100, Activity::Lock),
        ];
        let parent = [row(-50, 300, Activity::Child)];
        assert_eq!(who(&[&fast, &slow, &parent]), Some(1));
        assert_eq!(who(&[&fast, &parent]), None);
    }

    #[test]
    fn who_got_the_lock_last_frees_it() {
        let first = [
            row(-90, 50, Activity::Running),
            row(50, 300, Activity::Lock),
        ];
        let second = [
            row(-10, 50, Activity::Lock),
            row(50, 102, Activity::Running),
        ];
        let beside = [row(-90, 300, Activity::Running)];
        assert_eq!(who(&[&first, &beside, &second]), Some(2));
        assert_eq!(who(&[&first, &beside]), Some(1));
    }

    #[test]
    fn who_has_a_lock_and_waits_for_something_else_is_waited_for() {
        let reads = [row(-50, 300, Activity::Channel)];
        assert_eq!(who(&[&reads]), Some(0));
        assert_eq!(who(&[&[]]), None);
    }
}
