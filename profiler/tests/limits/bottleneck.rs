//! Bottlenecks of hand-made pipelines and scripts.

use flowtrace_profiler::analysis::bottlenecks;
use flowtrace_profiler::analysis::bottlenecks::tasks::Task;
use flowtrace_profiler::analysis::findings::{Finding, verdict};
use flowtrace_profiler::text;
use flowtrace_profiler::timeline::State;
use flowtrace_schema::{ChannelKind, Direction};

use crate::play::Doing::{self, Child, Cpu, File, In, Lock, Out, Queue, Sleep};
use crate::{Run, run};

/// A pipeline of three of which the one at `slow` computes for the 6 s that it takes.
fn pipeline(slow: usize) -> crate::Run {
    run(|mut play| {
        let shell = play.process("bash run.sh", None, 0, &[(20, Cpu), (6000, Child)]);
        let pipes = [
            play.channel(ChannelKind::Pipe),
            play.channel(ChannelKind::Pipe),
        ];
        let names = ["first", "second", "third"];
        let upids: Vec<u32> = (0..3)
            .map(|at| {
                let doing = match at {
                    at if at == slow => Cpu,
                    at if at < slow => Out(pipes[at]),
                    at => In(pipes[at - 1]),
                };
                play.process(names[at], Some(shell), 20, &[(60, Cpu), (5990, doing)])
            })
            .collect();
        play.pipe(pipes[0], upids[0], upids[1], 20, 5990);
        play.pipe(pipes[1], upids[1], upids[2], 20, 5990);
        play.busy(2, 50, 6000);
        play.finish(6000);
    })
}

#[test]
fn the_slow_stage_is_found_at_each_place_of_a_pipeline() {
    for (slow, name) in ["first", "second", "third"].into_iter().enumerate() {
        let (step, resource, share) = pipeline(slow).cause().unwrap();
        assert_eq!((step.as_deref(), resource), (Some(name), "CPU"));
        assert!(share >= 98, "{name} {share}");
    }
}

#[test]
fn the_longest_sleep_and_its_caller_are_named_and_advice_is_for_whole_runs_that_succeeded() {
    let mut run = run(|mut play| {
        let shell = play.process("bash run.sh", None, 0, &[(20, Cpu), (5000, Child)]);
        play.process("sleep 0.5", Some(shell), 20, &[(520, Sleep)]);
        play.process("sleep 4", Some(shell), 520, &[(4520, Sleep)]);
        play.process("work", Some(shell), 4520, &[(5000, Cpu)]);
        play.finish(5000);
    });
    let judge = |run: &crate::Run| verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
    let found = judge(&run);
    let action = found.action.unwrap();
    let expected = "remove the calls of sleep from run.sh, first of all sleep 4: 5.0 s → ";
    assert!(action.starts_with(expected), "{action}");
    let title = &found.findings[0].title;
    assert_eq!(title, "run.sh pauses in sleep, mostly in sleep 4");
    run.workflow.runs[0].exit_code = Some(1);
    let failed = judge(&run);
    assert_eq!((failed.action, failed.findings.len()), (None, 1));
    run.workflow.runs[0].exit_code = Some(0);
    run.timeline.is_partial = true;
    assert_eq!(judge(&run).action, None);
}

#[test]
fn a_run_of_less_than_a_tenth_of_a_second_has_no_advice() {
    let findings = |ms: u64| {
        let run = run(|mut play| {
            play.process("work", None, 0, &[(2, Cpu), (ms, Sleep)]);
            play.finish(ms);
        });
        let found = verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
        found.findings.len()
    };
    assert_eq!((findings(87), findings(870)), (0, 1));
}

/// Two steps compute in turns, connected by a pipe: `two` for the first part of every 40 ms, then `one`.
fn taking_turns(two_ms: u64) -> Run {
    run(|mut play| {
        let pipe = play.channel(ChannelKind::Pipe);
        let turns = |is_first: bool| -> Vec<_> {
            let ends = (0..4000).step_by(40).flat_map(|at| [at + two_ms, at + 40]);
            ends.map(|end| match (end % 40 == 0) == is_first {
                true => (end, Cpu),
                false if is_first => (end, Out(pipe)),
                false => (end, In(pipe)),
            })
            .collect()
        };
        let one = play.process("one", None, 0, &turns(true));
        let two = play.process("two", None, 0, &turns(false));
        play.pipe(pipe, one, two, 0, 4000);
        play.finish(4000);
    })
}

