//! Critical paths of made-up workflows whose answer is known. Times are milliseconds.

use flowtrace_profiler::analysis::critical_path::{CriticalPath, MOST_EQUAL, StepKind};
use flowtrace_profiler::graph;
use flowtrace_profiler::load::{load, load_activity};
use flowtrace_profiler::model::Workflow;
use flowtrace_profiler::text::critical_path;
use flowtrace_schema::{Activity, ChannelKind, Direction, FileKind, Side, Trace};

#[path = "support/script.rs"]
mod script;

use script::Script;

const MS: i64 = 1_000_000;

fn path_of(build: impl FnOnce(&mut Script), end: u64) -> (Workflow, CriticalPath) {
    let (_directory, trace) = script::written("make", build, end);
    let workflow = load(&trace).unwrap();
    let activity = load_activity(&trace, &workflow).unwrap();
    let path = CriticalPath::of(&workflow, &activity);
    // The steps add up to the path.
    let sum: i64 = path.steps.iter().map(|s| s.to_ns - s.from_ns).sum();
    assert_eq!(sum, path.length_ns());
    assert!(path.steps.windows(2).all(|w| w[0].to_ns == w[1].from_ns));
    assert_eq!(path.what_if(|_| 1.0), path.length_ns());
    (workflow, path)
}

/// (rule, begin, end) of the steps of work.
fn steps(workflow: &Workflow, path: &CriticalPath) -> Vec<(String, i64, i64)> {
    path.steps
        .iter()
        .map(|step| {
            assert_eq!(step.kind, StepKind::Work, "{step:?}");
            let rule = workflow.rule(step.process).to_string();
            (rule, step.from_ns / MS, step.to_ns / MS)
        })
        .collect()
}

fn slack(workflow: &Workflow, path: &CriticalPath, rule: &str) -> Option<i64> {
    let id = workflow
        .process_ids()
        .find(|&id| **workflow.rule(id) == *rule);
    path.slack_ns[id.unwrap().0 as usize].map(|ns| ns / MS)
}

fn what_if(workflow: &Workflow, path: &CriticalPath, rule: &str, factor: f64) -> i64 {
    path.what_if(|id| {
        if **workflow.rule(id) == *rule {
            factor
        } else {
            1.0
        }
    }) / MS
}

