//! What is to be read in /proc, and the records that wait for it.
//!
//! The table is filled by threads that answer file requests, so nothing in it reads /proc: a
//! process in an exec holds `exec_update_lock`, which `stat`, `exe`, `cwd`, `io`, `environ` and
//! more of its files take, while it closes descriptors, and waits for our answers to that. A row
//! whose image is not known yet becomes a [`Task`]; whoever may wait does it without the lock of
//! the table, and hands in a [`Reading`]. Until then the records of the row, and of what was
//! forked with its image, are held in their order.

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

    /// So are what the process had used when the row began, and the end of its image before.
    pub(super) fn await_costs(&mut self, row: Upid, ended: Costs, previous: Option<ProcessEnd>) {
        if let Some(unread) = self.unread.get_mut(&row) {
            unread.costs = Some(CostsDue { ended, previous });
        }
    }

    /// So are its ancestors from `parent` on.
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

    /// There is something to be read.
    pub(super) fn has_tasks(&self) -> bool {
        !self.due.is_empty()
    }

    /// The next thing to be read, each once. The newest first: when there is more than can be
    /// read, the oldest is most likely gone.
    pub(super) fn next_task(&mut self) -> Option<Task> {
        while let Some(row) = self.due.pop() {
            if let Some(unread) = self.unread.get(&row) {
                return Some(unread.task(row));
            }
        }
        None
    }

    /// What is to be read for process `pid`, by itself or by the one that it has its image of.
    pub(super) fn task_of(&self, pid: u32) -> Option<Task> {
        let row = self.processes.get(&pid)?.row.as_ref()?;
        let owner = row.awaits?;
        let unread = self.unread.get(&owner).filter(|unread| !unread.is_read)?;
        let task = unread.task(owner);
        let costs = task.costs.filter(|_| owner == row.upid);
        Some(Task { pid, costs, ..task })
    }

    /// Takes in what was read for `task`, if all that was announced until after the reading left
    /// the process with the image that it was read for.
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
                // What the process used is not to be had of a child of it.
                unread.is_read |= is_own || unread.costs.is_none();
            } else {
                let known = &mut unread.image;
                known.exe = image.exe.or(known.exe.take());
                known.argv = image.argv.or(known.argv.take());
                known.cwd = image.cwd.or(known.cwd.take());
                // Of what is not there any more the kernel may still tell the name.
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
        // A younger one is not the parent but has got its pid. What was found in /proc may seem to
        // have started up to a tick too early.
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

    /// Hands a record of a row to the writer, or holds it until what the row awaits is there.
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

    /// The kernel told the name of what process `pid` ran, which has ended.
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

    /// Whatever could not be read will not be.
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

    /// Hands over what was held for row `row`, if nothing is to be read for it any more.
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
        // Of an image that was too brief to be looked at its successor has the costs.
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
