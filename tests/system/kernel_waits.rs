//! With `--layer kernel` the scheduler reports the waits of threads, without gaps, and the thread that ended
//! each.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::process::{Finished, finish};
use crate::support::programs::program;
use crate::support::trace::Trace;
use crate::support::{PYTHON, Scratch, need_fuse, need_kernel_layer, need_program, run_in};

/// Runs a command with the kernel layer. `None` if that layer is not available here.
fn traced(command: &[&str]) -> Option<(Finished, Trace)> {
    if !need_fuse() || !need_kernel_layer() {
        return None;
    }
    let run = || {
        let scratch = Scratch::new();
        let path = scratch.join("trace.db");
        let mut run = run_in(&scratch.dir("job"), &path);
        let finished = finish(run.args(["--layer", "kernel", "--"]).args(command)).expect(0);
        (finished, Trace::open_complete(&path))
    };
    Some(Trace::without_gaps(run, |(_, trace)| trace))
}

/// Checks that the time accounting of every image adds up. For images that lived for some time, the rows of
/// their threads must also fill the whole life, without gap or overlap.
#[track_caller]
fn accounting_is_exact(trace: &Trace, least: i64) {
    let wrong = trace.rows(
        "SELECT command, thread_ns, on_cpu_ns, run_queue_ns, storage_ns, wait_ns, tracer_ns
         FROM processes WHERE ABS(thread_ns
           - on_cpu_ns - run_queue_ns - storage_ns - wait_ns - tracer_ns) * 1000 > thread_ns",
    );
    assert_eq!(wrong, Vec::<Vec<String>>::new());
    let sampled: i64 = trace.one("SELECT COUNT(*) FROM samples WHERE exact = 0");
    assert_eq!(sampled, 0, "rows that do not come from the scheduler");
    // An image that lives for less than a window of 10 ms has no rows.
    let long = "FROM processes WHERE thread_ns >= 50000000";
    let lives = trace.one::<i64>(&format!("SELECT COUNT(*) {long}"));
    assert!(lives >= least, "only {lives} images to check");
    let wrong = trace.rows(&format!(
        "SELECT command, thread_ns, recorded FROM (
           SELECT p.*, (SELECT SUM(duration_ns) FROM samples AS s WHERE s.upid = p.upid) AS recorded {}
         ) WHERE recorded IS NULL OR ABS(recorded - thread_ns) * 1000 > thread_ns + 10000000 * threads",
        long.replace("processes", "processes AS p")
    ));
    assert_eq!(wrong, Vec::<Vec<String>>::new(), "rows do not fill a life");
    let overlaps: i64 = trace.one(
        "SELECT COUNT(*) FROM (
           SELECT t_ns, LAG(end_ns) OVER (PARTITION BY upid, tid ORDER BY t_ns, end_ns) AS before
           FROM samples) WHERE before <> t_ns",
    );
    assert_eq!(overlaps, 0, "gaps or overlaps");
}

/// The programs that ended the waits of each program, by the side of the channel at which it waited.
fn wakers(trace: &Trace) -> BTreeMap<(String, String), Vec<String>> {
    let name = |column: &str| format!("REPLACE(REPLACE({column}, '/usr', ''), '/bin/', '')");
    let rows = trace.rows(&format!(
        "SELECT DISTINCT {}, side, {} FROM samples AS s
         JOIN processes AS p USING (upid) JOIN processes AS q ON q.upid = s.waker_upid
         WHERE reason = 'channel' AND side IS NOT NULL AND p.origin = 'exec' ORDER BY 1, 2, 3",
        name("p.exe"),
        name("q.exe")
    ));
    let mut found: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for row in rows {
        let [waiter, side, waker] = <[String; 3]>::try_from(row).unwrap();
        found.entry((waiter, side)).or_default().push(waker);
    }
    found
}

/// A tracer inside of the run stops a process at the begin of its calls. That is no wait for the object of
/// the call, and no stop by job control.
#[test]
fn a_process_stopped_by_strace_waits_for_its_tracer() {
    if !(need_kernel_layer() && need_program("strace")) {
        return;
    }
    let stopped = "strace -qq -o log -e trace=write -e inject=write:delay_enter=300000 \
        dd if=/dev/zero of=out bs=1 count=4 status=none";
    for options in [&["--no-mount"][..], &["--layer", "kernel", "--no-mount"]] {
        let scratch = Scratch::new();
        let (work, trace) = (scratch.dir("work"), scratch.join("trace.db"));
        let mut run = run_in(&work, &trace);
        finish(run.args(options).args(["--", "sh", "-c", stopped])).expect(0);
        let ms = |state: &str| -> f64 {
            Trace::open_complete(&trace).one(&format!(
                "SELECT COALESCE(SUM(s.end_ns - s.t_ns), 0) / 1e6 FROM samples AS s JOIN processes USING (upid)
                 WHERE exe LIKE '%/dd' AND state = '{state}'"
            ))
        };
        assert!(ms("tracer") > 1000.0, "{options:?}: {}", ms("tracer"));
        assert!(ms("blocked") + ms("stopped") < 100.0, "{options:?}");
    }
}