fn expect(found: &[(String, i64, i64)], expected: &[(&str, i64, i64)]) {
    let found: Vec<_> = found.iter().map(|(r, a, b)| (r.as_str(), *a, *b)).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_chain() {
    let (workflow, path) = path_of(
        |s| {
            let make = s.root(("/usr/bin/make", &["make"]), 0);
            s.program(make, "a", (10, 110), 0);
            s.program(make, "b", (115, 315), 0);
            s.end(make, 320, Some(0), None, 20);
        },
        321,
    );
    expect(
        &steps(&workflow, &path),
        &[
            ("make", 0, 10),
            ("a", 10, 110),
            ("make", 110, 115),
            ("b", 115, 315),
            ("make", 315, 320),
        ],
    );
    assert_eq!(what_if(&workflow, &path, "b", 0.5), 220);
    assert_eq!(what_if(&workflow, &path, "a", 2.0), 420);
    assert_eq!(path.equal_paths, 1);
    assert_eq!(slack(&workflow, &path, "a"), Some(0));
}

#[test]
fn a_diamond_has_a_slack() {
    let diamond = |right: u64| {
        move |s: &mut Script| {
            let make = s.root(("/usr/bin/make", &["make"]), 0);
            s.program(make, "top", (0, 100), 0);
            s.program(make, "left", (100, 300), 0);
            s.program(make, "right", (100, right), 0);
            s.program(make, "bottom", (300, 400), 0);
            s.end(make, 400, Some(0), None, 0);
        }
    };
    let (workflow, path) = path_of(diamond(250), 401);
    expect(
        &steps(&workflow, &path),
        &[("top", 0, 100), ("left", 100, 300), ("bottom", 300, 400)],
    );
    assert_eq!(slack(&workflow, &path, "right"), Some(50));
    assert_eq!(what_if(&workflow, &path, "left", 0.5), 350);
    assert_eq!(what_if(&workflow, &path, "right", 2.0), 500);
    assert_eq!((path.equal_paths, path.on_equal_paths.len()), (1, 0));

    let (workflow, path) = path_of(diamond(300), 401);
    assert_eq!((path.equal_paths, path.on_equal_paths.len()), (2, 1));
    let mut facts = critical_path::facts(&workflow, &path, 0, &[]);
    let style = critical_path::Style {
        width: 100,
        is_full: false,
    };
    let text = critical_path::text(&workflow, &facts, style);
    let equal = "  equal        2 paths take as long; this is one of them, 1 process is on the others only\n";
    assert!(text.contains(equal), "{text}");
    facts.equal_paths = MOST_EQUAL;
    let text = critical_path::text(&workflow, &facts, style);
    assert!(
        text.contains(" a million or more paths take as long"),
        "{text}"
    );
    assert_eq!(slack(&workflow, &path, "right"), Some(0));
    assert_eq!(slack(&workflow, &path, "left"), Some(0));
    assert_eq!(
        what_if(&workflow, &path, "left", 0.5),
        400,
        "the other is as long"
    );
}

#[test]
fn a_fan_out_waits_for_its_straggler() {
    let (workflow, path) = path_of(
        |s| {
            let make = s.root(("/usr/bin/make", &["make", "-j8"]), 0);
            for _ in 0..7 {
                s.program(make, "map", (10, 60), 0);
            }
            s.program(make, "straggler", (10, 500), 0);
            s.program(make, "reduce", (500, 600), 0);
            s.end(make, 600, Some(0), None, 10);
        },
        601,
    );
    expect(
        &steps(&workflow, &path),
        &[
            ("make", 0, 10),
            ("straggler", 10, 500),
            ("reduce", 500, 600),
        ],
    );
    assert_eq!(slack(&workflow, &path, "map"), Some(440));
    assert_eq!(what_if(&workflow, &path, "map", 0.1), 600);
    assert_eq!(what_if(&workflow, &path, "straggler", 0.1), 160);
}

#[test]
fn of_a_pipeline_the_slow_stage() {
    let (workflow, path) = path_of(
        |s| {
            let sh = s.root(("/usr/bin/sh", &["sh", "p.sh"]), 0);
            let (into, out) = (s.pipe(), s.pipe());
            let fast = s.program(sh, "fast", (0, 400), 300);
            let slow = s.program(sh, "slow", (0, 410), 0);
            let last = s.program(sh, "last", (0, 420), 390);
            s.holds(fast, into, Direction::Write, (0, 400), Some(true));
            s.holds(slow, into, Direction::Read, (0, 410), Some(true));
            s.holds(slow, out, Direction::Write, (0, 410), Some(true));
            s.holds(last, out, Direction::Read, (0, 420), Some(true));
            s.sample(fast, (0, 80), Activity::Running, None);
            s.sample(
                fast,
                (80, 380),
                Activity::Channel,
                Some((into, Side::Write)),
            );
            s.sample(fast, (380, 400), Activity::Running, None);
            s.sample(slow, (0, 410), Activity::Running, None);
            s.sample(last, (0, 410), Activity::Channel, Some((out, Side::Read)));
            s.sample(last, (410, 420), Activity::Running, None);
            s.end(sh, 420, Some(0), None, 0);
        },
        421,
    );
    expect(
        &steps(&workflow, &path),
        &[("slow", 0, 410), ("last", 410, 420)],
    );
    assert_eq!(what_if(&workflow, &path, "last", 0.5), 415);
    // The writer that the slow stage had blocked becomes a wait of its own.
    assert!(what_if(&workflow, &path, "slow", 0.5) < 300);
}

/// `zcat | sort | uniq | sort2`: it is not known which process used which pipe, and shells have the ends
/// open, too.
fn sorted(s: &mut Script, has_samples: bool) {
    let sh = s.root(("/usr/bin/sh", &["sh", "p.sh"]), 0);
    let pipes = [s.pipe(), s.pipe(), s.pipe()];
    let spans = [(0, 300), (0, 700), (0, 705), (0, 720)];
    let waits = [200, 260, 690, 700];
    let names = ["zcat", "sort", "uniq", "sort2"];
    let mut images = Vec::new();
    for i in 0..4 {
        let image = s.program(sh, names[i], spans[i], waits[i]);
        if i > 0 {
            s.holds(image, pipes[i - 1], Direction::Read, spans[i], None);
        }
        if i < 3 {
            s.holds(image, pipes[i], Direction::Write, spans[i], None);
            s.holds(sh, pipes[i], Direction::Write, (0, 720), Some(false));
        }
        images.push(image);
    }
    if has_samples {
        s.sample(images[0], (0, 300), Activity::Running, None);
        s.sample(
            images[1],
            (0, 290),
            Activity::Channel,
            Some((pipes[0], Side::Read)),
        );
        s.sample(images[1], (290, 700), Activity::Running, None);
        s.sample(
            images[2],
            (0, 690),
            Activity::Channel,
            Some((pipes[1], Side::Read)),
        );
        s.sample(images[2], (690, 705), Activity::Running, None);
        s.sample(
            images[3],
            (0, 700),
            Activity::Channel,
            Some((pipes[2], Side::Read)),
        );
        s.sample(images[3], (700, 720), Activity::Running, None);
        s.sample(sh, (0, 720), Activity::Child, None);
    }
    s.end(sh, 720, Some(0), None, 0);
}

#[test]
fn behind_a_full_sort_everybody_waits_for_it() {
    for has_samples in [true, false] {
        let (workflow, path) = path_of(|s| sorted(s, has_samples), 721);
        let mut by_rule: Vec<(String, i64)> = path
            .by_rule(&workflow)
            .iter()
            .map(|c| (c.rule.to_string(), c.ns / MS))
            .collect();
        by_rule.truncate(2);
        let of = |rule: &str| by_rule.iter().find(|r| r.0 == rule).map_or(0, |r| r.1);
        assert!(of("sort") >= 380, "{has_samples}: {by_rule:?}");
        assert!(of("uniq") <= 30, "{has_samples}: {by_rule:?}");
        assert!(of("zcat") >= 250, "{has_samples}: {by_rule:?}");
    }
}

#[test]
fn a_nested_make_is_divided() {
    let (workflow, path) = path_of(
        |s| {
            let make = s.root(("/usr/bin/make", &["make"]), 0);
            let sub = s.program(make, "submake", (10, 290), 266);
            s.program(sub, "cc", (15, 200), 0);
            s.program(sub, "ld", (205, 285), 0);
            s.program(make, "doc", (10, 100), 0);
            s.end(make, 300, Some(0), None, 20);
        },
        301,
    );
    expect(
        &steps(&workflow, &path),
        &[
            ("make", 0, 10),
            ("submake", 10, 15),
            ("cc", 15, 200),
            ("submake", 200, 205),
            ("ld", 205, 285),
            ("submake", 285, 290),
            ("make", 290, 300),
        ],
    );
    assert_eq!(slack(&workflow, &path, "doc"), Some(190));
}

#[test]
fn who_works_does_not_wait_for_its_children() {
    let (workflow, path) = path_of(
        |s| {
            let main = s.root(("/usr/bin/main", &["main"]), 0);
            s.program(main, "helper", (10, 100), 0);
            s.end(main, 300, Some(0), None, 300);
        },
        301,
    );
    expect(&steps(&workflow, &path), &[("main", 0, 300)]);
    assert_eq!(slack(&workflow, &path, "helper"), None);
}

#[test]
fn two_roots_are_joined_by_what_the_second_reads() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("t.db");
    let mut s = Script::new(&file, "make");
    let first = s.root(("/usr/bin/first", &["first"]), 0);
    let data = s.file("/w/data", FileKind::File, 10, 50);
    s.create(first, data, 1, 10, 90);
    s.end(first, 100, Some(0), None, 100);
    let second = s.root(("/usr/bin/second", &["second"]), 120);
    s.read(second, data, 1, 10, 125);
    s.end(second, 200, Some(0), None, 80);
    // The recording has no end, so the last process is the end.
    s.cut();
    let trace = Trace::open(&file).unwrap();
    let workflow = load(&trace).unwrap();
    let path = CriticalPath::of(&workflow, &load_activity(&trace, &workflow).unwrap());
    let found: Vec<_> = path
        .steps
        .iter()
        .map(|s| (workflow.rule(s.process).to_string(), s.kind, s.to_ns / MS))
        .collect();
    assert_eq!(
        found,
        [
            ("first".to_string(), StepKind::Work, 90),
            ("second".to_string(), StepKind::Late, 120),
            ("second".to_string(), StepKind::Work, 200)
        ]
    );
}

