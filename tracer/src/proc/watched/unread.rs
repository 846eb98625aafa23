//! Reads of /proc that are due, and the records that wait for them.
//!
//! The table is filled by threads that answer file requests, so nothing in it reads /proc: a process in an
//! exec holds `exec_update_lock`, which `stat`, `exe`, `cwd`, `io`, `environ` and more of its files take,
//! while it closes descriptors, and waits for our answers to that. A row whose image is not known yet becomes
//! a [`Task`]. A thread that may wait reads it without the lock of the table, and returns a [`Reading`].
//! Until then the records of the row, and of processes forked with its image, are kept in their order.

use std::sync::Arc;

use flowtrace_schema::{Loss, Origin, ProcessEnd, Record, Upid};

use super::reading::{CostsDue, Reading, Task, Unread};
use super::table::Table;
use crate::linux::tick_ns;
use crate::proc::costs::Costs;
use crate::proc::lifetimes::wants_privilege;
use crate::proc::reading::{Image, ProcessStat};

impl Table {
    /// The image of row `row` of process `pid` is to be read; until then it is `image`.
    pub(super) fn await_image(&mut self, row: Upid, pid: u32, image: Image) {
        let unread = Unread {
            pid,
            image,
            is_read: false,
            parent: None,
            costs: None,
            records: Vec::new(),
            heirs: vec![pid],
        };
        self.unread.insert(row, unread);
        self.due.push(row);
    }

    /// The costs of the process at the begin of the row, and the end of its image before, are to be read,
    /// too.
    pub(super) fn await_costs(&mut self, row: Upid, ended: Costs, previous: Option<ProcessEnd>) {
        if let Some(unread) = self.unread.get_mut(&row) {
            unread.costs = Some(CostsDue { ended, previous });
        }
    }

    /// The ancestors from `parent` on are to be read, too.
    pub(super) fn await_ancestors(&mut self, row: Upid, parent: u32) {
        if let Some(unread) = self.unread.get_mut(&row) {
            unread.parent = Some(parent);
        }
    }

    /// Process `pid` was forked with the image of row `row`.
    pub(super) fn inherit(&mut self, row: Upid, pid: u32) {
        if let Some(unread) = self.unread.get_mut(&row) {
            unread.heirs.push(pid);
        }
    }

    /// True if a read is due.
    pub(super) fn has_tasks(&self) -> bool {
        !self.due.is_empty()
    }

    /// The next task, each once. The newest first: when there are more than can be read, the oldest process
    /// is most likely gone.
    pub(super) fn next_task(&mut self) -> Option<Task> {
        while let Some(row) = self.due.pop() {
            if let Some(unread) = self.unread.get(&row) {
                return Some(unread.task(row));
            }
        }
        None
    }

    /// The task for process `pid`, of itself or of the process whose image it has.
    pub(super) fn task_of(&self, pid: u32) -> Option<Task> {
        let row = self.processes.get(&pid)?.row.as_ref()?;
        let owner = row.awaits?;
        let unread = self.unread.get(&owner).filter(|unread| !unread.is_read)?;
        let task = unread.task(owner);
        let costs = task.costs.filter(|_| owner == row.upid);
        Some(Task { pid, costs, ..task })
    }

    /// Enters the result of `task`, if after all announcements until the end of the reading the process still
    /// has the image that it was read for.
    pub(super) fn fill(&mut self, task: &Task, reading: Reading) {
        let Some(unread) = self.unread.get_mut(&task.row) else {
            return;
        };
        let process = self.processes.get_mut(&task.pid);
        let process = process.filter(|process| {
            let row = process.row.as_ref();
            row.is_some_and(|row| row.awaits == Some(task.row))
        });
        if let Some(process) = process {
            let is_own = unread.pid == task.pid;
            let Reading { image, costs, .. } = reading;
            if image.is_complete() {
                unread.image = image;
                // The costs of the process cannot be read of its child.
                unread.is_read |= is_own || unread.costs.is_none();
            } else {
                let known = &mut unread.image;
                known.exe = image.exe.or(known.exe.take());
                known.argv = image.argv.or(known.argv.take());
                known.cwd = image.cwd.or(known.cwd.take());
                // The kernel may still report the name of a process that is gone.
                unread.is_read |= process.origin != Origin::Exec;
            }
            if is_own
                && let Some(costs) = costs
                && let Some(due) = unread.costs.take()
            {
                if let Some(mut end) = due.previous {
                    end.usage = process.usage(Some(&costs));
                    (end.usage.max_rss_bytes, end.usage.threads) = (None, None);
                    self.recorder.record(Record::ProcessEnd(Box::new(end)));
                }
                process.before = costs;
            }
        }
        if let Some(ancestors) = reading.ancestors {
            self.fill_ancestors(task.row, &ancestors);
        }
        self.release(task.row);
    }

