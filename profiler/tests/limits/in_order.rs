//! Steps that ran one after another: which of them could run side by side, by which change, and the time that
//! this saves.

use flowtrace_profiler::analysis::critical_path::CriticalPath;
use flowtrace_profiler::analysis::findings::{Verdict, verdict};
use flowtrace_profiler::analysis::phrases::serial_line;
use flowtrace_profiler::analysis::serial::{RunBy, serial};
use flowtrace_profiler::load::{load, load_activity};
use flowtrace_profiler::timeline;
use flowtrace_schema::open_flags::{O_APPEND, O_TRUNC, O_WRONLY};
use flowtrace_schema::{FileKind, Op, Trace};

use crate::play::Doing::{Child, Cpu};
use crate::{Run, run};

#[path = "../support/script.rs"]
mod script;

fn verdict_of(run: &Run) -> Verdict {
    verdict(&run.workflow, &run.dag, &run.timeline, &run.path)
}

/// A make without `-j` that runs four steps of a second each. It looks up the files of these before the next.
fn made(looked_up: &[usize]) -> Run {
    run(|mut play| {
        let make = play.process("make", None, 0, &[(4000, Child)]);
        for at in 0..4 {
            let (from, to) = (at as u64 * 1000 + 10, at as u64 * 1000 + 1000);
            let step = play.process("gzip", Some(make), from, &[(to, Cpu)]);
            let file = play.file(&format!("{at}.gz"), from);
            play.create(step, file, to - 100);
            if looked_up.contains(&at) {
                play.alter(make, file, Op::Getattr, to + 5);
            }
        }
        play.busy(2, 50, 4000);
        play.finish(4000);
    })
}

#[test]
fn make_runs_targets_side_by_side_and_lines_of_a_recipe_never() {
    let judged = |looked_up: &[usize]| {
        let run = made(looked_up);
        let found = serial(&run.workflow, &run.timeline, &run.path);
        let [one] = &found[..] else {
            panic!("{found:?}");
        };
        assert!(
            (one.saving_ns - 1_990_000_000).abs() < 30_000_000,
            "{one:?}"
        );
        let verdict = verdict_of(&run);
        let action = verdict.action.unwrap();
        let (action, _) = action.split_once(':').unwrap();
        (one.run_by, serial_line(one), action.to_owned())
    };
    let (run_by, text, action) = judged(&[]);
    assert_eq!(run_by, RunBy::Recipe);
    assert!(
        text.ends_with("; make -j would, with a target for each"),
        "{text}"
    );
    assert_eq!(
        action,
        "run the 4 gzip side by side with make -j, a target for each"
    );
    // Four targets, or two with two lines each.
    for looked_up in [&[0, 1, 2, 3][..], &[1, 3]] {
        let (run_by, text, action) = judged(looked_up);
        assert_eq!(run_by, RunBy::Make);
        assert!(text.ends_with("; make -j would"), "{text}");
        assert_eq!(action, "run the 4 gzip side by side with make -j");
    }
}

/// `all: ; $(MAKE) -C a; $(MAKE) -C b`, each with two targets.
#[test]
fn a_make_passes_its_option_to_those_in_the_lines_of_its_recipe() {
    let run = run(|mut play| {
        let make = play.process("make", None, 0, &[(4000, Child)]);
        for at in [0, 2000] {
            let below = play.process("make", Some(make), at, &[(at + 2000, Child)]);
            for from in [at + 5, at + 1005] {
                let step = play.process("gzip", Some(below), from, &[(from + 990, Cpu)]);
                let file = play.file(&format!("{from}.gz"), from);
                play.create(step, file, from + 900);
                play.alter(below, file, Op::Getattr, from + 994);
            }
        }
        play.busy(2, 50, 4000);
        play.finish(4000);
    });
    let action = verdict_of(&run).action.unwrap();
    let advice = "run the 2 gzip side by side with make -j: 4.0 s → 2.0 s";
    assert_eq!(action, advice);
}

#[test]
fn snakemake_with_one_core_is_advised_to_use_more() {
    let judged = |command: &str| {
        let run = run(|mut play| {
            let manager = play.process(command, None, 0, &[(4000, Child)]);
            for at in 0..4 {
                let (from, to) = (at * 1000 + 10, at * 1000 + 1000);
                let job = play.process("comp", Some(manager), from, &[(to, Cpu)]);
                let file = play.file(&format!("{at}.gz"), from);
                play.create(job, file, to - 100);
                // Snakemake notes what a job has made.
                play.read(manager, file, to + 2);
            }
            play.busy(2, 50, 4000);
            play.finish(4000);
        });
        verdict_of(&run).action
    };
    let action = judged("snakemake --cores 1").unwrap();
    let advice = "run the 4 comp side by side with snakemake --cores 2: ";
    assert!(action.starts_with(advice), "{action}");
    let action = judged("snakemake --cores 8").unwrap();
    assert!(!action.contains("--cores"), "{action}");
}