#[test]
fn the_stages_of_a_pipeline_wake_each_other() {
    let script = "yes | head -c 30M | gzip -1 | wc -c";
    let Some((_, trace)) = traced(&["sh", "-c", script]) else {
        return;
    };
    accounting_is_exact(&trace, 3);
    let found = wakers(&trace);
    for (waiter, side, waker) in [
        ("yes", "write", "head"),
        ("head", "read", "yes"),
        ("head", "write", "gzip"),
        ("gzip", "read", "head"),
        ("gzip", "write", "wc"),
        ("wc", "read", "gzip"),
    ] {
        let seen = found.get(&(waiter.to_owned(), side.to_owned()));
        assert!(
            seen.is_none_or(|seen| seen.as_slice() == [waker]),
            "{waiter} {side}: {found:?}"
        );
    }
    assert!(
        found.contains_key(&("wc".into(), "read".into())),
        "{found:?}"
    );
    // The shell waits for the last of them.
    let children: i64 = trace
        .one("SELECT COUNT(*) FROM waits WHERE reason = 'child' AND waker_upid = counterpart_upid");
    assert!(children > 0);
}

#[test]
fn a_lock_is_passed_on_from_thread_to_thread() {
    let Some(program) = program("convoy", &[]) else {
        return;
    };
    let Some((finished, trace)) = traced(&[program.to_str().unwrap()]) else {
        return;
    };
    accounting_is_exact(&trace, 1);
    let order = String::from_utf8(finished.stdout).unwrap();
    let order: Vec<&str> = order.lines().collect();
    assert_eq!(order.len(), 5);
    let mut locks = BTreeSet::new();
    let mut waited = 0;
    for pair in order.windows(2) {
        // A thread that came late may have found the lock free.
        let last = trace.rows(&format!(
            "SELECT waker_tid, object FROM waits WHERE reason = 'lock' AND op = 'futex' AND tid = {}
             ORDER BY to_ns DESC LIMIT 1",
            pair[1]
        ));
        if let Some(last) = last.first() {
            assert_eq!(last[0], pair[0], "order {order:?}");
            locks.insert(last[1].clone());
            waited += 1;
        }
    }
    assert!(waited > 0);
    assert_eq!(locks.len(), 1, "one lock, one address: {locks:?}");
    assert_ne!(locks.first().map(String::as_str), Some(""));
}

#[test]
fn sleeps_children_and_work_are_distinguished() {
    let script = "sleep 0.3 & i=0; while [ $i -lt 30000 ]; do i=$((i + 1)); done; wait";
    let Some((_, trace)) = traced(&["sh", "-c", script]) else {
        return;
    };
    accounting_is_exact(&trace, 2);
    let slept: i64 = trace.one(
        "SELECT SUM(s.duration_ns) FROM samples AS s JOIN processes USING (upid)
         WHERE reason = 'sleep' AND command LIKE 'sleep%'",
    );
    assert!(slept >= 299_000_000, "{slept} ns");
    let waited: i64 = trace.one("SELECT SUM(wait_ns) FROM processes WHERE command LIKE 'sleep%'");
    // Rows and sums agree within 0.1 %, except for the time that a program had used before it was first seen:
    // up to a tick.
    assert!(
        waited + (slept / 1000).max(1_000_000) >= slept,
        "{waited} ns, {slept} of them asleep"
    );
}

/// Switches to and from the idle task are recorded on each CPU: it wakes sleeping threads, and gives the CPU
/// to them.
#[test]
fn a_thread_that_slept_on_an_idle_cpu_runs_after_that() {
    let script = "
import os, time
for cpu in os.sched_getaffinity(0):
    if os.fork() == 0:
        os.sched_setaffinity(0, {cpu})
        for _ in range(15):
            time.sleep(.01)
            end = time.perf_counter() + .01
            while time.perf_counter() < end: pass
        os._exit(0)
    os.wait()
";
    let Some((_, trace)) = traced(&[PYTHON, "-c", script]) else {
        return;
    };
    let times = trace.rows(
        "SELECT on_cpu_ns,
           SUM(CASE WHEN state = 'running' THEN s.duration_ns ELSE 0 END),
           SUM(CASE WHEN reason = 'sleep' THEN s.duration_ns ELSE 0 END)
         FROM processes JOIN samples AS s USING (upid) WHERE origin = 'fork' GROUP BY upid",
    );
    assert!(!times.is_empty());
    for row in &times {
        let [on_cpu, ran, slept] = [0, 1, 2].map(|at| row[at].parse::<i64>().unwrap());
        // The opposite is possible: a virtual machine does not count the time that its host took from it.
        assert!(on_cpu - ran < on_cpu / 20, "{times:?}");
        assert!((150_000_000..200_000_000).contains(&slept), "{times:?}");
    }
}
