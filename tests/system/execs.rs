//! Work before an exec belongs to the program that did it. A script with a known split of its work checks
//! this.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::support::process::finish;
use crate::support::{Scratch, prints, run_in};

/// Computes for some hundred milliseconds, then execs a short sleep.
const SCRIPT: &str = "#!/bin/bash
i=0; while ((i < 400000)); do ((i++)); done
seq 1000 > data
exec sleep 0.05
";

fn json(scratch: &Scratch, arguments: &[&str]) -> Value {
    serde_json::from_str(&prints(scratch, arguments)).unwrap()
}

/// Time on the critical path by rule in ns, longest first.
fn on_path(path: &Value) -> Vec<(String, i64)> {
    let rules = path["rules"].as_array().unwrap();
    let of = |rule: &Value| {
        let name = rule["rule"].as_str().unwrap().to_owned();
        (name, rule["ns"].as_i64().unwrap())
    };
    rules.iter().map(of).collect()
}

#[test]
fn a_script_that_ends_with_an_exec_is_to_blame_for_its_work() {
    let scratch = Scratch::new();
    let directory = scratch.dir("job");
    let script = directory.join("w.sh");
    fs::write(&script, SCRIPT).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = run_in(&directory, &scratch.join("trace.db"));
    command.args(["--", "sh", "-c", "./w.sh; echo done"]);
    finish(&mut command).expect(0);

    let path = json(&scratch, &["critical-path", "trace.db", "--format", "json"]);
    let rules = on_path(&path);
    let of = |name: &str| rules.iter().find(|rule| rule.0 == name).map_or(0, |r| r.1);
    assert_eq!(rules[0].0, "w.sh", "{rules:?}");
    assert!((50_000_000..of("w.sh")).contains(&of("sleep")), "{rules:?}");
    let steps = path["steps"].as_array().unwrap();
    let sum: i64 = steps.iter().map(|step| step["ns"].as_i64().unwrap()).sum();
    assert_eq!(sum, path["length_ns"].as_i64().unwrap());

    let answer = prints(&scratch, &["bottlenecks", "trace.db"]);
    assert!(
        answer.starts_with("flowtrace: w.sh limited the run"),
        "{answer}"
    );
    let summary = prints(&scratch, &["summary", "trace.db"]);
    assert!(summary.contains("w.sh limited the run"), "{summary}");
    assert!(!summary.contains("sleep computes"), "{summary}");
    let graph = prints(&scratch, &["dag", "trace.db", "--by", "process"]);
    assert!(graph.contains("label=\"w.sh → sleep 0.05\\n"), "{graph}");
    let rules = prints(&scratch, &["stats", "trace.db", "rules"]);
    let row = |name: &str| {
        rules
            .lines()
            .find(|line| line.split_whitespace().next() == Some(name))
    };
    let jobs = |name: &str| row(name).and_then(|line| line.split_whitespace().nth(1));
    assert_eq!(
        (jobs("w.sh"), jobs("sleep")),
        (Some("1"), Some("1")),
        "{rules}"
    );
}

#[test]
fn a_shell_that_becomes_its_last_command_keeps_its_own_time() {
    let scratch = Scratch::new();
    let directory = scratch.dir("job");
    let mut command = run_in(&directory, &scratch.join("trace.db"));
    let line = "i=0; while ((i < 200000)); do ((i++)); done; sleep 0.3; ls";
    command.args(["--", "bash", "-c", line]);
    finish(&mut command).expect(0);
    let rules = on_path(&json(
        &scratch,
        &["critical-path", "trace.db", "--format", "json"],
    ));
    let of = |name: &str| rules.iter().find(|rule| rule.0 == name).map_or(0, |r| r.1);
    assert!(of("bash -c") > 4 * of("ls"), "{rules:?}");
    assert!(of("sleep") >= 300_000_000, "{rules:?}");
}

/// Making an empty file is work; opening one for the program that is executed next is not.
#[test]
fn who_made_an_empty_file_and_became_another_has_made_it() {
    let scratch = Scratch::new();
    let directory = scratch.dir("job");
    let script = "#!/bin/bash\n: > ready\nmv ready ready.1\nexec sleep 0.01 > log 2> err.log\n";
    let path = directory.join("w.sh");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(directory.join("wrap.sh"), "exec sleep 0.02 > later").unwrap();
    let mut command = run_in(&directory, &scratch.join("trace.db"));
    let line = "./w.sh; bash wrap.sh; mv later kept; (exec sleep 0.03 3> lock); true > empty";
    command.args(["--", "bash", "-c", line]);
    finish(&mut command).expect(0);
    let graph = prints(&scratch, &["dag", "trace.db", "--by", "process"]);
    assert!(graph.contains("label=\"w.sh → sleep 0.01\\n"), "{graph}");
    for opened_for_it in ["label=\"sleep 0.02\\n", "label=\"sleep 0.03\\n"] {
        assert!(graph.contains(opened_for_it), "{graph}");
    }
}
