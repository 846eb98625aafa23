//! Work that needs a process of its own: mappings whose page faults the test process would have
//! to serve itself, other users, limits.

use std::process::{Command, Output};

/// Runs `function` of this module's list in a new process with `arguments`.
pub(crate) fn run(function: &str, arguments: &[&std::path::Path]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "child::entry", "--ignored", "--nocapture"])
        .env("FLOWTRACE_TEST_CHILD", function)
        .env("FLOWTRACE_TEST_COUNT", arguments.len().to_string());
    for (number, argument) in arguments.iter().enumerate() {
        command.env(format!("FLOWTRACE_TEST_{number}"), argument);
    }
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{function}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

#[test]
#[ignore = "entered by other tests only"]
fn entry() {}
