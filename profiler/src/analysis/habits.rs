//! Ways of using files that cost more than they need to: the same data read again and again, writes that
//! wait for the device, names that are looked up in a loop. And data that calls do not show: mapped files.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::graph::endings::Endings;
use crate::model::{FileIndex, Workflow};
use crate::paths::{directory, of_paths};

/// A way of using files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Habit {
    /// The whole file was read several times.
    ReadAgain,
    /// Its writers waited until the device had the data (`fsync(2)`).
    Synced,
    /// A process asked for its attributes again and again.
    Polled,
    /// It was mapped into memory, and more was mapped than read by calls.
    Mapped,
}

/// Files of one directory and ending that were used in such a way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HabitOf {
    /// The way.
    pub habit: Habit,
    /// Common form of their paths.
    pub pattern: String,
    /// Number of files.
    pub files: i64,
    /// Number of times, all files together: readings of the whole file, calls.
    pub times: i64,
    /// Bytes: those read again, those mapped; 0 otherwise.
    pub bytes: i64,
    /// Time in these calls, ns; 0 if it is not known.
    pub ns: i64,
}

/// Sums over the processes that used a file.
#[derive(Clone, Copy, Default)]
struct Use {
    read_bytes: i64,
    syncs: i64,
    sync_ns: i64,
    /// Most calls for attributes by one process.
    checks: i64,
    mapped_bytes: i64,
}

/// The habits of a run that matter, by kind, the most of each first.
pub fn habits(workflow: &Workflow) -> Vec<HabitOf> {
    let mut uses: BTreeMap<FileIndex, Use> = BTreeMap::new();
    let mut read_bytes: i64 = 0;
    for access in &workflow.accesses {
        let file = workflow.file(access.file);
        if file.is_system || !file.is_regular {
            continue;
        }
        let used = uses.entry(access.file).or_default();
        read_bytes = read_bytes.saturating_add(access.read_bytes);
        used.read_bytes = used.read_bytes.saturating_add(access.read_bytes);
        used.syncs += access.syncs;
        used.sync_ns += access.sync_time_ns;
        used.mapped_bytes = used.mapped_bytes.max(access.mapped_bytes);
        // A program that checks before each use of the file does not wait for it.
        if access.checks
            > 10 * (access.reads + access.writes + access.read_opens + access.write_opens)
        {
            used.checks = used.checks.max(access.checks);
        }
    }
    let endings = Endings::of(workflow);
    let mut found: BTreeMap<(Habit, &str, &str), (Vec<&str>, HabitOf)> = BTreeMap::new();
    for (&file, used) in &uses {
        let path = workflow.file(file).path.as_deref().unwrap_or("?");
        let size = workflow.file(file).size_bytes.unwrap_or(0);
        let once = workflow.file(file).read_once_bytes;
        for (habit, times, bytes, ns) in of_file(size, once, used) {
            let (paths, sum) = found
                .entry((habit, directory(path), endings.get(path)))
                .or_insert_with(|| {
                    let none = HabitOf {
                        habit,
                        pattern: String::new(),
                        files: 0,
                        times: 0,
                        bytes: 0,
                        ns: 0,
                    };
                    (Vec::new(), none)
                });
            paths.push(path);
            sum.files += 1;
            sum.times += times;
            sum.bytes = sum.bytes.saturating_add(bytes);
            sum.ns += ns;
        }
    }
    let mut habits: Vec<HabitOf> = found
        .into_values()
        .map(|(paths, sum)| HabitOf {
            pattern: of_paths(&paths),
            ..sum
        })
        .collect();
    habits.sort_by_key(|one| (one.habit, -one.bytes, -one.ns, -one.times));
    let sum = |habit: Habit, of: fn(&HabitOf) -> i64| -> i64 {
        let same = habits.iter().filter(|one| one.habit == habit);
        same.map(of).fold(0, i64::saturating_add)
    };
    let matters = [
        sum(Habit::ReadAgain, |one| one.bytes) >= (read_bytes / 5).max(64 << 10),
        sum(Habit::Synced, |one| one.times) >= 20
            || sum(Habit::Synced, |one| one.ns) >= workflow.duration_ns() / 50,
        true,
        sum(Habit::Mapped, |one| one.bytes) >= (read_bytes / 5).max(1 << 20),
    ];
    // Of files that were read again, those that make up a hundredth of what was read.
    let is_small = |one: &HabitOf| one.habit == Habit::ReadAgain && one.bytes < read_bytes / 100;
    habits.retain(|one| matters[one.habit as usize] && !is_small(one));
    habits
}

