//! `bottlenecks`, `waits`, `resources`, `ideal` and `calibrate` on a hand-made trace.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

#[path = "../profiler/tests/support/montage.rs"]
mod montage;

fn flowtrace(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowtrace"))
        .args(arguments)
        .current_dir(directory)
        .env("HOME", directory)
        .env_remove("XDG_DATA_HOME")
        .env_remove("COLUMNS")
        .output()
        .unwrap()
}

fn succeeds(directory: &Path, arguments: &[&str]) -> String {
    let output = flowtrace(directory, arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(directory: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&succeeds(directory, arguments)).unwrap()
}

#[test]
fn bottlenecks_and_their_windows_hold_together() {
    let (directory, _) = montage::montage_file(4, false);
    let found = json(
        directory.path(),
        &["bottlenecks", "trace.db", "--format", "json"],
    );
    let length = found["duration_ns"].as_i64().unwrap();
    assert!(length > 0);
    let causes = found["causes"].as_array().unwrap();
    let shares = causes.iter().map(|c| c["share"].as_f64().unwrap());
    assert!(shares.clone().all(|share| share > 0.0 && share <= 1.0));
    assert!(
        shares.collect::<Vec<_>>().is_sorted_by(|a, b| a >= b),
        "the most first"
    );
    for one in causes {
        let intervals = one["intervals"].as_array().unwrap();
        let sum: i64 = intervals
            .iter()
            .map(|i| i[1].as_i64().unwrap() - i[0].as_i64().unwrap())
            .sum();
        assert_eq!(Some(sum), one["ns"].as_i64());
    }
    // The first line is the answer, the same as text and as JSON.
    let text = succeeds(directory.path(), &["bottlenecks", "trace.db"]);
    let answer = found["answer"].as_str().unwrap();
    assert_eq!(
        text.lines().next(),
        Some(format!("flowtrace: {answer}").as_str())
    );
    let csv = succeeds(
        directory.path(),
        &["bottlenecks", "trace.db", "--format", "csv"],
    );
    let windows = found["windows"].as_array().unwrap().len();
    assert_eq!(csv.lines().count(), windows + 1);
    let svg = succeeds(
        directory.path(),
        &["bottlenecks", "trace.db", "--format", "svg"],
    );
    assert!(
        svg.starts_with("<svg") || svg.starts_with("<?xml"),
        "{}",
        &svg[..40]
    );
    // A threshold that nothing exceeds.
    let none = json(
        directory.path(),
        &[
            "bottlenecks",
            "trace.db",
            "--alpha",
            "1",
            "--beta",
            "1",
            "--format",
            "json",
        ],
    );
    assert_eq!(none["causes"], Value::Array(Vec::new()));
}

#[test]
fn waits_charge_no_more_than_was_waited() {
    let (directory, _) = montage::montage_file(4, false);
    let found = json(directory.path(), &["waits", "trace.db", "--format", "json"]);
    let of = |name: &str| found[name].as_array().unwrap().clone();
    for cause in of("root_causes") {
        let waiters = cause["waiters"].as_array().unwrap();
        let sum: i64 = waiters.iter().map(|w| w["ns"].as_i64().unwrap()).sum();
        let whole = cause["ns"].as_i64().unwrap();
        assert!((sum - whole).abs() <= waiters.len() as i64, "{cause}");
    }
    let idle: i64 = of("idle")
        .iter()
        .map(|i| i[1].as_i64().unwrap() - i[0].as_i64().unwrap())
        .sum();
    assert_eq!(Some(idle), found["idle_ns"].as_i64());
}

#[test]
fn the_parts_of_resources_sum_to_the_lives() {
    let (directory, _) = montage::montage_file(4, false);
    let arguments = ["resources", "trace.db", "--format", "json"];
    let found = &json(directory.path(), &arguments)[0];
    // The trace has no counters of the machine, and no values are invented for them.
    assert_eq!(found["run"], Value::Null);
    for kind in ["rules", "processes"] {
        let rows = found[kind].as_array().unwrap();
        assert!(!rows.is_empty());
        for row in rows {
            let of = |name: &str| row[name].as_f64().unwrap();
            let parts = row["parts"].as_array().unwrap().iter();
            let sum: f64 = parts.map(|part| part.as_f64().unwrap()).sum();
            assert!(
                (sum - of("life_ns")).abs() <= 1e-6 * of("life_ns") + 1.0,
                "{row}"
            );
            assert!(of("unknown_ns") <= of("life_ns") + 1.0, "{row}");
        }
    }
}

#[test]
fn what_a_run_takes_beyond_the_ideal_sums_exactly() {
    let (directory, _) = montage::montage_file(4, false);
    let rates = [
        "ideal",
        "trace.db",
        "--disk-read",
        "500",
        "--disk-write",
        "400",
        "--format",
        "json",
    ];
    let found = json(directory.path(), &rates);
    let ideal = &found["ideal"];
    let of = |name: &str| ideal[name].as_i64().unwrap();
    let beyond: i64 = ideal["beyond"]
        .as_object()
        .unwrap()
        .values()
        .map(|part| part.as_i64().unwrap())
        .sum();
    assert_eq!(of("measured_ns") - of("ideal_ns"), beyond);
    let phases = ideal["phases"].as_array().unwrap();
    let least: i64 = phases.iter().map(|p| p["ideal_ns"].as_i64().unwrap()).sum();
    assert!((least - of("ideal_ns")).abs() <= phases.len() as i64);
}

#[test]
fn the_papers_sort_and_what_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let job = [
        "ideal",
        "--input",
        "164000",
        "--nodes",
        "41",
        "--disk-read",
        "107",
        "--disk-write",
        "99",
    ];
    let with = |network| {
        succeeds(
            directory.path(),
            &[&job[..], &["--network", network]].concat(),
        )
    };
    assert!(
        with("112").starts_with("flowtrace: 77.8 s at best"),
        "{}",
        with("112")
    );
    assert!(
        with("94").starts_with("flowtrace: 81.9 s at best"),
        "{}",
        with("94")
    );
    // Nothing is known of this host's disk, and nothing is guessed.
    let output = flowtrace(directory.path(), &["ideal", "--input", "100"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("flowtrace calibrate"));
    let output = flowtrace(directory.path(), &["ideal"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn calibrate_leaves_other_files_alone() {
    let directory = tempfile::tempdir().unwrap();
    let thesis = directory.path().join("thesis.txt");
    std::fs::write(&thesis, "all my work").unwrap();
    let output = flowtrace(directory.path(), &["calibrate", "-o", "thesis.txt"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(std::fs::read(&thesis).unwrap(), b"all my work");
    let output = flowtrace(
        directory.path(),
        &["calibrate", "--dir", "nowhere", "-o", "new.json"],
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(!directory.path().join("new.json").exists());
}
