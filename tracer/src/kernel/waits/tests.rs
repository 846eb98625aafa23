use flowtrace_schema::{ChannelId, FileId, Side, WaitObject};

use super::*;
use crate::kernel::sample::{self, Sample, WaitedFile, What};
use crate::kernel::syscalls::waited_for;
use crate::proc::observer::Tracee;
use crate::stat::Inode;

/// Descriptors 0 and 1 of all threads are pipes 70 and 71, 5 is file 9.
fn waited(fd: u64) -> Option<WaitedFile> {
    let (number, mode) = match fd {
        0 | 1 => (70 + fd, libc::S_IFIFO),
        5 => (90, libc::S_IFREG),
        _ => return None,
    };
    let inode = Inode { device: 1, number };
    Some(WaitedFile { inode, mode })
}

struct TestFiles;

impl Files for TestFiles {
    fn file(&self, inode: Inode) -> Option<FileId> {
        (inode.number == 90).then_some(FileId(9))
    }
}

impl ChannelLookup for TestFiles {
    fn of_inode(&self, inode: u64) -> Option<ChannelId> {
        Some(ChannelId(inode as u32))
    }
}

/// A scheduler with scripted decisions.
struct Stage {
    waits: Waits,
    at: u64,
}

/// Threads that are not in the tree: that of the tracer, and another one.
const TRACER: u32 = 1;
const OTHER: u32 = 2;
const ROOT: u32 = 10;
const MS: u64 = 1_000_000;
const BLOCKED: u16 = 1;
const PREEMPTED: u16 = 0x100;

fn tracee(tid: u32, pid: u32, upid: u32) -> Tracee {
    let upid = Upid(upid);
    Tracee { tid, pid, upid }
}

impl Stage {
    /// The root runs.
    fn new() -> Stage {
        let mut stage = Stage {
            waits: Waits::new(Arc::new(TestFiles), TRACER),
            at: 0,
        };
        stage.change(Change::Begins(tracee(ROOT, ROOT, 1)));
        stage.runs(ROOT);
        stage
    }

    fn change(&mut self, change: Change) {
        self.waits.change(self.at, change, &TestFiles);
    }

    fn fork(&mut self, by: u32, child: u32, upid: u32) {
        let child = tracee(child, child, upid);
        self.change(Change::Forked { by, child });
    }

    fn put(&mut self, tid: u32, what: What) {
        let sample = Sample {
            at: self.at,
            tid,
            number: 0,
            what,
        };
        self.waits.sample(&sample, &TestFiles);
    }

    fn runs(&mut self, tid: u32) {
        self.put(
            0,
            What::Leaves {
                state: 0,
                next: tid,
                ran_ns: None,
            },
        );
    }

    fn leaves(&mut self, tid: u32, state: u16) {
        self.leaves_after(tid, state, None);
    }

    fn leaves_after(&mut self, tid: u32, state: u16, ran_ns: Option<u64>) {
        let what = What::Leaves {
            state,
            next: 0,
            ran_ns,
        };
        self.put(tid, what);
    }

    fn wakes(&mut self, by: u32, tid: u32) {
        self.woken(by, tid, false);
    }

    /// In an interrupt of a timer, `by` is the interrupted thread.
    fn woken(&mut self, by: u32, tid: u32, is_timer: bool) {
        let interrupt = is_timer.then_some(Interrupt::Hard);
        self.put(tid, What::Woken { by, interrupt });
    }

    fn calls(&mut self, tid: u32, number: libc::c_long, arguments: [u64; 2]) {
        let mut all = [0; 6];
        all[..2].copy_from_slice(&arguments);
        let files = waited_for(number as u32).map(|at| waited(all[at?]));
        let arguments = all;
        let call = InCall { arguments, files };
        self.waits
            .is_in(tid, Some((number as u32, call)), &TestFiles);
    }

    /// A thread that runs is blocked in a call for a while, woken, and runs again a ms later.
    fn blocks(&mut self, tid: u32, call: (libc::c_long, [u64; 2]), ms: u64, waker: u32) {
        self.calls(tid, call.0, call.1);
        self.leaves(tid, BLOCKED);
        self.at += ms * MS;
        self.wakes(waker, tid);
        self.at += 5 * MS;
        self.runs(tid);
    }

