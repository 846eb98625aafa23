//! `flowtrace compare` on hand-made traces.

use std::path::Path;
use std::process::{Command, Output};

use flowtrace_schema::{Activity, Call, Fidelity, FileId, FileKind, Op, Upid};

#[path = "../profiler/tests/support/script.rs"]
mod script;

use script::Script;

/// Writes the trace of a run of two steps: `grind` works for some milliseconds on its input, then `mark`
/// runs.
fn run(path: &Path, grind_ms: u64, input_bytes: u64, extra: bool, exit_code: i32) {
    let mut run = Script::new(path, "make");
    let make = run.root(("/usr/bin/make", &["make"]), 0);
    let until = 10 + grind_ms;
    let grind = run.job(make, ("/usr/bin/grind", &["grind"]), 5, until);
    let input = run.file("/w/in", FileKind::File, input_bytes, 0);
    run.read(grind, input, 1, input_bytes, 20);
    run.job(make, ("/usr/bin/mark", &["mark"]), until, until + 50);
    if extra {
        run.job(
            make,
            ("/usr/bin/extra", &["extra"]),
            until + 50,
            until + 450,
        );
    }
    run.end(make, until + 500, Some(exit_code), None, 5);
    run.finish(until + 510, exit_code);
}

fn compare(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowtrace"));
    command
        .arg("compare")
        .args(arguments)
        .current_dir(directory);
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn equal_runs_have_no_finding_and_changed_ones_exactly_theirs() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    run(&at("a.db"), 1000, 100_000, false, 0);
    run(&at("same.db"), 1100, 100_000, false, 0);
    run(&at("slow.db"), 2000, 100_000, false, 0);
    run(&at("grown.db"), 1000, 300_000, false, 0);
    run(&at("more.db"), 1000, 100_000, true, 0);
    run(&at("failed.db"), 1000, 100_000, false, 2);

    let same = compare(directory.path(), &["a.db", "same.db"]);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same));
    assert!(text(&same).starts_with("flowtrace: no difference beyond that of two equal runs"));
    for (other, expected) in [
        ("slow.db", vec![("rule", "grind", "cpu")]),
        (
            "grown.db",
            vec![("input", "in", "size"), ("rule", "grind", "reads")],
        ),
        ("more.db", vec![("rule", "extra", "new")]),
    ] {
        let output = compare(directory.path(), &["a.db", other, "--format", "json"]);
        assert_eq!(output.status.code(), Some(1));
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let found: Vec<_> = json["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|f| {
                let field = |name: &str| f[name].as_str().unwrap();
                (field("subject"), field("name"), field("change"))
            })
            .collect();
        assert_eq!(found, expected, "{other}");
    }
    let more = text(&compare(directory.path(), &["a.db", "more.db"]));
    assert!(more.contains("new      extra · 1 × · "), "{more}");
    let failed = text(&compare(directory.path(), &["a.db", "failed.db"]));
    assert!(
        failed.starts_with("flowtrace: warning: failed.db: the command failed: exit 2\n"),
        "{failed}"
    );
    let short = compare(directory.path(), &["a.db", "slow.db", "--json"]);
    let long = compare(directory.path(), &["a.db", "slow.db", "--format", "json"]);
    assert_eq!(
        (short.status.code(), &short.stdout),
        (Some(1), &long.stdout)
    );
    let page = text(&compare(
        directory.path(),
        &["a.db", "slow.db", "--format", "html"],
    ));
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("grind"));
}

/// Two jobs: the first has a lock for some milliseconds, for which the second one waits.
fn locked(path: &Path, taken_ms: u64) {
    let mut run = Script::new(path, "make");
    let make = run.root(("/usr/bin/make", &["make"]), 0);
    let lock = run.file("/w/db.lock", FileKind::File, 0, 0);
    let [first, second] = [0, 1].map(|_| run.fork(make, ("/usr/bin/job", &["job"]), 0));
    let [first, second] = [first, second].map(|forked| {
        run.exec(
            forked,
            100 + forked,
            Some(make),
            ("/usr/bin/job", &["job"]),
            1,
        )
    });
    let call = |image, op, flags, from_ms: u64, to_ms: u64| Call {
        start_ns: from_ms * 1_000_000,
        duration_ns: (to_ms - from_ms) * 1_000_000,
        upid: Some(Upid(image)),
        tid: None,
        op,
        file: Some(FileId(lock)),
        offset: None,
        length: None,
        flags,
        result: 0,
        fidelity: Fidelity::Exact,
    };
    const EXCLUSIVE: u32 = 1;
    run.call_of(call(first, Op::Flock, Some(EXCLUSIVE), 10, 10));
    run.call_of(call(second, Op::Flock, Some(EXCLUSIVE), 20, 10 + taken_ms));
    run.call_of(call(first, Op::Release, None, 10 + taken_ms, 10 + taken_ms));
    run.sample(second, (20, 10 + taken_ms), Activity::Lock, None);
    run.end(first, 20 + taken_ms, Some(0), None, 18);
    run.end(second, 30 + taken_ms, Some(0), None, 18);
    run.end(make, 40 + taken_ms, Some(0), None, 5);
    run.finish(40 + taken_ms, 0);
    let trace = rusqlite::Connection::open(path).unwrap();
    let waits_in = "UPDATE sample SET op = 'flock' WHERE activity = ?";
    trace.execute(waits_in, [Activity::Lock as i64]).unwrap();
}

#[test]
fn a_lock_that_is_free_sooner_is_named() {
    let directory = tempfile::tempdir().unwrap();
    locked(&directory.path().join("long.db"), 2000);
    locked(&directory.path().join("short.db"), 100);
    let output = text(&compare(directory.path(), &["long.db", "short.db"]));
    let expected = "waits for the lock on db.lock 2.0 s → 90 ms";
    assert!(output.contains(expected), "{output}");
}

/// `compare … | head -1` in a script that uses the status of the pipe's first command.
#[test]
fn the_exit_status_reports_findings_even_if_nobody_reads() {
    let directory = tempfile::tempdir().unwrap();
    run(&directory.path().join("a.db"), 1000, 100_000, false, 0);
    run(&directory.path().join("slow.db"), 2000, 100_000, false, 0);
    for (other, code) in [("slow.db", 1), ("a.db", 0)] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowtrace"));
        command.args(["compare", "a.db", other]).stdout(writer);
        let output = command.current_dir(directory.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{other}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
}
