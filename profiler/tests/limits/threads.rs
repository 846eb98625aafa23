//! Programs with threads: those that work, and those that wait for another one.

use flowtrace_profiler::analysis::findings::verdict;
use flowtrace_profiler::analysis::waits::waits;

use crate::play::Doing::{Child, Cpu, Futex, In, Lock, Queue};
use crate::run;

#[test]
fn threads_that_take_turns_wait_for_each_other() {
    let run = run(|mut play| {
        let turn = |at: u64| -> Vec<(u64, _)> {
            (0..8)
                .map(|slice| (slice * 500 + 500, if slice % 4 == at { Cpu } else { Futex }))
                .collect()
        };
        let lives: Vec<_> = (0..4).map(turn).collect();
        let mut all: Vec<&[_]> = lives.iter().map(Vec::as_slice).collect();
        // The thread that made them waits for their end.
        let main = [(4000, Futex)];
        all.push(&main);
        play.threads("convoy", None, 0, &all);
        play.busy(2, 50, 4000);
        play.finish(4000);
    });
    let found = waits(&run.workflow, &run.timeline);
    let [threads] = found.threads.as_slice() else {
        panic!("one program has threads: {:?}", found.threads);
    };
    assert_eq!((threads.name.as_str(), threads.most), ("convoy", 5));
    let means = [
        threads.alive,
        threads.at_work,
        threads.waiting,
        threads.idle,
    ];
    assert_eq!(
        means.map(|mean| (mean * 10.0).round()),
        [50.0, 10.0, 30.0, 10.0]
    );
    assert_eq!(threads.waited_ns, 12_000_000_000);

    let verdict = verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
    let finding = &verdict.findings[0];
    assert_eq!(finding.kind, "lock");
    assert!(
        finding
            .title
            .starts_with("convoy keeps 1.0 of its 4 threads at work,"),
        "{}",
        finding.title
    );
    assert_eq!(finding.saving_ns, 2_000_000_000, "on two CPUs");
}

/// A thread that waits for most of a program's life keeps no other from work: a faster program, or another
/// one, would help.
#[test]
fn a_pool_with_nothing_to_do_keeps_nobody_waiting() {
    let run = run(|mut play| {
        let idle = [(2000, Futex)];
        play.threads("server", None, 0, &[&[(2000, Cpu)], &idle, &idle, &idle]);
        play.busy(2, 50, 2000);
        play.finish(2000);
    });
    let found = waits(&run.workflow, &run.timeline);
    assert_eq!(
        (found.threads[0].waited_ns, found.threads[0].idle.round()),
        (0, 3.0)
    );
    let verdict = verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
    assert_eq!(verdict.findings[0].kind, "cpu");
}

/// Its four threads use two CPUs fully: another instance of it would have none.
#[test]
fn threads_side_by_side_are_load() {
    let run = run(|mut play| {
        let turn = |at: u64| -> Vec<(u64, _)> {
            (0..20)
                .map(|slice| (slice * 100 + 100, if slice % 2 == at { Cpu } else { Queue }))
                .collect()
        };
        let (even, odd) = (turn(0), turn(1));
        let main = [(2000, Futex)];
        play.threads("crew", None, 0, &[&main, &even, &odd, &even, &odd]);
        play.busy(2, 100, 2000);
        play.finish(2000);
    });
    let verdict = verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
    assert_eq!(verdict.findings, []);
    let bottlenecks = run.bottlenecks();
    let cores = bottlenecks.causes[0].own_cores;
    assert!((cores - 2.0).abs() < 0.05, "{cores}");
}

/// Ranks that wait for each other at the end of each round: the one with the most work is named, also where
/// other programs on the machine have the CPUs for most of the time.
#[test]
fn a_slow_rank_at_a_barrier_is_named() {
    for (others, ranks) in [(0, &[100, 100, 390, 100][..]), (60, &[50, 390])] {
        let run = run(|mut play| {
            let shell = play.process("bash run.sh", None, 0, &[(4000, Child)]);
            for &busy in ranks {
                let life: Vec<_> = (0..10)
                    .flat_map(|round| {
                        let begin = round * 400;
                        let queued = begin + busy * others / 100;
                        let life = [(queued, Queue), (begin + busy, Cpu), (begin + 400, Lock)];
                        life.into_iter().skip(usize::from(others == 0))
                    })
                    .collect();
                play.process(&format!("rank -n {busy}"), Some(shell), 0, &life);
            }
            play.busy(2, if others == 0 { 88 } else { 100 }, 4000);
            play.finish(4000);
        });
        let verdict = verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
        let why = verdict.why.unwrap();
        let count = ranks.len();
        let expected = format!("one of {count} rank, -n 390, computes while the others wait");
        assert!(why.starts_with(&expected), "{why} {:?}", verdict.findings);
    }
}

/// The first process of a pool has threads that pass work to its workers and take their results: these have
/// no work to share.
#[test]
fn threads_that_pass_data_on_get_no_advice_about_locks() {
    let run = run(|mut play| {
        let pipe = play.channel(flowtrace_schema::ChannelKind::Pipe);
        let passes_on: Vec<_> = (0..20)
            .flat_map(|at| {
                let begin = at * 200;
                [
                    (begin + 120, In(pipe)),
                    (begin + 160, Futex),
                    (begin + 200, Cpu),
                ]
            })
            .collect();
        let main: Vec<_> = (0..20)
            .flat_map(|at| [(at * 200 + 110, Futex), (at * 200 + 200, Cpu)])
            .collect();
        let pool = play.threads("pool", None, 0, &[&main, &passes_on, &passes_on]);
        let worker = play.process("worker", Some(pool), 0, &[(4000, Cpu)]);
        play.pipe(pipe, worker, pool, 0, 4000);
        play.busy(4, 50, 4000);
        play.finish(4000);
    });
    let found = waits(&run.workflow, &run.timeline);
    let pool = &found.threads[0];
    assert!((pool.alive - 1.0).abs() < 0.05, "{pool:?}");
    assert!(!pool.keep_each_other_waiting(), "{pool:?}");
    let verdict = verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
    assert!(
        verdict.findings.iter().all(|one| one.kind != "lock"),
        "{:?}",
        verdict.findings
    );
}
