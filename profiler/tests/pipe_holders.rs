//! The other side of a pipe waits for a process that keeps it open without moving a byte, until another one
//! moves some: `(sleep .6; seq 5) | sort`, `head | (sleep .8; wc)`. Times are milliseconds.

use flowtrace_profiler::analysis::critical_path::CriticalPath;
use flowtrace_profiler::analysis::waits::{Root, waits};
use flowtrace_profiler::load::{load, load_activity};
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
        let for_it = waits.filter(|wait| wait.blocker.as_deref() == Some(name));
        for_it.map(|wait| wait.ns / 1e6).sum()
    };
    assert!((of_sort("sleep") - 590.0).abs() < 12.0, "{:?}", found.waits);
    assert!((of_sort("seq") - 10.0).abs() < 8.0, "{:?}", found.waits);
    let first = &found.causes[0];
    assert_eq!(first.blocker.as_deref(), Some("sleep"));
    assert_eq!(first.root, Root::Doing(State::Sleep));
    let outside = found
        .causes
        .iter()
        .find(|cause| cause.root == Root::Outside);
    assert!(outside.is_none_or(|cause| cause.ns < 1e6), "{outside:?}");
}

/// Samples on a busy machine show `wc` waiting for `head` from its begin on, and `head` for `wc` until
/// shortly before the end of `wc`: so near to that end that samples cannot distinguish the times. That end
/// cannot have ended the wait of `head`, because `wc` had got data from it before.
#[test]
fn a_writer_is_let_go_before_its_reader_has_from_it_what_it_waits_for() {
    // End of the sampled waits of `head`, and of `wc`.
    for (head_until, wc_until) in [(910, 910), (900, 911), (911, 910)] {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("t.db");
        let mut script = Script::new(&file, "bash s.sh");
        let s = &mut script;
        let pipe = s.pipe();
        let shell = s.root(("/bin/bash", &["bash", "s.sh"]), 0);
        let head = s.program(shell, "head", (5, 914), 3);
        let group = s.fork(shell, ("/bin/bash", &["bash", "s.sh"]), 5);
        let sleep = s.program(group, "sleep", (10, 892), 1);
        let wc = s.exec(group, 100 + group, Some(shell), ("/bin/wc", &["wc"]), 899);
        s.holds_at_most(head, pipe, Direction::Write, (5, 914), 3_000_000);
        s.holds(group, pipe, Direction::Read, (5, 899), Some(false));
        s.holds_at_most(sleep, pipe, Direction::Read, (10, 892), 5_000);
        s.holds_at_most(wc, pipe, Direction::Read, (899, 912), 3_005_000);
        s.sample(shell, (10, 912), Activity::Child, None);
        s.sample(group, (10, 892), Activity::Child, None);
        s.sample(sleep, (10, 892), Activity::Sleep, None);
        let for_space = Some((pipe, Side::Write));
        s.sample(head, (10, head_until), Activity::Channel, for_space);
        let for_data = Some((pipe, Side::Read));
        s.sample(wc, (899, wc_until), Activity::Channel, for_data);
        s.end(wc, 912, Some(0), None, 3);
        s.end(shell, 918, Some(0), None, 4);
        script.finish(919, 0);

        let trace = Trace::open(&file).unwrap();
        let workflow = load(&trace).unwrap();
        let activity = load_activity(&trace, &workflow).unwrap();
        let path = CriticalPath::of(&workflow, &activity);
        let works = |rule: &str| -> i64 {
            let of_rule = path.steps.iter();
            let of_rule = of_rule.filter(|step| **workflow.rule(step.process) == *rule);
            of_rule
                .map(|step| (step.to_ns - step.from_ns) / 1_000_000)
                .sum()
        };
        let case = format!("{head_until} {wc_until}: {:?}", path.steps);
        assert_eq!(works("sleep"), 882, "{case}");
        assert!(works("head") < 20, "{case}");
    }
}
