//! A process that job control stops does not work meanwhile: it cannot be made faster, and it does not wait
//! for the work of another. Times are milliseconds.

use flowtrace_profiler::analysis::critical_path::CriticalPath;
use flowtrace_profiler::analysis::critical_path::StepKind;
use flowtrace_profiler::analysis::waits::{Kind, waits};
use flowtrace_profiler::load::{load, load_activity};
use flowtrace_profiler::{text, timeline};
use flowtrace_schema::Activity;

#[path = "support/script.rs"]
mod script;

use script::Script;

const MS: i64 = 1_000_000;

/// `burn & sleep .1; kill -STOP $!; sleep 1; kill -CONT $!; wait`.
#[test]
fn half_the_work_leaves_the_stop_as_it_is() {
    let build = |s: &mut Script| {
        let shell = s.root(("/bin/bash", &["bash", "s.sh"]), 0);
        let burn = s.program(shell, "burn", (5, 1605), 600);
        s.sample(shell, (5, 1605), Activity::Child, None);
        s.sample(burn, (5, 105), Activity::Running, None);
        s.sample(burn, (105, 1105), Activity::Stopped, None);
        s.sample(burn, (1105, 1605), Activity::Running, None);
        s.end(shell, 1610, Some(0), None, 5);
    };
    let (_directory, trace) = script::written("bash s.sh", build, 1611);
    let workflow = load(&trace).unwrap();
    let path = CriticalPath::of(&workflow, &load_activity(&trace, &workflow).unwrap());
    let is_burn = |id| **workflow.rule(id) == *"burn";
    let halved = path.what_if(|id| if is_burn(id) { 0.5 } else { 1.0 });
    let saved = (path.length_ns() - halved) / MS;
    assert!((285..=315).contains(&saved), "{saved}");

    let found = waits(&workflow, &timeline::read(&trace, &workflow).unwrap());
    let stopped = found.waits.iter().find(|wait| wait.kind == Kind::Stopped);
    let stopped = stopped.expect("a wait of its own kind");
    assert_eq!((stopped.waiter.as_str(), &stopped.blocker), ("burn", &None));
    assert!((stopped.ns / 1e6 - 1000.0).abs() < 5.0, "{stopped:?}");

    let step = path
        .steps
        .iter()
        .find(|step| step.kind == StepKind::Stopped);
    let step = step.expect("a step of its own kind");
    assert_eq!((step.to_ns - step.from_ns) / MS, 1000);
    let style = text::tree::Style {
        width: 200,
        is_full: false,
    };
    let tree = text::tree::text(&workflow, style);
    assert!(tree.contains(" [stopped 1.0 s] burn"), "{tree}");
}
