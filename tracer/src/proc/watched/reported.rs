//! Updates of the table by complete events: execs with their image, exits with their costs.

use std::sync::Arc;

use flowtrace_schema::{Origin, ProcessEnd, Record, Upid};

use super::observations::{Executed, What};
use super::process::Row;
use super::table::Table;
use crate::clock::Clock;
use crate::linux::tick_ns;
use crate::proc::costs::Costs;
use crate::proc::environment::stands_for;
use crate::proc::observer::Tracee;
use crate::proc::reading::Image;
use crate::proc::topology::CallKind;
use crate::proc::tracepoints::{BpfSnapshot, Called};

impl Table {
    /// True if a thread that began at `monotonic_ns` may be one of process `pid` as it is in the table: the
    /// id may be another one's by now.
    pub(super) fn may_be(&self, pid: u32, monotonic_ns: u64) -> bool {
        /// Both are rounded down to ticks, at slightly different times.
        const SLACK: u64 = 3;
        let ticks = Clock::boot_of(monotonic_ns) / tick_ns();
        let process = self.processes.get(&pid);
        process.is_some_and(|process| ticks + SLACK >= process.start_ticks)
    }

    /// True if there is a process with this pid that is not just being started.
    pub(super) fn is_there(&self, pid: u32) -> bool {
        self.processes.contains_key(&pid) && !self.is_launching(pid)
    }

    /// Process `pid`, which was just forked, has pid `inner` in its own pid namespace.
    pub(super) fn numbers_itself(&mut self, pid: u32, inner: Option<u32>) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.inner_pid = inner;
        }
    }

    /// Job control stopped thread `tid`.
    pub(super) fn stopped(&mut self, tid: u32, monotonic_ns: u64) {
        if let Some(thread) = self.tracee(tid) {
            let at = self.clock.at(monotonic_ns);
            self.note(thread, at, What::Stopped);
        }
    }

    /// The difference between the life of the program of process `pid` until then, summed over its threads,
    /// and the time that it had a CPU or waited for one, if that was `had_ns` for all programs of the
    /// process.
    pub(super) fn lived_beyond(&self, pid: u32, had_ns: u64, monotonic_ns: u64) -> u64 {
        let Some(process) = self.processes.get(&pid) else {
            return u64::MAX;
        };
        let life = self.clock.at(monotonic_ns).saturating_sub(process.start_ns);
        let lives = life.saturating_mul(process.threads.max(1).into());
        let before = process.before.on_cpu_ns + process.before.run_queue_ns;
        lives.saturating_sub(had_ns.saturating_sub(before))
    }

    /// The last thread of process `snapshot.pid` begins to exit.
    pub(super) fn exiting(&mut self, snapshot: Box<BpfSnapshot>, monotonic_ns: u64) {
        if let Some(thread) = self.tracee(snapshot.tid) {
            let at = self.clock.at(monotonic_ns);
            self.note(thread, at, What::Exiting(snapshot));
        }
    }

    /// A call of a thread has returned.
    pub(super) fn called(&mut self, mut called: Box<Called>, monotonic_ns: u64) {
        if let Some(thread) = self.tracee(called.tid) {
            if let Some(rings) = &self.rings
                && called.call.kind == CallKind::Ring
            {
                rings.made(thread.upid, &self.recorder);
            }
            let at = self.clock.at(monotonic_ns);
            called.began_ns = called.began_ns.map(|began| self.clock.at(began));
            self.note(thread, at, What::Called(called));
        }
    }

    /// Thread `former` of process `pid` executes a program, and has the id of the first one from then on.
    pub(super) fn took_over(&mut self, pid: u32, former: u32, monotonic_ns: u64) {
        let at = self.clock.at(monotonic_ns);
        let upid = self.processes.get(&pid).and_then(|p| p.row.as_ref());
        let upid = upid.map(|row| row.upid);
        let Some(thread) = self.threads.remove(&former) else {
            return;
        };
        if let Some(process) = self.processes.get_mut(&pid) {
            process.lived(Some(thread.start_ns), at);
        }
        if let Some(upid) = upid {
            self.thread_row(upid, former, thread.start_ns, at);
        }
    }

    /// Process `pid` runs a new program, with this environment. `so_far` are its costs before.
    pub(super) fn executed_as(
        &mut self,
        pid: u32,
        monotonic_ns: u64,
        mut image: Image,
        environ: Option<Vec<u8>>,
        so_far: &Costs,
        snapshot: Option<Arc<BpfSnapshot>>,
    ) {
        let at = self.clock.at(monotonic_ns);
        let is_first = self.launching.take_if(|of| of.root == pid).is_some();
        let Some(mut process) = self.processes.remove(&pid) else {
            return;
        };
        if !std::mem::take(&mut process.first_is_over) {
            process.lived(None, at);
        }
        // The exits of the other threads, which are gone, may be reported later.
        let late = self.threads.values().filter(|thread| thread.pid == pid);
        for thread in late {
            process.lived(Some(thread.start_ns), at);
        }
        self.threads_over(pid, process.row.as_ref().map(|row| row.upid), at);
        let before = process.row.take();
        if let Some(row) = before.as_ref().filter(|_| !is_first) {
            let usage = process.usage(Some(so_far));
            let over = What::ImageOver {
                usage: Box::new(usage),
                exec: snapshot.clone(),
                by_exec: true,
            };
            self.note(Tracee::first_of(pid, row.upid), at, over);
            let end = ProcessEnd {
                upid: row.upid,
                end_ns: Some(at.max(process.start_ns)),
                exit_code: None,
                exit_signal: None,
                inner_pid: process.inner_pid,
                usage,
            };
            self.close(row.upid, row.awaits, end);
        }
        (process.origin, process.start_ns, process.start_code) = (Origin::Exec, at, 0);
        (process.live_threads, process.threads) = (1, 1);
        process.unlisted_threads = 0;
        process.before = *so_far;
        process.lived_ns = 0;
        let given = environ.as_deref().unwrap_or_default();
        let wanted = &self.wanted;
        image.environment = self.variables.get(given, || wanted.of(given));
        let is_complete = image.is_complete();
        let image = Arc::new(image);
        process.image = Some(Arc::clone(&image)).filter(|_| is_complete);
        if let Some(before) = before {
            let upid = match is_first {
                true => before.upid,
                false => self.upids.next(),
            };
            let of_before = (&before.image.environment, before.environment);
            let (environment, are_new) = stands_for(upid, &image.environment, of_before);
            if !is_complete {
                self.await_image(upid, pid, Image::clone(&image));
            }
            process.row = Some(Row {
                upid,
                parent: before.parent,
                prev: (!is_first).then_some(before.upid),
                awaits: (!is_complete).then_some(upid),
                image: Arc::clone(&image),
                environment,
                pidfd: before.pidfd,
            });
            self.begin(&process, pid);
            let variables = image.environment.iter().filter(|_| are_new);
            for (name, value) in variables.cloned() {
                self.record_of(
                    (!is_complete).then_some(upid),
                    Record::Environment { upid, name, value },
                );
            }
            let executed = Executed {
                prev: (!is_first).then_some(before.upid),
                environ,
                snapshot,
            };
            let tracee = Tracee::first_of(pid, upid);
            self.note(tracee, at, What::Executed(Box::new(executed)));
        }
        self.processes.insert(pid, process);
    }

    /// The image of row `upid` is over.
    pub(super) fn close(&mut self, upid: Upid, awaits: Option<Upid>, end: ProcessEnd) {
        self.record_of(awaits, Record::ProcessEnd(Box::new(end)));
        if awaits == Some(upid) {
            self.over(upid);
        }
    }
}
