//! Answers while a recording grows.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::imported;
use crate::support::{Scratch, prints};

/// Reading a trace piece by piece while it grows gives the same answers as one query; the trace here has
/// ended.
#[test]
fn watching_says_what_asking_once_says() {
    let scratch = Scratch::new();
    if !imported(&scratch, "lu.S") {
        return;
    }
    for question in ["matrix", "iterations", "period", "balance"] {
        let asked = ["network", question, "trace.db", "--format", "csv"];
        let once = prints(&scratch, &asked);
        let watched = prints(&scratch, &[&asked[..], &["--watch", "1"]].concat());
        let rows = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| !line.is_empty());
            lines.map(str::to_owned).collect()
        };
        assert!(!rows(&once).is_empty(), "{question}");
        assert_eq!(rows(&watched), rows(&once), "{question}");
    }
    // Only the end of the trace is read.
    let asked = ["network", "matrix", "trace.db", "--last", "0.05"];
    let once = prints(&scratch, &asked);
    let watched = prints(&scratch, &[&asked[..], &["--watch", "1"]].concat());
    assert!(
        watched.contains(once.lines().next().unwrap()),
        "{watched}\n{once}"
    );
}

/// A watching command prints the last answer when the recording ends, however long its pause is.
#[test]
fn the_last_answer_comes_when_the_recording_ends() {
    let scratch = Scratch::new();
    if !imported(&scratch, "is.S") {
        return;
    }
    // A recorder has a lock on its trace.
    let trace = std::fs::File::open(scratch.join("trace.db")).unwrap();
    trace.lock().unwrap();
    let mut watching = Command::new(env!("CARGO_BIN_EXE_flowtrace"))
        .args(["network", "matrix", "trace.db", "--watch", "600"])
        .current_dir(&*scratch)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut answers = BufReader::new(watching.stdout.take().unwrap()).lines();
    answers
        .find(|line| line.as_ref().unwrap() == "---")
        .unwrap()
        .unwrap();
    assert!(watching.try_wait().unwrap().is_none());
    trace.unlock().unwrap();
    let ended = Instant::now();
    let last = answers
        .filter(|line| line.as_ref().unwrap() == "---")
        .count();
    assert!(watching.wait().unwrap().success());
    assert_eq!(last, 1);
    assert!(
        ended.elapsed() < Duration::from_secs(60),
        "{:?}",
        ended.elapsed()
    );
}
