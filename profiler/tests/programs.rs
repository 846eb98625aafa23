//! The work of a process before an exec belongs to the program that it ran then. Times are milliseconds.

use std::path::Path;

use flowtrace_profiler::analysis::bottlenecks::{self, Options};
use flowtrace_profiler::analysis::critical_path::CriticalPath;
use flowtrace_profiler::analysis::findings::{self, Finding, Verdict};
use flowtrace_profiler::analysis::statistics::{calls, phases};
use flowtrace_profiler::analysis::time;
use flowtrace_profiler::analysis::waits::waits;
use flowtrace_profiler::export::{drawing, wfformat};
use flowtrace_profiler::graph::{self, Dag};
use flowtrace_profiler::load::{load, load_activity};
use flowtrace_profiler::model::{Process, Workflow};
use flowtrace_profiler::text::statistics::{Of, distributions};
use flowtrace_profiler::timeline::{self, Timeline};
use flowtrace_schema::{Activity, FileKind, Trace};

#[path = "support/script.rs"]
mod script;

use script::Script;

const MS: i64 = 1_000_000;

struct Run {
    workflow: Workflow,
    dag: Dag,
    timeline: Timeline,
    path: CriticalPath,
}

/// `sh -c './w.sh; echo done'`; w.sh computes for 600 ms and becomes `sleep 0.05`.
fn run() -> Run {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("t.db");
    let mut s = Script::new(&file, "sh -c ./w.sh");
    let shell = s.root(("/usr/bin/dash", &["sh", "-c", "./w.sh; echo done"]), 0);
    let copy = s.fork(
        shell,
        ("/usr/bin/dash", &["sh", "-c", "./w.sh; echo done"]),
        1,
    );
    let pid = 100 + copy;
    let work = ("/usr/bin/bash", &["/bin/bash", "./w.sh"][..]);
    let work = s.exec(copy, pid, Some(shell), work, 2);
    let sleep = ("/usr/bin/sleep", &["sleep", "0.05"][..]);
    let sleep = s.exec_after(work, pid, Some(shell), sleep, (602, 598));
    s.sample(shell, (20, 640), Activity::Child, None);
    s.sample(work, (10, 600), Activity::Running, None);
    s.sample(sleep, (610, 650), Activity::Sleep, None);
    s.end(sleep, 652, Some(0), None, 1);
    s.end(shell, 655, Some(0), None, 2);
    s.finish(655, 0);
    Run::read(&file)
}

impl Run {
    fn read(file: &Path) -> Run {
        let trace = Trace::open(file).unwrap();
        let workflow = load(&trace).unwrap();
        let path = CriticalPath::of(&workflow, &load_activity(&trace, &workflow).unwrap());
        Run {
            dag: graph::build(&workflow),
            timeline: timeline::read(&trace, &workflow).unwrap(),
            workflow,
            path,
        }
    }

    fn verdict(&self) -> Verdict {
        findings::verdict(&self.workflow, &self.dag, &self.timeline, &self.path)
    }
}

#[test]
fn the_path_goes_through_both_programs_of_a_process() {
    let run = run();
    let mut steps: Vec<(&str, i64, i64)> = Vec::new();
    for step in &run.path.steps {
        let rule = run.workflow.program(&step.program).rule.as_ref();
        match steps.last_mut() {
            Some(last) if last.0 == rule && last.2 == step.from_ns => last.2 = step.to_ns,
            _ => steps.push((rule, step.from_ns, step.to_ns)),
        }
    }
    assert_eq!(
        steps,
        [
            ("sh -c", 0, MS),
            ("w.sh", MS, 602 * MS),
            ("sleep", 602 * MS, 652 * MS),
            ("sh -c", 652 * MS, 655 * MS)
        ]
    );
    let rules = run.path.by_rule(&run.workflow);
    let rules: Vec<(&str, i64, i64, i64)> = rules
        .iter()
        .map(|c| (c.rule.as_ref(), c.processes, c.ns / MS, c.halved_ns))
        .collect();
    assert_eq!(rules[0], ("w.sh", 1, 601, 655 * MS - 601 * MS / 2));
    assert_eq!(rules[1], ("sleep", 1, 50, 630 * MS));
    let sum: i64 = run.path.steps.iter().map(|s| s.to_ns - s.from_ns).sum();
    assert_eq!(sum, run.path.length_ns());
    assert_eq!(run.path.what_if_programs(|_| 1.0), run.path.length_ns());
}

