//! Pid namespaces and containers that the workflow makes itself.

use crate::support::need_root;

use super::Stage;

/// Processes are recorded by their pids outside; the pid inside is stored, too.
fn nested(unshare: &str) {
    let Some(stage) = Stage::new() else { return };
    let script = format!(
        "unshare {unshare} sh -c 'echo inside $$; sh -c \"echo child \\$\\$; exit 8\"; exit 9'"
    );
    let played = stage.shell(&script, 9);
    assert_eq!(played.said("inside"), 1);
    let child = played.said("child");
    let inside = "command LIKE 'sh -c ''echo inside%'";
    let one = |column: &str, condition: &str| -> i64 {
        played
            .trace
            .one(&format!("SELECT {column} FROM processes WHERE {condition}"))
    };
    let init = format!("{inside} AND exit_code = 9 AND inner_pid IS NOT NULL");
    assert_eq!(one("inner_pid", &init), 1);
    assert_ne!(one("pid", &init), 1);
    assert_eq!(one("inner_pid", "exit_code = 8"), child);
    assert_ne!(one("pid", "exit_code = 8"), child);
    assert_eq!(one("parent_upid", "exit_code = 8"), one("upid", &init));
    // No process outside has an inner pid; unshare itself forks from outside.
    assert_eq!(
        played.count("inner_pid = pid OR (upid = 1 AND inner_pid IS NOT NULL)"),
        0
    );
}

#[test]
fn a_namespace_made_by_root() {
    if need_root() {
        nested("-p -f --mount-proc");
    }
}

#[test]
fn a_namespace_made_by_a_user() {
    nested("-Urpf");
}

/// The end of the first process of a pid namespace ends all others in it, wherever they are.
#[test]
fn a_namespace_ends_with_its_first_process() {
    let Some(stage) = Stage::new() else { return };
    let script = "unshare -Urpf sh -c 'sleep 300 & setsid sleep 300 & sleep 0.2; exit 6'";
    let played = stage.shell(script, 6);
    assert_eq!(played.count("command = 'sleep 300' AND exit_signal = 9"), 2);
}

#[test]
fn a_bubblewrap_container() {
    let Some(stage) = Stage::new() else { return };
    if !std::path::Path::new("/usr/bin/bwrap").exists() {
        return crate::support::skip("no program bwrap");
    }
    let script = "bwrap --dev-bind / / --proc /proc --unshare-pid --die-with-parent \
                  sh -c 'echo inside $$; (exit 8); exit 9'";
    let played = stage.shell(script, 9);
    let inside = played.said("inside");
    let found = played.count(&format!(
        "origin = 'exec' AND exit_code = 9 AND inner_pid = {inside}"
    ));
    assert_eq!(found, 1);
    assert_eq!(played.count("exit_code = 8 AND inner_pid IS NOT NULL"), 1);
}
