//! Wait states, root causes, false serialisation and the verdict of hand-made runs.

use flowtrace_profiler::analysis::findings::verdict;
use flowtrace_profiler::analysis::phrases::serial_line;
use flowtrace_profiler::analysis::serial::serial;
use flowtrace_profiler::analysis::waits::{Kind, Root, waits};
use flowtrace_profiler::text::waits::answer;
use flowtrace_profiler::timeline::State;
use flowtrace_schema::{ChannelKind, Loss, Op};

use crate::play::Doing::{Child, Cpu, File, Flock, In, LockOf, Out, Sleep, Stopped, Timer};
use crate::play::Play;
use crate::run;

#[test]
fn a_chain_of_waits_ends_at_who_computes() {
    let run = run(|mut play| {
        let pipes = [
            play.channel(ChannelKind::Pipe),
            play.channel(ChannelKind::Pipe),
        ];
        let first = play.process("first", None, 0, &[(2000, Cpu)]);
        let second = play.process("second", None, 0, &[(2000, In(pipes[0]))]);
        let third = play.process("third", None, 0, &[(2000, In(pipes[1]))]);
        play.pipe(pipes[0], first, second, 0, 2000);
        play.pipe(pipes[1], second, third, 0, 2000);
        play.finish(2000);
    });
    let found = waits(&run.workflow, &run.timeline);
    let direct: Vec<_> = found
        .waits
        .iter()
        .map(|w| {
            (
                w.waiter.as_str(),
                w.blocker.as_deref(),
                w.kind,
                (w.ns / 1e6) as i64,
            )
        })
        .collect();
    assert!(direct.contains(&("second", Some("first"), Kind::LateWriter, 2000)));
    assert!(direct.contains(&("third", Some("second"), Kind::LateWriter, 2000)));
    assert_eq!(found.causes.len(), 1);
    let cause = &found.causes[0];
    assert_eq!(cause.blocker.as_deref(), Some("first"));
    assert_eq!(cause.root, Root::Doing(State::Cpu));
    assert!(
        (cause.ns - 4e9).abs() < 1e6,
        "never more than they waited: {}",
        cause.ns
    );
}

#[test]
fn who_released_a_lock_is_who_was_waited_for() {
    let run = run(|mut play| {
        let owner = play.process("owner", None, 0, &[(2000, Cpu)]);
        play.process("waiter", None, 0, &[(2000, LockOf(owner))]);
        play.finish(2000);
    });
    let found = waits(&run.workflow, &run.timeline);
    let wait = &found.waits[0];
    assert_eq!((wait.waiter.as_str(), wait.kind), ("waiter", Kind::Lock));
    assert_eq!(wait.blocker.as_deref(), Some("owner"));
    assert_eq!(found.causes[0].blocker.as_deref(), Some("owner"));
    assert_eq!(found.causes[0].root, Root::Doing(State::Cpu));
}

#[test]
fn a_parent_waits_for_the_child_that_waits_for_time() {
    let run = run(|mut play| {
        let tool = play.process("tool", None, 0, &[(500, Cpu), (2000, Child)]);
        play.process("helper", Some(tool), 500, &[(2000, Sleep)]);
        play.finish(2000);
    });
    let found = waits(&run.workflow, &run.timeline);
    let cause = &found.causes[0];
    assert_eq!(cause.blocker.as_deref(), Some("helper"));
    assert_eq!(cause.root, Root::Doing(State::Sleep));
    assert_eq!(found.idle, [(500_000_000, 2_000_000_000)]);
}

#[test]
fn waiting_for_each_other_ends() {
    let run = run(|mut play| {
        let (a, b) = (
            play.channel(ChannelKind::Pipe),
            play.channel(ChannelKind::Pipe),
        );
        let first = play.process("first", None, 0, &[(1000, In(b))]);
        let second = play.process("second", None, 0, &[(1000, In(a))]);
        play.pipe(a, first, second, 0, 1000);
        play.pipe(b, second, first, 0, 1000);
        play.finish(1000);
    });
    let found = waits(&run.workflow, &run.timeline);
    assert!(
        found
            .causes
            .iter()
            .all(|cause| cause.root == Root::EachOther)
    );
    let sum: f64 = found.causes.iter().map(|cause| cause.ns).sum();
    assert!((sum - 2e9).abs() < 1e6, "{sum}");
}

/// A shell that runs four steps of a second each; `link` makes their connections.
fn script(link: impl Fn(&mut Play, &[u32])) -> crate::Run {
    run(|mut play| {
        let shell = play.process("bash run.sh", None, 0, &[(4000, Child)]);
        let steps: Vec<u32> = (0..4)
            .map(|at| play.process("step", Some(shell), at * 1000, &[(at * 1000 + 1000, Cpu)]))
            .collect();
        link(&mut play, &steps);
        play.busy(2, 50, 4000);
        play.finish(4000);
    })
}

