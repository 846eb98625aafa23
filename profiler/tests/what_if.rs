//! Predictions compared with the changed run: the same made-up workflow, built again with the steps of a rule
//! slower or faster. Times are milliseconds.

use flowtrace_profiler::analysis::critical_path::CriticalPath;
use flowtrace_profiler::load::{load, load_activity};
use flowtrace_profiler::model::Workflow;
use flowtrace_schema::{Activity, Direction, Side, Trace};

#[path = "support/script.rs"]
mod script;

use script::Script;

/// A rule and the factor for its time.
#[derive(Clone, Copy)]
struct Change(&'static str, f64);

impl Change {
    fn of(self, rule: &str, ms: u64) -> u64 {
        if rule == self.0 {
            (ms as f64 * self.1) as u64
        } else {
            ms
        }
    }
}

fn path_of(build: impl Fn(&mut Script, Change) -> u64, change: Change) -> (Workflow, CriticalPath) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("t.db");
    let mut script = Script::new(&file, "run.sh");
    let end = build(&mut script, change);
    script.finish(end + 1, 0);
    let trace = Trace::open(&file).unwrap();
    let workflow = load(&trace).unwrap();
    let activity = load_activity(&trace, &workflow).unwrap();
    let path = CriticalPath::of(&workflow, &activity);
    (workflow, path)
}

