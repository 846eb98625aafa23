//! The jobserver of make: a pipe with tokens for free places is no flow of data, in any result. Times are
//! milliseconds.

use flowtrace_profiler::analysis::bottlenecks::{self, Options};
use flowtrace_profiler::analysis::critical_path::{CriticalPath, StepKind};
use flowtrace_profiler::analysis::waits::{Kind, Root, waits};
use flowtrace_profiler::graph::{self, EdgeKind};
use flowtrace_profiler::load::{load, load_activity};
use flowtrace_profiler::model::Workflow;
use flowtrace_profiler::timeline::{self, State};
use flowtrace_schema::{Activity, ChannelKind, Direction, Side, Trace};

#[path = "support/script.rs"]
mod script;

use script::Script;

const MS: i64 = 1_000_000;
const MAKE: (&str, &[&str]) = ("/usr/bin/make", &["make", "-j2"]);

fn read(build: impl FnOnce(&mut Script), end: u64) -> (tempfile::TempDir, Trace, Workflow) {
    let (directory, trace) = script::written("make -j2", build, end);
    let workflow = load(&trace).unwrap();
    (directory, trace, workflow)
}

/// The descriptors by which the holders have the two sides of the pool: a pipe by two, a FIFO by one or two.
#[derive(Clone, Copy, Debug)]
enum Pool {
    Pipe,
    Fifo,
    Both,
}

impl Pool {
    fn hold(self, s: &mut Script, image: u32, channel: u32, time: (u64, u64)) {
        match self {
            Pool::Both => s.holds(image, channel, Direction::Both, time, None),
            _ => {
                s.holds(image, channel, Direction::Read, time, None);
                // A little later, at the time when the ends are found.
                let later = (time.0 + 1, time.1);
                s.holds(image, channel, Direction::Write, later, None);
            }
        }
    }
}

/// make starts two makes and `tool`, which takes part in the jobserver as a linker does. Each make has a
/// compiler to run and one place between them: `cc` runs first, `c++` when it has ended, and then `tool`.
fn recursive(pool: Pool) -> (tempfile::TempDir, Trace, Workflow) {
    let build = |s: &mut Script| {
        let kind = match pool {
            Pool::Pipe => ChannelKind::Pipe,
            Pool::Fifo | Pool::Both => ChannelKind::Fifo,
        };
        let channel = s.channel(kind);
        let top = s.root(MAKE, 0);
        let one = s.fork(top, MAKE, 10);
        let one = s.exec(one, 102, Some(top), MAKE, 10);
        let two = s.fork(top, MAKE, 10);
        let two = s.exec(two, 104, Some(top), MAKE, 10);
        let tool = s.fork(top, MAKE, 10);
        let tool = s.exec(tool, 106, Some(top), ("/usr/bin/tool", &["tool"]), 10);
        let cc = s.program(one, "cc", (20, 1020), 0);
        let cxx = s.program(two, "c++", (1020, 1520), 0);
        s.sample(cc, (20, 1020), Activity::Running, None);
        s.sample(cxx, (1020, 1520), Activity::Running, None);
        for (image, from, until) in [
            (top, 0, 2000),
            (one, 10, 1030),
            (two, 10, 1530),
            (tool, 10, 1900),
        ] {
            pool.hold(s, image, channel, (from, until));
        }
        let token = |s: &mut Script, image, time| {
            s.sample(image, time, Activity::Channel, Some((channel, Side::Read)));
        };
        s.sample(top, (20, 1990), Activity::Child, None);
        s.sample(one, (20, 1020), Activity::Child, None);
        token(s, two, (20, 1020));
        s.sample(two, (1020, 1520), Activity::Child, None);
        token(s, tool, (20, 1500));
        s.sample(tool, (1500, 1900), Activity::Running, None);
        s.end(one, 1030, Some(0), None, 20);
        s.end(two, 1530, Some(0), None, 20);
        s.end(tool, 1900, Some(0), None, 410);
        s.end(top, 2000, Some(0), None, 20);
    };
    read(build, 2001)
}

