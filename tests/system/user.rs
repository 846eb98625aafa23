//! An ordinary user without any capability sees the same as root.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::support::process::finish;
use crate::support::shape::Process;
use crate::support::trace::Trace;
use crate::support::user::User;
use crate::support::{self, Scratch, checkout, need_fuse, need_program, need_python, shared};

/// The graph by rule: nodes, and edges of data as kind, begin and end. The drawn forks and waits are left
/// out: they depend on the critical path, and so on the times of a run.
fn graph(trace: &Path) -> (Vec<String>, Vec<[String; 3]>) {
    let mut dag = Command::new(support::FLOWTRACE);
    dag.arg("dag").arg(trace);
    let text = finish(dag.args(["--by", "rule", "--format", "cytoscape"])).expect(0);
    let graph: serde_json::Value = serde_json::from_str(&text.stdout_text()).unwrap();
    let elements = |what: &str| graph["elements"][what].as_array().unwrap().clone();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    // The first line of a label is a name; times follow.
    let name = |node: &serde_json::Value| {
        let label = text(&node["data"]["label"]);
        label.lines().next().unwrap().to_owned()
    };
    let nodes = elements("nodes");
    let names: BTreeMap<String, String> = nodes
        .iter()
        .map(|node| (text(&node["data"]["id"]), name(node)))
        .collect();
    let edges = elements("edges");
    let edges = edges.iter().map(|edge| &edge["data"]);
    let mut edges: Vec<[String; 3]> = edges
        .filter(|edge| edge["kind"] != "wait" && edge["kind"] != "fork")
        .map(|edge| {
            let [source, target] = ["source", "target"].map(|end| names[&text(&edge[end])].clone());
            [text(&edge["kind"]), source, target]
        })
        .collect();
    edges.sort();
    let mut names: Vec<String> = names.into_values().collect();
    names.sort();
    (names, edges)
}

/// Processes by their programs and files, without their ends.
fn without_end(processes: Vec<Process>) -> Vec<Process> {
    let forget = |mut p: Process| {
        p.end.clear();
        p
    };
    processes.into_iter().map(forget).collect()
}

/// Traces `argv` twice, as root and as a user, each in a copy of `input`, and compares.
fn compare(scratch: &Scratch, input: &Path, argv: &[&str], variables: &[(&str, &str)]) {
    let root_dir = scratch.join("root");
    support::tree::copy(input, &root_dir);
    let root_trace = scratch.join("root.db");
    let mut command = support::run_in(&root_dir, &root_trace);
    command.arg("--").args(argv).envs(variables.iter().copied());
    finish(&mut command).expect(0);

    let user = User::new(scratch);
    let user_dir = user.give(input, "data");
    let user_trace = user.home.join("trace.db");
    let mut command = user.command(&user.flowtrace);
    command
        .args(["run", "--quiet", "--no-summary", "-o"])
        .arg(&user_trace)
        .arg("--")
        .args(argv)
        .current_dir(&user_dir)
        .envs(variables.iter().copied());
    finish(&mut command).expect(0);

    let (by_root, by_user) = (
        Trace::open_complete(&root_trace),
        Trace::open_complete(&user_trace),
    );
    let unseen: i64 = by_user
        .one("SELECT COUNT(*) FROM losses WHERE counter IN ('not_traced', 'own_path_not_seen')");
    assert_eq!(unseen, 0, "the user's files were seen at their own path");
    support::shape::assert_same(
        "root",
        without_end(by_root.shape(&root_dir)),
        "the user",
        without_end(by_user.shape(&user_dir)),
    );
    let (root_graph, user_graph) = (graph(&root_trace), graph(&user_trace));
    let counts = (root_graph.0.len(), root_graph.1.len());
    assert!(counts.0 > 3 && counts.1 > 3, "{root_graph:?}");
    assert_eq!(root_graph, user_graph, "nodes and edges by rule");
    support::tree::assert_same(&root_dir, &user_dir);
}

