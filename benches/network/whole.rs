//! Every question about a whole trace, each by a process of its own.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::process::Process;
use crate::programs::Program;
use crate::{FLOWTRACE, recording};

/// Bars at ten million packets: seconds, MiB.
const BARS: (f64, u64) = (20.0, 2048);
/// The packets to which the bars belong.
const BARS_AT: u64 = 10_000_000;

const QUESTIONS: [&[&str]; 27] = [
    &["overview"],
    &["flows"],
    &["peers"],
    &["matrix"],
    &["topology"],
    &["changes"],
    &["iterations"],
    &["stationary"],
    &["cdf"],
    &["spectrum"],
    &["peaks"],
    &["period"],
    &["components"],
    &["court"],
    &["balance"],
    &["bias"],
    &["multiload"],
    &["imbalance"],
    &["messages"],
    &["decomposition"],
    &["latency", "--from", "10.0.0.1", "--to", "10.0.0.2"],
    &["component"],
    &["slowdown"],
    &["pop"],
    &["critical-path"],
    &["what-if", "--no-latency"],
    &["state"],
];

/// Whether all bars hold that belong to so many packets.
pub(crate) fn run(program: Program, packets: u64, only: Option<&str>) -> bool {
    let directory = tempfile::tempdir().expect("a place for the trace");
    let path = directory.path().join("trace.db");
    let begin = Instant::now();
    let (packets, length) = recording::whole(&path, program, packets);
    println!(
        "{}: {packets} packets in {length:.0} s; {:.0} MB, written in {:.1} s",
        program.name(),
        path.metadata().map_or(0, |m| m.len()) as f64 / 1e6,
        begin.elapsed().as_secs_f64()
    );
    let mut holds = true;
    for question in QUESTIONS {
        if only.is_some_and(|only| only != question[0]) {
            continue;
        }
        holds &= ask(question, &path, packets);
    }
    holds
}

fn ask(question: &[&str], trace: &Path, packets: u64) -> bool {
    let mut command = Command::new(FLOWTRACE);
    command.arg("network").arg(question[0]).arg(trace);
    command.args(&question[1..]).stdout(Stdio::null());
    let used = Process::start(&mut command).end();
    let mebibytes = used.peak_bytes >> 20;
    // Fewer packets prove nothing of more.
    let is_due = packets >= BARS_AT;
    let is_within = !is_due || used.wall_s <= BARS.0 && mebibytes <= BARS.1;
    println!(
        "  {:14} {:7.2} s  {:7.2} s of CPU  {mebibytes:5} MiB  {:5.2} of the time  {:5.2} of the memory{}{}",
        question[0],
        used.wall_s,
        used.cpu_s,
        used.wall_s / BARS.0,
        mebibytes as f64 / BARS.1 as f64,
        if is_within { "" } else { "  MISSED" },
        if used.succeeded { "" } else { "  FAILED" },
    );
    is_within && used.succeeded
}
