//! Events of the eBPF programs.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use flowtrace_schema::Loss;

use super::super::table::Table;
use super::clocks::Clocks;
use crate::proc::costs::Costs;
use crate::proc::reading::Image;
use crate::proc::taskstats::Taskstats;
use crate::proc::tracepoints::{Ended, Event, Executed, Guard, Tracepoints, What};

pub(crate) struct TracepointFeed {
    tracepoints: Tracepoints,
    events: VecDeque<Event>,
    /// Processes that are over, with the time: their ids may be used already by others whose forks were not
    /// read yet.
    over: VecDeque<(u32, u64)>,
    clocks: Clocks,
    /// State of living processes.
    known: HashMap<u32, Known>,
    /// Records of ended threads, where they can be had: only the peak of memory of a program is used.
    taskstats: Option<Taskstats>,
    peaks: HashMap<u32, u64>,
    dropped: u64,
    dropped_calls: u64,
}

/// Number of reads in which an exit is awaited that must come, and the pause between them.
const READS_FOR_END: usize = 10;
const SOON: Duration = Duration::from_micros(200);
/// Time for which an id is watched after the end of its process, ns.
const KEPT_NS: u64 = 1_000_000_000;

/// State of a process.
#[derive(Default)]
struct Known {
    /// Costs of its ended threads.
    ended: Costs,
    /// User and system time before the present program, ns.
    split: (u64, u64),
    /// Peak of memory of all its programs before this one, bytes.
    peak_before: u64,
    /// Time that it had a CPU for and the kernel counts as waiting for one, ns.
    as_waiting_ns: u64,
    /// If its program began while its CPU's clock stood still: the time, and the costs of its thread by then.
    halted: Option<(u64, u64)>,
}

impl TracepointFeed {
    pub(super) fn new(mut tracepoints: Tracepoints) -> TracepointFeed {
        TracepointFeed {
            clocks: Clocks::of(&mut tracepoints),
            tracepoints,
            events: VecDeque::new(),
            over: VecDeque::new(),
            known: HashMap::new(),
            taskstats: Taskstats::open().ok(),
            peaks: HashMap::new(),
            dropped: 0,
            dropped_calls: 0,
        }
    }

    pub(super) fn guard(&self, views: &[u64]) -> Option<Guard> {
        self.tracepoints.guard(views)
    }

    pub(super) fn reports_files(&self) -> bool {
        self.tracepoints.reports_files()
    }

    pub(super) fn signal(&self) -> io::Result<OwnedFd> {
        self.tracepoints.as_fd().try_clone_to_owned()
    }

    pub(super) fn pump(&mut self, table: &mut Table) {
        self.receive();
        while let Some(Event { at_ns, what }) = self.events.pop_front() {
            match what {
                What::Forked {
                    by,
                    child,
                    inner,
                    maker,
                } => {
                    self.end_former(child, at_ns, table);
                    table.forked(by, child, maker, at_ns);
                    table.numbers_itself(child, inner);
                }
                What::Exiting(snapshot) => table.exiting(snapshot, at_ns),
                What::Stopped { tid } => table.stopped(tid, at_ns),
                What::Left { pid, used } => {
                    if let Some(known) = self.known.get_mut(&pid) {
                        known.left(used.costs.on_cpu_ns, at_ns);
                    }
                }
                What::ThreadBegan { pid, tid } => table.thread_began(pid, tid, at_ns),
                What::Executed(executed) => self.executed(*executed, at_ns, table),
                What::Called(called) => table.called(called, at_ns),
                What::Ended(end) => self.ended(&end, at_ns, table),
            }
        }
        self.forget(table);
    }

    fn receive(&mut self) {
        self.clocks.read();
        let events = &mut self.events;
        let before = events.len();
        self.tracepoints.receive(|event| events.push_back(event));
        // The records of threads that have ended by then are there already.
        let is_end = |event: &Event| matches!(event.what, What::Ended(_));
        if self.events.range(before..).any(is_end) {
            self.receive_peaks();
        }
    }

