//! The process that ended a wait whose other side is no data: a lock that was released, a FIFO that was
//! opened.

use super::traced;
use crate::support::{Scratch, need_fuse, need_program, prints};

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
