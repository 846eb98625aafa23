//! How long the graph and the statistics of large traces take, and how much memory.
//!
//! `cargo bench -p flowtrace-profiler --bench scale` makes a trace of 2.25 million calls, 5 000 processes
//! and 15 000 files, the size of the largest Montage of the ParaTrac paper; `-- large` one of 50 million
//! calls and 100 000 processes; `-- N` one of N calls. Each analysis runs in a process of its own, so
//! that its memory is its own; the best of three, of a large trace the only one. The cost per call is in CPU time, which other
//! work on the machine hardly changes. Beside them networkx builds the same graph and pandas
//! computes the same table, where `PYTHON` (default python3) has them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use flowtrace_profiler::analysis::critical_path::CriticalPath;
use flowtrace_profiler::analysis::statistics::{calls::load_and_gather, phases};
use flowtrace_profiler::graph::{self, groups};
use flowtrace_profiler::load::{load, load_activity};
use flowtrace_schema::{FileKind, Op, Trace};
use nix::sys::resource::{UsageWho, getrusage};

#[path = "../tests/support/script.rs"]
mod script;

use script::Script;

/// Bars of the small trace: seconds, MiB.
const BARS: (f64, f64) = (3.0, 512.0);
/// Bars of the large trace.
const LARGE_BARS: (f64, f64) = (90.0, 4096.0);

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    if let [what, path] = &arguments[..] {
        return measure(what, path.as_ref());
    }
    let (calls, processes, bars) = match arguments.first().map(String::as_str) {
        Some("large") => (50_000_000, 100_000, Some(LARGE_BARS)),
        Some(n) => (n.parse().expect("a number of calls"), 5_000, None),
        None => (2_250_000, 5_000, Some(BARS)),
    };
    let is_large = calls > 10_000_000;
    let directory = tempfile::tempdir().expect("a place for the trace");
    let path = directory.path().join("scale.db");
    let begin = Instant::now();
    generate(&path, calls, processes);
    let size = path.metadata().map_or(0, |m| m.len());
    println!(
        "{calls} calls, {processes} processes, {} files; {:.0} MB, written in {:.1} s",
        processes * 3,
        size as f64 / 1e6,
        begin.elapsed().as_secs_f64()
    );
    println!(
        "{:>14}  {:>8}  {:>8}  {:>8}  {:>10}",
        "", "time", "cpu", "memory", "per call"
    );
    let mut is_within = true;
    for what in ["load", "dag", "stats", "critical-path"] {
        let runs = (0..if is_large { 1 } else { 3 }).map(|_| child(what, &path));
        let [seconds, memory, cpu] = runs.fold([f64::INFINITY, 0.0, f64::INFINITY], |best, run| {
            [
                best[0].min(run[0]),
                best[1].max(run[1]),
                best[2].min(run[2]),
            ]
        });
        let bar = bars.filter(|_| matches!(what, "dag" | "stats"));
        let is_good = bar.is_none_or(|bar| seconds <= bar.0 && memory <= bar.1);
        is_within &= is_good;
        println!(
            "{what:>14}  {seconds:>6.2} s  {cpu:>6.2} s  {memory:>4.0} MiB  {:>7.0} ns{}",
            cpu * 1e9 / calls as f64,
            if is_good { "" } else { "  over the bar" }
        );
    }
    peers(&path);
    if !is_within {
        std::process::exit(1);
    }
}

/// Seconds, MiB and seconds of CPU time of one analysis in a process of its own.
fn child(what: &str, path: &Path) -> [f64; 3] {
    let own = std::env::current_exe().expect("own name");
    let output = Command::new(own)
        .arg(what)
        .arg(path)
        .output()
        .expect("itself");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = text
        .split_whitespace()
        .map(|n| n.parse().unwrap_or(f64::NAN));
    [(); 3].map(|()| numbers.next().unwrap_or(f64::NAN))
}