    fn fill_ancestors(&mut self, row: Upid, ancestors: &[(u32, ProcessStat)]) {
        let unread = self.unread.get_mut(&row);
        let Some(parent_pid) = unread.and_then(|unread| unread.parent.take()) else {
            return;
        };
        for (pid, stat) in ancestors.iter().rev() {
            if !self.processes.contains_key(pid) {
                self.found(*pid, stat);
            }
        }
        let Some(unread) = self.unread.get_mut(&row) else {
            return;
        };
        let start = unread.records.iter_mut().find_map(|record| match record {
            Record::ProcessStart(start) if start.upid == row => Some(start),
            _ => None,
        });
        // A younger process is not the parent but has got its pid. A process found in /proc may seem to have
        // started up to a tick too early.
        let born = self.processes.get(&parent_pid).map(|p| p.start_ns);
        let Some((start, born)) = start.zip(born) else {
            return;
        };
        if born > start.start_ns + 2 * tick_ns() {
            return;
        }
        start.start_ns = start.start_ns.max(born);
        let (pid, start_ns) = (start.pid, start.start_ns);
        let parent = self.record(parent_pid);
        if let Some(unread) = self.unread.get_mut(&row) {
            for record in &mut unread.records {
                if let Record::ProcessStart(start) = record
                    && start.upid == row
                {
                    start.parent = parent;
                }
            }
        }
        if let Some(process) = self.processes.get_mut(&pid)
            && let Some(own) = &mut process.row
            && own.upid == row
        {
            own.parent = parent;
            process.start_ns = start_ns;
        }
    }

    /// Passes a record of a row to the writer, or keeps it until the reads that the row awaits are made.
    pub(super) fn record_of(&mut self, awaits: Option<Upid>, record: Record) {
        match awaits.and_then(|row| self.unread.get_mut(&row)) {
            Some(unread) => unread.records.push(record),
            None => self.recorder.record(record),
        }
    }

    /// Row `row` has ended: its image cannot be read any more.
    pub(super) fn over(&mut self, row: Upid) {
        if let Some(unread) = self.unread.get_mut(&row) {
            unread.is_read = true;
        }
        self.release(row);
    }

    /// The kernel reported the name of the program of process `pid`, which has ended.
    pub(super) fn name(&mut self, pid: u32, name: &[u8]) {
        let row = self.processes.get(&pid).and_then(|p| p.row.as_ref());
        if let Some(row) = row
            && row.awaits == Some(row.upid)
            && let Some(unread) = self.unread.get_mut(&row.upid)
            && unread.image.argv.is_none()
        {
            unread.image.argv = Some([name, b"\0"].concat());
        }
    }

    /// Reads that were not made will not be.
    pub(super) fn release_all(&mut self) {
        let mut rows: Vec<Upid> = self.unread.keys().copied().collect();
        rows.sort_unstable();
        for row in rows {
            if let Some(unread) = self.unread.get_mut(&row) {
                (unread.is_read, unread.parent) = (true, None);
            }
            self.release(row);
        }
    }

    /// Passes the kept records of row `row` to the writer, if no read is due for it any more.
    fn release(&mut self, row: Upid) {
        let is_done = |unread: &Unread| unread.is_read && unread.parent.is_none();
        if !self.unread.get(&row).is_some_and(is_done) {
            return;
        }
        let Some(unread) = self.unread.remove(&row) else {
            return;
        };
        if !unread.image.is_complete() {
            self.recorder.lost(Loss::ProcUnreadable, 1);
        }
        if self.withholds_privilege && wants_privilege(&unread.image) {
            self.recorder.lost(Loss::SetuidExec, 1);
        }
        // The costs of an image that was too brief to be read are in the next one.
        if let Some(end) = unread.costs.and_then(|due| due.previous) {
            self.recorder.record(Record::ProcessEnd(Box::new(end)));
        }
        let image = Arc::new(unread.image);
        for mut record in unread.records {
            if let Record::ProcessStart(start) = &mut record {
                start.exe.clone_from(&image.exe);
                start.argv.clone_from(&image.argv);
                start.cwd.clone_from(&image.cwd);
            }
            self.recorder.record(record);
        }
        for pid in unread.heirs {
            let process = self.processes.get_mut(&pid);
            if let Some(heir) = process.and_then(|process| process.row.as_mut())
                && heir.awaits == Some(row)
            {
                heir.awaits = None;
                heir.image = Arc::clone(&image);
            }
        }
    }
}