#[track_caller]
fn agree(build: impl Fn(&mut Script, Change) -> u64 + Copy, rules: &[&'static str]) {
    let (workflow, base) = path_of(build, Change("", 1.0));
    assert_eq!(base.what_if(|_| 1.0), base.length_ns(), "nothing changes");
    for &rule in rules {
        for factor in [2.0, 0.5] {
            let predicted = base.what_if(|id| match **workflow.rule(id) == *rule {
                true => factor,
                false => 1.0,
            });
            let (_, real) = path_of(build, Change(rule, factor));
            let error = predicted as f64 / real.length_ns() as f64 - 1.0;
            assert!(
                error.abs() <= 0.1,
                "{rule} × {factor}: {:.0} %",
                error * 100.0
            );
        }
    }
}

/// A script: one step, three side by side, one that needs all of them, two of which one runs on.
fn fan(s: &mut Script, change: Change) -> u64 {
    let shell = s.root(("/bin/bash", &["bash", "run.sh"]), 0);
    let mut at = 10;
    let mut run = |s: &mut Script, rules: &[(&str, u64)]| {
        let ends: Vec<u64> = rules
            .iter()
            .map(|&(rule, ms)| {
                let end = at + change.of(rule, ms);
                s.program(shell, rule, (at, end), 0);
                end
            })
            .collect();
        let end = ends.into_iter().max().unwrap();
        s.sample(shell, (at, end), Activity::Child, None);
        at = end + 5;
    };
    run(s, &[("prepare", 200)]);
    run(s, &[("left", 600), ("middle", 400), ("right", 500)]);
    run(s, &[("join", 100)]);
    run(s, &[("draw", 300), ("log", 150)]);
    s.end(shell, at, Some(0), None, 30);
    at
}

#[test]
fn of_steps_side_by_side() {
    agree(
        fan,
        &["prepare", "left", "middle", "right", "join", "draw", "log"],
    );
}

/// Two jobs of make, each a shell with two steps one after the other, and a link at the end.
fn nested(s: &mut Script, change: Change) -> u64 {
    let make = s.root(("/usr/bin/make", &["make", "-j2"]), 0);
    let mut ends = Vec::new();
    for (first, second) in [(("cc", 300), ("as", 100)), (("cc", 250), ("strip", 200))] {
        let job = s.fork(make, ("/usr/bin/make", &["make", "-j2"]), 5);
        let shell = s.exec(
            job,
            100 + job,
            Some(make),
            ("/bin/sh", &["sh", "-c", "cc; as"]),
            6,
        );
        let middle = 10 + change.of(first.0, first.1);
        let end = middle + 2 + change.of(second.0, second.1);
        s.program(shell, first.0, (10, middle), 0);
        s.program(shell, second.0, (middle + 2, end), 0);
        s.sample(shell, (10, end), Activity::Child, None);
        s.end(shell, end + 1, Some(0), None, 4);
        ends.push(end + 1);
    }
    let linked = ends.into_iter().max().unwrap() + 4;
    s.sample(make, (10, linked - 4), Activity::Child, None);
    let end = linked + change.of("ld", 150);
    s.program(make, "ld", (linked, end), 0);
    s.sample(make, (linked, end), Activity::Child, None);
    s.end(make, end + 5, Some(0), None, 20);
    end + 5
}

#[test]
fn of_jobs_of_several_steps() {
    agree(nested, &["cc", "as", "strip", "ld"]);
}

/// A pool: a process with threads, of which one waits for a lock, whose two workers run steps one after the
/// other. The workers send their results through a pipe of which all have both ends open, and wait for more
/// until the pool is closed. Samples of several processes are taken some milliseconds before the event that
/// ends a wait, or after it.
fn pool(s: &mut Script, change: Change) -> u64 {
    const PYTHON: (&str, &[&str]) = ("/usr/bin/python3", &["python3", "pool.py"]);
    let main = s.root(PYTHON, 0);
    let (tasks, results) = (s.pipe(), s.pipe());
    let work = [&[("long", 1600)][..], &[("short", 600), ("short", 600)]];
    let mut ends = Vec::new();
    let mut sent = Vec::new();
    for steps in work {
        let worker = s.fork(main, PYTHON, 100);
        let mut at = 120;
        for &(rule, ms) in steps {
            let end = at + change.of(rule, ms);
            s.program(worker, rule, (at, end), 0);
            s.sample(worker, (at, end), Activity::Child, None);
            at = end + 5;
            sent.push(end - 3);
        }
        ends.push((worker, at));
    }
    let last = ends.iter().map(|&(_, at)| at).max().unwrap();
    let end = last + 20;
    for &(worker, at) in &ends {
        if at < last {
            s.sample(
                worker,
                (at, last + 2),
                Activity::Channel,
                Some((tasks, Side::Read)),
            );
        }
        s.holds(worker, tasks, Direction::Read, (100, last + 4), None);
        s.holds_both(worker, results, (100, last + 4));
        s.end(worker, last + 4, Some(0), None, 30);
    }
    s.holds(main, tasks, Direction::Write, (90, end), None);
    s.holds(main, results, Direction::Read, (90, end), None);
    s.threads(main, 3);
    s.sample_thread(main, 0, (100, last + 10), Activity::Lock, None);
    sent.sort_unstable();
    let mut from = 100;
    for until in sent {
        let waits_at = Some((results, Side::Read));
        s.sample_thread(main, 1, (from, until), Activity::Channel, waits_at);
        from = until;
    }
    s.sample_thread(main, 2, (100, last + 1), Activity::Lock, None);
    s.end(main, end, Some(0), None, 110);
    end
}

#[test]
fn of_a_pool_of_workers() {
    agree(pool, &["long", "short"]);
    let (workflow, path) = path_of(pool, Change("", 1.0));
    let on_path = |rule: &str| -> i64 {
        let steps = path
            .steps
            .iter()
            .filter(|step| **workflow.rule(step.process) == *rule);
        steps
            .map(|step| (step.to_ns - step.from_ns) / 1_000_000)
            .sum()
    };
    assert_eq!(on_path("long"), 1600, "{:#?}", path.steps);
    assert_eq!(on_path("short"), 0);
}

/// `{ a; b; } | cat`: b writes nothing, and cat reads until the group of both has ended.
fn kept_open(s: &mut Script, change: Change) -> u64 {
    const BASH: (&str, &[&str]) = ("/bin/bash", &["bash", "-c", "{ a; b; } | cat"]);
    let shell = s.root(BASH, 0);
    let pipe = s.pipe();
    let group = s.fork(shell, BASH, 5);
    let middle = 10 + change.of("a", 400);
    let end = middle + 4 + change.of("b", 600);
    let a = s.program(group, "a", (10, middle), 0);
    let b = s.program(group, "b", (middle + 4, end), 0);
    let cat = s.program(shell, "cat", (8, end + 10), end);
    s.sample(group, (10, end), Activity::Child, None);
    s.sample(
        cat,
        (10, end + 5),
        Activity::Channel,
        Some((pipe, Side::Read)),
    );
    s.holds(a, pipe, Direction::Write, (10, middle), None);
    s.holds(b, pipe, Direction::Write, (middle + 4, end), Some(false));
    s.holds(group, pipe, Direction::Write, (5, end + 4), Some(false));
    s.holds(cat, pipe, Direction::Read, (8, end + 10), None);
    s.end(group, end + 4, Some(0), None, 8);
    s.sample(shell, (8, end + 10), Activity::Child, None);
    s.end(shell, end + 20, Some(0), None, 16);
    end + 20
}

#[test]
fn of_a_pipe_that_is_kept_open() {
    agree(kept_open, &["a", "b"]);
}

/// `for …; do make; echo; done | while read …; do take; done`: samples show the first loop in one wait for
/// its children, and the waits of the second end some milliseconds too early or too late.
fn loops(s: &mut Script, change: Change, (make_ms, take_ms): (u64, u64), rounds: usize) -> u64 {
    const BASH: (&str, &[&str]) = ("/bin/bash", &["bash", "-c", "for …; done | while …"]);
    const SAMPLES_OFF: [i64; 4] = [-9, 7, -4, 12];
    let shell = s.root(BASH, 0);
    let pipe = s.pipe();
    let makes = s.fork(shell, BASH, 5);
    let takes = s.fork(shell, BASH, 6);
    let (mut made, mut taken, mut until) = (10, 10, 10);
    for off in SAMPLES_OFF.into_iter().cycle().take(rounds) {
        let began = made;
        made += change.of("make", make_ms);
        s.program(makes, "make", (began, made), 0);
        made += 2;
        if made > taken {
            let seen = made.saturating_add_signed(off);
            s.sample(
                takes,
                (until, seen),
                Activity::Channel,
                Some((pipe, Side::Read)),
            );
            until = seen;
        }
        let began = made.max(taken) + 1;
        taken = began + change.of("take", take_ms);
        s.program(takes, "take", (began, taken), 0);
        s.sample(takes, (until.max(began), taken), Activity::Child, None);
        (taken, until) = (taken + 1, taken);
    }
    s.sample(makes, (10, made - 2), Activity::Child, None);
    s.holds(makes, pipe, Direction::Write, (5, made), None);
    s.holds(takes, pipe, Direction::Read, (6, taken + 2), None);
    s.end(makes, made, Some(0), None, 10);
    s.end(takes, taken + 2, Some(0), None, 10);
    let end = made.max(taken + 2) + 4;
    s.sample(shell, (8, end - 4), Activity::Child, None);
    s.end(shell, end, Some(0), None, 10);
    end
}

#[test]
fn of_a_loop_that_feeds_a_loop() {
    let build = |s: &mut Script, change: Change| loops(s, change, (400, 200), 4);
    agree(build, &["make", "take"]);
}

/// The input of the second loop is in the pipe already, but with a slower first loop it would not be.
#[test]
fn of_a_loop_that_is_behind() {
    let build = |s: &mut Script, change: Change| loops(s, change, (100, 200), 8);
    agree(build, &["make", "take"]);
    let build = |s: &mut Script, change: Change| loops(s, change, (120, 500), 30);
    agree(build, &["make", "take"]);
}

/// A make that has worked for long asks a shell for `printf | sort`, whose output it reads: no process wrote
/// into that pipe before it began.
fn late_writer(s: &mut Script, change: Change) -> u64 {
    let make = s.root(("/usr/bin/make", &["make"]), 0);
    let began = change.of("make", 3_600);
    let shell = s.fork(make, ("/bin/sh", &["sh", "-c", "printf | sort"]), began);
    let (unsorted, pipe) = (s.pipe(), s.pipe());
    let printed = began + change.of("printf", 60);
    let written = printed + change.of("sort", 40);
    let printf = s.program(shell, "printf", (began, printed), 0);
    let sort = s.program(shell, "sort", (began, written), printed - began);
    s.holds(printf, unsorted, Direction::Write, (began, printed), None);
    s.holds(sort, unsorted, Direction::Read, (began, written), None);
    s.sample(shell, (began, written), Activity::Child, None);
    s.end(shell, written, Some(0), None, 1);
    let end = written + change.of("make", 300);
    s.sample(make, (0, began), Activity::Running, None);
    s.sample(make, (began, written), Activity::Child, None);
    s.sample(make, (written, end), Activity::Running, None);
    s.holds(sort, pipe, Direction::Write, (began, written), None);
    s.holds(make, pipe, Direction::Read, (5, end), None);
    s.end(make, end, Some(0), None, end - written + began);
    end
}

#[test]
fn of_what_a_late_writer_leaves_in_the_pipe() {
    agree(late_writer, &["make"]);
}
