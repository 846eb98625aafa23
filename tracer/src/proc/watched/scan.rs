//! What /proc shows, compared with the table: for what was not announced.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use nix::unistd::geteuid;

use super::table::Table;
use crate::proc::reading::{Image, ProcessStat};
use crate::proc::taskstats::Costs;

impl Table {
    /// Puts what is new in /proc into the table, and ends what is gone. `record`: whoever is
    /// followed is recorded at once, and its execs are looked for.
    pub(super) fn scan(&mut self, record: bool) {
        let mut found: Vec<(u32, ProcessStat)> = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter_map(|pid| Some((pid, ProcessStat::of(pid)?)))
            .collect();
        // Parents before their children.
        found.sort_unstable_by_key(|(pid, stat)| (stat.start_ticks, *pid));
        let there: HashSet<u32> = found.iter().map(|(pid, _)| *pid).collect();
        self.end_those(|pid| !there.contains(&pid));
        for (pid, stat) in found {
            let known = self.processes.get(&pid);
            if known.is_some_and(|process| !process.started_at(stat.start_ticks)) {
                self.is_over(pid);
            }
            if !self.processes.contains_key(&pid) {
                self.found(pid, &stat);
                if record && self.is_followed(pid) {
                    self.record(pid, None);
                }
            } else if stat.is_zombie {
                if self.is_recorded(pid) {
                    self.is_over(pid);
                }
            } else {
                self.sample(pid, &stat, record);
            }
        }
    }

    /// Reads again what every recorded process used, and ends those that are gone.
    pub(super) fn sample_recorded(&mut self) {
        let recorded = self.processes.iter().filter(|(_, p)| p.row.is_some());
        for pid in recorded.map(|(pid, _)| *pid).collect::<Vec<_>>() {
            match ProcessStat::of(pid) {
                Some(stat)
                    if !stat.is_zombie && self.processes[&pid].started_at(stat.start_ticks) =>
                {
                    self.sample(pid, &stat, false);
                }
                _ => self.is_over(pid),
            }
        }
    }

    fn sample(&mut self, pid: u32, stat: &ProcessStat, look_for_exec: bool) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.sampled = Some(stat.cost());
        let Some(row) = process.row.as_mut().filter(|_| look_for_exec) else {
            return;
        };
        let before = std::mem::replace(&mut row.start_code, stat.start_code);
        if before <= 1 || stat.start_code <= 1 || before == stat.start_code {
            return;
        }
        if self.is_launching(pid) {
            self.launched();
        } else {
            self.executed_unannounced(pid, Image::of(pid));
        }
    }

    /// Process `pid` was found to run another program than before.
    pub(super) fn executed_unannounced(&mut self, pid: u32, image: Image) {
        let now = self.clock.monotonic_now();
        self.executed(pid, now, image, &Costs::default());
        let process = self.processes.get_mut(&pid);
        if let Some(row) = process.and_then(|process| process.row.as_mut()) {
            row.start_code = ProcessStat::of(pid).map_or(0, |stat| stat.start_code);
        }
    }

    /// Ends recorded processes that are over although nobody said so.
    pub(super) fn reap(&mut self) {
        let over = |process: &super::process::Process| {
            let pidfd = process.row.as_ref().and_then(|row| row.pidfd.as_ref());
            pidfd.is_some_and(super::super::pidfd::PidFd::is_over)
        };
        let over: Vec<u32> = self
            .processes
            .iter()
            .filter(|(_, process)| over(process))
            .map(|(pid, _)| *pid)
            .collect();
        for pid in over {
            self.is_over(pid);
        }
    }

    fn end_those(&mut self, gone: impl Fn(u32) -> bool) {
        let gone: Vec<u32> = self
            .processes
            .keys()
            .copied()
            .filter(|&p| gone(p))
            .collect();
        for pid in gone {
            self.is_over(pid);
        }
    }

    /// Process `pid` is over; what can still be learned of it is.
    pub(super) fn is_over(&mut self, pid: u32) {
        let now = self.clock.now();
        let status = self.last_words(pid);
        self.ended(pid, status, now, None);
    }

    /// Reads the costs and the wait status of a process that has ended and was not waited for.
    pub(super) fn last_words(&mut self, pid: u32) -> Option<i32> {
        let process = self.processes.get_mut(&pid)?;
        let stat = ProcessStat::of(pid)?;
        if !stat.is_zombie || !process.started_at(stat.start_ticks) {
            return None;
        }
        process.sampled = Some(stat.cost());
        // The status of somebody else's process reads as 0.
        let owner = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
        let told = geteuid().is_root() || owner == geteuid().as_raw();
        told.then_some(stat.wait_status)
    }

    /// Image of process `pid` as recorded.
    pub(super) fn image(&self, pid: u32) -> Option<Arc<Image>> {
        let row = self.processes.get(&pid)?.row.as_ref()?;
        Some(Arc::clone(&row.image))
    }
}
