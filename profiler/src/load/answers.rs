//! Time of calls on traced mounts: the wait for the answer, and the way to flowtrace and back, which a call
//! has only because of tracing.
//!
//! The time of an answer is recorded. The way is not, but it ends before the same thread can make its next
//! call: where calls follow each other quickly, the time from an answer to the next call is the way and
//! little more.

use std::collections::HashMap;

use flowtrace_schema::{CallRow, FileLayer, Op, RunRow};

use super::Places;
use crate::distribution::Distribution;
use crate::model::{MountCosts, MountUse, Workflow};

/// No device answers as quickly: an answer in less time came from memory, ns.
const LEAST_DEVICE_NS: i64 = 50_000;
/// A thread that waited for longer before its next call did something else, ns.
const MOST_BETWEEN_NS: i64 = 1_000_000;
/// With fewer pairs of successive calls, the way is not known.
const LEAST_CALLS: i64 = 1_000;
/// This share of the times between calls is shorter than the way: threads do something between calls, but
/// some do little.
const SHORTEST: f64 = 0.1;

/// A thread: its image and its number.
type Thread = (i64, i64);

/// Sums up the answers while the calls go by.
pub(super) struct Answers {
    mount: MountCosts,
    /// Time at which the last answer of each thread was there.
    answered_ns: HashMap<Thread, i64>,
    between: Distribution,
    /// Most calls are of the same thread as the one before.
    last: (Thread, i64),
}

impl Answers {
    pub(super) fn of(workflow: &Workflow) -> Answers {
        // The kernel answers reads and writes itself, at the speed of the files.
        let is_kernel = |run: &RunRow| run.file_layer == FileLayer::Kernel.name();
        let is_kernel = workflow.runs.iter().any(is_kernel);
        let count = if is_kernel {
            0
        } else {
            workflow.processes.len()
        };
        Answers {
            mount: MountCosts {
                way_ns: None,
                of: vec![MountUse::default(); count],
            },
            answered_ns: HashMap::new(),
            between: Distribution::default(),
            last: ((-1, -1), 0),
        }
    }

    /// Adds a call on a traced mount, also one that failed.
    pub(super) fn add(&mut self, call: &CallRow, places: &Places) {
        let Some(upid) = call.upid else { return };
        let process = places.process(upid);
        let of_process = process.and_then(|id| self.mount.of.get_mut(id.0 as usize));
        let Some(sum) = of_process else { return };
        sum.calls += 1;
        match call.duration_ns {
            quick @ ..LEAST_DEVICE_NS => sum.quick_ns = sum.quick_ns.saturating_add(quick),
            slow => {
                sum.slow_ns = sum.slow_ns.saturating_add(slow);
                if call.op == Some(Op::Fsync) {
                    sum.sync_ns = sum.sync_ns.saturating_add(slow);
                }
            }
        }
        let thread = (upid, call.tid.unwrap_or(-1));
        if self.last.0 != thread {
            let (before, answered) = self.last;
            self.answered_ns.insert(before, answered);
            let answered = self.answered_ns.get(&thread).copied();
            self.last = (thread, answered.unwrap_or(i64::MIN));
        }
        let between = call.start_ns.saturating_sub(self.last.1);
        // Not known for calls of a thread that overlap, such as the kernel's own on its behalf.
        if (0..MOST_BETWEEN_NS).contains(&between) {
            self.between.add(between);
        }
        let answered = call.start_ns.saturating_add(call.duration_ns);
        self.last.1 = answered.max(self.last.1);
    }

    pub(super) fn found(self) -> MountCosts {
        let is_known = self.between.count >= LEAST_CALLS;
        let way_ns = self.between.quantile(SHORTEST).filter(|_| is_known);
        MountCosts {
            way_ns,
            ..self.mount
        }
    }
}

#[cfg(test)]
mod tests {
    use flowtrace_schema::Fidelity;

    use super::*;
    use crate::model::{Image, Process, ProcessId};

    fn call(start_ns: i64, duration_ns: i64, tid: i64) -> CallRow {
        CallRow {
            start_ns,
            duration_ns,
            upid: Some(1),
            tid: Some(tid),
            op: None,
            fidelity: Fidelity::Exact,
            flags: None,
            file_id: None,
            offset: None,
            length: None,
            result: 0,
        }
    }

    #[test]
    fn the_way_is_the_time_between_an_answer_and_the_next_call_of_the_thread() {
        let workflow = Workflow {
            processes: vec![Process::default()],
            images: vec![Image {
                upid: 1,
                process: ProcessId(0),
                ..Image::default()
            }],
            ..Workflow::default()
        };
        let places = Places::of(&workflow);
        let mut answers = Answers::of(&workflow);
        // Two threads in turn, with less between them than the way. Each hundredth call is slow, and each
        // tenth time the thread does something else.
        let mut at = [0, 10_000];
        for n in 0..2_000 {
            for (tid, at) in (7..).zip(&mut at) {
                let took = if n % 100 == 0 { 300_000 } else { 2_000 };
                answers.add(&call(*at, took, tid), &places);
                *at += took + if n % 10 == 0 { 5_000_000 } else { 6_000 };
            }
        }
        let mount = answers.found();
        assert!(
            (5_900..=6_100).contains(&mount.way_ns.unwrap()),
            "{mount:?}"
        );
        let sum = mount.of[0];
        assert_eq!((sum.calls, sum.slow_ns), (4_000, 40 * 300_000));
        assert_eq!(sum.quick_ns, 3_960 * 2_000);
    }

    #[test]
    fn few_calls_show_nothing() {
        let workflow = Workflow::default();
        assert_eq!(Answers::of(&workflow).found().way_ns, None);
    }
}
