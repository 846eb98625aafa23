//! States of each thread of the tree at any time, from records of the scheduler: on a CPU, ready, or blocked,
//! with the call, the object of the wait, and the thread that ended it.
//!
//! A thread is blocked from a `sched_switch` in another state than ready until a `sched_waking` names it, and
//! runs from the switch to it on. The record of a switch names the call that the thread is in, and the files of
//! its descriptors; /proc has those of calls that wait for several.
//!
//! The states of all threads of the machine are kept: a new thread has had some by the time that the tracer
//! gets its event.

use std::sync::Arc;

use flowtrace_schema::{Activity, Record, SampleRecord, SampledTotals, Tid, Upid, Waker};

use super::by_id::ById;
use super::feed::Change;
use super::sample::{InCall, Interrupt};
use super::state;
use crate::proc::observer::ChannelLookup;

mod files;
mod phases;
mod reason;
mod rows;
mod storage;
mod tree;

pub(super) use files::Files;
use reason::{Blocked, Ending, Reason};
use rows::{Interval, Rows};
use storage::{Parts, Requests};

/// An exact interval has one sample for each so many ns as its number of samples.
const SAMPLE_NS: u64 = 100_000;
/// Age at which an interval is recorded though it goes on: the most that a killed tracer loses.
const RECORDED_NS: u64 = 5_000_000_000;

/// Follows the threads of the tree.
pub(super) struct Waits {
    threads: ById<Thread>,
    processes: ById<Process>,
    /// Threads that are not of the tree, or not yet.
    others: ById<Phase>,
    channels: Arc<dyn ChannelLookup>,
    /// The thread that reaps processes: it wakes their parents in place of them.
    tracer: u32,
    requests: Requests,
    ids: u64,
    records: Vec<Record>,
}

/// State of a thread in the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Runnable,
    /// In this state.
    Blocked(u16),
    /// Over, and not yet reaped.
    Dead,
}

struct Process {
    upid: Upid,
    parent: Option<u32>,
    tids: Vec<u32>,
    /// Threads that have not announced their end.
    live: usize,
    /// Children that have announced their end, and are not reaped.
    ending: Vec<u32>,
    totals: SampledTotals,
}

struct Thread {
    pid: u32,
    upid: Upid,
    phase: Phase,
    since: u64,
    /// Its CPU time when it last left a CPU, if reported.
    ran_ns: Option<u64>,
    /// The thread that woke it while it was leaving its CPU: recorded before it has left.
    early: Option<Wakes>,
    /// The call in which it waited last.
    call: Option<(u32, InCall)>,
    /// The reason why it is blocked, once that was read.
    reason: Option<Reason>,
    /// The object found for its last wait for several descriptors.
    polled: Option<((u32, u64, u64), Reason)>,
    rows: Rows,
    /// Row of the interval that goes on, and the time up to which it is recorded.
    recorded: Option<(u64, u64)>,
    announced: bool,
    /// True if job control keeps it from running, which for the scheduler is a stop for its tracer.
    stopped: bool,
}

#[derive(Clone, Copy, Debug)]
struct Wakes {
    by: u32,
    interrupt: Option<Interrupt>,
}

impl Waits {
    /// `tracer` is the thread that reaps the tree.
    pub(super) fn new(channels: Arc<dyn ChannelLookup>, tracer: u32) -> Waits {
        Waits {
            threads: ById::default(),
            processes: ById::default(),
            others: ById::default(),
            channels,
            tracer,
            requests: Requests::default(),
            ids: 0,
            records: Vec::new(),
        }
    }