#[test]
fn nothing_recorded_is_no_path() {
    let (_, path) = path_of(|_| {}, 5);
    assert_eq!(
        (path.last, path.length_ns(), path.steps.len()),
        (None, 0, 0)
    );
}

#[test]
fn a_daemon_left_behind_does_not_lengthen_the_run() {
    let build = |s: &mut Script| {
        let shell = s.root(("/bin/sh", &["sh", "run.sh"]), 0);
        s.program(shell, "daemon", (5, 600), 0);
        for at in [10, 50] {
            s.program(shell, "step", (at, at + 30), 0);
            s.sample(shell, (at, at + 30), Activity::Child, None);
        }
        s.end(shell, 100, Some(0), None, 20);
    };
    let (workflow, path) = path_of(build, 700);
    assert_eq!(path.length_ns() / MS, 100);
    let at_best = path.by_data_alone_ns(&workflow, &graph::build(&workflow)) / MS;
    assert!((20..=60).contains(&at_best), "{at_best}");
}

#[test]
fn at_best_is_computed_from_the_graph_whose_processes_are_cut() {
    let build = |s: &mut Script| {
        let main = s.root(("/usr/bin/main", &["main"]), 0);
        let made = s.file("/w/made", FileKind::File, 9, 0);
        let answer = s.file("/w/answer", FileKind::File, 9, 0);
        s.create(main, made, 1, 9, 90);
        let asked = s.program(main, "asked", (100, 150), 0);
        let beside = s.program(main, "beside", (100, 200), 0);
        s.read(asked, made, 1, 9, 110);
        s.read(beside, made, 1, 9, 120);
        s.create(asked, answer, 1, 9, 140);
        s.sample(main, (100, 150), Activity::Child, None);
        s.read(main, answer, 1, 9, 151);
        s.end(main, 300, Some(0), None, 250);
    };
    let (workflow, path) = path_of(build, 300);
    let at_best = |dag| path.by_data_alone_ns(&workflow, &dag) / MS;
    // made, asked, answered and went on: 100, 50 and 150 ms. As one node, main comes before the process that
    // it had started beside.
    let cut = at_best(graph::lineage(&workflow));
    assert!((290..=300).contains(&cut), "{cut}");
    assert!(at_best(graph::build(&workflow)) >= 340);
}

