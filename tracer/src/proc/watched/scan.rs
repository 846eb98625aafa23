//! Comparison of /proc with the table, for changes that were not announced.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use nix::unistd::geteuid;

use super::process::Process;
use super::table::Table;
use crate::proc::PidFd;
use crate::proc::costs::Costs;
use crate::proc::reading::{Image, ProcessStat};

/// State of /proc at one instant. It was read without the lock of the table, so announcements since then are
/// newer.
pub(super) struct Snapshot {
    /// Processes that were in the table before, with their start in ticks.
    known: HashMap<u32, u64>,
    found: Vec<(u32, ProcessStat)>,
}

impl Snapshot {
    /// A snapshot of all processes; `known` are those in the table.
    pub(super) fn of_all(known: HashMap<u32, u64>) -> Snapshot {
        let mut found: Vec<(u32, ProcessStat)> = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter_map(|pid| Some((pid, ProcessStat::of(pid)?)))
            .collect();
        // Parents before their children.
        found.sort_unstable_by_key(|(pid, stat)| (stat.start_ticks, *pid));
        Snapshot { known, found }
    }

    /// A snapshot of a process that is not in the table.
    pub(super) fn of_one(pid: u32) -> Snapshot {
        let found = ProcessStat::of(pid).map(|stat| (pid, stat));
        Snapshot {
            known: HashMap::new(),
            found: found.into_iter().collect(),
        }
    }

    /// A snapshot of the `known` processes of the table.
    pub(super) fn of_known(known: HashMap<u32, u64>) -> Snapshot {
        let stats = known
            .keys()
            .filter_map(|&pid| Some((pid, ProcessStat::of(pid)?)));
        let found = stats.collect();
        Snapshot { known, found }
    }

    /// Processes that lived.
    pub(super) fn living(&self) -> impl Iterator<Item = u32> {
        let found = self.found.iter();
        found.filter_map(|(pid, stat)| (!stat.is_zombie).then_some(*pid))
    }

    fn gone(&self) -> Vec<(u32, u64)> {
        let there: HashSet<u32> = self.found.iter().map(|(pid, _)| *pid).collect();
        let known = self.known.iter().map(|(&pid, &ticks)| (pid, ticks));
        known.filter(|(pid, _)| !there.contains(pid)).collect()
    }
}

impl Table {
    /// The processes of the table.
    pub(super) fn known(&self) -> HashMap<u32, u64> {
        let processes = self.processes.iter();
        processes.map(|(&pid, p)| (pid, p.start_ticks)).collect()
    }

    /// The recorded processes.
    pub(super) fn recorded(&self) -> HashMap<u32, u64> {
        let processes = self.processes.iter().filter(|(_, p)| p.row.is_some());
        processes.map(|(&pid, p)| (pid, p.start_ticks)).collect()
    }

    /// Adds new processes in /proc to the table, and ends those that are gone. `record`: followed processes
    /// are recorded at once, and their execs are sought.
    pub(super) fn scan(&mut self, seen: &Snapshot, record: bool) {
        self.end_gone(seen);
        for (pid, stat) in &seen.found {
            let pid = *pid;
            let known = self.processes.get(&pid);
            if known.is_some_and(|process| !process.started_at(stat.start_ticks)) {
                if !seen.known.contains_key(&pid) {
                    // It is younger than the snapshot.
                    continue;
                }
                self.is_over(pid, Some(stat));
            }
            if !self.processes.contains_key(&pid) {
                self.found(pid, stat);
                if record && self.is_followed(pid) {
                    self.record(pid);
                }
            } else if stat.is_zombie {
                if self.is_recorded(pid) {
                    self.is_over(pid, Some(stat));
                }
            } else {
                self.sample(pid, stat, record);
            }
        }
    }

