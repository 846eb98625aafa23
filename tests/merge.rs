//! `flowtrace merge` on hand-made traces; every command that explains a trace works on the result.

use std::path::Path;
use std::process::{Command, Output};

#[path = "../profiler/tests/support/montage.rs"]
mod montage;

fn flowtrace(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowtrace"))
        .args(arguments)
        .current_dir(directory)
        .env_remove("COLUMNS")
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Traces of the same mosaic made on several machines, each started a little later than the one before.
fn machines(count: i64) -> (tempfile::TempDir, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let mut names = Vec::new();
    for machine in 0..count {
        let (made, path) = montage::montage_file(4, false);
        let name = format!("trace.n{machine}.{machine}.db");
        std::fs::copy(&path, directory.path().join(&name)).unwrap();
        drop(made);
        let db = rusqlite::Connection::open(directory.path().join(&name)).unwrap();
        db.execute(
            "UPDATE host SET name = 'n' || ?1, boot_id = 'boot ' || ?1,
               epoch_unix_ns = epoch_unix_ns + 1000000 * ?1, wall_error_ns = 2000",
            [machine],
        )
        .unwrap();
        names.push(name);
    }
    (directory, names)
}

fn merge(directory: &Path, names: &[String], more: &[&str]) -> Output {
    let mut arguments = vec!["merge", "-o", "all.db"];
    arguments.extend(more);
    arguments.extend(names.iter().map(String::as_str));
    flowtrace(directory, &arguments)
}

fn number(directory: &Path, trace: &str, sql: &str) -> i64 {
    let csv = text(&flowtrace(
        directory,
        &["query", trace, sql, "--format", "csv"],
    ));
    csv.lines().nth(1).unwrap().parse().unwrap()
}

#[test]
fn sums_over_the_merged_file_are_the_sums_of_its_parts() {
    let (directory, names) = machines(3);
    let merged = merge(directory.path(), &names, &[]);
    let said = String::from_utf8(merged.stderr.clone()).unwrap();
    text(&merged);
    assert!(
        said.contains("merged 3 traces with 3 runs on 3 hosts into all.db"),
        "{said}"
    );
    assert!(
        said.contains("2 hosts by wall clocks, off by at most 4"),
        "{said}"
    );
    for sql in [
        "SELECT COUNT(*) FROM calls",
        "SELECT SUM(duration_ns) FROM calls",
        "SELECT COUNT(*) FROM processes WHERE exe LIKE '%/mProject'",
        "SELECT SUM(on_cpu_ns) FROM processes",
        "SELECT SUM(write_bytes) FROM file_access",
        "SELECT COUNT(*) FROM edges",
        "SELECT COUNT(*) FROM file_names",
        "SELECT SUM(value) FROM losses",
    ] {
        let parts = names.iter().map(|name| number(directory.path(), name, sql));
        assert_eq!(
            number(directory.path(), "all.db", sql),
            parts.sum::<i64>(),
            "{sql}"
        );
    }
}

#[test]
fn every_command_explains_a_merged_trace() {
    let (directory, names) = machines(2);
    text(&merge(directory.path(), &names, &["--quiet"]));
    let explain = |arguments: &[&str]| text(&flowtrace(directory.path(), arguments));
    let summary = explain(&["summary", "all.db"]);
    assert!(summary.contains("(2 runs on 2 hosts)"), "{summary}");
    // Rows without the heading and the line that names the longest chain.
    let processes = |trace: &str| {
        let tree = explain(&["tree", trace, "--full"]);
        let lines = tree.lines().skip(1);
        lines.filter(|line| !line.starts_with("* always")).count()
    };
    assert_eq!(processes("all.db"), 2 * processes(&names[0]));
    let tree = explain(&["tree", "all.db"]);
    let roots = tree
        .lines()
        .filter(|line| line.contains("n0") || line.contains("n1"));
    assert!(roots.count() > 0, "machines are named: {tree}");
    assert!(
        !explain(&["tree", &names[0]]).contains("n0: "),
        "of one nothing"
    );
    let dot = explain(&["dag", "all.db", "--by", "process"]);
    let single = explain(&["dag", &names[0], "--by", "process"]);
    let nodes = |dot: &str| dot.matches("shape=").count();
    assert!(nodes(&dot) > nodes(&single), "{dot}");
    explain(&["dag", "all.db", "--by", "rule"]);
}

#[test]
fn what_cannot_be_merged_is_refused_with_a_hint() {
    let (directory, names) = machines(2);
    let twice = [names[0].clone(), names[0].clone()];
    let refused = merge(directory.path(), &twice, &[]);
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        said.contains("are the same file") && said.contains("hint: "),
        "{said}"
    );
    let relative = merge(directory.path(), &names, &["--shared", "job"]);
    assert_eq!(relative.status.code(), Some(2));
    let said = String::from_utf8(relative.stderr).unwrap();
    assert!(
        said.contains("not an absolute path") && said.contains("hint: "),
        "{said}"
    );
    text(&merge(directory.path(), &names, &["--quiet"]));
    let again = merge(directory.path(), &names, &["--quiet"]);
    assert_eq!(again.status.code(), Some(2), "there is one already");
    text(&merge(directory.path(), &names, &["--quiet", "--force"]));
}