const POOLS: [Pool; 3] = [Pool::Pipe, Pool::Fifo, Pool::Both];

#[test]
fn a_pool_of_tokens_is_found_by_its_descriptors() {
    for pool in POOLS {
        let (_directory, trace, workflow) = recursive(pool);
        assert_eq!(trace.token_pipes().unwrap(), [1], "{pool:?}");
        assert!(workflow.ends.active.is_empty() && workflow.ends.idle.is_empty());
        assert!(trace.pipes().unwrap().is_empty());
        assert!(workflow.streams.is_empty(), "{:?}", workflow.streams);
        let dag = graph::build(&workflow);
        let kinds: Vec<EdgeKind> = dag.graph.edge_weights().map(|edge| edge.kind).collect();
        assert_eq!(kinds, [EdgeKind::Fork; 5]);
        assert!(dag.dropped.is_empty());
    }
}

/// A full pipe contains data: no process waits for space to give a token back.
#[test]
fn a_process_that_waits_for_space_has_no_token_to_give_back() {
    for side in [Side::Read, Side::Write] {
        let build = |s: &mut Script| {
            let pipe = s.pipe();
            let main = s.root(("/bin/main", &["main"]), 0);
            let child = s.fork(main, ("/bin/main", &["main"]), 10);
            Pool::Pipe.hold(s, main, pipe, (5, 600));
            s.sample(main, (20, 500), Activity::Channel, Some((pipe, side)));
            s.sample(child, (20, 500), Activity::Sleep, None);
            s.end(child, 510, Some(0), None, 2);
            s.end(main, 600, Some(0), None, 5);
        };
        let (_directory, trace, workflow) = read(build, 601);
        let is_token = side == Side::Read;
        assert_eq!(trace.token_pipes().unwrap().len(), usize::from(is_token));
        let found = waits(&workflow, &timeline::read(&trace, &workflow).unwrap());
        let of_kind = |kind| found.waits.iter().any(|wait| wait.kind == kind);
        assert!(!is_token || !of_kind(Kind::LateReader));
        assert_eq!(of_kind(Kind::LateReader), !is_token, "{:?}", found.waits);
        assert!(is_token || !of_kind(Kind::Place), "{:?}", found.waits);
    }
}

#[test]
fn the_critical_path_and_the_waits_agree_that_nobody_sent_the_token() {
    for pool in POOLS {
        let (_directory, trace, workflow) = recursive(pool);
        let path = CriticalPath::of(&workflow, &load_activity(&trace, &workflow).unwrap());
        let rules: Vec<_> = path
            .steps
            .iter()
            .filter(|step| step.kind == StepKind::Work && step.to_ns - step.from_ns > 10 * MS)
            .map(|step| workflow.rule(step.process).as_ref())
            .collect();
        assert!(
            !rules.contains(&"cc") && !rules.contains(&"c++"),
            "{rules:?}"
        );
        let waited: i64 = path
            .steps
            .iter()
            .filter(|step| step.kind == StepKind::Late)
            .map(|step| step.to_ns - step.from_ns)
            .sum();
        assert!(
            waited >= 1480 * MS,
            "the wait for a place is no work: {:?}",
            path.steps
        );
        // Work is scaled, the wait for a token is not.
        let is_tool = |id| **workflow.rule(id) == *"tool";
        let halved = path.what_if(|id| if is_tool(id) { 0.5 } else { 1.0 });
        assert_eq!((path.length_ns() - halved) / MS, 205);

        let timeline = timeline::read(&trace, &workflow).unwrap();
        assert!(timeline.channels[0].is_token);
        assert!(timeline.channels[0].writers.is_empty() && timeline.channels[0].readers.is_empty());
        let found = waits(&workflow, &timeline);
        for wait in &found.waits {
            assert!(
                !matches!(wait.kind, Kind::LateWriter | Kind::LateReader),
                "{wait:?}"
            );
        }
        let place = found
            .waits
            .iter()
            .find(|wait| wait.kind == Kind::Place)
            .unwrap();
        assert_eq!((place.waiter.as_str(), &place.blocker), ("tool", &None));
        assert!((place.ns - 1.48e9).abs() < 5e7, "{place:?}");
        let cause = found
            .causes
            .iter()
            .find(|cause| cause.root == Root::NoPlace)
            .unwrap();
        assert_eq!(cause.blocker, None);
        assert!(found.causes.iter().all(|cause| cause.root != Root::Outside));
        // The make without a token waited for a child, the one that it would start: it is never idle for want
        // of input.
        let makes = timeline
            .instances
            .iter()
            .filter(|i| **workflow.rule(i.process) == *"make");
        for make in makes {
            assert_eq!(make.totals[State::In as usize], 0.0);
        }
        let dag = graph::build(&workflow);
        let names = bottlenecks::by_rule(&workflow);
        let options = Options::default();
        let result = bottlenecks::analyse(&workflow, &dag, &timeline, &names, true, options);
        assert!(
            result
                .tasks
                .edges
                .iter()
                .all(|edge| edge.channels.is_empty())
        );
        let first = result.causes[0]
            .task
            .map(|task| result.tasks.tasks[task].name());
        assert_eq!(first.as_deref(), Some("cc"), "the longest that computed");
    }
}