    /// Updates the costs of every recorded process, and ends those that are gone.
    pub(super) fn sample_recorded(&mut self, seen: &Snapshot) {
        self.end_gone(seen);
        for (pid, stat) in &seen.found {
            let process = self.processes.get(pid);
            if process.is_none_or(|process| process.row.is_none()) {
                continue;
            }
            let is_it = process.is_some_and(|process| process.started_at(stat.start_ticks));
            if is_it && !stat.is_zombie {
                self.sample(*pid, stat, false);
            } else if seen.known.get(pid) == process.map(|process| &process.start_ticks) {
                self.is_over(*pid, Some(stat));
            }
        }
    }

    fn sample(&mut self, pid: u32, stat: &ProcessStat, check_exec: bool) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.sampled = Some(stat.cost());
        let before = std::mem::replace(&mut process.start_code, stat.start_code);
        if process.row.is_none() || !check_exec {
            return;
        }
        if before <= 1 || stat.start_code <= 1 || before == stat.start_code {
            return;
        }
        if self.is_launching(pid) {
            self.launched();
        } else {
            self.executed_unannounced(pid, stat);
        }
    }

    /// Process `pid` was found to run another program than before.
    pub(super) fn executed_unannounced(&mut self, pid: u32, stat: &ProcessStat) {
        let now = self.clock.monotonic_now();
        self.executed(pid, now, &Costs::default());
        if let Some(process) = self.processes.get_mut(&pid) {
            process.start_code = stat.start_code;
        }
    }

    /// True if process `pid`, as recorded, is over without an announcement.
    pub(super) fn has_ended(&self, pid: u32) -> bool {
        self.processes.get(&pid).is_some_and(is_over)
    }

    /// Recorded processes that are over without an announcement.
    pub(super) fn ended_unannounced(&self) -> HashMap<u32, u64> {
        let processes = self
            .processes
            .iter()
            .filter(|(_, process)| is_over(process));
        processes.map(|(&pid, p)| (pid, p.start_ticks)).collect()
    }

    /// Ends these processes.
    pub(super) fn reap(&mut self, over: &Snapshot) {
        for (pid, ticks) in &over.known {
            let process = self.processes.get(pid);
            if process.is_some_and(|process| process.start_ticks == *ticks) {
                let stat = over.found.iter().find(|(found, _)| found == pid);
                self.is_over(*pid, stat.map(|(_, stat)| stat));
            }
        }
    }

    fn end_gone(&mut self, seen: &Snapshot) {
        for (pid, ticks) in seen.gone() {
            let process = self.processes.get(&pid);
            if process.is_some_and(|process| process.start_ticks == ticks) {
                self.is_over(pid, None);
            }
        }
    }

    /// Process `pid` is over; `stat` is its last state in /proc.
    pub(super) fn is_over(&mut self, pid: u32, stat: Option<&ProcessStat>) {
        let now = self.clock.now();
        let status = stat.and_then(|stat| self.last_words(pid, stat));
        self.ended(pid, status, now, None);
    }

    /// Keeps the costs of a process that has ended and was not waited for, and returns its wait status.
    pub(super) fn last_words(&mut self, pid: u32, stat: &ProcessStat) -> Option<i32> {
        let process = self.processes.get_mut(&pid)?;
        if !stat.is_zombie || !process.started_at(stat.start_ticks) {
            return None;
        }
        process.sampled = Some(stat.cost());
        // The status of another user's process reads as 0. Attributes of a directory of /proc take no lock of
        // the process.
        let owner = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
        let may_know = geteuid().is_root() || owner == geteuid().as_raw();
        may_know.then_some(stat.wait_status)
    }

    /// Image of process `pid` as recorded.
    pub(super) fn image(&self, pid: u32) -> Option<Arc<Image>> {
        let row = self.processes.get(&pid)?.row.as_ref()?;
        Some(Arc::clone(&row.image))
    }
}

fn is_over(process: &Process) -> bool {
    let pidfd = process.row.as_ref().and_then(|row| row.pidfd.as_ref());
    pidfd.is_some_and(PidFd::is_over)
}