#[test]
fn a_trace_of_another_schema_version_is_refused_by_name() {
    let (directory, names) = machines(2);
    for (version, said) in [
        (1, "n1.1.db has schema version 1"),
        (999, "n1.1.db has schema version 999"),
    ] {
        let db = rusqlite::Connection::open(directory.path().join(&names[1])).unwrap();
        db.execute_batch(&format!("PRAGMA user_version = {version}"))
            .unwrap();
        drop(db);
        let refused = merge(directory.path(), &names, &[]);
        assert_eq!(refused.status.code(), Some(2));
        let text = String::from_utf8(refused.stderr).unwrap();
        assert!(text.contains(said) && text.contains("hint: "), "{text}");
        assert!(!directory.path().join("all.db").exists());
    }
}

/// Columns and tables were added to the schema over time: a trace without them is accepted, and its facts are
/// missing.
#[test]
fn a_trace_of_an_earlier_flowtrace_is_merged_with_one_of_today() {
    let (directory, names) = machines(2);
    let db = rusqlite::Connection::open(directory.path().join(&names[1])).unwrap();
    let views = "SELECT name FROM sqlite_schema WHERE type = 'view' AND name NOT IN ('file_names', 'file_paths')";
    let views: Vec<String> = db
        .prepare(views)
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for view in views {
        db.execute_batch(&format!("DROP VIEW {view}")).unwrap();
    }
    db.execute_batch(
        "ALTER TABLE process DROP COLUMN sampled_queue_ns; ALTER TABLE process DROP COLUMN sampled_device_ns;
         ALTER TABLE process DROP COLUMN waits_exact; ALTER TABLE process DROP COLUMN inner_pid;
         ALTER TABLE channel_end DROP COLUMN at_most_bytes; DROP TABLE channel_sum; DROP TABLE channel_call; DROP TABLE node;",
    )
    .unwrap();
    drop(db);
    text(&merge(directory.path(), &names, &["--quiet"]));
    let count = |trace: &str, sql: &str| number(directory.path(), trace, sql);
    for table in ["call", "process", "file", "channel_end", "sample"] {
        let sql = format!("SELECT COUNT(*) FROM {table}");
        assert_eq!(count("all.db", &sql), 2 * count(&names[0], &sql), "{table}");
    }
    let dag = text(&flowtrace(directory.path(), &["dag", "all.db"]));
    assert!(dag.contains("mProject"), "{dag}");
}

#[test]
fn a_shared_directory_below_which_there_is_nothing_is_reported() {
    let (directory, names) = machines(2);
    let said = |more: &[&str]| {
        let more = [more, &["--force"]].concat();
        String::from_utf8(merge(directory.path(), &names, &more).stderr).unwrap()
    };
    let text = said(&["--shared", "/nowhere/at/all", "--shared", "/"]);
    assert!(
        text.contains("--shared /nowhere/at/all: no trace has a file below it"),
        "{text}"
    );
    assert_eq!(text.matches("no trace has a file").count(), 1, "{text}");
    assert!(!said(&["--shared", "/"]).contains("no trace has a file"));
}
