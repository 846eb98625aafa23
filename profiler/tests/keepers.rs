//! `(sleep .6; seq 5) | sort`: who keeps a pipe open without a byte is who its reader waits for until somebody
//! writes. Times are milliseconds.

use flowtrace_profiler::analysis::waits::{Root, waits};
use flowtrace_profiler::load::load;
use flowtrace_profiler::timeline::{self, State};
use flowtrace_schema::{Activity, Direction, Side, Trace};

#[path = "support/script.rs"]
mod script;

use script::Script;

#[test]
fn a_reader_waits_for_who_sleeps_before_the_first_byte() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("t.db");
    let mut script = Script::new(&file, "bash s.sh");
    let s = &mut script;
    let pipe = s.pipe();
    let shell = s.root(("/bin/bash", &["bash", "s.sh"]), 0);
    let group = s.fork(shell, ("/bin/bash", &["bash", "s.sh"]), 5);
    let sort = s.program(shell, "sort", (5, 620), 5);
    let sleep = s.program(group, "sleep", (10, 600), 1);
    let seq = s.program(group, "seq", (600, 610), 5);
    s.holds(group, pipe, Direction::Write, (5, 612), Some(false));
    s.holds(sleep, pipe, Direction::Write, (10, 600), Some(false));
    s.holds(seq, pipe, Direction::Write, (600, 610), Some(true));
    s.holds(sort, pipe, Direction::Read, (5, 620), Some(true));
    s.sample(group, (10, 600), Activity::Child, None);
    s.sample(sleep, (10, 600), Activity::Sleep, None);
    s.sample(sort, (10, 610), Activity::Channel, Some((pipe, Side::Read)));
    s.end(group, 612, Some(0), None, 2);
    s.end(shell, 625, Some(0), None, 5);
    script.finish(626, 0);

    let trace = Trace::open(&file).unwrap();
    let workflow = load(&trace).unwrap();
    let found = waits(&workflow, &timeline::read(&trace, &workflow).unwrap());
    let of_sort = |name: &str| -> f64 {
        let waits = found.waits.iter().filter(|wait| wait.waiter == "sort");
        let for_it = waits.filter(|wait| wait.culprit.as_deref() == Some(name));
        for_it.map(|wait| wait.ns / 1e6).sum()
    };
    assert!((of_sort("sleep") - 590.0).abs() < 12.0, "{:?}", found.waits);
    assert!((of_sort("seq") - 10.0).abs() < 8.0, "{:?}", found.waits);
    let first = &found.causes[0];
    assert_eq!(first.culprit.as_deref(), Some("sleep"));
    assert_eq!(first.root, Root::Doing(State::Sleep));
    let outside = found
        .causes
        .iter()
        .find(|cause| cause.root == Root::Outside);
    assert!(outside.is_none_or(|cause| cause.ns < 1e6), "{outside:?}");
}