#[test]
fn steps_that_nothing_connects_could_run_side_by_side() {
    let run = script(|play, steps| {
        for (at, &step) in steps.iter().enumerate() {
            let file = play.file(&format!("out{at}"), at as u64 * 1000);
            play.create(step, file, at as u64 * 1000 + 900);
        }
    });
    let found = serial(&run.workflow, &run.timeline, &run.path);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].steps, [("step".to_owned(), 4, 4_000_000_000)]);
    assert!(
        (found[0].saving_ns - 2_000_000_000).abs() < 10_000_000,
        "{}",
        found[0].saving_ns
    );
    let verdict = verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
    assert_eq!(verdict.findings[0].kind, "serial");
    assert_eq!(
        verdict.findings.len(),
        1,
        "one explanation is enough: {:?}",
        verdict.findings
    );
}

/// Beside the script another program waits for three seconds: then no more than the fourth second can be
/// saved.
#[test]
fn steps_side_by_side_save_no_more_than_the_run_has() {
    let run = run(|mut play| {
        let root = play.process("both", None, 0, &[(4000, Child)]);
        let shell = play.process("bash run.sh", Some(root), 0, &[(4000, Child)]);
        play.process("nap", Some(root), 0, &[(3000, Sleep)]);
        for at in 0..4 {
            let step = play.process("step", Some(shell), at * 1000, &[(at * 1000 + 1000, Cpu)]);
            let file = play.file(&format!("out{at}"), at * 1000);
            play.create(step, file, at * 1000 + 900);
        }
        play.busy(2, 50, 4000);
        play.finish(4000);
    });
    let found = serial(&run.workflow, &run.timeline, &run.path);
    assert_eq!(found.len(), 1);
    let (saving, title) = (found[0].saving_ns, serial_line(&found[0]));
    assert!((saving - 1_000_000_000).abs() < 10_000_000, "{saving}");
    assert!(title.ends_with("that could save 1.0 s"), "{title}");
}

#[test]
fn steps_that_pass_on_a_file_could_not() {
    let run = script(|play, steps| {
        for at in 0..3 {
            let file = play.file(&format!("part{at}"), at as u64 * 1000);
            play.create(steps[at], file, at as u64 * 1000 + 900);
            play.read(steps[at + 1], file, at as u64 * 1000 + 1010);
        }
    });
    assert_eq!(serial(&run.workflow, &run.timeline, &run.path), []);
}

/// Made, made executable, executed, removed: only the third step reads anything after it was written.
#[test]
fn steps_that_change_the_mode_or_the_names_of_a_file_could_not() {
    for removal in [Op::Unlink, Op::Rename] {
        let run = script(|play, steps| {
            let file = play.file("tool", 0);
            play.create(steps[0], file, 900);
            play.alter(steps[1], file, Op::Chmod, 1900);
            play.read(steps[2], file, 2010);
            play.alter(steps[3], file, removal, 3010);
        });
        assert_eq!(serial(&run.workflow, &run.timeline, &run.path), []);
    }
}

/// Steps without a recorded connection may be connected by a pipe, or by a file elsewhere.
#[test]
fn nothing_is_said_where_pipes_and_files_elsewhere_were_not_seen() {
    let run = script(|play, steps| {
        for (at, &step) in steps.iter().enumerate() {
            let file = play.file(&format!("out{at}"), at as u64 * 1000);
            play.create(step, file, at as u64 * 1000 + 900);
        }
        play.lost(Loss::TopologyLeftOut);
    });
    assert_eq!(serial(&run.workflow, &run.timeline, &run.path), []);
}

#[test]
fn two_chains_in_one_script_could_run_beside_each_other() {
    // Steps 1 and 3 write the input of 2 and 4.
    let run = script(|play, steps| {
        for at in [0, 2] {
            let file = play.file(&format!("part{at}"), at as u64 * 1000);
            play.create(steps[at], file, at as u64 * 1000 + 900);
            play.read(steps[at + 1], file, at as u64 * 1000 + 1010);
        }
    });
    let found = serial(&run.workflow, &run.timeline, &run.path);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].dependencies, 2);
    assert!((found[0].saving_ns - 2_000_000_000).abs() < 10_000_000);
}

#[test]
fn a_step_that_others_wrote_to_before_is_a_dependency_too() {
    // All four write the same file.
    let run = script(|play, steps| {
        let file = play.file("log", 0);
        for (at, &step) in steps.iter().enumerate() {
            play.create(step, file, at as u64 * 1000 + 900);
        }
    });
    assert_eq!(serial(&run.workflow, &run.timeline, &run.path), []);
}

