//! The process that ended a wait whose other side is no data: a lock that was released, a FIFO that was
//! opened.

use super::traced;
use crate::support::process::finish;
use crate::support::{Scratch, need_fuse, need_program, prints, run_in};

/// Checks that `critical-path` and `waits` both blame the only `sleep` of a script for the wait of `waiter`.
fn is_sleep(script: &str, waiter: &str) {
    let scratch = Scratch::new();
    let path = scratch.join("trace.db");
    let (_, trace) = traced(&scratch.dir("job"), &path, |command| {
        command.args(["bash", "-c", script])
    });
    trace.assert_sleeps_decide(&scratch, &path);
    let printed = prints(
        &scratch,
        &["waits", "--format", "json", path.to_str().unwrap()],
    );
    let waits: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let first = &waits["root_causes"][0];
    assert_eq!(
        (first["culprit"].as_str(), first["it"].as_str()),
        (Some("sleep"), Some(trace.what_sleep_did())),
        "{waits:#}\n{}",
        trace.all_samples()
    );
    let waiters = first["waiters"].as_array().unwrap();
    let waited = waiters.iter().find(|one| one["rule"] == waiter);
    let waited = waited.unwrap_or_else(|| panic!("{waits:#}\n{}", trace.all_samples()));
    assert!(waited["ns"].as_i64().unwrap() > 400_000_000, "{waits:#}");
}

/// The script has the lock while it sleeps; a program that it then starts releases it.
#[test]
fn a_process_that_wants_a_lock_waits_for_it() {
    if need_fuse() && need_program("flock") {
        is_sleep(
            "exec 9>lock; flock 9; (flock 8; echo second >locked) 8>lock &
             sleep 1; flock -u 9; wait",
            "flock",
        );
    }
}

/// The end of the lock holder releases a lock, too.
#[test]
fn the_end_of_its_holder_releases_a_lock() {
    if need_fuse() && need_program("flock") {
        is_sleep(
            "flock lock sleep 1 & while flock -n lock true; do :; done
             flock lock true; wait",
            "flock",
        );
    }
}

/// A process that opens a FIFO waits in the call until another process opens the other end.
#[test]
fn the_open_of_a_fifo_waits_for_the_other_end() {
    if need_fuse() {
        is_sleep(
            "mkfifo f; (sleep 1; head -c 300000 /dev/zero >f) & gzip -c <f >f.gz; wait",
            "gzip",
        );
    }
}

/// A process that waits behind others for the same lock waits for the lock holder.
#[test]
fn a_queue_at_a_lock_waits_for_its_holder() {
    if need_fuse() && need_program("flock") {
        is_sleep(
            "for i in 1 2 3; do flock lock sleep 0.5 & done; wait",
            "flock",
        );
    }
}

/// The summary of a script, recorded by the default layer and through a mount.
fn summaries(script: &str) -> Vec<String> {
    let recorded = |options: &[&str]| {
        let scratch = Scratch::new();
        let path = scratch.join("trace.db");
        let mut command = run_in(&scratch.dir("job"), &path);
        command.args(options).args(["--", "bash", "-c", script]);
        finish(&mut command).expect(0);
        prints(&scratch, &["summary", path.to_str().unwrap()])
    };
    vec![recorded(&[]), recorded(&["--layer", "fuse"])]
}

const BUSY: &str = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";

/// Nothing but its end frees the lock of `flock FILE COMMAND`.
#[test]
fn a_lock_by_which_jobs_take_turns_is_named() {
    if !need_fuse() || !need_program("flock") {
        return;
    }
    let script = format!("for i in 1 2 3; do flock my.lock bash -c '{BUSY}' & done; wait");
    for summary in summaries(&script) {
        let first = summary.lines().next().unwrap();
        assert!(first.contains("the lock on my.lock is taken"), "{summary}");
    }
}

/// A shell that looks for a file again and again waits for the program that makes it.
#[test]
fn a_loop_until_a_file_is_there_waits_for_its_maker() {
    if !need_fuse() {
        return;
    }
    let script = format!(
        "bash -c '{BUSY}; {BUSY}; : > ready' & until [ -e ready ]; do sleep 0.1; done; wait"
    );
    for summary in summaries(&script) {
        assert!(!summary.contains("sleep limited the run"), "{summary}");
        assert!(summary.contains("critical path"), "{summary}");
    }
}