/// `for …; do awk; done; cat o? > all; gzip all; rm -r tmp`: `rm` could run beside `cat` and `gzip`, which is
/// not worth a word.
#[test]
fn only_steps_that_save_time_side_by_side_are_named() {
    let run = run(|mut play| {
        let shell = play.process("bash run.sh", None, 0, &[(8000, Child)]);
        let files: Vec<(u32, u32)> = (0..4)
            .map(|at| {
                let (from, to) = (at * 700, at * 700 + 700);
                let awk = play.process("awk", Some(shell), from, &[(to, Cpu)]);
                let files =
                    [format!("o{at}"), format!("tmp/{at}")].map(|name| play.file(&name, from));
                play.create(awk, files[0], to - 100);
                play.create(awk, files[1], to - 50);
                (files[0], files[1])
            })
            .collect();
        let cat = play.process("cat", Some(shell), 2800, &[(2840, Cpu)]);
        for &(file, _) in &files {
            play.read(cat, file, 2810);
        }
        let all = play.file("all", 2830);
        play.create(cat, all, 2830);
        let gzip = play.process("gzip", Some(shell), 2840, &[(7980, Cpu)]);
        play.read(gzip, all, 2850);
        let rm = play.process("rm", Some(shell), 7980, &[(8000, Cpu)]);
        for &(_, file) in &files {
            play.alter(rm, file, Op::Unlink, 7990);
        }
        play.busy(2, 50, 8000);
        play.finish(8000);
    });
    let found = serial(&run.workflow, &run.timeline, &run.path);
    assert_eq!(found[0].steps, [("awk".to_owned(), 4, 2_800_000_000)]);
    assert_eq!(found[0].took_ns, 2_800_000_000);
    assert!((found[0].could_ns - 1_400_000_000).abs() < 60_000_000);
    assert!((found[0].saving_ns - 1_400_000_000).abs() < 60_000_000);
    let verdict = verdict_of(&run);
    let findings = verdict.findings.iter();
    let steps: Vec<_> = findings
        .map(|one| (one.kind, one.step.as_deref()))
        .collect();
    assert_eq!(steps, [("cpu", Some("gzip")), ("serial", Some("awk"))]);
}

/// `awk > a; gzip a; awk > b`: both `awk` could run first, and then `gzip` alone.
#[test]
fn a_step_between_those_that_could_run_side_by_side_keeps_its_finding() {
    let run = run(|mut play| {
        let shell = play.process("bash run.sh", None, 0, &[(7000, Child)]);
        let first = play.process("awk", Some(shell), 0, &[(1000, Cpu)]);
        let gzip = play.process("gzip", Some(shell), 1000, &[(6000, Cpu)]);
        let second = play.process("awk", Some(shell), 6000, &[(7000, Cpu)]);
        let (a, b) = (play.file("a", 0), play.file("b", 0));
        play.create(first, a, 900);
        play.read(gzip, a, 1010);
        play.create(second, b, 6900);
        play.busy(2, 50, 7000);
        play.finish(7000);
    });
    let findings = verdict_of(&run).findings;
    let found = findings
        .iter()
        .map(|one| (one.kind, one.saving_ns / 100_000_000));
    assert_eq!(found.collect::<Vec<_>>(), [("cpu", 25), ("serial", 10)]);
}