#[test]
fn who_limits_the_run_is_the_program_that_ran_then() {
    let run = run();
    let names = bottlenecks::by_rule(&run.workflow);
    assert_eq!(names, ["sh -c", "w.sh", "sleep"]);
    let options = Options::default();
    let result = bottlenecks::analyse(
        &run.workflow,
        &run.dag,
        &run.timeline,
        &names,
        true,
        options,
    );
    let first = &result.causes[0];
    let task = &result.tasks.tasks[first.task.unwrap()];
    assert_eq!(
        (task.name().as_str(), first.resource.name()),
        ("w.sh", "CPU")
    );
    assert!(first.ns >= 500 * MS && first.ns <= 610 * MS, "{first:?}");

    let verdict = run.verdict();
    assert_eq!(verdict.step.as_deref(), Some("w.sh"));
    let about = |step: &str| {
        let found = verdict.findings.iter();
        let found = found.filter(|one| one.step.as_deref() == Some(step));
        found.map(|one| one.saving_ns).sum::<i64>()
    };
    assert!(about("w.sh") > 200 * MS, "{:#?}", verdict.findings);
    assert!(about("sleep") <= 50 * MS, "{:#?}", verdict.findings);
}

/// A step that computes for 600 ms and then sleeps for 400: the limit of the whole step is CPU.
#[test]
fn a_step_that_sleeps_in_between_is_reported_with_both() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("t.db");
    let mut s = Script::new(&file, "sh -c ./w");
    let shell = s.root(("/usr/bin/dash", &["sh", "-c", "./w; echo"]), 0);
    let copy = s.fork(shell, ("/usr/bin/dash", &["sh", "-c", "./w; echo"]), 1);
    let work = s.exec(copy, 100 + copy, Some(shell), ("/w/w", &["./w"]), 2);
    s.sample(shell, (20, 990), Activity::Child, None);
    s.sample(work, (10, 602), Activity::Running, None);
    s.sample(work, (602, 1000), Activity::Sleep, None);
    s.end(work, 1002, Some(0), None, 600);
    s.end(shell, 1005, Some(0), None, 2);
    s.finish(1005, 0);
    let verdict = Run::read(&file).verdict();
    let found = verdict.findings.iter().find(|one| one.kind == "sleep");
    let found = found.unwrap_or_else(|| panic!("{verdict:#?}"));
    assert_eq!(found.step.as_deref(), Some("w"));
    assert!((found.saving_ns - 400 * MS).abs() < 30 * MS, "{verdict:#?}");
    assert!(verdict.findings.iter().any(|one| one.kind == "cpu"));
    // A process that only computed has no wait.
    let verdict = run().verdict();
    let of_work = |one: &&Finding| one.step.as_deref() == Some("w.sh");
    let mut of_work = verdict.findings.iter().filter(of_work);
    assert!(of_work.all(|one| one.kind != "sleep"), "{verdict:#?}");
}

#[test]
fn who_waits_for_a_process_waits_for_what_it_ran() {
    let run = run();
    let found = waits(&run.workflow, &run.timeline);
    let of = |blocker: &str| {
        let all = found.waits.iter();
        let all = all.filter(|wait| wait.blocker.as_deref() == Some(blocker));
        all.map(|wait| wait.ns / MS as f64).sum::<f64>()
    };
    let (work, sleep) = (of("w.sh"), of("sleep"));
    assert!((550.0..=615.0).contains(&work), "{work} {:#?}", found.waits);
    assert!((35.0..=60.0).contains(&sleep), "{sleep}");
}

