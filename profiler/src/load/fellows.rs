//! Whom a process waits for at a lock, a semaphore or a barrier between processes, where nobody told who freed it: an inference.
//!
//! Somebody of its fellows did: of its program, started beside it or as its parent, or of any program that has the same
//! shared memory. Of those it is one that did not wait itself when the wait ended: who had the lock, or came to the barrier last.

use std::collections::HashMap;

use flowtrace_schema::{Activity, SampleRow};

use crate::model::{FileIndex, ProcessId, Workflow};

/// Where shared memory has names (`shm_overview(7)`, `sem_overview(7)`).
const SHARED_MEMORY: &str = "/dev/shm/";
/// More fellows than this tell nobody apart.
const MOST: usize = 256;
/// The part of a wait before its end in which who frees it is looked for.
const LAST: i64 = 4;

/// Of the samples of waits for locks the images that freed them. The samples come by image, thread and time.
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
        let fellows = groups.fellows(workflow, process);
        if fellows.len() > MOST {
            continue;
        }
        for wait in waits {
            let ranked = fellows.iter().filter_map(|&fellow| {
                let seen = seen.get(&fellow).map_or(&[][..], Vec::as_slice);
                Some((rank(seen, wait)?, fellow))
            });
            if let Some((_, fellow)) = ranked.max_by_key(|(rank, _)| *rank) {
                let images = workflow.images(fellow).iter().rev();
                let mut images = images.skip_while(|image| image.start_ns > wait.end_ns);
                found.extend(images.next().map(|image| (wait.sample_id, image.upid)));
            }
        }
    }
    found
}

/// Whether all samples of an image, which come by thread, are of one thread.
pub(crate) fn is_single(rows: &[SampleRow]) -> bool {
    rows.windows(2).all(|pair| pair[0].tid == pair[1].tid)
}

fn is_lock(row: &SampleRow) -> bool {
    row.activity == Activity::Lock as i64
}

fn is_work(row: &SampleRow) -> bool {
    Activity::of_number(row.activity).is_some_and(Activity::is_at_work)
}

/// How likely one of whose threads this was seen ended a wait. `None`: it waited itself, or nothing is known of it. Who got the lock
/// meanwhile comes before who was at work, and that one before who was there.
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

/// What processes have in common.
struct Groups {
    children: Vec<Vec<ProcessId>>,
    /// By shared memory with a name, who opened it.
    sharing: Vec<Vec<ProcessId>>,
}

impl Groups {
    fn of(workflow: &Workflow) -> Groups {
        let mut sharing: HashMap<FileIndex, Vec<ProcessId>> = HashMap::new();
        for access in &workflow.accesses {
            let path = workflow.files[access.file.0 as usize].path.as_deref();
            if path.is_some_and(|path| path.starts_with(SHARED_MEMORY)) {
                sharing.entry(access.file).or_default().push(access.process);
            }
        }
        Groups {
            children: workflow.children(),
            sharing: sharing.into_values().filter(|all| all.len() > 1).collect(),
        }
    }

    fn fellows(&self, workflow: &Workflow, process: ProcessId) -> Vec<ProcessId> {
        let parent = workflow.process(process).parent;
        let siblings = parent.iter().flat_map(|id| &self.children[id.0 as usize]);
        let rule = workflow.rule(process);
        let lived = |id: ProcessId| {
            let one = workflow.process(id);
            (one.start_ns, one.end_ns.unwrap_or(i64::MAX))
        };
        let own = lived(process);
        let meets = |id: ProcessId| lived(id).0 < own.1 && lived(id).1 > own.0;
        let same = siblings
            .copied()
            .chain(parent)
            .filter(|&id| meets(id) && workflow.rule(id) == rule);
        let sharing = self.sharing.iter().filter(|all| all.contains(&process));
        let mut fellows: Vec<ProcessId> = same.chain(sharing.flatten().copied()).collect();
        fellows.retain(|&id| id != process);
        fellows.sort_unstable();
        fellows.dedup();
        fellows
    }
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

    /// Place of the one who is taken to have ended a wait from 0 to 100.
    fn who(fellows: &[&[SampleRow]]) -> Option<usize> {
        let wait = row(0, 100, Activity::Lock);
        let ranked = fellows
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