    /// A process gets its id while, as far as was read, another one of the run still has it: the kernel
    /// reports an exit when the task is off its CPU for good, and by then its parent may have gone on and
    /// started the next.
    fn end_former(&mut self, pid: u32, at_ns: u64, table: &mut Table) {
        let mut reads = 0;
        while table.is_there(pid) {
            let is_its = |event: &Event| match &event.what {
                What::Ended(end) => end.pid == pid && end.start_ns < at_ns,
                _ => false,
            };
            let place = self.events.iter().position(is_its);
            let found = place.and_then(|place| self.events.remove(place));
            match found {
                Some(Event {
                    what: What::Ended(end),
                    at_ns: ended_ns,
                }) => self.ended(&end, ended_ns.min(at_ns), table),
                _ if reads == READS_FOR_END => return,
                _ => {
                    reads += 1;
                    sleep(SOON);
                    self.receive();
                }
            }
        }
    }

    /// Removes ids from the programs' map that no process of the run has got by now.
    fn forget(&mut self, table: &Table) {
        while let Some(&(pid, at_ns)) = self.over.front()
            && self
                .over
                .back()
                .is_some_and(|last| last.1 > at_ns + KEPT_NS)
        {
            self.over.pop_front();
            if !table.processes.contains_key(&pid) {
                self.tracepoints.forget(pid);
            }
        }
    }

    fn receive_peaks(&mut self) {
        let peaks = &mut self.peaks;
        if let Some(taskstats) = &mut self.taskstats {
            let _ = taskstats.receive(|record| {
                if record.last {
                    peaks.insert(record.pid, record.costs.max_rss_bytes);
                }
            });
        }
    }

    fn executed(&mut self, executed: Executed, at_ns: u64, table: &mut Table) {
        let Executed { pid, former, .. } = executed;
        let known = self.known.entry(pid).or_default();
        let mut used = executed.used.costs;
        let mut since_counted = self.clocks.since_counted(&executed.used, at_ns);
        if executed.used.clock_at == 0 {
            // Without the clocks of its CPU this is an estimate.
            let counted = [known.ended, used].map(|costs| costs.on_cpu_ns + costs.run_queue_ns);
            let not_counted = table.lived_beyond(pid, counted.iter().sum(), at_ns);
            since_counted = since_counted.min(not_counted.try_into().unwrap_or(i64::MAX));
        }
        used.on_cpu_ns = used.on_cpu_ns.saturating_add_signed(since_counted);
        let mut so_far = known.ended;
        so_far += used;
        let is_halted = executed.used.is_halted;
        known.halted = is_halted.then_some((at_ns, used.on_cpu_ns));
        so_far = known.made_up(known.put_right(so_far));
        known.split = (so_far.user_ns, so_far.sys_ns);
        so_far.threads -= 1;
        let peak = so_far.max_rss_bytes;
        so_far.max_rss_bytes = known.own_peak(peak);
        known.peak_before = peak;
        if former != pid {
            table.took_over(pid, former, at_ns);
        }
        let image = Image {
            exe: executed.exe,
            argv: executed.argv,
            cwd: executed.cwd,
            ..Image::default()
        };
        let snapshot = executed.snapshot.map(Arc::from);
        table.executed_as(pid, at_ns, image, executed.environ, &so_far, snapshot);
    }

    fn ended(&mut self, end: &Ended, at_ns: u64, table: &mut Table) {
        let Ended { pid, tid, .. } = *end;
        self.clocks.counted(&end.used, at_ns);
        if !table.may_be(pid, end.start_ns) {
            return;
        }
        let known = self.known.entry(pid).or_default();
        known.ended += end.used.costs;
        let mut total = known.made_up(known.put_right(known.ended));
        let own_peak = || known.own_peak(total.max_rss_bytes);
        total.max_rss_bytes = self.peaks.get(&pid).copied().unwrap_or_else(own_peak);
        table.thread_ended((pid, tid), at_ns, end.wait_status, Some(&total));
        if !table.processes.contains_key(&pid) {
            self.known.remove(&pid);
            self.peaks.remove(&pid);
            self.over.push_back((pid, at_ns));
        }
    }

    pub(super) fn count_losses(&mut self, table: &Table) -> bool {
        let dropped = self.tracepoints.dropped();
        let new = dropped - std::mem::replace(&mut self.dropped, dropped);
        table.recorder.lost(Loss::EventsDropped, new);
        let calls = self.tracepoints.dropped_calls();
        let new_calls = calls - std::mem::replace(&mut self.dropped_calls, calls);
        table.recorder.lost(Loss::CallsDropped, new_calls);
        new > 0
    }
}

