//! Captures of several hosts at once, made of network namespaces: every message that one host sends another
//! host receives, and the captures of both show it.

use std::path::Path;

#[path = "../support/lab.rs"]
mod lab_of_hosts;
#[path = "../support/mod.rs"]
mod support;

mod conserved;
mod interfaces;
mod links;
mod loopback;
mod owners;
mod rights;
mod workflows;

use lab_of_hosts::{need_lab, run};
use support::Scratch;

/// Runs a script on a number of hosts, which must succeed; returns its output.
fn succeeds(scratch: &Scratch, hosts: usize, script: &str) -> String {
    let output = run(scratch, hosts, script);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    error
}

fn number(trace: &Path, sql: &str) -> i64 {
    let db = rusqlite::Connection::open(trace).unwrap();
    db.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// All processes that a failed script has started end with it, in every namespace: a test leaves nothing
/// behind.
#[test]
fn a_script_that_fails_leaves_nothing_behind() {
    if !need_lab() {
        return;
    }
    let scratch = Scratch::new();
    let script = r#"ip netns exec h1 "$FLOWTRACE" capture -i lo -o left.db 2> log & echo $! > pid
        until grep -q capturing log; do sleep 0.01; done
        false"#;
    let began = std::time::Instant::now();
    let output = run(&scratch, 1, script);
    assert_eq!(output.status.code(), Some(1));
    assert!(began.elapsed().as_secs() < 60);
    let pid = std::fs::read_to_string(scratch.join("pid")).unwrap();
    let state = support::process::state(nix::unistd::Pid::from_raw(pid.trim().parse().unwrap()));
    // The process that adopted it may not have reaped it yet.
    assert!(matches!(state, None | Some('Z' | 'X')), "{state:?}");
}