#[test]
fn each_program_counts_with_the_time_that_it_ran_and_each_process_once() {
    let run = run();
    let found = phases::by_rule(&run.workflow);
    let rows: Vec<(&str, i64, i64, i64)> = found
        .rows
        .iter()
        .map(|row| {
            (
                row.name.as_ref(),
                row.programs,
                row.processes,
                row.life_ns / MS,
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("sh -c", 1, 1, 655),
            ("w.sh", 1, 0, 601),
            ("sleep", 1, 1, 50)
        ]
    );
    let lives = run.workflow.processes.iter();
    let lives: i64 = lives.filter_map(Process::duration_ns).sum();
    assert_eq!((found.total.programs, found.total.life_ns), (3, lives));
    let processes = run.workflow.processes.len() as i64;
    let by_files = found.total.by_process;
    let by_files = by_files.read_only + by_files.write_only + by_files.both + by_files.none;
    assert_eq!((found.total.processes, by_files), (processes, processes));
}

/// `all.sh`, which starts a script that reads a file for a short time and becomes `sleep 0.3`, and one that
/// only becomes `env`, `nice` and at last `sort`.
fn scripts(file: &std::path::Path) -> Trace {
    let mut s = Script::new(file, "./all.sh");
    let all = ("/usr/bin/bash", &["/bin/bash", "./all.sh"][..]);
    let shell = s.root(all, 0);
    let data = s.file("/w/in.txt", FileKind::File, 80, 0);
    let made = s.file("/w/out.txt", FileKind::File, 80, 0);
    let texts = ["v.sh", "nice.sh"].map(|name| s.file(&format!("/w/{name}"), FileKind::File, 9, 0));

    let copy = s.fork(shell, all, 10);
    let pid = 100 + copy;
    s.read(copy, texts[0], 1, 9, 11);
    let script = ("/usr/bin/bash", &["/bin/bash", "./v.sh"][..]);
    let script = s.exec(copy, pid, Some(shell), script, 12);
    s.read(script, texts[0], 2, 18, 12);
    s.read(script, data, 3, 30, 13);
    let sleep = ("/usr/bin/sleep", &["sleep", "0.3"][..]);
    let sleep = s.exec(script, pid, Some(shell), sleep, 15);
    s.read(sleep, data, 1, 5, 20);
    s.end(sleep, 315, Some(0), None, 1);

    let copy = s.fork(shell, all, 320);
    let pid = 100 + copy;
    s.create(copy, made, 0, 0, 321);
    s.read(copy, texts[1], 1, 9, 321);
    let mut image = copy;
    for program in [&["/bin/bash", "./nice.sh"][..], &["env", "A=b"], &["nice"]] {
        image = s.exec(image, pid, Some(shell), (program[0], program), 322);
    }
    s.read(image, texts[1], 1, 9, 322);
    let sort = s.exec(
        image,
        pid,
        Some(shell),
        ("/usr/bin/sort", &["sort", "in.txt"]),
        323,
    );
    s.read(sort, data, 2, 80, 330);
    s.create(sort, made, 1, 80, 340);
    s.end(sort, 400, Some(0), None, 70);
    s.end(shell, 405, Some(0), None, 2);
    s.finish(405, 0);
    Trace::open(file).unwrap()
}

#[test]
fn a_process_is_named_by_the_programs_that_did_work() {
    let directory = tempfile::tempdir().unwrap();
    let trace = scripts(&directory.path().join("t.db"));
    let workflow = load(&trace).unwrap();
    let names: Vec<&str> = workflow
        .process_ids()
        .map(|id| &**workflow.rule(id))
        .collect();
    assert_eq!(names, ["all.sh", "v.sh → sleep", "sort"]);

    let dag = graph::lineage(&workflow);
    let drawn = drawing::of_processes(&workflow, &dag);
    let labels: Vec<&str> = drawn.nodes.iter().map(|node| &*node.label[0]).collect();
    assert_eq!(
        labels[..3],
        ["bash ./all.sh", "v.sh → sleep 0.3", "sort in.txt"]
    );
    let grouped = graph::groups::by_rule(&workflow, &dag);
    let groups: Vec<&str> = grouped
        .graph
        .node_indices()
        .map(|n| grouped.name(n))
        .collect();
    assert!(groups.contains(&"v.sh → sleep"), "{groups:?}");

    let mut bytes = Vec::new();
    wfformat::write(&workflow, &dag, &Default::default(), &mut bytes).unwrap();
    let instance: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let tasks = instance["workflow"]["specification"]["tasks"]
        .as_array()
        .unwrap();
    let task = tasks
        .iter()
        .find(|task| task["name"] == "v.sh → sleep")
        .unwrap();
    assert_eq!(
        task["inputFiles"],
        serde_json::json!(["/w/in.txt", "/w/v.sh"])
    );
    assert!(
        task["id"].as_str().unwrap().starts_with("v.sh-sleep_"),
        "{task}"
    );
}

#[test]
fn bytes_are_those_of_the_program_that_moved_them() {
    let directory = tempfile::tempdir().unwrap();
    let trace = scripts(&directory.path().join("t.db"));
    let (workflow, calls) = calls::load_and_gather(&trace, 1).unwrap();
    let found = phases::by_rule(&workflow);
    let rows: Vec<(&str, i64, i64, i64)> = found
        .rows
        .iter()
        .filter(|row| row.programs > 0)
        .map(|row| {
            (
                row.name.as_ref(),
                row.programs,
                row.read_bytes,
                row.write_bytes,
            )
        })
        .collect();
    // The kernel's reads of a script before the exec are part of it.
    assert_eq!(
        rows,
        [
            ("all.sh", 1, 0, 0),
            ("v.sh", 1, 135, 0),
            ("sleep", 1, 5, 0),
            ("sort", 1, 178, 80)
        ]
    );
    let read: i64 = workflow
        .accesses
        .iter()
        .map(|access| access.read_bytes)
        .sum();
    assert_eq!(found.total.read_bytes, read);
    let series = distributions(&workflow, &calls, Of::ProcessBytes);
    let sums: Vec<(&str, i64)> = series
        .iter()
        .map(|(name, of)| (name.as_str(), of.sum))
        .collect();
    assert_eq!(
        sums,
        [
            ("sleep read", 5),
            ("sort read", 178),
            ("sort wrote", 80),
            ("v.sh read", 135)
        ]
    );
}

/// A program that does different things under one name is known by its subcommands; a word that is a file is
/// none of them.
#[test]
fn subcommands_are_rules_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("t.db");
    let mut s = Script::new(&file, "sh run.sh");
    let shell = s.root(("/bin/sh", &["sh", "run.sh"]), 0);
    let lines: [&[&str]; 6] = [
        &["samtools", "sort", "-o", "out.bam", "in.bam"],
        &["samtools", "index", "out.bam"],
        &["python3", "tool.py", "train", "--epochs", "3"],
        &["python3", "tool.py", "test"],
        &["head", "list", "-n", "5"],
        &["grep", "word", "list"],
    ];
    for (at, line) in lines.into_iter().enumerate() {
        let at = 10 + 10 * at as u64;
        s.job(shell, (line[0], line), at, at + 5);
    }
    s.file("/w/list", FileKind::File, 10, 80);
    s.end(shell, 90, Some(0), None, 1);
    s.finish(90, 0);
    let workflow = load(&Trace::open(&file).unwrap()).unwrap();
    let mut rules: Vec<&str> = workflow.images.iter().map(|image| &*image.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    rules.retain(|rule| *rule != "sh -c");
    let expected = [
        "grep",
        "head",
        "run.sh",
        "samtools index",
        "samtools sort",
        "tool.py test",
        "tool.py train",
    ];
    assert_eq!(rules, expected);
}

/// A shim forks a helper, and then becomes the program that waits: the helper is no child of that program.
#[test]
fn what_was_forked_before_an_exec_hides_no_wait_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("t.db");
    let mut s = Script::new(&file, "./shim.sh");
    let shim = s.root(("/usr/bin/dash", &["sh", "./shim.sh"]), 0);
    let helper = s.program(shim, "helper", (2, 8), 5);
    let poll = ("/usr/bin/poll", &["poll"][..]);
    let poll = s.exec_after(shim, 100, None, poll, (10, 8));
    s.sample(poll, (10, 4010), Activity::Sleep, None);
    s.end(poll, 4010, Some(0), None, 5);
    assert_ne!(helper, poll);
    s.finish(4010, 0);
    let run = Run::read(&file);
    let rules = time::by_rule(&run.workflow);
    let of = |name: &str| rules.iter().find(|rule| &*rule.rule == name).unwrap();
    assert_eq!(of("poll").leaf_ns, 4000 * MS);
    assert_eq!(of("poll").blocked_ns(), 3995 * MS);
    let shims = rules
        .iter()
        .filter(|rule| &*rule.rule != "poll" && &*rule.rule != "helper");
    assert_eq!(shims.map(|rule| rule.leaf_ns).sum::<i64>(), 0);
}
