//! Runs that may not use all of their machine.

use flowtrace_profiler::analysis::bottlenecks::Resource;
use flowtrace_profiler::analysis::degrees::advice;
use flowtrace_profiler::analysis::findings::verdict;

use crate::play::Doing::{Child, Cpu, Queue, Sleep};
use crate::run;

/// Two workers that take turns on one of two CPUs for 4 s, each `busy` for a share of the time, in percent.
fn in_turn(
    (cpus, quota): (Option<&str>, Option<u64>),
    is_whole_run: bool,
    busy: u64,
) -> crate::Run {
    run(|mut play| {
        let shell = play.process("bash run.sh", None, 0, &[(4000, Child)]);
        play.confine(shell, None, None);
        for first in [0, 1] {
            let life: Vec<_> = (0..40)
                .map(|at| (at * 100 + 100, if at % 2 == first { Cpu } else { Queue }))
                .collect();
            let worker = play.process("work", Some(shell), 0, &life);
            play.confine(worker, cpus, quota);
        }
        if !is_whole_run {
            play.process("other", Some(shell), 0, &[(4000, Cpu)]);
        }
        play.busy(2, busy, 4000);
        play.finish(4000);
    })
}

/// The limit is a mask, a quota, or has a reason that was not recorded: side by side the workers would take
/// half the time.
#[test]
fn a_step_that_may_not_use_idle_cpus_lacks_them_by_that_limit() {
    let cases = [
        ((Some("1"), None), "its affinity mask allows CPU 1 only"),
        (
            (None, Some(1_000_000_000)),
            "a CPU quota (cpu.max) allows 1 core",
        ),
        ((None, None), "while others were idle"),
    ];
    for (limit, reason) in cases {
        let run = in_turn(limit, true, 50);
        let (step, resource, _) = run.cause().unwrap();
        assert_eq!((step.as_deref(), resource), (Some("work"), "CPU limit"));
        let verdict = verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
        let why = verdict.why.unwrap();
        assert!(why.contains(reason), "{why}");
        let first = &verdict.findings[0];
        assert_eq!(first.kind, "cpu limit");
        assert!(
            (first.saving_ns - 2_000_000_000).abs() < 50_000_000,
            "{first:?}"
        );
    }
}

/// More cores than the step may use do not help, whatever was requested.
#[test]
fn no_advice_exceeds_the_limit() {
    let run = in_turn((Some("0"), None), true, 50);
    let advice = advice(&run.workflow, &run.bottlenecks(), &run.timeline, Some(16)).unwrap();
    assert_eq!(advice.cores, 1);
    assert_eq!(advice.limit.unwrap(), "its affinity mask allows CPU 0 only");
    assert!(advice.one_more_ns.unwrap() >= 0.99 * advice.now_ns);
}

/// One step of a run that may otherwise use all CPUs: the run as a whole has no limit, its step has one.
#[test]
fn a_step_may_be_limited_alone() {
    let run = in_turn((Some("0"), None), false, 100);
    assert_eq!(run.timeline.limit, None);
    let result = run.bottlenecks();
    let causes = result.causes.iter();
    let limited = causes.filter(|cause| cause.resource == Resource::Limit);
    let names = limited.map(|cause| result.tasks.tasks[cause.task.unwrap()].name());
    assert_eq!(names.collect::<Vec<_>>(), ["work"]);
}

/// Other programs on the machine had the CPUs.
#[test]
fn a_wait_for_others_is_no_limit() {
    let run = in_turn((None, None), true, 100);
    let (_, resource, _) = run.cause().unwrap();
    assert_eq!(resource, "CPU");
}

/// Other programs took most of the time, however little of it the run itself computed; a sleep beside it is
/// the lesser finding.
#[test]
fn what_others_on_the_machine_took_comes_first() {
    let run = run(|mut play| {
        let life: Vec<_> = (0..40)
            .flat_map(|at| [(at * 100 + 80, Queue), (at * 100 + 100, Cpu)])
            .collect();
        let shell = play.process("bash run.sh", None, 0, &[(5000, Child)]);
        play.process("work", Some(shell), 0, &life);
        play.process("sleep 1", Some(shell), 4000, &[(5000, Sleep)]);
        play.busy(2, 100, 5000);
        play.finish(5000);
    });
    let verdict = verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
    let kinds: Vec<_> = verdict.findings.iter().map(|one| one.kind).collect();
    assert_eq!(kinds, ["busy machine", "sleep"], "{verdict:?}");
    let saving = verdict.findings[0].saving_ns;
    assert!((saving - 3_200_000_000).abs() < 50_000_000, "{saving}");
    let why = verdict.why.unwrap();
    assert!(
        why.starts_with("work waits for CPUs that other programs"),
        "{why}"
    );
}

/// A quota that takes a fifth of the time is a finding, too, where the step mostly computes.
#[test]
fn a_quota_that_stops_a_step_now_and_then_is_a_finding() {
    let run = run(|mut play| {
        let life: Vec<_> = (0..40)
            .flat_map(|at| [(at * 100 + 80, Cpu), (at * 100 + 100, Queue)])
            .collect();
        let work = play.process("work", None, 0, &life);
        play.confine(work, None, Some(800_000_000));
        play.busy(2, 40, 4000);
        play.finish(4000);
    });
    let (_, resource, _) = run.cause().unwrap();
    assert_eq!(resource, "CPU");
    let verdict = verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
    let [one] = verdict.findings.as_slice() else {
        panic!("{:?}", verdict.findings);
    };
    assert_eq!(
        (one.kind, one.title.as_str()),
        (
            "cpu limit",
            "work waits for a CPU: a CPU quota (cpu.max) allows 0.8 cores"
        )
    );
    assert!((one.saving_ns - 800_000_000).abs() < 20_000_000, "{one:?}");
    assert_eq!(verdict.why.as_ref(), Some(&one.title));
    assert!(verdict.bottleneck.is_some());
}
