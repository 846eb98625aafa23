//! Children that no process waits for, and children that are ended by others: neither decides how long a run
//! takes. Times are milliseconds.

use flowtrace_profiler::analysis::critical_path::CriticalPath;
use flowtrace_profiler::load::{load, load_activity};
use flowtrace_schema::Activity;

#[path = "support/script.rs"]
mod script;

use script::Script;

const MS: i64 = 1_000_000;
const TERM: i32 = 15;
const INT: i32 = 2;
const KILL: i32 = 9;

/// Time of each of these programs on the path, and duration of the run if the first is ten times as quick.
fn path(build: impl FnOnce(&mut Script), end: u64, names: &[&str]) -> (Vec<i64>, i64) {
    let (_directory, trace) = script::written("bash s.sh", build, end);
    let workflow = load(&trace).unwrap();
    let path = CriticalPath::of(&workflow, &load_activity(&trace, &workflow).unwrap());
    let is_of = |id, name: &str| **workflow.rule(id) == *name;
    let on_path = |name: &&str| {
        let steps = path.steps.iter().filter(|step| is_of(step.process, name));
        steps.map(|step| step.to_ns - step.from_ns).sum::<i64>() / MS
    };
    let quicker = path.what_if(|id| if is_of(id, names[0]) { 0.1 } else { 1.0 });
    (names.iter().map(on_path).collect(), quicker / MS)
}

/// Starts a program; the caller records its end.
fn start(s: &mut Script, parent: u32, program: (&str, &[&str]), at: u64) -> u32 {
    let forked = s.fork(parent, ("/bin/bash", &["bash", "s.sh"]), at);
    s.exec(forked, 100 + forked, Some(parent), program, at + 1)
}

/// `sleep 1000 & s=$!; burn; kill $s; wait`: samples show the shell waiting all the time.
#[test]
fn who_is_ended_lasted_as_long_as_what_came_before() {
    let build = |s: &mut Script| {
        let shell = s.root(("/bin/bash", &["bash", "s.sh"]), 0);
        let sleep = start(s, shell, ("/bin/sleep", &["sleep", "1000"]), 5);
        let burn = s.program(shell, "burn", (10, 1600), 1580);
        s.sample(shell, (10, 1606), Activity::Child, None);
        s.sample(sleep, (10, 1605), Activity::Sleep, None);
        s.sample(burn, (10, 1600), Activity::Running, None);
        s.end(sleep, 1605, None, Some(TERM), 1);
        s.end(shell, 1612, Some(0), None, 8);
    };
    let (on_path, quicker) = path(build, 1613, &["burn", "sleep"]);
    assert_eq!(on_path, [1590, 0]);
    assert!(quicker < 200, "{quicker}");
}

/// `timeout 9 sleep 100 & burn; kill $!`: the shell ended one process, which ended the other, for which it
/// waited.
#[test]
fn who_is_ended_may_end_others_first() {
    let build = |s: &mut Script| {
        let shell = s.root(("/bin/bash", &["bash", "s.sh"]), 0);
        let timeout = start(s, shell, ("/bin/timeout", &["timeout", "9", "sleep"]), 5);
        let sleep = start(s, timeout, ("/bin/sleep", &["sleep", "100"]), 7);
        let burn = s.program(shell, "burn", (10, 1600), 1580);
        s.sample(shell, (10, 1600), Activity::Child, None);
        s.sample(timeout, (10, 1604), Activity::Signal, None);
        s.sample(sleep, (10, 1604), Activity::Sleep, None);
        s.sample(burn, (10, 1600), Activity::Running, None);
        s.end(sleep, 1604, None, Some(TERM), 1);
        s.end(timeout, 1605, Some(124), None, 1);
        s.end(shell, 1612, Some(0), None, 8);
    };
    let (on_path, quicker) = path(build, 1613, &["burn", "sleep", "timeout"]);
    assert_eq!(on_path[..2], [1590, 0]);
    assert!(on_path[2] < 10 && quicker < 200, "{on_path:?} {quicker}");
}

/// `sh -c 'sleep 1; kill -9 $$'; true`: a process that ends itself was waited for, although its parent
/// returned from the wait a little before its recorded end.
#[test]
fn who_ends_itself_was_waited_for() {
    for heard in [995, 999, 1001] {
        let build = |s: &mut Script| {
            let shell = s.root(("/bin/bash", &["bash", "s.sh"]), 0);
            let job = start(s, shell, ("/bin/sh", &["sh", "job"]), 5);
            let sleep = s.program(job, "sleep", (10, 990), 1);
            s.sample(shell, (10, heard), Activity::Child, None);
            s.sample(job, (12, 991), Activity::Child, None);
            s.sample(sleep, (12, 990), Activity::Sleep, None);
            s.end(job, 1000, None, Some(KILL), 4);
            s.end(shell, 1005, Some(0), None, 8);
        };
        let (on_path, _) = path(build, 1006, &["sleep"]);
        assert!(on_path[0] > 960, "{heard}: {on_path:?}");
    }
}

/// Ctrl-C ends the process that works and the one that waits for it: it worked until then.
#[test]
fn who_is_ended_from_outside_worked_until_then() {
    let build = |s: &mut Script| {
        let shell = s.root(("/bin/bash", &["bash", "s.sh"]), 0);
        let burn = start(s, shell, ("/bin/burn", &["burn"]), 5);
        s.sample(shell, (10, 1000), Activity::Child, None);
        s.sample(burn, (10, 1000), Activity::Running, None);
        s.end(burn, 1000, None, Some(INT), 990);
        s.end(shell, 1003, None, Some(INT), 8);
    };
    let (on_path, _) = path(build, 1004, &["burn"]);
    assert_eq!(on_path, [995]);
}

/// A child is started and never waited for, by a process that sleeps and by one that works.
#[test]
fn nobody_waits_for_who_ends_in_the_middle() {
    for (activity, cpu) in [(Activity::Sleep, 8), (Activity::Running, 1170)] {
        let build = |s: &mut Script| {
            let main = s.root(("/bin/main", &["main"]), 0);
            let sleep = s.program(main, "sleep", (20, 520), 1);
            s.sample(main, (25, 1200), activity, None);
            s.sample(sleep, (25, 520), Activity::Sleep, None);
            s.end(main, 1203, Some(0), None, cpu);
        };
        let (on_path, quicker) = path(build, 1204, &["sleep", "main"]);
        assert_eq!(on_path, [0, 1203], "{activity:?}");
        assert!(quicker >= 1202, "{activity:?} {quicker}");
    }
}

/// `while p.poll() is None: time.sleep(.1)`: a process that polls for the end of another waits for it.
#[test]
fn a_process_that_polls_waits() {
    let build = |s: &mut Script| {
        let main = s.root(("/bin/main", &["main"]), 0);
        let child = s.program(main, "child", (20, 1120), 1090);
        s.sample(main, (25, 1200), Activity::Sleep, None);
        s.sample(child, (25, 1120), Activity::Running, None);
        s.end(main, 1203, Some(0), None, 20);
    };
    let (on_path, quicker) = path(build, 1204, &["child"]);
    assert_eq!(on_path, [1100]);
    assert!(quicker < 400, "{quicker}");
}