    fn rows(&mut self) -> Vec<SampleRecord> {
        let rows = self.waits.take().into_iter();
        let mut rows: Vec<SampleRecord> = rows
            .filter_map(|record| match record {
                Record::Sample(row) => Some(*row),
                _ => None,
            })
            .collect();
        rows.sort_by_key(|row| (row.upid.0, row.tid.0, row.start_ns));
        rows
    }
}

/// (length in ms, activity, waker)
fn brief(rows: &[SampleRecord]) -> Vec<(u64, Activity, Option<u32>)> {
    let of = |row: &SampleRecord| {
        let ms = (row.end_ns - row.start_ns) / MS;
        (ms, row.activity, row.waker.map(|waker| waker.upid.0))
    };
    rows.iter().map(of).collect()
}

#[test]
fn a_life_is_recorded_without_gaps() {
    use Activity::{Channel, Runnable, Running, Sleep};
    let mut stage = Stage::new();
    stage.fork(ROOT, 11, 2);
    stage.at += 20 * MS;
    stage.blocks(ROOT, (libc::SYS_read, [0, 0]), 30, 11);
    stage.at += 10 * MS;
    stage.leaves(ROOT, PREEMPTED);
    stage.at += 15 * MS;
    stage.runs(ROOT);
    stage.blocks(ROOT, (libc::SYS_clock_nanosleep, [0, 0]), 40, OTHER);
    stage.change(Change::Over(ROOT));
    let rows = stage.rows();
    let expected = [
        (20, Running, None),
        (30, Channel, Some(2)),
        (5, Runnable, None),
        (10, Running, None),
        (15, Runnable, None),
        (40, Sleep, None),
        (5, Runnable, None),
    ];
    assert_eq!(brief(&rows), expected);
    assert!(
        rows.windows(2)
            .all(|pair| pair[0].end_ns == pair[1].start_ns)
    );
    assert_eq!((rows[0].start_ns, rows[6].end_ns), (0, stage.at));
    let wait = &rows[1];
    assert_eq!(wait.op, Some("read"));
    let pipe = WaitObject {
        object: 70,
        side: Some(Side::Read),
        channel: Some(ChannelId(70)),
    };
    assert_eq!(wait.objects, [pipe]);
    assert!(wait.exact && wait.samples == 300);
}

#[test]
fn sums_are_those_of_the_images() {
    let mut stage = Stage::new();
    stage.at += 20 * MS;
    stage.blocks(ROOT, (libc::SYS_pread64, [5, 0]), 30, OTHER);
    stage.change(Change::Executed(tracee(ROOT, ROOT, 2)));
    // Stopped by the tracer; after that a page is read.
    stage.leaves(ROOT, state::TRACED);
    stage.at += 7 * MS;
    stage.wakes(TRACER, ROOT);
    stage.runs(ROOT);
    stage.waits.is_in(ROOT, None, &TestFiles);
    stage.leaves(ROOT, state::UNINTERRUPTIBLE);
    // For 3 ms a request is in a queue, for 4 at the device.
    for (ms, step) in [
        (0, sample::Stage::Queued),
        (3, sample::Stage::Issued),
        (4, sample::Stage::Done),
    ] {
        stage.at += ms * MS;
        let (device, sector) = (8, 1);
        stage.put(
            ROOT,
            What::Request {
                stage: step,
                device,
                sector,
            },
        );
    }
    stage.at += MS;
    stage.wakes(OTHER, ROOT);
    stage.runs(ROOT);
    stage.change(Change::Over(ROOT));
    let records = stage.waits.take();
    let totals: Vec<_> = records
        .iter()
        .filter_map(|record| match record {
            Record::Sampled(totals) => Some(*totals),
            _ => None,
        })
        .collect();
    let sums = |upid, all, waiting, storage, tracer, parts: [u64; 2]| SampledTotals {
        upid: Upid(upid),
        samples: all * 10,
        sampled_ns: all * MS,
        waiting_ns: waiting * MS,
        storage_ns: storage * MS,
        queue_ns: Some(parts[0] * MS),
        device_ns: Some(parts[1] * MS),
        tracer_ns: tracer * MS,
        exact: true,
    };
    assert_eq!(
        totals,
        [sums(1, 55, 30, 30, 0, [0, 0]), sums(2, 15, 8, 8, 7, [3, 4])]
    );
    let files = records.iter().filter_map(|record| match record {
        Record::Sample(row) => row.file,
        _ => None,
    });
    assert_eq!(files.collect::<Vec<_>>(), [FileId(9)]);
}

