//! The answers of `bottlenecks` about a run while it is recorded, and about the whole run at its end.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::process::start;
use crate::support::{FLOWTRACE, PYTHON, Scratch, need_fuse, need_python, run_in};

/// A stage of a pipeline that computes for some ms for each of its blocks; the first stage has a number of
/// blocks.
const STAGE: &str = "
import os, sys, time
ms, count = int(sys.argv[1]), int(sys.argv[2])
def compute():
    end = time.process_time() + ms / 1e3
    while time.process_time() < end: pass
def blocks():
    for _ in range(count): yield b'x' * 65536
    while not count:
        block = os.read(0, 65536)
        if not block: return
        yield block
for block in blocks():
    compute()
    if sys.argv[3:]: continue
    while block: block = block[os.write(1, block):]
";

/// Step or channel, and the intervals in ns in which it is the cause.
type Blamed = (String, Vec<(i64, i64)>);

/// The causes in the terms of the answer, with their intervals.
fn causes(trace: &std::path::Path) -> Option<Vec<Blamed>> {
    let mut command = Command::new(FLOWTRACE);
    command.args(["bottlenecks", "--format", "json"]).arg(trace);
    let done = command.output().unwrap();
    let facts: Value = serde_json::from_slice(&done.stdout).ok()?;
    let cause = |cause: &Value| {
        let who = cause["step"].as_str().or(cause["channel"].as_str());
        let name = format!("{}: {}", who.unwrap(), cause["resource"].as_str().unwrap());
        let pair = |pair: &Value| (pair[0].as_i64().unwrap(), pair[1].as_i64().unwrap());
        let intervals = cause["intervals"].as_array().unwrap().iter().map(pair);
        (name, intervals.collect())
    };
    Some(
        facts["causes"]
            .as_array()
            .unwrap()
            .iter()
            .map(cause)
            .collect(),
    )
}

fn common(a: &[(i64, i64)], b: &[(i64, i64)]) -> i64 {
    let each = a
        .iter()
        .flat_map(|x| b.iter().map(move |y| x.1.min(y.1) - x.0.max(y.0)));
    each.filter(|ns| *ns > 0).sum()
}

#[test]
fn no_channel_is_blamed_at_the_newest_edge_of_a_run_that_goes_on() {
    if !need_fuse() || !need_python("os") {
        return;
    }
    let scratch = Scratch::new();
    let (job, trace) = (scratch.dir("job"), scratch.join("trace.db"));
    for name in ["source", "middle", "sink"] {
        std::fs::write(job.join(format!("{name}.py")), STAGE).unwrap();
    }
    let script =
        format!("{PYTHON} source.py 0 120 | {PYTHON} middle.py 50 0 | {PYTHON} sink.py 1 0 last");
    let mut run = run_in(&job, &trace);
    run.args(["--", "sh", "-c", &script]);
    let mut running = start(&mut run);
    let mut said = Vec::new();
    while !running.has_ended() {
        std::thread::sleep(Duration::from_millis(300));
        if trace.exists() {
            said.extend(causes(&trace));
        }
    }
    running.wait(Duration::from_secs(60)).expect(0);
    let whole = causes(&trace).unwrap();
    assert!(
        said.iter().any(|causes| !causes.is_empty()),
        "it says nothing while it runs"
    );
    for (name, intervals) in said.into_iter().flatten() {
        let ns: i64 = intervals.iter().map(|one| one.1 - one.0).sum();
        let agreed = whole.iter().filter(|other| other.0 == name);
        let agreed: i64 = agreed.map(|other| common(&intervals, &other.1)).sum();
        // The resource that a step lacked is known better at the end.
        let step = name.split(':').next();
        let same_step = whole.iter().any(|other| other.0.split(':').next() == step);
        assert!(
            2 * agreed >= ns || same_step,
            "{name} {intervals:?}, but in all {whole:?}"
        );
    }
}
