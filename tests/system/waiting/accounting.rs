//! On a CPU + in its queue + storage + waiting + tracer = lifetime, of every process.

use std::collections::BTreeMap;

use super::{Traced, traced};
use crate::support::trace::Trace;
use crate::support::{self, Scratch, need_fuse, need_program, need_python, tree};

/// Shortest lifetime for which the time accounting is checked, and its tolerance.
const LONG_NS: i64 = 50_000_000;
const TOLERANCE: f64 = 0.02;

impl Trace {
    #[track_caller]
    fn assert_accounting(&self) {
        let rows = self.rows(
            "SELECT command, threads, duration_ns, thread_ns, on_cpu_ns, run_queue_ns, storage_ns,
               wait_ns, tracer_ns FROM processes WHERE exit_signal IS NOT 9",
        );
        let mut checked = 0;
        for row in &rows {
            let numbers: Vec<i64> = row[1..]
                .iter()
                .map(|n| n.parse().unwrap_or_else(|_| panic!("not known: {row:?}")))
                .collect();
            let [threads, duration, life, parts @ ..] = &numbers[..] else {
                panic!("{row:?}");
            };
            assert!(parts.iter().all(|&part| part >= 0), "{row:?}");
            if *duration < LONG_NS {
                continue;
            }
            checked += 1;
            let off = (parts.iter().sum::<i64>() - life).abs() as f64 / *life as f64;
            assert!(off <= TOLERANCE, "{off}: {row:?}");
            if *threads == 1 {
                let off = (life - duration).abs() as f64 / *duration as f64;
                assert!(off <= TOLERANCE, "{off} of its duration: {row:?}");
            }
        }
        assert!(checked > 0, "no process lived for 50 ms: {rows:?}");
        self.assert_samples_agree();
    }

    /// The samples are independent of the totals. Of n independent samples, a share p has an error of sqrt(p
    /// (1 - p) / n); those of one thread are not quite independent.
    #[track_caller]
    fn assert_samples_agree(&self) {
        let share = "SUM(CASE WHEN part IN ('on_cpu', 'run_queue') THEN";
        let rows = self.rows(&format!(
            "SELECT {share} sampled_ns END) * 1.0 / SUM(sampled_ns),
               {share} ns END) * 1.0 / SUM(ns), SUM(samples)
             FROM time_shares WHERE sampled_ns IS NOT NULL"
        ));
        let number = |at: usize| rows[0][at].parse::<f64>().expect("a share");
        let (sampled, exact, samples) = (number(0), number(1), number(2));
        let error = (exact * (1.0 - exact) / samples).sqrt();
        assert!(
            (sampled - exact).abs() < 0.1 + 4.0 * error,
            "runs or wants to: {sampled} of the samples, {exact} of the time; {samples} samples"
        );
    }
}

#[test]
fn of_a_pipeline() {
    if !need_fuse() || !need_program("gzip") {
        return;
    }
    let run = Traced::shell("yes | head -c 300M | gzip -1 | wc -c");
    run.trace.assert_accounting();
}

#[test]
fn of_a_build() {
    let Some(workload) = support::shared("workloads/cbuild") else {
        return;
    };
    if !need_fuse() || !need_program("make") || !need_program("gcc") {
        return;
    }
    let scratch = Scratch::new();
    let data = scratch.dir("data");
    let mut make = std::process::Command::new(workload.join("data.sh"));
    support::process::finish(make.arg(&data)).expect(0);
    let (_, trace) = traced(&data, &scratch.join("trace.db"), |command| {
        command.arg(workload.join("run.sh")).args([".", "2"])
    });
    trace.assert_accounting();
}

#[test]
fn of_a_mosaic() {
    let Some(source) = support::shared("workloads/montage") else {
        return;
    };
    let here =
        need_fuse() && need_program("make") && need_program("mProjectPP") && need_python("astropy");
    if !here {
        return;
    }
    let scratch = Scratch::new();
    let workload = scratch.join("workload");
    tree::copy(&source, &workload);
    let data = scratch.dir("data");
    let mut make = std::process::Command::new(workload.join("data.sh"));
    support::process::finish(make.arg(&data).env("PYTHON", support::PYTHON)).expect(0);
    let (_, trace) = traced(&data, &scratch.join("trace.db"), |command| {
        let run = command.arg(workload.join("run.sh")).args([".", "2"]);
        run.env("PROJECT", "mProjectPP")
    });
    trace.assert_accounting();
}

/// CPU time is that of getrusage, which a parent gets when it reaps a child.
#[test]
fn cpu_time_is_that_of_getrusage() {
    if !need_fuse() {
        return;
    }
    let script = "
import os, time
for share in [0.05, 0.2, 0.4]:
    pid = os.fork()
    if pid == 0:
        end = time.process_time() + share
        while time.process_time() < end: os.getppid()
        os._exit(0)
    _, _, usage = os.wait4(pid, 0)
    print(pid, int(usage.ru_utime * 1e9), int(usage.ru_stime * 1e9))";
    let run = Traced::python(script);
    let seen: BTreeMap<String, Vec<i64>> = run
        .trace
        .rows("SELECT pid, user_ns + sys_ns, on_cpu_ns FROM processes WHERE origin = 'fork'")
        .into_iter()
        .map(|row| {
            (
                row[0].clone(),
                row[1..].iter().map(|n| n.parse().unwrap()).collect(),
            )
        })
        .collect();
    let text = run.finished.stdout_text();
    assert_eq!(text.lines().count(), 3);
    for line in text.lines() {
        let mut words = line.split(' ');
        let (sums, used) = (&seen[words.next().unwrap()], words);
        let used: i64 = used.map(|n| n.parse::<i64>().unwrap()).sum();
        // Each of the two is rounded down to a tick of 10 ms.
        assert!((sums[0] - used).abs() <= 20_000_000, "{line}: {sums:?}");
        assert!((sums[1] - used).abs() <= 10_000_000, "{line}: {sums:?}");
    }
}

/// Threads that end before the clock ticks: the time counted in ticks is that of all of them together.
#[test]
fn the_cpu_time_of_many_short_threads_is_split_as_by_getrusage() {
    if !need_fuse() {
        return;
    }
    let script = "
import os, resource, threading
zero = os.open('/dev/zero', 0)
def read():
    for _ in range(5): os.read(zero, 1000000)
for _ in range(500):
    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
usage = resource.getrusage(resource.RUSAGE_SELF)
print(int(usage.ru_utime * 1e9), int(usage.ru_stime * 1e9))";
    let run = Traced::python(script);
    let text = run.finished.stdout_text();
    let printed: Vec<i64> = text
        .split_whitespace()
        .map(|n| n.parse().unwrap())
        .collect();
    let of = |column: &str| -> i64 {
        run.trace.one(&format!(
            "SELECT {column} FROM processes ORDER BY on_cpu_ns DESC LIMIT 1"
        ))
    };
    let seen = [of("user_ns"), of("sys_ns")];
    for (seen, printed) in seen.iter().zip(&printed) {
        // The program ends shortly after it reads its times, and the time counted in ticks is then split
        // anew.
        let most = 20_000_000 + printed / 5;
        assert!((seen - printed).abs() < most, "{seen:?}, {printed:?}");
    }
}