#[test]
fn a_convoy_shows_who_passed_the_lock_on() {
    let mut stage = Stage::new();
    for tid in [11, 12] {
        stage.change(Change::Thread(tracee(tid, ROOT, 1)));
        stage.calls(tid, libc::SYS_futex, [0, 0]);
        stage.runs(tid);
        stage.leaves(tid, BLOCKED);
    }
    // Each thread passes the lock on to the next after 20 ms.
    for (from, to) in [(ROOT, 11), (11, 12)] {
        stage.at += 20 * MS;
        stage.wakes(from, to);
        stage.runs(to);
    }
    stage.at += 20 * MS;
    stage.change(Change::Over(ROOT));
    let locks = stage.rows();
    let locks = locks.iter().filter(|row| row.activity == Activity::Lock);
    let locks: Vec<_> = locks
        .map(|row| (row.tid.0, row.end_ns / MS, row.waker.unwrap().tid.0))
        .collect();
    assert_eq!(locks, [(11, 20, ROOT), (12, 40, 11)]);
}

#[test]
fn a_wait_for_several_descriptors_that_a_timer_ended_was_a_sleep() {
    let mut stage = Stage::new();
    for is_timer in [true, false] {
        stage.calls(ROOT, libc::SYS_epoll_wait, [5, 0]);
        stage.leaves(ROOT, BLOCKED);
        stage.at += 30 * MS;
        stage.woken(OTHER, ROOT, is_timer);
        stage.runs(ROOT);
    }
    stage.change(Change::Over(ROOT));
    let expected = [(30, Activity::Sleep, None), (30, Activity::Other, None)];
    assert_eq!(brief(&stage.rows()), expected);
}

#[test]
fn a_waking_may_be_reported_before_the_switch() {
    use Activity::{Runnable, Running};
    let mut stage = Stage::new();
    stage.fork(ROOT, 11, 2);
    stage.at += 20 * MS;
    stage.calls(ROOT, libc::SYS_read, [0, 0]);
    stage.wakes(11, ROOT);
    stage.leaves(ROOT, BLOCKED);
    stage.at += 10 * MS;
    stage.runs(ROOT);
    stage.change(Change::Over(ROOT));
    let expected = [(20, Running, None), (10, Runnable, None)];
    assert_eq!(brief(&stage.rows()), expected);
}

#[test]
fn who_waits_for_a_child_was_woken_by_it() {
    let mut stage = Stage::new();
    stage.fork(ROOT, 11, 2);
    stage.fork(ROOT, 12, 3);
    stage.runs(12);
    stage.calls(ROOT, libc::SYS_wait4, [u64::MAX, 0]);
    stage.leaves(ROOT, BLOCKED);
    stage.at += 30 * MS;
    stage.change(Change::Ended(12));
    stage.leaves(12, state::DEAD);
    stage.at += 5 * MS;
    // The tracer reaps the process that ended, which wakes its parent.
    stage.wakes(TRACER, ROOT);
    stage.change(Change::Over(12));
    stage.runs(ROOT);
    stage.change(Change::Over(ROOT));
    let rows = stage.rows();
    assert!(
        brief(&rows).contains(&(35, Activity::Child, Some(3))),
        "{rows:?}"
    );
    // After its exit, a process waits for the tracer until it is reaped.
    assert!(
        brief(&rows).contains(&(5, Activity::Tracer, None)),
        "{rows:?}"
    );
}

