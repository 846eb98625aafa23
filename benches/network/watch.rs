//! Looking on while a trace is recorded.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::process::Process;
use crate::programs::Program;
use crate::{FLOWTRACE, recording};

/// Largest share of a CPU.
const BAR: f64 = 0.05;

/// Whether looking on costs no more than it may.
pub(crate) fn run(program: Program, rate: u64, seconds: u64, options: &[&str]) -> bool {
    let directory = tempfile::tempdir().expect("a place for the trace");
    let path = directory.path().join("trace.db");
    let writer = std::thread::spawn({
        let path = path.clone();
        move || recording::live(&path, program, rate as f64, seconds as f64)
    });
    std::thread::sleep(Duration::from_secs(1));
    let mut command = Command::new(FLOWTRACE);
    command.arg("network").args(&options[..1]).arg(&path);
    command.args(&options[1..]).arg("--watch");
    let answers = directory.path().join("answers");
    let file = std::fs::File::create(&answers).expect("a file for the answers");
    command.stdout(Stdio::from(file));
    let used = Process::start(&mut command).end();
    let packets = writer.join().expect("the writer ends");
    let text = std::fs::read_to_string(&answers).unwrap_or_default();
    let looks = text.lines().filter(|line| *line == "---").count();
    let share = used.cpu_s / used.wall_s;
    let holds = share <= BAR && used.succeeded;
    println!(
        "  {:6} {:36} {packets} packets in {:.0} s, {looks} answers: {:.2} s of CPU, {:.1} % of a CPU, {} MiB{}",
        program.name(),
        options.join(" "),
        used.wall_s,
        used.cpu_s,
        share * 100.0,
        used.peak_bytes >> 20,
        if holds { "" } else { "  MISSED" }
    );
    holds
}