    /// Takes the records made since the last call.
    pub(super) fn take(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// The kernel dropped records: the state of threads that live now is uncertain.
    pub(super) fn lost(&mut self) {
        for process in self.processes.values_mut() {
            process.totals.exact = false;
        }
        self.requests.forget();
    }

    /// The tree changed.
    pub(super) fn change(&mut self, at: u64, change: Change, files: &dyn Files) {
        match change {
            Change::Begins(tracee) => self.begin(tracee, None, at),
            Change::Forked { by, child } => self.begin(child, Some(by), at),
            Change::Thread(tracee) => self.add(tracee, at),
            Change::Executed(tracee) => self.executed(tracee, at, files),
            Change::CallCounts { .. }
            | Change::File(..)
            | Change::Removed(_)
            | Change::MovesWithoutCalls(_) => {}
            Change::Stopped(tid) => self.job_control(tid, true),
            Change::Continued(tid) => self.job_control(tid, false),
            Change::Ended(tid) => self.ended(tid, at, files),
            Change::Over(pid) => self.over(pid, at, files),
        }
    }

    /// No more records come.
    pub(super) fn finish(&mut self, at: u64, files: &dyn Files) {
        let pids: Vec<u32> = self.processes.keys().copied().collect();
        for pid in pids {
            self.over(pid, at, files);
        }
    }

    /// The thread is about to wait in this call, or outside of any.
    pub(super) fn is_in(&mut self, tid: u32, call: Option<(u32, InCall)>, files: &dyn Files) {
        let Some(thread) = self.threads.get(&tid) else {
            return;
        };
        // Its switch to a CPU was not recorded: it was blocked in the call before.
        let was_blocked = matches!((thread.phase, &thread.reason), (Phase::Blocked(_), None));
        let reason = was_blocked.then(|| self.what(tid, thread, Ending::Unknown, false, files));
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.reason = reason.or(thread.reason.take());
            thread.call = call;
        }
    }

    /// The thread that ended a wait of `thread`, if it is one of the tree.
    fn waker(&self, wakes: Wakes, thread: &Thread) -> Option<Waker> {
        if wakes.interrupt.is_some() {
            return None;
        }
        if wakes.by == self.tracer {
            // The child whose end woke the tracer: the child that ended first of those not reaped.
            let child = *self.processes.get(&thread.pid)?.ending.first()?;
            let upid = self.processes.get(&child)?.upid;
            return Some(Waker {
                upid,
                tid: Tid(child),
            });
        }
        let by = self.threads.get(&wakes.by)?;
        Some(Waker {
            upid: by.upid,
            tid: Tid(wakes.by),
        })
    }

    /// The present interval of a thread is over.
    fn close(&mut self, tid: u32, at: u64, wakes: Option<Wakes>, files: &dyn Files) {
        let Some(thread) = self.threads.get(&tid) else {
            return;
        };
        let mut waker = wakes.and_then(|wakes| self.waker(wakes, thread));
        let ending = match waker {
            Some(_) => Ending::Thread,
            None if wakes.is_some_and(|wakes| wakes.interrupt == Some(Interrupt::Hard)) => {
                Ending::Timer
            }
            None => Ending::Unknown,
        };
        let reason = self.what(tid, thread, ending, false, files);
        if matches!(reason.doing.activity, Activity::Tracer | Activity::Stopped) {
            waker = None;
        }
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let interval = Interval {
            from: thread.since,
            to: at.max(thread.since),
            reason,
            waker,
        };
        thread.since = interval.to;
        thread.reason = None;
        let storage = interval.reason.doing.activity.is_storage();
        let parts = self
            .requests
            .close(tid, interval.from, interval.to, storage);
        if let Some(process) = self.processes.get_mut(&thread.pid) {
            count(&mut process.totals, &interval, parts);
        }
        let mut done = Vec::new();
        match thread.recorded.take() {
            Some((id, _)) => {
                thread.rows.finish(true, &mut |row| done.push((row, None)));
                thread.rows.next_from(interval.to);
                done.push((interval, Some(id)));
            }
            None => thread.rows.add(interval, &mut |row| done.push((row, None))),
        }
        for (row, id) in done {
            self.record(tid, &row, id);
        }
    }