#[test]
fn a_pipeline_that_a_shell_makes_is_no_pool() {
    let build = |s: &mut Script| {
        let pipe = s.pipe();
        let shell = s.root(("/bin/sh", &["sh", "-c", "a | b"]), 0);
        let writer = s.program(shell, "a", (10, 500), 0);
        let reader = s.program(shell, "b", (10, 510), 400);
        s.holds(shell, pipe, Direction::Read, (5, 11), Some(false));
        s.holds(shell, pipe, Direction::Write, (5, 11), Some(false));
        s.holds(writer, pipe, Direction::Write, (10, 500), None);
        s.holds(reader, pipe, Direction::Read, (10, 510), None);
        s.end(shell, 520, Some(0), None, 5);
    };
    let (_directory, trace, workflow) = read(build, 521);
    assert!(trace.token_pipes().unwrap().is_empty());
    assert_eq!(workflow.streams.len(), 1);
}

#[test]
fn workers_with_the_pipes_of_each_other_do_not_talk() {
    const PYTHON: (&str, &[&str]) = ("/usr/bin/python3", &["python3", "pool.py"]);
    let build = |s: &mut Script| {
        let main = s.root(PYTHON, 0);
        // A pipe for results, one by which main notices the end of a worker, and one by which a worker
        // notices that of main.
        let (results, alive, watched) = (s.pipe(), s.pipe(), s.pipe());
        let first = s.fork(main, PYTHON, 10);
        let second = s.fork(main, PYTHON, 20);
        s.holds(main, results, Direction::Read, (5, 500), None);
        s.holds(main, results, Direction::Write, (5, 500), None);
        for (worker, from) in [(first, 10), (second, 20)] {
            s.holds(worker, results, Direction::Write, (from, 400), None);
        }
        s.holds(first, alive, Direction::Write, (10, 400), None);
        s.holds(main, alive, Direction::Read, (9, 500), None);
        s.holds(second, alive, Direction::Read, (20, 400), None);
        s.holds(first, watched, Direction::Read, (10, 400), None);
        s.holds(main, watched, Direction::Write, (9, 500), None);
        s.holds(second, watched, Direction::Write, (20, 400), None);
        for worker in [first, second] {
            s.end(worker, 400, Some(0), None, 100);
        }
        s.end(main, 500, Some(0), None, 50);
    };
    let (_directory, _trace, workflow) = read(build, 501);
    let main = workflow.root().unwrap();
    // Main has the pipe that the first worker watches, so it may have written there.
    let workers = &workflow.children()[main.0 as usize];
    let streams = workflow.streams.iter();
    let streams: Vec<_> = streams.map(|stream| (stream.from, stream.to)).collect();
    let expected = [(main, workers[0]), (workers[0], main), (workers[1], main)];
    assert_eq!(streams, expected);
}
