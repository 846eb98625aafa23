//! Announcements of the kernel on their way to the table, in the order in which they were made.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use flowtrace_schema::Loss;

use super::super::table::Table;
use crate::proc::connector::{Connector, Event, What};
use crate::proc::costs::Costs;
use crate::proc::taskstats::{Taskstats, ThreadRecord};

/// Number of handled events after which the queues of the kernel are emptied again: they may be short.
const TURN: usize = 16;

/// Announcements that were not handled yet.
pub(crate) struct Announced {
    connector: Connector,
    /// Only with privileges.
    taskstats: Option<Taskstats>,
    events: VecDeque<Event>,
    /// Costs of ended threads of processes whose end was not handled yet.
    costs: HashMap<u32, Pending>,
    sweeps: u64,
    events_dropped: u64,
    records_dropped: u64,
}

/// Records of the threads of one process.
#[derive(Default)]
struct Pending {
    costs: Costs,
    /// The record of the last thread, with the sweep before which it came.
    last: Option<(ThreadRecord, u64)>,
}

impl Announced {
    /// Listens from now on.
    ///
    /// # Errors
    /// When the proc connector cannot be had.
    pub(super) fn open() -> io::Result<Announced> {
        Ok(Announced {
            connector: Connector::open()?,
            taskstats: Taskstats::open().ok(),
            events: VecDeque::new(),
            costs: HashMap::new(),
            sweeps: 0,
            events_dropped: 0,
            records_dropped: 0,
        })
    }

    pub(super) fn has_costs(&self) -> bool {
        self.taskstats.is_some()
    }

    /// A descriptor that is readable when something was announced.
    pub(super) fn signal(&self) -> io::Result<OwnedFd> {
        self.connector.as_fd().try_clone_to_owned()
    }

    /// Enters all announcements until now into `table`.
    pub(super) fn pump(&mut self, table: &mut Table) {
        self.fill();
        // Announcements that come meanwhile are not of interest to the caller.
        for handled in 1..=self.events.len() {
            let Some(event) = self.events.pop_front() else {
                break;
            };
            self.handle(event, table);
            if handled % TURN == 0 {
                self.fill();
            }
        }
    }

    /// Empties the queues of the kernel: events first, so that the costs of the exits among them are there. A
    /// failing socket counts as an empty one: the effect is processes without an end.
    fn fill(&mut self) {
        let events = &mut self.events;
        let _ = self.connector.receive(|event| {
            if !matches!(event.what, What::Renamed { .. } | What::Other) {
                events.push_back(event);
            }
        });
        let Some(taskstats) = &mut self.taskstats else {
            return;
        };
        let (costs, sweeps) = (&mut self.costs, self.sweeps);
        let _ = taskstats.receive(|record| {
            let pending = costs.entry(record.pid).or_insert_with(Pending::default);
            pending.costs += record.costs;
            if record.last {
                pending.last = Some((record, sweeps));
            }
        });
    }

    fn handle(&mut self, event: Event, table: &mut Table) {
        match event.what {
            What::Forked { parent, child } => table.forked(parent, child, None, event.at_ns),
            What::ThreadBegan { pid, tid } => table.thread_began(pid, tid, event.at_ns),
            What::Executed { pid } => {
                let ended = self.costs.get(&pid).map(|p| p.costs).unwrap_or_default();
                table.executed(pid, event.at_ns, &ended);
            }
            What::Exited { pid, tid, status } => {
                let pending = self.costs.get(&pid);
                let total = pending.filter(|p| p.last.is_some());
                if let Some((record, _)) = total.and_then(|p| p.last.as_ref()) {
                    table.name(pid, &record.name);
                }
                table.thread_ended((pid, tid), event.at_ns, status, total.map(|p| &p.costs));
                if !table.processes.contains_key(&pid) {
                    self.costs.remove(&pid);
                }
            }
            What::Renamed { .. } | What::Other => {}
        }
    }

    /// Counts dropped announcements. Returns true if there were some, so that the table may be wrong.
    pub(super) fn count_losses(&mut self, table: &Table) -> bool {
        let dropped = self.connector.dropped();
        let events = dropped.saturating_sub(self.events_dropped);
        self.events_dropped = dropped;
        table.recorder.lost(Loss::EventsDropped, events);
        if let Some(taskstats) = &self.taskstats {
            let dropped = taskstats.dropped();
            let records = dropped.saturating_sub(self.records_dropped);
            self.records_dropped = dropped;
            table.recorder.lost(Loss::CostsDropped, records);
        }
        events > 0
    }

    /// Finds processes that only the records of costs show, because the event was dropped. To be called after
    /// [`Announced::pump`], now and then.
    pub(super) fn sweep(&mut self, table: &mut Table) {
        self.sweeps += 1;
        let sweeps = self.sweeps;
        // Events of processes with records before the last sweep have been handled, except the one of the
        // exit itself, which may be late.
        let due = self.costs.extract_if(|pid, pending| {
            let Some((_, since)) = &pending.last else {
                return false;
            };
            let patience = if table.processes.contains_key(pid) {
                3
            } else {
                2
            };
            since + patience <= sweeps
        });
        for (pid, pending) in due.collect::<Vec<_>>() {
            let Some((record, _)) = pending.last else {
                continue;
            };
            table.ended_by_record(pid, &record, &pending.costs);
        }
    }
}