#[test]
fn wordcount() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let input = scratch.dir("input");
    let script = scratch.join("wordcount.sh");
    std::fs::copy(checkout("examples/wordcount.sh"), &script).unwrap();
    let script = script.to_str().expect("a plain path");
    compare(&scratch, &input, &[script], &[("WORDS", "100000")]);
    let mut check = Command::new(script);
    let check = check.arg("--check").current_dir(scratch.join("root"));
    assert_eq!(finish(check).expect(0).stdout_text(), "PASS\n");
}

#[test]
fn montage() {
    let Some(workload) = shared("workloads/montage") else {
        return;
    };
    if !(need_fuse() && need_program("mProjectPP") && need_python("astropy")) {
        return;
    }
    let scratch = Scratch::new();
    let copy = scratch.join("workload");
    support::tree::copy(&workload, &copy);
    let input = scratch.dir("input");
    let mut data = Command::new(copy.join("data.sh"));
    finish(data.arg(&input).env("PYTHON", support::PYTHON)).expect(0);
    let script = copy.join("run.sh");
    let script = script.to_str().expect("a plain path");
    compare(
        &scratch,
        &input,
        &[script, ".", "2"],
        &[("PROJECT", "mProjectPP")],
    );
}

/// The trace belongs to the user, who gains no privilege: a set-user-id program does not become root, and the
/// run reports that.
#[test]
fn set_user_id_programs_gain_nothing() {
    if !(need_fuse() && support::need_root()) {
        return;
    }
    let scratch = Scratch::new();
    let [id, sleep] = ["id", "sleep"].map(|name| {
        use std::os::unix::fs::PermissionsExt;
        let copy = scratch.join(name);
        std::fs::copy(format!("/usr/bin/{name}"), &copy).unwrap();
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o4755)).unwrap();
        copy
    });
    let user = User::new(&scratch);
    let trace = user.home.join("trace.db");
    // With ptrace the kernel refuses the privilege, without it the user namespace of the mount does; with
    // neither it is granted.
    for (options, is_granted) in [
        (&[][..], false),
        (&["--no-ptrace"], false),
        (&["--no-ptrace", "--no-mount"], true),
    ] {
        let mut command = user.command(&user.flowtrace);
        command.args(["run", "--quiet", "--no-summary", "--force", "-o"]);
        command.arg(&trace).args(options).args(["--", "sh", "-c"]);
        // Without ptrace the first process may have ended before it is read.
        command.arg("$0 -u; $1 0.5").args([&id, &sleep]);
        let finished = finish(&mut command).expect(0);
        assert_eq!(finished.stdout_text() == "0\n", is_granted, "{options:?}");
        let trace = Trace::open(&trace);
        let noted: i64 = trace
            .one("SELECT COALESCE(SUM(value), 0) FROM losses WHERE counter = 'setuid_not_granted'");
        assert_eq!(noted > 0, !is_granted, "{options:?}: {noted}");
    }
}

/// Limits that are too small are reported before the command begins.
#[test]
fn limits_that_are_too_small_are_said_first() {
    if !(need_fuse() && support::need_root()) {
        return;
    }
    let scratch = Scratch::new();
    let user = User::new(&scratch);
    let run = |limit: &str| {
        let mut command = user.command("sh");
        let script = format!("{limit}; exec \"$@\"");
        command.args(["-c", &script, "sh"]).arg(&user.flowtrace);
        command.args([
            "run",
            "--quiet",
            "--no-summary",
            "--force",
            "-o",
            "../trace.db",
            "--",
        ]);
        command.args(["sh", "-c", "echo ran; ulimit -s; exit 3"]);
        command.current_dir(user.give(&scratch.dir("work"), "work"));
        finish(&mut command)
    };
    for (limit, name) in [
        ("ulimit -n 64", "ulimit -n"),
        ("ulimit -s 200", "ulimit -s"),
    ] {
        let finished = run(limit).expect(125);
        assert!(finished.stderr.contains(name), "{}", finished.stderr);
        assert_eq!(finished.stdout_text(), "", "{limit}");
    }
    // flowtrace raises its own soft limit where it may, but not that of the command.
    let finished = run("ulimit -S -s 200").expect(3);
    assert_eq!(finished.stdout_text(), "ran\n200\n");
}