/// The greatest saving, ms, of a script of four steps that each make a file of their own, and write a log as
/// `log` has it: `None` through the script's standard error.
fn saved_with(log: &[Option<i64>; 4], is_read: bool) -> i64 {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.db");
    let mut script = script::Script::new(&path, "run.sh");
    let shell = script.root(("/bin/bash", &["bash", "run.sh"]), 0);
    let log_file = script.file("/w/log", FileKind::File, 100, 0);
    for (at, flags) in (0..).zip(log) {
        let (from, to) = (at * 1000, at * 1000 + 1000);
        let step = script.program(shell, "gzip", (from, to), 0);
        if let Some(flags) = flags {
            let op = if at == 0 { Op::Create } else { Op::Open };
            let flags = (O_WRONLY | flags) as u32;
            script.call(step, log_file, op, Some(flags), None, from + 10);
        }
        script.call(step, log_file, Op::Write, None, Some(10), from + 100);
        let file = script.file(&format!("/w/{at}.gz"), FileKind::File, 100, from);
        script.create(step, file, 1, 100, to - 100);
    }
    let last = script.program(shell, "last", (4000, 4010), 0);
    if is_read {
        script.read(last, log_file, 1, 10, 4005);
    }
    script.end(shell, 4010, Some(0), None, 10);
    script.finish(4010, 0);
    let trace = Trace::open(&path).unwrap();
    let workflow = load(&trace).unwrap();
    let timeline = timeline::read(&trace, &workflow).unwrap();
    let path = CriticalPath::of(&workflow, &load_activity(&trace, &workflow).unwrap());
    let found = serial(&workflow, &timeline, &path);
    found.first().map_or(0, |one| one.saving_ns / 1_000_000)
}

#[test]
fn a_log_that_no_step_reads_connects_no_steps() {
    let appended = [Some(O_APPEND); 4];
    for log in [&[None; 4], &appended] {
        let saving = saved_with(log, false);
        assert!((saving - 2000).abs() < 30, "{log:?}: {saving}");
        assert_eq!(saved_with(log, true), 0, "{log:?}");
    }
    // Who empties a file must not do that later, nor before another one has.
    let emptied_first = [Some(O_TRUNC), appended[0], appended[0], appended[0]];
    let saving = saved_with(&emptied_first, false);
    assert!((saving - 1000).abs() < 30, "{saving}");
    assert_eq!(saved_with(&[Some(O_TRUNC); 4], false), 0);
}

/// A script that starts a program 100 times, which computes for `cpu` ms and uses a file in the last ms of that.
fn started(cpu: u64) -> Run {
    run(|mut play| {
        let shell = play.process("bash run.sh", None, 0, &[(1000, Child)]);
        let sums = play.file("sums", 0);
        for at in 0..100 {
            let (from, to) = (at * 8, at * 8 + cpu);
            let run = play.process("md5sum", Some(shell), from, &[(to, Cpu)]);
            let file = play.file(&format!("f{at}"), from);
            play.read(run, file, to - 1);
            play.alter(run, sums, Op::Write, to);
        }
        play.process("awk", Some(shell), 800, &[(1000, Cpu)]);
        play.busy(2, 50, 1000);
        play.finish(1000);
    })
}

#[test]
fn one_run_for_all_is_better_than_many_that_mostly_start() {
    let run = started(4);
    let verdict = verdict_of(&run);
    let first = &verdict.findings[0];
    assert_eq!(
        (first.kind, first.step.as_deref()),
        ("small runs", Some("md5sum"))
    );
    // Of each run but one, the 3 ms before it reads.
    assert!(
        (first.saving_ns - 297_000_000).abs() < 10_000_000,
        "{first:?}"
    );
    let action = verdict.action.as_deref().unwrap();
    let advice = "start one md5sum for all instead of 100 runs of 4.0 ms each: 1.0 s → ";
    assert!(action.starts_with(advice), "{action}");
    let mut others = verdict.findings.iter().skip(1);
    assert!(others.all(|other| other.step.as_deref() != Some("md5sum")));
    // That much may be work of its own.
    let run = started(7);
    let verdict = verdict_of(&run);
    assert!(verdict.findings.iter().all(|one| one.kind != "small runs"));
}

/// Of six alike, the last takes four times as long: its output distinguishes it.
#[test]
fn a_step_that_began_late_is_named_by_what_it_alone_has() {
    let run = run(|mut play| {
        let xargs = play.process("xargs -P2", None, 0, &[(6010, Child)]);
        for (at, (from, to)) in (1..).zip([
            (0, 1000),
            (0, 1000),
            (1010, 2000),
            (1010, 2000),
            (2010, 3000),
            (2010, 6000),
        ]) {
            let gzip = play.process("gzip -c", Some(xargs), from, &[(to, Cpu)]);
            let file = play.file(&format!("big.{at}"), from);
            play.create(gzip, file, from + 5);
        }
        play.busy(2, 60, 6010);
        play.finish(6010);
    });
    let verdict = verdict_of(&run);
    let late = verdict.findings.iter().find(|one| one.kind == "late start");
    let late = late.unwrap();
    assert_eq!(
        late.action,
        "run gzip (that of big.6) before the other steps of xargs"
    );
    assert!(
        late.title.starts_with("gzip (that of big.6) begins at "),
        "{late:?}"
    );
}