    fn finish_rows(&mut self, tid: u32) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let mut done = Vec::new();
        thread.rows.finish(false, &mut |row| done.push(row));
        for row in done {
            self.record(tid, &row, None);
        }
    }

    fn record(&mut self, tid: u32, row: &Interval, id: Option<u64>) -> u64 {
        let Some(thread) = self.threads.get(&tid) else {
            return 0;
        };
        let id = id.unwrap_or_else(|| {
            self.ids += 1;
            self.ids
        });
        let samples = (row.to - row.from) / SAMPLE_NS;
        self.records.push(Record::Sample(Box::new(SampleRecord {
            id,
            start_ns: row.from,
            end_ns: row.to,
            upid: thread.upid,
            tid: Tid(tid),
            activity: row.reason.doing.activity,
            op: row.reason.doing.op,
            objects: row.reason.doing.objects.clone(),
            file: row.reason.file,
            samples: u32::try_from(samples).unwrap_or(u32::MAX).max(1),
            exact: true,
            waker: row.waker,
        })));
        id
    }

    fn total(&mut self, mut totals: SampledTotals) {
        if totals.sampled_ns > 0 {
            totals.samples = (totals.sampled_ns / SAMPLE_NS).max(1);
            self.records.push(Record::Sampled(totals));
        }
    }

    /// All records so far were applied: reads what blocked threads wait for, while they do, and records long
    /// intervals.
    pub(super) fn settle(&mut self, now: u64, files: &dyn Files) {
        let unsettled = |thread: &Thread| {
            thread.reason.is_none() && matches!(thread.phase, Phase::Blocked(_))
                || now.saturating_sub(thread.recorded.map_or(thread.since, |(_, until)| until))
                    > RECORDED_NS
        };
        let found = self.threads.iter().filter(|(_, thread)| unsettled(thread));
        let found: Vec<u32> = found.map(|(&tid, _)| tid).collect();
        for tid in found {
            let Some(thread) = self.threads.get(&tid) else {
                continue;
            };
            let reason = self.what(tid, thread, Ending::Unknown, true, files);
            let until = thread.recorded.map_or(thread.since, |(_, until)| until);
            let row = Interval {
                from: thread.since,
                to: now.max(thread.since),
                reason: reason.clone(),
                waker: None,
            };
            let id = thread.recorded.map(|(id, _)| id);
            let id = (now.saturating_sub(until) > RECORDED_NS).then(|| self.record(tid, &row, id));
            if let Some(thread) = self.threads.get_mut(&tid) {
                thread.recorded = id.map(|id| (id, now)).or(thread.recorded);
                if let (Phase::Blocked(_), Some((number, call))) = (thread.phase, thread.call) {
                    let key = (number, call.arguments[0], call.arguments[1]);
                    thread.polled = Some((key, reason.clone()));
                    thread.reason = Some(reason);
                }
            }
        }
    }

    /// State of a thread. `fresh`: it is still in it.
    fn what(
        &self,
        tid: u32,
        thread: &Thread,
        ending: Ending,
        fresh: bool,
        files: &dyn Files,
    ) -> Reason {
        let bits = match thread.phase {
            Phase::Running => return Activity::Running.into(),
            Phase::Runnable => return Activity::Runnable.into(),
            // The exit lasts until the tracer handles it.
            Phase::Dead => return Activity::Tracer.into(),
            Phase::Blocked(bits) => bits,
        };
        if let Some(reason) = &thread.reason {
            return reason.clone().ended(ending);
        }
        let blocked = Blocked {
            pid: thread.pid,
            tid,
            state: match thread.stopped && bits & state::TRACED != 0 {
                true => state::STOPPED,
                false => bits,
            },
            call: thread.call,
            fresh,
            polled: thread.polled.as_ref(),
        };
        let reason = blocked.reason(&*self.channels, files);
        reason.ended(ending)
    }
}

fn totals(upid: Upid) -> SampledTotals {
    SampledTotals {
        upid,
        exact: true,
        ..SampledTotals::default()
    }
}

/// `parts`: those of the wait for storage.
fn count(totals: &mut SampledTotals, interval: &Interval, parts: Parts) {
    *totals.queue_ns.get_or_insert(0) += parts.queue_ns;
    *totals.device_ns.get_or_insert(0) += parts.device_ns;
    let ns = interval.to - interval.from;
    let activity = interval.reason.doing.activity;
    totals.sampled_ns += ns;
    totals.waiting_ns += if activity.is_waiting() { ns } else { 0 };
    totals.storage_ns += if activity.is_storage() { ns } else { 0 };
    totals.tracer_ns += if activity == Activity::Tracer { ns } else { 0 };
}

#[cfg(test)]
mod tests;