#[test]
fn a_step_that_is_most_of_the_critical_path_stands_out() {
    let run = taking_turns(8);
    assert_eq!(run.cause(), None);
    let found = verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
    assert_eq!(found.why, None);
}

#[test]
fn of_steps_that_take_turns_none_is_to_blame_and_their_shares_are_reported() {
    let run = taking_turns(20);
    let verdict = verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
    let nothing = "nothing stands out: no step limited the run for 10 % of it";
    assert_eq!(verdict.why.as_deref(), Some(nothing));
    let result = run.bottlenecks();
    assert_eq!(run.cause(), None);
    let nearest = result.nearest();
    assert_eq!(nearest.len(), 2);
    assert!(
        nearest
            .iter()
            .all(|(_, share)| (0.45..0.55).contains(share)),
        "{nearest:?}"
    );
    let text = text::bottlenecks::text(&result, &run.timeline, None, ("t.db", 80));
    assert!(
        text.contains("busiest then: ") && text.contains("two 50 %"),
        "{text}"
    );
}

#[test]
fn the_answer_says_step_resource_share_and_how_sure() {
    let run = pipeline(1);
    let answer = text::bottlenecks::answer(&run.bottlenecks(), &run.timeline);
    assert_eq!(
        answer,
        "second limited the run for 100 % of it (6.0 s of 6.0 s, 0.0–6.0 s): CPU, 1.0 of 2 cores \
         busy · confidence high, 298 samples"
    );
}

#[test]
fn the_lacking_resources_are_distinguished() {
    for (doing, name) in [
        (File, "disk"),
        (Lock, "lock"),
        (Sleep, "sleep"),
        (Queue, "free CPU"),
    ] {
        let run = run(|mut play| {
            // Four of them want more than two CPUs.
            for _ in 0..4 {
                play.process("step", None, 0, &[(100, Cpu), (4000, doing)]);
            }
            play.finish(4000);
        });
        assert_eq!(run.cause().unwrap().1, name);
    }
}

/// A life of 4 s that goes through the same states every 100 ms: each with its share, percent.
fn cycles(states: &[(u64, Doing)]) -> Vec<(u64, Doing)> {
    let cycle = |at: u64| {
        states.iter().scan(at * 100, |until, &(share, doing)| {
            *until += share;
            Some((*until, doing))
        })
    };
    (0..40).flat_map(cycle).collect()
}