/// The habits of one file: times, bytes, ns. `once`: bytes that calls read, each counted once.
fn of_file(size: i64, once: Option<i64>, used: &Use) -> Vec<(Habit, i64, i64, i64)> {
    /// Fewer readings of a whole file are no habit.
    const READINGS: i64 = 3;
    /// Fewer questions of one process are no polling.
    const CHECKS: i64 = 100;
    let mut found = Vec::new();
    let readings = if size > 0 { used.read_bytes / size } else { 0 };
    if readings >= READINGS {
        found.push((Habit::ReadAgain, readings, used.read_bytes - size, 0));
    }
    if used.syncs > 0 {
        found.push((Habit::Synced, used.syncs, 0, used.sync_ns));
    }
    if used.checks >= CHECKS {
        found.push((Habit::Polled, used.checks, 0, 0));
    }
    let unread = used.mapped_bytes.min(size) - once.unwrap_or(used.read_bytes);
    if unread > 0 {
        found.push((Habit::Mapped, 1, unread, 0));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::{Access, File, ProcessId};

    fn file(path: &str, size: i64) -> File {
        File {
            path: Some(Arc::from(path)),
            is_regular: true,
            size_bytes: Some(size),
            ..File::default()
        }
    }

    fn access(process: u32, file: u32) -> Access {
        Access {
            process: ProcessId(process),
            file: FileIndex(file),
            ..Access::default()
        }
    }

    #[test]
    fn each_habit_is_found_and_ordinary_use_is_none() {
        let mut workflow = Workflow {
            files: vec![
                file("/w/a.html", 100_000),
                file("/w/b.html", 100_000),
                file("/w/db", 4096),
                file("/w/done", 0),
                file("/w/index", 5 << 20),
                file("/w/plain", 100_000),
                file("/w/tool.py", 300),
            ],
            ..Workflow::default()
        };
        for process in 0..60 {
            for html in 0..2 {
                workflow.accesses.push(Access {
                    reads: 1,
                    read_bytes: 100_000,
                    ..access(process, html)
                });
            }
        }
        workflow.accesses.extend([
            Access {
                writes: 30,
                syncs: 30,
                sync_time_ns: 5_000_000,
                ..access(1, 2)
            },
            Access {
                checks: 400,
                ..access(2, 3)
            },
            Access {
                reads: 1,
                read_bytes: 64,
                mapped_bytes: 5 << 20,
                ..access(3, 4)
            },
            // A few kB beside megabytes.
            Access {
                reads: 20,
                read_bytes: 6_000,
                ..access(4, 6)
            },
            Access {
                reads: 2,
                read_bytes: 200_000,
                checks: 4,
                ..access(4, 5)
            },
        ]);
        let found = habits(&workflow);
        let shown: Vec<_> = found
            .iter()
            .map(|one| (one.habit, &*one.pattern, one.files, one.times, one.bytes))
            .collect();
        assert_eq!(
            shown,
            [
                (Habit::ReadAgain, "/w/*.html", 2, 120, 11_800_000),
                (Habit::Synced, "/w/db", 1, 30, 0),
                (Habit::Polled, "/w/done", 1, 400, 0),
                (Habit::Mapped, "/w/index", 1, 1, (5 << 20) - 64),
            ]
        );
    }
}