#[test]
fn a_pause_is_no_step_to_move() {
    let run = run(|mut play| {
        let shell = play.process("bash run.sh", None, 0, &[(4000, Child)]);
        play.process("sleep 2", Some(shell), 0, &[(2000, Sleep)]);
        play.process("sleep 2", Some(shell), 2000, &[(4000, Sleep)]);
        play.finish(4000);
    });
    assert_eq!(serial(&run.workflow, &run.timeline, &run.path), []);
}

#[test]
fn a_balanced_pipeline_on_all_cores_has_no_finding() {
    let run = run(|mut play| {
        let shell = play.process("bash run.sh", None, 0, &[(4000, Child)]);
        let pipe = play.channel(ChannelKind::Pipe);
        let first = play.process("first", Some(shell), 0, &[(4000, Cpu)]);
        let second = play.process("second", Some(shell), 0, &[(4000, Cpu)]);
        play.pipe(pipe, first, second, 0, 4000);
        play.busy(2, 99, 4000);
        play.finish(4000);
    });
    let verdict = verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
    assert_eq!(verdict.findings, []);
    assert_eq!(verdict.step.as_deref(), Some("second"));
}

#[test]
fn the_last_of_many_is_a_straggler() {
    let run = run(|mut play| {
        let shell = play.process("bash run.sh", None, 0, &[(4000, Child)]);
        for end in [1000, 1050, 1100, 4000] {
            play.process("work", Some(shell), 0, &[(end, Cpu)]);
        }
        play.finish(4000);
    });
    let verdict = verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
    assert_eq!(
        verdict.findings[0].kind, "straggler",
        "{:?}",
        verdict.findings
    );
    assert!(verdict.findings[0].saving_ns > 1_000_000_000);
}

/// The step computes on all the CPUs that it has, yet the first line is the one instance with most of the
/// work.
#[test]
fn the_first_line_names_the_straggler_by_what_it_alone_has() {
    let run = run(|mut play| {
        let shell = play.process("bash run.sh", None, 0, &[(4000, Child)]);
        for (part, end) in [1000, 1050, 1100, 4000].into_iter().enumerate() {
            let program = format!("work --size {end} -v out{part}");
            let work = play.process(&program, Some(shell), 0, &[(end, Cpu)]);
            let file = play.file(&format!("out{part}"), end);
            play.create(work, file, end);
        }
        play.finish(4000);
    });
    let verdict = verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
    assert_eq!(verdict.kind, Some("straggler"));
    let action = verdict.action.unwrap();
    assert!(
        action.starts_with("share the work of the 4 work evenly: 4.0 s → "),
        "{action}"
    );
    let why = verdict.why.unwrap();
    assert!(
        why.starts_with("one of 4 work, --size 4000 -v out3, takes 3.8 times"),
        "{why}"
    );
    let bottleneck = verdict.bottleneck.unwrap();
    assert!(
        bottleneck.starts_with("work limited the run"),
        "{bottleneck}"
    );
}

/// Three workers take turns for a lock, on two CPUs: side by side they would take half as long.
#[test]
fn a_lock_that_makes_processes_take_turns_is_the_first_line() {
    for doing in [Cpu, Sleep] {
        let run = run(|mut play| {
            let shell = play.process("bash run.sh", None, 0, &[(3000, Child)]);
            let file = play.file("guard", 0);
            let workers = [1000, 2000, 3000].map(|end| {
                let life = [(end - 1000, Flock), (end, doing)];
                let life = if end == 1000 { &life[1..] } else { &life[..] };
                play.process("work", Some(shell), 0, life)
            });
            for (worker, after) in workers.into_iter().zip([0, 1000, 2000]) {
                play.lock(worker, file, 0, Some(after));
            }
            for (worker, at) in workers.into_iter().zip([1000, 2000, 3000]) {
                play.lock(worker, file, at, None);
            }
            play.finish(3000);
        });
        let verdict = verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
        let of_kind = |kind: &str| {
            let mut found = verdict.findings.iter();
            found.find(|one| one.kind == kind).unwrap()
        };
        let lock = of_kind("lock");
        let could = if doing == Cpu { 1500 } else { 1000 };
        let saving = lock.saving_ns / 1_000_000;
        assert!((saving - (3000 - could)).abs() < 20, "{doing:?} {lock:?}");
        let times = if doing == Cpu { "2.0" } else { "3.0" };
        let title = format!(
            "the lock on guard lets one of up to 3 work go on at a time: the run takes {times} times as long for it"
        );
        assert_eq!(lock.title, title);
        if doing == Cpu {
            assert_eq!((verdict.kind, verdict.why), (Some("lock"), Some(title)));
            // What one computes with a lock for which others wait is no cause of its own; the last one keeps no
            // other waiting.
            let mut others = verdict.findings.iter().skip(1);
            assert!(
                others.all(|other| other.kind == "cpu" && other.saving_ns <= 1_000_000_000),
                "{:?}",
                verdict.findings
            );
        } else {
            // Nobody waits for a lock that nobody has while asleep.
            let sleep = of_kind("sleep");
            assert!(sleep.saving_ns > 2_900_000_000, "{sleep:?}");
        }
    }
}

