//! Threads, short lives and kills.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::Traced;
use crate::support::need_fuse;
use crate::support::trace::Trace;

/// Each thread has its own samples, and the time accounting covers the lifetimes of all.
#[test]
fn each_thread_is_sampled() {
    if !need_fuse() {
        return;
    }
    let script = "
import threading, time
def burn():
    end = time.thread_time() + 0.3
    while time.thread_time() < end: pass
threads = [threading.Thread(target=time.sleep, args=(1,)) for _ in range(4)]
threads.append(threading.Thread(target=burn))
for thread in threads: thread.start()
for thread in threads: thread.join()";
    let run = Traced::python(script);
    let sleepers: i64 = run.trace.one(
        "SELECT COUNT(DISTINCT tid) FROM samples WHERE reason = 'sleep' AND duration_ns > 300000000",
    );
    assert_eq!(sleepers, 4, "{}", run.trace.all_samples());
    run.trace.assert_sampled(
        "%",
        "s.tid <> p.pid AND s.state IN ('running', 'runnable')",
        100,
    );
    let rows = run.trace.rows(
        "SELECT threads, thread_ns > duration_ns + 4 * 900000000,
           on_cpu_ns + run_queue_ns + storage_ns + wait_ns + tracer_ns = thread_ns, wait_ns > 0
         FROM processes WHERE threads > 1",
    );
    assert_eq!(rows, [["6", "1", "1", "1"]]);
}

/// The first thread may end long before the process; its remaining entry waits for nothing.
#[test]
fn a_first_thread_that_ends_early_is_over() {
    if !need_fuse() {
        return;
    }
    let script = "
import ctypes, threading, time
threading.Thread(target=lambda: (time.sleep(1.5), __import__('os')._exit(0))).start()
time.sleep(0.2)
ctypes.CDLL(None).syscall(60 if __import__('platform').machine() == 'x86_64' else 93, 0)";
    let run = Traced::python(script);
    let rows = run.trace.rows(
        "SELECT (thread_ns - duration_ns) / 1000000 < 1000,
           on_cpu_ns + run_queue_ns + storage_ns + wait_ns + tracer_ns = thread_ns
         FROM processes WHERE threads = 2",
    );
    assert_eq!(rows, [["1", "1"]]);
    let leader: i64 = run.trace.one(
        "SELECT COALESCE(SUM(s.duration_ns), 0) / 1000000 FROM samples AS s
         JOIN processes AS p USING (upid) WHERE s.tid = p.pid AND s.t_ns > p.start_ns + 900000000",
    );
    assert!(leader < 500, "{leader} ms\n{}", run.trace.all_samples());
}

/// Samples of a process are of that process, even if its pid is reused.
#[test]
fn the_killed_yield_no_data_of_others() {
    if !need_fuse() {
        return;
    }
    let script = "
import os, signal, subprocess, time
for round in range(40):
    sleeper = subprocess.Popen(['sleep', '100'])
    reader = subprocess.Popen(['cat'], stdin=subprocess.PIPE)
    time.sleep(0.02 * (round % 5))
    for child in [sleeper, reader]:
        child.send_signal(signal.SIGKILL)
        child.wait()";
    let run = Traced::python(script);
    let wrong = run.trace.rows(
        "SELECT p.command, s.* FROM samples AS s JOIN processes AS p USING (upid)
         WHERE s.t_ns < p.start_ns OR s.end_ns > p.end_ns OR s.end_ns < s.t_ns
           OR p.command = 'sleep 100' AND s.reason IN ('channel', 'child')
           OR p.command = 'cat' AND p.origin = 'exec' AND s.reason IN ('sleep', 'child')",
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
    run.trace
        .assert_sampled("sleep 100", "reason = 'sleep'", 50);
    run.trace
        .assert_sampled("cat", "reason = 'channel' AND side = 'read'", 50);
}

/// Intervals of a thread follow each other without overlap.
#[test]
fn intervals_do_not_overlap() {
    if !need_fuse() {
        return;
    }
    let run = Traced::shell(
        "for i in 1 2 3 4 5 6 7 8; do sleep 0.1; head -c 30M /dev/zero | gzip -9 | wc -c; done",
    );
    let overlapping: i64 = run.trace.one(
        "SELECT COUNT(*) FROM samples AS a JOIN samples AS b
           ON a.tid = b.tid AND a.upid = b.upid AND a.sample_id < b.sample_id
         WHERE a.end_ns > b.t_ns",
    );
    assert_eq!(overlapping, 0, "{}", run.trace.all_samples());
    let total: i64 = run.trace.one("SELECT COUNT(*) FROM samples");
    assert!(total > 10, "{}", run.trace.all_samples());
}

/// A long interval is stored in parts, so that little of it is lost if flowtrace is killed.
#[test]
fn a_long_wait_outlives_the_tracer() {
    if !need_fuse() {
        return;
    }
    let scratch = crate::support::Scratch::new();
    let path = scratch.join("trace.db");
    let mut command = crate::support::run_in(&scratch.dir("job"), &path);
    let mut running = crate::support::process::start(command.args(["--", "sleep", "100"]));
    let stored = "SELECT COUNT(*) FROM samples WHERE reason = 'sleep' AND duration_ns > 3000000000";
    crate::support::wait_for("an interval", Duration::from_secs(180), || {
        // The trace is made in one transaction.
        let begun = path.metadata().is_ok_and(|file| file.len() > 0);
        let trace = begun.then(|| Trace::open(&path))?;
        let made: i64 = trace.one("SELECT COUNT(*) FROM sqlite_schema WHERE name = 'samples'");
        (made > 0 && trace.one::<i64>(stored) > 0).then_some(())
    });
    running.signal(Signal::SIGKILL);
    while !running.has_ended() {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(Trace::open(&path).one::<i64>(stored), 1);
}

/// Without sampling there are no samples, and the time accounting is still there.
#[test]
fn sampling_can_be_left_out() {
    if !need_fuse() {
        return;
    }
    let scratch = crate::support::Scratch::new();
    let mut command = crate::support::run_in(&scratch.dir("job"), &scratch.join("trace.db"));
    command.args(["--sample", "0", "--host-sample", "0", "--", "sleep", "0.3"]);
    crate::support::process::finish(&mut command).expect(0);
    let trace = Trace::open_complete(&scratch.join("trace.db"));
    assert_eq!(trace.one::<i64>("SELECT COUNT(*) FROM samples"), 0);
    assert_eq!(trace.one::<i64>("SELECT COUNT(*) FROM host_samples"), 0);
    // A sleep may be counted as waiting for a CPU (docs/waiting.md).
    let wait: i64 = trace.one("SELECT (wait_ns + run_queue_ns) / 1000000 FROM processes");
    assert!(wait > 200, "{wait} ms");
}