fn measure(what: &str, path: &Path) {
    let begin = Instant::now();
    let trace = Trace::open(path).expect("the trace");
    let read = || load(&trace).expect("the trace");
    let count = match what {
        "dag" => {
            let workflow = read();
            let dag = graph::build(&workflow);
            groups::by_rule(&workflow, &dag).graph.node_count()
        }
        "stats" => {
            let (workflow, calls) = load_and_gather(&trace, 20).expect("the trace");
            calls.ops.len() + phases::by_rule(&workflow).rows.len()
        }
        "critical-path" => {
            let workflow = read();
            let activity = load_activity(&trace, &workflow).expect("the trace");
            CriticalPath::of(&workflow, &activity).steps.len()
        }
        _ => read().accesses.len(),
    };
    assert!(count > 0);
    let seconds = begin.elapsed().as_secs_f64();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|p| p.split_whitespace().next()?.parse().ok());
    let cpu = getrusage(UsageWho::RUSAGE_SELF).expect("own usage");
    let cpu = [cpu.user_time(), cpu.system_time()]
        .map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 * 1e-6);
    println!(
        "{seconds} {} {}",
        kib.unwrap_or(f64::NAN) / 1024.0,
        cpu[0] + cpu[1]
    );
}

/// A workflow of layers of 500 processes: each reads two files of the layer before and writes three.
fn generate(path: &Path, calls: u64, processes: u64) {
    const WIDTH: u64 = 500;
    let mut s = Script::new(path, "make -j500");
    let make = s.root(("/usr/bin/make", &["make", "-j500"]), 0);
    let rules = ["mProject", "mDiffFit", "mBackground", "mAdd", "mShrink"];
    let each = (calls / processes / 5).max(1);
    let mut before: Vec<u32> = Vec::new();
    for first in (0..processes).step_by(WIDTH as usize) {
        let at = first / WIDTH * 1000;
        let rule = rules[(first / WIDTH) as usize % rules.len()];
        let exe = format!("/usr/bin/{rule}");
        // An image with its inputs and outputs.
        let mut jobs: Vec<(u32, Vec<u32>, Vec<u32>)> = Vec::new();
        for n in first..(first + WIDTH).min(processes) {
            let argument = format!("in/{n}.fits");
            let forked = s.fork(make, ("/usr/bin/make", &["make", "-j500"]), at);
            let program = (exe.as_str(), &[rule, argument.as_str()][..]);
            let image = s.exec(forked, 100 + forked, Some(make), program, at + 1);
            let mut file = |k| {
                s.file(
                    &format!("/w/{rule}/{n}.{k}.fits"),
                    FileKind::File,
                    1 << 20,
                    at,
                )
            };
            let files = vec![file(0), file(1), file(2)];
            let inputs = match before.len() as u64 {
                0 => Vec::new(),
                m => vec![before[(n * 7 % m) as usize], before[(n * 13 % m) as usize]],
            };
            jobs.push((image, inputs, files));
        }
        // In the order of time, as calls come.
        for i in 0..each {
            let instant = at + 2 + i * 900 / each;
            for (image, inputs, files) in &jobs {
                for &file in inputs {
                    s.call(*image, file, Op::Read, None, Some(4096), instant);
                }
                for &file in files {
                    s.call(*image, file, Op::Write, None, Some(4096), instant);
                }
                if inputs.is_empty() {
                    s.call(*image, files[0], Op::Read, None, Some(4096), instant);
                    s.call(*image, files[1], Op::Getattr, None, None, instant);
                }
            }
        }
        for (image, ..) in &jobs {
            s.end(*image, at + 990, Some(0), None, 800);
        }
        before = jobs.into_iter().flat_map(|(_, _, files)| files).collect();
    }
    let end = processes / WIDTH * 1000 + 1000;
    s.end(make, end, Some(0), None, 10);
    s.finish(end + 1, 0);
}

/// The same work by other programs.
fn peers(path: &Path) {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    let script: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers.py");
    match Command::new(python).arg(script).arg(path).output() {
        Ok(output) if output.status.success() => {
            print!("{}", String::from_utf8_lossy(&output.stdout));
        }
        Ok(output) => println!(
            "peers not measured: {}",
            String::from_utf8_lossy(&output.stderr)
                .lines()
                .last()
                .unwrap_or("")
        ),
        Err(error) => println!("peers not measured: {error}"),
    }
}