/// The process waits for a timer, or was stopped: there is no work to share.
#[test]
fn the_last_of_many_without_work_is_no_straggler() {
    for idle in [Timer, Stopped] {
        let run = run(|mut play| {
            let shell = play.process("bash run.sh", None, 0, &[(4000, Child)]);
            for end in [1000, 1050, 1100] {
                play.process("work", Some(shell), 0, &[(end, Cpu)]);
            }
            play.process("work", Some(shell), 0, &[(1000, Cpu), (4000, idle)]);
            play.finish(4000);
        });
        let verdict = verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
        let kinds = verdict.findings.iter().map(|finding| finding.kind);
        assert!(kinds.clone().all(|kind| kind != "straggler"), "{idle:?}");
    }
}

#[test]
fn a_slow_stage_beside_an_idle_core_is_a_finding() {
    let run = run(|mut play| {
        let shell = play.process("bash run.sh", None, 0, &[(4020, Child)]);
        let pipe = play.channel(ChannelKind::Pipe);
        // It continues now and then: a wait that no event ends shows nothing.
        let goes_on: Vec<_> = (1..20)
            .flat_map(|n| [(200 * n, Out(pipe)), (200 * n + 10, Cpu)])
            .collect();
        let life: Vec<_> = [(100, Cpu)].into_iter().chain(goes_on).collect();
        let first = play.process("first", Some(shell), 0, &life);
        let second = play.process("second", Some(shell), 0, &[(4000, Cpu)]);
        play.pipe(pipe, first, second, 0, 4000);
        play.finish(4020);
    });
    let verdict = verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
    let first = &verdict.findings[0];
    assert_eq!((first.kind, first.step.as_deref()), ("cpu", Some("second")));
    // One program is one job: there is no second one that could run beside it.
    assert_eq!(first.action, "speed up second, or divide its work");
    assert!(
        first.title.ends_with("speed it up, or divide its work"),
        "{}",
        first.title
    );
    assert!(
        first.saving_ns < 2_000_000_000,
        "all work on both cores bounds it"
    );
}

/// `blind & cli & wait`: a process that ends earlier saves nothing, and of the longest only the part beyond
/// the next counts.
#[test]
fn who_sleeps_beside_a_longer_one_promises_nothing() {
    let run = run(|mut play| {
        let shell = play.process("sh", None, 0, &[(2000, Child)]);
        play.process("cli", Some(shell), 0, &[(1500, Sleep)]);
        play.process("blind", Some(shell), 0, &[(2000, Sleep)]);
        play.finish(2000);
    });
    let verdict = verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
    for finding in &verdict.findings {
        let most = match finding.step.as_deref() {
            Some("blind") => 500_000_000,
            _ => 0,
        };
        assert!(finding.saving_ns <= most + 50_000_000, "{finding:?}");
    }
}

/// No other step keeps it waiting, but the first line names its own wait.
#[test]
fn a_long_wait_of_its_own_is_in_the_first_line() {
    let run = run(|mut play| {
        play.process("work", None, 0, &[(1000, Cpu), (1858, File), (3000, Cpu)]);
        play.finish(3000);
    });
    let found = waits(&run.workflow, &run.timeline);
    assert_eq!(
        answer(&found, &[], &run.timeline),
        "no step waited long for another; the longest wait is that of work, 858 ms: storage"
    );
}

/// A runner with three places gave the step the first free one: to begin it earlier would help, and not to
/// divide it.
#[test]
fn a_step_that_had_to_wait_for_its_turn_is_no_straggler() {
    let run = run(|mut play| {
        let shell = play.process("bash run.sh", None, 0, &[(4000, Child)]);
        for end in [900, 1000, 1100] {
            play.process("work", Some(shell), 0, &[(end, Cpu)]);
        }
        play.process("work", Some(shell), 900, &[(4000, Cpu)]);
        play.finish(4000);
    });
    let verdict = verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
    let mut findings = verdict.findings.iter();
    assert!(
        findings.all(|one| one.kind != "straggler"),
        "{:?}",
        verdict.findings
    );
}