impl Known {
    /// The thread that executed its program has left its CPU, and is charged `on_cpu_ns` by now. A thread
    /// that leaves its CPU while the clock stands still is charged with the time from then on as waiting for
    /// one (`rq_clock_skip_update` of kernel/sched/sched.h).
    fn left(&mut self, on_cpu_ns: u64, at_ns: u64) {
        if let Some((began_ns, then)) = self.halted.take() {
            let had = then.saturating_add(at_ns.saturating_sub(began_ns));
            self.as_waiting_ns += had.saturating_sub(on_cpu_ns);
        }
    }

    /// The costs of the process so far, with the CPU time that was counted as waiting.
    fn put_right(&self, costs: Costs) -> Costs {
        let as_waiting = self.as_waiting_ns.min(costs.run_queue_ns);
        Costs {
            on_cpu_ns: costs.on_cpu_ns + as_waiting,
            run_queue_ns: costs.run_queue_ns - as_waiting,
            ..costs
        }
    }

    /// The peak of the present program, where that of all is `peak`; 0: the peak may be that of a program
    /// before.
    fn own_peak(&self, peak: u64) -> u64 {
        if peak > self.peak_before { peak } else { 0 }
    }

    /// The costs of a process so far, with user and system time, which were counted in whole ticks, scaled to
    /// the exact sum, as the kernel does it for `getrusage` (`cputime_adjust` of kernel/sched/cputime.c): of
    /// all threads together, because a short one has no tick, or one that is longer than itself.
    fn made_up(&self, costs: Costs) -> Costs {
        let exact = costs.on_cpu_ns;
        let ticks = u128::from(costs.user_ns) + u128::from(costs.sys_ns);
        let sys_ns = match costs.user_ns {
            0 if ticks > 0 => exact,
            _ if ticks == 0 => 0,
            _ => (u128::from(exact) * u128::from(costs.sys_ns) / ticks) as u64,
        };
        // Neither is less than that of the programs before.
        let (user_before, sys_before) = self.split;
        let user_ns = exact.saturating_sub(sys_ns.max(sys_before));
        let user_ns = user_ns.max(user_before).min(exact);
        Costs {
            user_ns,
            sys_ns: exact - user_ns,
            ..costs
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_made_up_to_the_exact_time() {
        let costs = |on_cpu_ns, user_ns, sys_ns| Costs {
            on_cpu_ns,
            user_ns,
            sys_ns,
            ..Costs::default()
        };
        let of = |on_cpu_ns, user_ns, sys_ns| {
            let found = Known::default().made_up(costs(on_cpu_ns, user_ns, sys_ns));
            assert_eq!(found.user_ns + found.sys_ns, found.on_cpu_ns);
            (found.user_ns, found.sys_ns)
        };
        assert_eq!(of(700, 0, 0), (700, 0));
        assert_eq!(of(700, 0, 4_000), (0, 700));
        assert_eq!(of(700, 4_000, 0), (700, 0));
        assert_eq!(of(9_000, 8_000, 4_000), (6_000, 3_000));
        assert_eq!(of(u64::MAX, u64::MAX, 0), (u64::MAX, 0));
        // User time before an exec stays user time.
        let mut known = Known::default();
        let mut next = |on_cpu_ns, user_ns, sys_ns| {
            let found = known.made_up(costs(on_cpu_ns, user_ns, sys_ns));
            known.split = (found.user_ns, found.sys_ns);
            known.split
        };
        assert_eq!(next(700, 0, 0), (700, 0));
        assert_eq!(next(1_000, 0, 4_000), (700, 300));
        assert_eq!(next(2_000, 4_000, 4_000), (1_000, 1_000));
    }
    #[test]
    fn what_was_halted_counts_as_on_a_cpu() {
        let mut known = Known::default();
        let right = |known: &Known, on_cpu_ns, run_queue_ns| {
            let right = known.put_right(Costs {
                on_cpu_ns,
                run_queue_ns,
                ..Costs::default()
            });
            (right.on_cpu_ns, right.run_queue_ns)
        };
        known.left(700, 9_000);
        known.halted = Some((9_000, 1_000));
        // It went on for some time, and is charged for all of it.
        known.left(1_600, 9_600);
        assert_eq!(right(&known, 1_700, 400), (1_700, 400));
        known.halted = Some((9_000, 1_000));
        known.left(720, 9_020);
        known.left(720, 9_020);
        assert_eq!(right(&known, 1_700, 400), (2_000, 100));
        assert_eq!(right(&known, 1_700, 200), (1_900, 0));
    }
}
