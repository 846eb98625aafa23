//! Access of other users to a trace, and the secrets in it.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use crate::mount::Mount;
use crate::support::process::finish;
use crate::support::{FLOWTRACE, Scratch, need_root, prints, run_in};

fn recorded(scratch: &Scratch, options: &[&str]) -> Vec<u8> {
    let directory = scratch.dir("job");
    let mut command = run_in(&directory, &scratch.join("trace.db"));
    command.args(options).args(["--", "sh", "-c"]);
    command.arg("echo x > out; /bin/true --password=hunter2; /bin/true --api-key hunter2; exit 0");
    finish(&mut command).expect(0);
    std::fs::read(scratch.join("trace.db")).unwrap()
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|at| at == text.as_bytes())
}

#[test]
fn a_trace_and_its_exports_are_for_their_owner_and_passwords_are_masked() {
    let scratch = Scratch::new();
    let trace = recorded(&scratch, &[]);
    assert!(!holds(&trace, "hunter2"));
    assert!(holds(&trace, "--password=***") && holds(&trace, "--api-key '***'"));
    let sql = "SELECT value FROM losses WHERE counter = 'secrets_masked'";
    let counted = prints(&scratch, &["query", "trace.db", sql, "--format", "csv"]);
    // Two in the script, whose text a shell and two forks of it have, and one in each of the commands.
    assert_eq!(counted.lines().last(), Some("8"));
    prints(&scratch, &["report", "trace.db", "-o", "page.html"]);
    prints(&scratch, &["dag", "trace.db", "-o", "dag.dot"]);
    prints(&scratch, &["export", "trace.db", "csv", "-o", "tables"]);
    for name in ["trace.db", "page.html", "dag.dot", "tables/processes.csv"] {
        let mode = scratch.join(name).metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

/// Processes that use a mount, or a captured connection, are recorded with their command lines, too.
#[test]
fn secrets_are_masked_in_mount_and_capture() {
    for (options, is_kept) in [(&[][..], false), (&["--keep-secrets"], true)] {
        if let Some(mut mounted) = Mount::open_with(options) {
            let mut command = Command::new("sh");
            command.args(["-c", "cat before; : --password=hunter2"]);
            finish(command.current_dir(&mounted.point)).expect(0);
            finish(&mut mounted.unmount()).expect(0);
            let trace = mounted.complete_trace();
            let commands = trace.rows("SELECT command FROM processes");
            assert_eq!(format!("{commands:?}").contains("hunter2"), is_kept);
        }
        if need_root() {
            let scratch = Scratch::new();
            let mut command = Command::new(FLOWTRACE);
            command.args(["capture", "-q", "-i", "lo", "-o", "net.db"]);
            command
                .args(options)
                .args(["--", "true", "--password=hunter2"]);
            finish(command.current_dir(scratch.join(""))).expect(0);
            let trace = std::fs::read(scratch.join("net.db")).unwrap();
            assert_eq!(holds(&trace, "hunter2"), is_kept);
        }
    }
}

#[test]
fn secrets_are_kept_where_that_is_asked_for() {
    let scratch = Scratch::new();
    let trace = recorded(&scratch, &["--keep-secrets"]);
    assert!(holds(&trace, "--password=hunter2") && !holds(&trace, "***"));
}