/// Samples have a distance: the one after the end of a wait, of a thread that is ready to run, comes before
/// the time at which the open is known to have returned. It is the same thread, and not another one that
/// worked while this one waited.
#[test]
fn an_open_of_a_fifo_waits_until_it_is_open_whatever_the_sample_before_saw() {
    let (workflow, path) = path_of(
        |s| {
            let sh = s.root(("/usr/bin/sh", &["sh", "p.sh"]), 0);
            let fifo = s.channel(ChannelKind::Fifo);
            let reader = s.program(sh, "reader", (5, 1090), 1030);
            s.program(sh, "slow", (5, 1000), 0);
            let writer = s.program(sh, "writer", (1001, 1080), 20);
            s.holds(writer, fifo, Direction::Write, (1010, 1080), None);
            s.holds(reader, fifo, Direction::Read, (1030, 1090), None);
            s.sample(reader, (5, 1020), Activity::Channel, None);
            s.sample(reader, (1020, 1040), Activity::Runnable, None);
            let full = Some((fifo, Side::Write));
            s.sample(writer, (1050, 1070), Activity::Channel, full);
            s.sample(sh, (5, 1100), Activity::Child, None);
            s.end(sh, 1100, Some(0), None, 10);
        },
        1101,
    );
    let found = steps(&workflow, &path);
    assert!(found.contains(&("slow".to_owned(), 5, 1000)), "{found:?}");
}