#[test]
fn a_step_that_computes_and_sleeps_gains_by_each_in_its_own_time() {
    let phases = vec![(2000, Cpu), (4000, Sleep)];
    let mixed = cycles(&[(60, Cpu), (40, Sleep)]);
    for (life, limits, savings) in [
        (phases, vec![("CPU", 50), ("sleep", 50)], [2000, 1000]),
        (mixed, vec![("CPU", 100)], [1600, 1200]),
    ] {
        let run = run(|mut play| {
            play.process("work", None, 0, &life);
            play.finish(4000);
        });
        let result = run.bottlenecks();
        let limit = |one: &bottlenecks::Cause| (one.resource.name(), (one.share * 100.0) as i64);
        assert_eq!(result.causes.iter().map(limit).collect::<Vec<_>>(), limits);
        let found = verdict(&run.workflow, &run.dag, &run.timeline, &run.path).findings;
        let gain = |one: &Finding| (one.kind, one.saving_ns / 1_000_000);
        let expected = vec![("sleep", savings[0]), ("cpu", savings[1])];
        assert_eq!(found.iter().map(gain).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_step_that_mostly_waits_for_a_cpu_that_others_use_is_not_limited_by_storage() {
    let run = run(|mut play| {
        play.process(
            "step",
            None,
            0,
            &cycles(&[(5, Cpu), (80, Queue), (15, File)]),
        );
        play.busy(2, 100, 4000);
        play.finish(4000);
    });
    assert_eq!(run.cause().unwrap().1, "CPU");
    let found = verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
    let kinds: Vec<&str> = found.findings.iter().map(|one| one.kind).collect();
    assert_eq!(kinds, ["busy machine"]);
}

#[test]
fn a_quick_consumer_that_waits_for_a_cpu_is_no_bottleneck_behind_a_busy_filter() {
    let run = run(|mut play| {
        let pipes = [
            play.channel(ChannelKind::Pipe),
            play.channel(ChannelKind::Pipe),
        ];
        let first = cycles(&[(50, Cpu), (45, Queue), (5, Out(pipes[0]))]);
        let first = play.process("generate", None, 0, &first);
        let filter = play.process("filter", None, 0, &cycles(&[(99, Cpu), (1, Queue)]));
        let last = play.process(
            "consume",
            None,
            0,
            &cycles(&[(30, Cpu), (65, Queue), (5, In(pipes[1]))]),
        );
        play.pipe(pipes[0], first, filter, 0, 4000);
        play.pipe(pipes[1], filter, last, 0, 4000);
        play.busy(2, 100, 4000);
        play.finish(4000);
    });
    assert_eq!(run.cause(), Some((Some("filter".into()), "CPU", 100)));
}

#[test]
fn the_first_line_advises_what_the_first_large_finding_proposes() {
    for doing in [File, Lock, Sleep, Cpu] {
        let run = run(|mut play| {
            for _ in 0..4 {
                play.process("step", None, 0, &[(100, Cpu), (4000, doing)]);
            }
            play.finish(4000);
        });
        let found = verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
        let first = found.findings.first();
        assert_eq!(first.is_some(), doing != Cpu);
        let action = first.map(|first| format!("{}: 4.0 s → ", first.action));
        let is_advised = found
            .action
            .as_ref()
            .zip(action)
            .map(|(line, begin)| line.starts_with(&begin));
        assert_eq!(is_advised, first.map(|_| true), "{:?}", found.action);
    }
}

#[test]
fn waits_for_the_answers_to_very_many_calls_are_none_for_storage() {
    // Number of calls within 450 ms, the time of an answer, and the time until the next call, ns.
    let (few, many, slow) = (
        (500, 2_000, 6_000),
        (30_000, 2_000, 6_000),
        (1_000, 300_000, 6_000),
    );
    for (calls, queued, name) in [
        (vec![few], 0, "disk"),
        (vec![many], 0, "traced view"),
        (vec![many, slow], 0, "disk"),
        // flowtrace had to wait for a CPU as the step had.
        (vec![(10_000, 2_000, 6_000)], 0, "disk"),
        (vec![(10_000, 2_000, 6_000)], 300, "traced view"),
    ] {
        let run = run(|mut play| {
            let file = play.file("data", 0);
            let doing = [(50, Cpu), (50 + queued, Queue), (500 + queued, File)];
            let step = play.process("step", None, 0, &doing);
            play.busy(2, 50, 500 + queued);
            for &calls in &calls {
                play.writes_in_turn(step, file, 50, calls);
            }
            play.finish(500 + queued);
        });
        assert_eq!(run.cause().unwrap().1, name, "{calls:?}");
    }
}

#[test]
fn who_only_runs_others_never_counts() {
    let run = run(|mut play| {
        let make = play.process("make", None, 0, &[(3000, Cpu)]);
        let shell = play.process("sh -c x", Some(make), 10, &[(30, Cpu), (2990, Child)]);
        play.process("xargs", Some(shell), 20, &[(2980, Child)]);
        play.finish(3000);
    });
    let result = run.bottlenecks();
    let names: Vec<_> = result.tasks.tasks.iter().map(Task::name).collect();
    assert_eq!(names, ["xargs"], "it has no child, so it is a step");
    assert!(run.timeline.instances[0].is_orchestrator);
}

#[test]
fn a_full_pipe_whose_ends_both_compute_is_not_to_blame() {
    // Neither end is above the threshold; the pipe is full for 95 % of the time.
    let run = run(|mut play| {
        let pipe = play.channel(ChannelKind::Pipe);
        let (mut writes, mut reads) = (Vec::new(), Vec::new());
        for at in (0..4000).step_by(200) {
            writes.extend([(at + 10, Cpu), (at + 200, Out(pipe))]);
            reads.extend([(at + 170, Cpu), (at + 200, In(pipe))]);
        }
        let writer = play.process("writer", None, 0, &writes);
        let reader = play.process("reader", None, 0, &reads);
        play.pipe(pipe, writer, reader, 0, 4000);
        play.finish(4000);
    });
    let result = run.bottlenecks();
    assert!(matches!(
        result.found[0].subject,
        bottlenecks::Subject::Edges(_)
    ));
    assert_eq!(run.cause().unwrap().0.as_deref(), Some("reader"));
    assert_eq!(run.cause().unwrap().1, "CPU");
}

#[test]
fn a_full_connection_between_two_that_wait_is() {
    let run = run(|mut play| {
        let tcp = play.channel(ChannelKind::Tcp);
        let sender = play.process("sender", None, 0, &[(60, Cpu), (4000, Out(tcp))]);
        let receiver = play.process("receiver", None, 0, &[(60, Cpu), (4000, In(tcp))]);
        play.end(tcp, sender, Direction::Both, 0, 4000);
        play.end(tcp, receiver, Direction::Both, 0, 4000);
        play.finish(4000);
    });
    let (step, resource, share) = run.cause().unwrap();
    assert_eq!((step, resource), (None, "network"));
    assert!(share > 90);
}

#[test]
fn steps_that_follow_each_other_through_files_share_the_run() {
    let run = run(|mut play| {
        let shell = play.process("bash run.sh", None, 0, &[(10, Cpu), (4000, Child)]);
        let first = play.process("first", Some(shell), 10, &[(3000, Cpu)]);
        let second = play.process("second", Some(shell), 3010, &[(3990, Cpu)]);
        let file = play.file("data", 20);
        play.create(first, file, 2900);
        play.read(second, file, 3020);
        play.finish(4000);
    });
    let result = run.bottlenecks();
    let shares: Vec<_> = result
        .causes
        .iter()
        .map(|c| {
            (
                result.tasks.tasks[c.task.unwrap()].name(),
                (c.share * 100.0).round() as i64,
            )
        })
        .collect();
    assert_eq!(shares, [("first".into(), 75), ("second".into(), 25)]);
}

/// A loop of two steps, each of which reads the output of the other, for 2 s.
fn alternating(first: u64, second: u64) -> crate::Run {
    run(|mut play| {
        let shell = play.process("bash run.sh", None, 0, &[(10, Cpu), (2020, Child)]);
        for round in 0..2000 / (first + second) {
            let begin = 10 + round * (first + second);
            let (between, end) = (begin + first, begin + first + second);
            let one = play.process("first", Some(shell), begin, &[(between, Cpu)]);
            let other = play.process("second", Some(shell), between, &[(end, Cpu)]);
            let file = play.file(&format!("data{round}"), 20);
            play.create(one, file, between - 1);
            play.read(other, file, between + 1);
        }
        play.finish(2020);
    })
}

#[test]
fn steps_that_follow_each_other_within_a_window_share_it() {
    // A window takes 100 ms and contains both; the second is blamed for it by Algorithm 2.
    for ((first, second), expected) in [((88, 12), [87, 12]), ((8, 2), [79, 20])] {
        let run = alternating(first, second);
        let result = run.bottlenecks();
        let name = |c: &bottlenecks::Cause| result.tasks.tasks[c.task.unwrap()].name();
        let percent = |c: &bottlenecks::Cause| (c.share * 100.0).round() as i64;
        let shares: Vec<_> = result
            .causes
            .iter()
            .map(|c| (name(c), percent(c)))
            .collect();
        let expected = [
            ("first".into(), expected[0]),
            ("second".into(), expected[1]),
        ];
        assert_eq!(shares, expected);
        let idle: i64 = result.without.iter().map(|(_, ns)| ns).sum();
        assert!(idle <= 30_000_000, "{:?}", result.without);
    }
}

#[test]
fn the_same_program_twice_in_a_pipeline_is_two_steps() {
    let run = run(|mut play| {
        let (a, b) = (
            play.channel(ChannelKind::Pipe),
            play.channel(ChannelKind::Pipe),
        );
        let first = play.process("sort", None, 0, &[(2000, Cpu)]);
        let middle = play.process("uniq", None, 0, &[(2000, In(a))]);
        let last = play.process("sort", None, 0, &[(2000, In(b))]);
        play.pipe(a, first, middle, 0, 2000);
        play.pipe(b, middle, last, 0, 2000);
        play.finish(2000);
    });
    let result = run.bottlenecks();
    let names: Vec<_> = result.tasks.tasks.iter().map(Task::name).collect();
    assert_eq!(
        names,
        ["sort (stage 1 of 2)", "uniq", "sort (stage 2 of 2)"]
    );
    assert_eq!(
        run.cause().unwrap().0.as_deref(),
        Some("sort (stage 1 of 2)")
    );
}

#[test]
fn times_of_every_process_sum_to_its_life() {
    let run = pipeline(1);
    for instance in &run.timeline.instances {
        let sum: f64 = instance.totals.iter().sum();
        assert!((sum - (instance.to - instance.from) as f64).abs() < 1.0);
        for piece in &instance.pieces {
            let shares: f64 = run.timeline.shares(piece).iter().sum();
            assert!((shares - 1.0).abs() < 1e-9);
        }
    }
    let waited = run.timeline.instances[1].totals[State::Out as usize];
    assert!((waited - 5_930e6).abs() < 1e6, "{waited}");
}

#[test]
fn a_run_cut_short_ends_with_its_last_event() {
    let run = run(|mut play| {
        let step = play.begin("step", None, 0);
        play.sample(step, Cpu, 0, 3000);
        play.cut();
    });
    assert_eq!(run.workflow.last_ns, 3_000_000_000);
    assert_eq!(run.timeline.span, (0, 3_000_000_000));
    let (step, resource, share) = run.cause().unwrap();
    assert_eq!(
        (step.as_deref(), resource, share),
        (Some("step"), "CPU", 100)
    );
}

/// Two steps that take turns until `turns_ms`, then others one after another, each with its end, ms.
fn turns_and_others(turns_ms: u64, others: &[(&str, u64)]) -> Run {
    run(|mut play| {
        let shell = play.process("bash run.sh", None, 0, &[(4000, Child)]);
        let pipe = play.channel(ChannelKind::Pipe);
        let turns = |is_first: bool| -> Vec<_> {
            let ends = (0..turns_ms).step_by(20).map(|at| at + 20);
            ends.map(|end| match (end % 40 == 0) == is_first {
                true => (end, Cpu),
                false if is_first => (end, Out(pipe)),
                false => (end, In(pipe)),
            })
            .collect()
        };
        let one = play.process("one", Some(shell), 0, &turns(true));
        let two = play.process("two", Some(shell), 0, &turns(false));
        play.pipe(pipe, one, two, 0, turns_ms);
        let begins = std::iter::once(turns_ms).chain(others.iter().map(|one| one.1));
        for (begin, &(name, end)) in begins.zip(others) {
            play.process(name, Some(shell), begin, &[(end, Cpu)]);
        }
        play.finish(4000);
    })
}

#[test]
fn one_step_that_limits_the_run_for_longer_than_others_is_named() {
    let run = turns_and_others(3200, &[("route", 3340), ("ip", 4000)]);
    let found = verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
    let expected = "ip limited the run for 16 % of it: CPU";
    assert_eq!(found.bottleneck.as_deref(), Some(expected));
}

/// A step that limits a run for a short time is not named as the one that limited it.
#[test]
fn a_step_that_limits_the_run_for_a_short_time_does_not_stand_out() {
    let run = turns_and_others(3800, &[("ip", 4000)]);
    let answer = text::bottlenecks::answer(&run.bottlenecks(), &run.timeline);
    let expected = "nothing stands out: no step limited the run for 10 % of it, at most ip for 5 %";
    assert_eq!(answer, expected);
}
