//! `seq 3 | while read k; do expr $k + 10; done`: programs that the loop starts have the pipe as their
//! standard input, and read nothing of it. Times are milliseconds.

use flowtrace_profiler::analysis::waits::waits;
use flowtrace_profiler::load::{load, load_activity};
use flowtrace_profiler::model::Workflow;
use flowtrace_profiler::timeline;
use flowtrace_schema::{Activity, ChannelKind, Direction, Side, Trace};

#[path = "support/script.rs"]
mod script;

use script::Script;

const SHELL: (&str, &[&str]) = ("/bin/bash", &["bash", "loop.sh"]);

/// The loop reads all of the six bytes, or `loop_read`; each expr reads its libraries.
fn traced(loop_read: u64) -> (tempfile::TempDir, Trace, Workflow) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("t.db");
    let mut script = Script::new(&file, "bash loop.sh");
    let s = &mut script;
    let pipe = s.pipe();
    let shell = s.root(SHELL, 0);
    let seq = s.program(shell, "seq", (10, 500), 400);
    let reader = s.fork(shell, SHELL, 10);
    s.holds_at_most(seq, pipe, Direction::Write, (10, 500), 6);
    match loop_read {
        0 => s.holds(reader, pipe, Direction::Read, (10, 600), Some(false)),
        bytes => s.holds_at_most(reader, pipe, Direction::Read, (10, 600), bytes),
    }
    for at in [100, 200, 300] {
        let expr = s.program(reader, "expr", (at, at + 90), 10);
        s.holds_at_most(expr, pipe, Direction::Read, (at, at + 90), 6228);
    }
    s.sample(seq, (20, 490), Activity::Channel, Some((pipe, Side::Write)));
    s.sample(reader, (20, 590), Activity::Child, None);
    s.end(reader, 600, Some(0), None, 50);
    s.end(shell, 610, Some(0), None, 10);
    script.finish(611, 0);
    let trace = Trace::open(&file).unwrap();
    let workflow = load(&trace).unwrap();
    (directory, trace, workflow)
}

fn readers(workflow: &Workflow) -> Vec<String> {
    let streams = workflow.streams.iter();
    let mut names: Vec<String> = streams.map(|s| workflow.rule(s.to).to_string()).collect();
    names.dedup();
    names
}

#[test]
fn the_shell_that_read_all_is_the_only_reader() {
    let (_directory, trace, workflow) = traced(6);
    assert_eq!(readers(&workflow), ["loop.sh"]);
    assert_eq!(workflow.streams.len(), 1);
    let activity = load_activity(&trace, &workflow).unwrap();
    let readers = activity.ends_of(1).iter().filter(|end| end.reads);
    assert_eq!(readers.count(), 1);
}

#[test]
fn the_writer_waits_for_the_shell_alone() {
    let (_directory, trace, workflow) = traced(6);
    let timeline = timeline::read(&trace, &workflow).unwrap();
    let waits = waits(&workflow, &timeline);
    let of_seq = waits.waits.iter().filter(|wait| wait.waiter == "seq");
    let blockers: Vec<_> = of_seq.filter_map(|wait| wait.blocker.as_deref()).collect();
    assert_eq!(blockers, ["loop.sh"], "{:?}", waits.waits);
}

#[test]
fn bytes_that_do_not_balance_leave_it_open() {
    let (_directory, _trace, workflow) = traced(0);
    assert_eq!(workflow.streams.len(), 3, "{:?}", workflow.streams);
    assert_eq!(readers(&workflow), ["expr"]);
}

/// A program has a socket pair and starts two others, one of which stays a copy: neither talks to the other,
/// and the one that executes something else does not talk to the program either.
#[test]
fn sockets_on_the_way_to_an_exec_connect_nobody() {
    const DRIVER: (&str, &[&str]) = ("/usr/bin/python3", &["python3", "driver.py"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("t.db");
    let mut script = Script::new(&file, "python3 driver.py");
    let s = &mut script;
    let pair = s.channel(ChannelKind::Socketpair);
    let driver = s.root(DRIVER, 0);
    s.holds(driver, pair, Direction::Both, (5, 500), None);
    for at in [100, 200] {
        let child = s.fork(driver, DRIVER, at);
        s.holds(child, pair, Direction::Both, (at, at + 1), None);
        let sort = s.exec(
            child,
            100 + child,
            Some(driver),
            ("/usr/bin/sort", &["sort"]),
            at + 1,
        );
        s.end(sort, at + 90, Some(0), None, 50);
    }
    for at in [300, 310] {
        let copy = s.fork(driver, DRIVER, at);
        s.holds(copy, pair, Direction::Both, (at, at + 90), None);
        s.end(copy, at + 90, Some(0), None, 50);
    }
    s.end(driver, 500, Some(0), None, 50);
    script.finish(501, 0);
    let trace = Trace::open(&file).unwrap();
    let workflow = load(&trace).unwrap();
    let streams = workflow.streams.iter();
    let pairs: Vec<_> = streams
        .map(|s| (workflow.rule(s.from).as_ref(), s.to.0))
        .collect();
    // The copies may talk to the driver.
    assert_eq!(pairs, [("driver.py", 3), ("driver.py", 4)]);
    let timeline = timeline::read(&trace, &workflow).unwrap();
    assert_eq!(timeline.channels[0].readers.len(), 3);
}
