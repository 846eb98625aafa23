//! `while [ ! -e done ]; do sleep .2; done`: a process that polls for a file waits for the one that makes it.
//! Times are milliseconds.

use flowtrace_profiler::analysis::bottlenecks;
use flowtrace_profiler::analysis::critical_path::CriticalPath;
use flowtrace_profiler::analysis::waits::{Root, waits};
use flowtrace_profiler::graph;
use flowtrace_profiler::load::{load, load_activity};
use flowtrace_profiler::timeline::{self, State};
use flowtrace_schema::{Activity, FileKind, Op, Trace};

#[path = "support/script.rs"]
mod script;

use script::Script;

fn lookup(s: &mut Script, image: u32, file: u32, result: i64, at: u64) {
    s.bare_call(image, file, Op::Lookup, at * 1_000_000, result);
}

/// The shell looks the file up every 200 ms, and sleeps in between, until it is made.
fn look_up_in_vain(s: &mut Script, shell: u32, made: u64) {
    let absent = s.file("/w/done", FileKind::Absent, 0, 20);
    for at in (20..made).step_by(200) {
        lookup(s, shell, absent, -2, at);
        let sleep = s.program(shell, "sleep", (at + 5, at + 195), 1);
        s.sample(sleep, (at + 8, at + 195), Activity::Sleep, None);
    }
    s.name_end(absent, "/w/done", made);
}

/// A worker that makes the file at 900, and a script that looks it up every 200 ms; `is_found`: and finds it.
fn polling(is_found: bool) -> (CriticalPath, f64, Vec<(Option<String>, Root)>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let mut script = Script::new(&path, "bash s.sh");
    let s = &mut script;
    let shell = s.root(("/bin/bash", &["bash", "s.sh"]), 0);
    let work = s.program(shell, "work", (5, 910), 5);
    s.sample(work, (8, 900), Activity::Running, None);
    look_up_in_vain(s, shell, 900);
    let done = s.file("/w/done", FileKind::File, 1, 900);
    s.call(work, done, Op::Create, Some(1), None, 899);
    if is_found {
        lookup(s, shell, done, 0, 1020);
    }
    let next = s.program(shell, "next", (1030, 1330), 2);
    s.sample(next, (1033, 1330), Activity::Running, None);
    s.sample(shell, (25, 1330), Activity::Child, None);
    s.end(shell, 1335, Some(0), None, 10);
    script.finish(1336, 0);
    let trace = Trace::open(&path).unwrap();
    let workflow = load(&trace).unwrap();
    let activity = load_activity(&trace, &workflow).unwrap();
    let critical = CriticalPath::of(&workflow, &activity);
    let rules = critical.by_rule(&workflow);
    let of_work = rules.iter().find(|one| *one.rule == *"work");
    let of_work = of_work.map_or(0.0, |one| one.ns as f64 / 1e6);
    let found = waits(&workflow, &timeline::read(&trace, &workflow).unwrap());
    let causes = found.causes.into_iter();
    let causes = causes.map(|cause| (cause.blocker, cause.root)).collect();
    (critical, of_work, causes)
}

#[test]
fn who_makes_the_file_is_waited_for() {
    let (critical, of_work, causes) = polling(true);
    assert!((of_work - 890.0).abs() < 30.0, "{of_work} {critical:#?}");
    assert_eq!(
        causes[0],
        (Some("work".into()), Root::Doing(State::Cpu)),
        "{causes:?}"
    );
}

#[test]
fn a_file_that_was_not_looked_up_again_was_not_waited_for() {
    let (_, of_work, causes) = polling(false);
    assert!(of_work < 100.0, "{of_work}");
    assert!(
        causes
            .iter()
            .all(|(blocker, _)| blocker.as_deref() != Some("work"))
    );
}

/// Both programs are `sleep`: the one that is a pause between lookups is no instance beside the one that is
/// waited for.
#[test]
fn a_producer_of_the_same_name_as_the_pauses_is_the_bottleneck() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let mut script = Script::new(&path, "bash s.sh");
    let s = &mut script;
    let shell = s.root(("/bin/bash", &["bash", "s.sh"]), 0);
    let maker = s.fork(shell, ("/bin/bash", &["bash", "s.sh"]), 2);
    let work = s.program(maker, "sleep", (5, 1890), 1);
    s.sample(work, (8, 1890), Activity::Sleep, None);
    s.sample(maker, (5, 1890), Activity::Child, None);
    look_up_in_vain(s, shell, 1900);
    let done = s.file("/w/done", FileKind::File, 1, 1900);
    s.call(maker, done, Op::Create, Some(1), None, 1899);
    s.end(maker, 1902, Some(0), None, 3);
    lookup(s, shell, done, 0, 2020);
    s.sample(shell, (25, 2020), Activity::Child, None);
    s.end(shell, 2025, Some(0), None, 10);
    script.finish(2026, 0);
    let trace = Trace::open(&path).unwrap();
    let workflow = load(&trace).unwrap();
    let timeline = timeline::read(&trace, &workflow).unwrap();
    let names = bottlenecks::by_rule(&workflow);
    let options = bottlenecks::Options::default();
    let dag = graph::build(&workflow);
    let result = bottlenecks::analyse(&workflow, &dag, &timeline, &names, true, options);
    let first = result.causes.first().expect("a cause");
    let step = first.task.map(|task| result.tasks.tasks[task].name());
    assert_eq!(
        (step.as_deref(), first.resource.name()),
        (Some("sleep"), "sleep")
    );
    assert!(first.share > 0.85, "{first:?}");
}