#[test]
fn a_first_thread_that_ends_before_the_others_waits_for_nobody() {
    let mut stage = Stage::new();
    stage.change(Change::Thread(tracee(12, ROOT, 1)));
    stage.runs(ROOT);
    stage.runs(12);
    stage.at += 10 * MS;
    stage.leaves(ROOT, state::DEAD);
    stage.at += 30 * MS;
    stage.change(Change::Ended(12));
    stage.leaves(12, state::DEAD);
    stage.change(Change::Over(ROOT));
    let rows = stage.rows();
    let all = brief(&rows);
    assert!(all.iter().all(|row| row.1 == Activity::Running), "{rows:?}");
    assert_eq!(all.iter().map(|row| row.0).sum::<u64>(), 50);
}

#[test]
fn what_a_thread_did_before_it_was_heard_of_is_known() {
    let mut stage = Stage::new();
    stage.runs(11);
    stage.leaves(11, state::TRACED);
    stage.at += MS;
    stage.fork(ROOT, 11, 2);
    stage.at += 20 * MS;
    stage.wakes(TRACER, 11);
    stage.runs(11);
    stage.change(Change::Over(11));
    assert_eq!(brief(&stage.rows()), [(20, Activity::Tracer, None)]);
}

#[test]
fn what_goes_on_for_long_is_recorded_meanwhile() {
    let mut stage = Stage::new();
    stage.at += 2 * MS;
    stage.calls(ROOT, libc::SYS_rt_sigsuspend, [0, 0]);
    stage.leaves(ROOT, BLOCKED);
    stage.at += 6_000 * MS;
    let now = stage.at;
    stage.waits.settle(now, &TestFiles);
    // The window before it is written when it is over.
    let first = stage.rows();
    assert_eq!(brief(&first), [(6_000, Activity::Signal, None)]);
    stage.waits.settle(now + MS, &TestFiles);
    assert_eq!(brief(&stage.rows()), [], "recorded just now");
    stage.at += 1_000 * MS;
    stage.change(Change::Over(ROOT));
    let rest = stage.rows();
    let expected = [
        (2, Activity::Running, None),
        (7_000, Activity::Signal, None),
    ];
    assert_eq!(brief(&rest), expected);
    assert_eq!(rest[1].id, first[0].id, "the same row");
}

#[test]
fn after_a_loss_nothing_is_called_exact() {
    let mut stage = Stage::new();
    stage.at += 20 * MS;
    stage.waits.lost();
    stage.change(Change::Executed(tracee(ROOT, ROOT, 2)));
    stage.at += 20 * MS;
    stage.change(Change::Over(ROOT));
    let exact = stage
        .waits
        .take()
        .into_iter()
        .filter_map(|record| match record {
            Record::Sampled(totals) => Some((totals.upid.0, totals.exact)),
            _ => None,
        });
    assert_eq!(exact.collect::<Vec<_>>(), [(1, false), (2, true)]);
}

/// The idle task of a virtual machine may record neither.
#[test]
fn an_unreported_thread_has_run_for_as_long_as_the_scheduler_says() {
    let mut stage = Stage::new();
    stage.calls(ROOT, libc::SYS_clock_nanosleep, [0, 0]);
    stage.leaves_after(ROOT, BLOCKED, Some(70 * MS));
    stage.at += 50 * MS;
    stage.calls(ROOT, libc::SYS_read, [5, 0]);
    stage.leaves_after(ROOT, BLOCKED, Some(90 * MS));
    stage.at += 40 * MS;
    stage.leaves_after(ROOT, PREEMPTED, Some(100 * MS));
    stage.at += 15 * MS;
    stage.leaves_after(ROOT, BLOCKED, Some(105 * MS));
    stage.change(Change::Over(ROOT));
    let expected = [
        (30, Activity::Sleep, None),
        (20, Activity::Running, None),
        (30, Activity::File, None),
        (10, Activity::Running, None),
        (10, Activity::Runnable, None),
        (5, Activity::Running, None),
    ];
    assert_eq!(brief(&stage.rows()), expected);
}
