//! Jobs of workflow managers are shown under the managers' own names.

use std::fs;

use crate::support::process::finish;
use crate::support::trace::Trace;
use crate::support::{PYTHON, Scratch, flowtrace, need_fuse, run_in, skip, succeeds};

/// Returns true if an optional workflow manager is installed.
fn has(program: &str) -> bool {
    let is_there = succeeds(program, &["--version"]);
    if !is_there {
        skip(&format!("no {program}"));
    }
    is_there && need_fuse()
}

#[test]
fn rules_of_snakemake() {
    if !has("snakemake") {
        return;
    }
    let scratch = Scratch::new();
    let work = scratch.dir("work");
    let rules = "rule all:\n    input: 'total'\n\
                 rule sorted:\n    output: 's{i}'\n    shell: 'seq {wildcards.i} 9 | sort -r > {output}'\n\
                 rule joined:\n    input: 's1', 's2'\n    output: 'total'\n    run:\n        \
                 open(output[0], 'w').write(open(input[0]).read() + open(input[1]).read())\n";
    fs::write(work.join("Snakefile"), rules).unwrap();
    let mut run = run_in(&work, &scratch.join("trace.db"));
    run.args(["--", "snakemake", "--quiet", "--cores", "1"]);
    run.env("HOME", scratch.dir("home"));
    finish(&mut run).expect(0);
    let trace = Trace::open(&scratch.join("trace.db"));
    // The shell, and the program that it started.
    let sorted = "SELECT COUNT(*) FROM processes WHERE rule = 'sorted' AND command LIKE ";
    assert_eq!(trace.one::<i64>(&format!("{sorted} 'sort -r%'")), 2);
    assert_eq!(trace.one::<i64>(&format!("{sorted} 'seq %'")), 2);
    let joined =
        "SELECT COUNT(*) FROM processes WHERE rule = 'joined' AND command LIKE '%--target-jobs%'";
    assert!(trace.one::<i64>(joined) >= 1);
    let other = "SELECT COUNT(*) FROM processes WHERE rule IN ('sort', 'seq')";
    assert_eq!(trace.one::<i64>(other), 0);
}

/// A manager that asks the machine for what is not there, and runs one job that fails and is forgiven.
#[test]
fn probes_of_a_manager_are_no_failures() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let (work, trace) = (scratch.dir("work"), scratch.join("trace.db"));
    let manager = "import subprocess\n\
        for i in range(3): subprocess.run('ls --no-such-option', shell=True, stderr=subprocess.DEVNULL)\n\
        subprocess.run(['sh', '-c', 'echo half > out; exit 4'])\n";
    fs::write(work.join("snakemake"), manager).unwrap();
    finish(run_in(&work, &trace).args(["--", "python3", "snakemake"])).expect(0);
    let summary = flowtrace(&work, &["summary", "../trace.db", "--format", "json"]);
    let facts: serde_json::Value = serde_json::from_slice(&summary.stdout).unwrap();
    let failures = facts["failures"].as_array().unwrap();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(
        (&failures[0]["count"], &failures[0]["ending"]),
        (&1.into(), &"exit 4".into())
    );
}

/// A script that ends its server succeeds with it; without memory, the kernel ends a process by SIGKILL.
#[test]
fn what_others_end_on_purpose_is_no_failure() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let work = scratch.dir("work");
    let endings = |code: i32| {
        // Whoever started the tests may have let them ignore SIGINT.
        let script = format!(
            "import signal, subprocess\nsignal.signal(2, signal.SIG_DFL)\nfor number in (1, 2, 15, 9):\n \
             one = subprocess.Popen(['sleep', '600'])\n one.send_signal(number)\n one.wait()\nexit({code})"
        );
        let trace = scratch.join(format!("{code}.db"));
        let command = ["--", PYTHON, "-c", &script];
        finish(run_in(&work, &trace).args(command)).expect(code);
        let trace = trace.to_str().unwrap();
        let summary = flowtrace(&work, &["summary", trace, "--format", "json"]);
        let facts: serde_json::Value = serde_json::from_slice(&summary.stdout).unwrap();
        let mut endings: Vec<String> = facts["failures"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["ending"].as_str().unwrap().to_owned())
            .collect();
        endings.sort();
        endings
    };
    assert_eq!(endings(0), ["SIGKILL"]);
    let all = ["SIGHUP", "SIGINT", "SIGKILL", "SIGTERM", "exit 3"];
    assert_eq!(endings(3), all);
}

#[test]
fn commands_of_parallel() {
    if !has("parallel") {
        return;
    }
    let scratch = Scratch::new();
    let work = scratch.dir("work");
    fs::write(work.join("a"), "2\n1\n").unwrap();
    fs::write(work.join("b"), "4\n3\n").unwrap();
    let mut run = run_in(&work, &scratch.join("trace.db"));
    run.args([
        "--",
        "parallel",
        "-j2",
        "sort {} > {}.sorted",
        ":::",
        "a",
        "b",
    ]);
    run.env("HOME", scratch.dir("home")).env("SHELL", "/bin/sh");
    finish(&mut run).expect(0);
    let trace = Trace::open(&scratch.join("trace.db"));
    let sorts = "SELECT COUNT(DISTINCT host || pid) FROM processes WHERE rule = 'sort'";
    assert_eq!(trace.one::<i64>(sorts), 2);
    for (view, row) in [("stats", "sort 2 2"), ("resources", "sort 2")] {
        let out = flowtrace(&scratch, &[view, "trace.db"]);
        let text = String::from_utf8(out.stdout).unwrap();
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&text).contains(row), "{view:?}: {text}");
    }
}
