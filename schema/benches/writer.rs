//! Cost of storing calls: bytes of the trace, CPU time of the writer and of the thread that makes the call.
//!
//!     cargo bench -p flowtrace-schema --bench writer
//!     cargo bench -p flowtrace-schema --bench writer -- metadata    some workloads
//!
//! - `bytes/call`: of the finished file, everything included;
//! - `calls/s`: with one thread that does nothing but record, on another core than the writer;
//! - `recording`, `finishing`: CPU seconds of the writer for a million calls, while the workflow runs and
//!   after it has ended; both include the files and processes of the calls;
//! - `ns/call`: cost of recording for the thread that makes the call, two reads of the clock included, as
//!   long as the writer keeps up.
#![allow(missing_docs)]

use std::fs;
use std::time::{Duration, Instant};

#[path = "../tests/workloads/mod.rs"]
mod workloads;

use flowtrace_schema::{Call, Fidelity, FileId, Op, Tid, Upid, Writer};
use workloads::{Play, WORKLOADS};

const CALLS: u64 = 1_000_000;
/// Calls pushed without a break, fewer than the ring holds.
const BURST: u64 = 1024;

fn main() {
    let names: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    println!("recording a call: {:.0} ns/call\n", hot_path());
    println!(
        "{:<12} {:>9} {:>11} {:>10} {:>11} {:>11}",
        "", "calls", "bytes/call", "calls/s", "recording s", "finishing s"
    );
    for (name, run) in WORKLOADS {
        if !names.is_empty() && !names.iter().any(|wanted| wanted == name) {
            continue;
        }
        let directory = tempfile::tempdir().expect("a directory for the trace");
        let path = directory.path().join("t.db");
        // One repetition shows how many repetitions make about as many calls as wanted.
        let mut once = Play::new(&directory.path().join("once.db"));
        run(&mut once, 1);
        let times = CALLS.div_ceil(once.calls);
        once.finish();

        let mut play = Play::new(&path);
        let begin = Instant::now();
        run(&mut play, times);
        let seconds = begin.elapsed().as_secs_f64();
        let calls = play.calls as f64;
        let recording = writer_seconds();
        let (before, waited) = (process_seconds(), thread_seconds());
        assert_eq!(play.finish(), 0, "rows were dropped");
        let finishing = process_seconds() - before - (thread_seconds() - waited);
        let size = fs::metadata(&path).expect("the trace").len();
        println!(
            "{name:<12} {calls:>9} {:>11.1} {:>10.0} {:>11.2} {:>11.2}",
            size as f64 / calls,
            calls / seconds,
            recording / calls * 1e6,
            finishing / calls * 1e6,
        );
    }
}

/// Nanoseconds that the recording of a call takes from its thread.
fn hot_path() -> f64 {
    let directory = tempfile::tempdir().expect("a directory for the trace");
    let (writer, recorder) = Writer::create(&directory.path().join("t.db"), false).expect("made");
    let epoch = Instant::now();
    let mut bursts: Vec<f64> = (0..200)
        .map(|_| {
            recorder.settle();
            let begin = Instant::now();
            for i in 0..BURST {
                let start = epoch.elapsed();
                recorder.call(&Call {
                    start_ns: start.as_nanos() as u64,
                    duration_ns: (epoch.elapsed() - start).as_nanos() as u64,
                    upid: Some(Upid(1)),
                    tid: Some(Tid(1)),
                    op: Op::Read,
                    file: Some(FileId(1)),
                    offset: Some(i),
                    length: Some(4096),
                    flags: None,
                    result: 4096,
                    fidelity: Fidelity::Exact,
                });
            }
            begin.elapsed().as_nanos() as f64 / BURST as f64
        })
        .collect();
    std::thread::sleep(Duration::from_millis(20));
    writer.discard();
    bursts.sort_by(f64::total_cmp);
    bursts[bursts.len() / 2]
}

/// CPU time of the writer thread so far.
fn writer_seconds() -> f64 {
    let tasks = fs::read_dir("/proc/self/task").expect("procfs");
    tasks
        .filter_map(|task| {
            let task = task.ok()?.path();
            let name = fs::read_to_string(task.join("comm")).ok()?;
            (name.trim_end() == "trace-writer").then(|| on_cpu(&task.join("schedstat")))
        })
        .sum()
}

/// CPU time of this thread so far.
fn thread_seconds() -> f64 {
    on_cpu("/proc/thread-self/schedstat".as_ref())
}

fn on_cpu(schedstat: &std::path::Path) -> f64 {
    let text = fs::read_to_string(schedstat).expect("procfs");
    let ns = text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
    ns.expect("a number of ns") / 1e9
}

/// CPU time of all threads so far, those that have ended included.
fn process_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("procfs");
    let (_, fields) = stat.rsplit_once(") ").expect("a name in parentheses");
    let ticks = |at| {
        fields
            .split(' ')
            .nth(at)
            .and_then(|n| n.parse::<f64>().ok())
    };
    (ticks(11).expect("utime") + ticks(12).expect("stime")) / 100.0
}
