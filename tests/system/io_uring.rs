//! Calls of a process through io_uring do the same as without tracing, and are counted where they are not
//! seen.

use std::fs;

use crate::support::process::finish;
use crate::support::programs::program;
use crate::support::trace::Trace;
use crate::support::user::User;
use crate::support::{Scratch, need_fuse, need_kernel_layer, need_root, run_in};

/// Exit status of the program if io_uring is not available.
const NO_RING: i32 = 77;

const CONTENT: &str = "line 0\nline 1\nbetween\nline 2\n";

/// A user's files are not passed through: their data goes through the page cache.
#[test]
fn the_position_of_a_users_file_moves() {
    if !(need_root() && need_fuse()) {
        return;
    }
    let Some(program) = program("ring_position", &[]) else {
        return;
    };
    let scratch = Scratch::new();
    let user = User::new(&scratch);
    let program = user.give(&program, "program");
    let (work, trace) = (
        user.give(&scratch.dir("work"), "work"),
        scratch.join("home/trace.db"),
    );
    let mut command = user.command(&user.flowtrace);
    command
        .args(["run", "--quiet", "--no-summary", "-o"])
        .arg(&trace);
    command
        .arg("--")
        .arg(&program)
        .arg("file")
        .current_dir(&work);
    let finished = finish(&mut command);
    if finished.code() == NO_RING {
        crate::support::skip("io_uring is not allowed here");
        return;
    }
    let finished = finished.expect(0);
    assert_eq!(
        finished.stdout_text(),
        format!("{CONTENT}{}\n", CONTENT.len())
    );
    assert_eq!(fs::read_to_string(work.join("file")).unwrap(), CONTENT);
    let trace = Trace::open_complete(&trace);
    let users: i64 = trace.one("SELECT SUM(value) FROM losses WHERE counter = 'io_uring_used'");
    assert_eq!(users, 1);
    let written: i64 =
        trace.one("SELECT SUM(result) FROM calls WHERE path LIKE '%/file' AND op = 'write'");
    assert_eq!(written, CONTENT.len() as i64);
    let sure: i64 = trace.one(
        "SELECT COUNT(*) FROM calls WHERE path LIKE '%/file' AND op = 'read' AND fidelity = 'exact'",
    );
    assert_eq!(sure, 0, "pages are no calls");
}

#[test]
fn the_position_of_a_file_moves() {
    // Without root no file is left to the kernel.
    if !(need_root() && need_kernel_layer()) {
        return;
    }
    let Some(program) = program("ring_position", &[]) else {
        return;
    };
    for options in [
        &[][..],
        &["--ptrace"],
        &["--fidelity", "cached"],
        &["--layer", "kernel"],
        &["--layer", "kernel", "--no-mount"],
    ] {
        let scratch = Scratch::new();
        let (work, trace) = (scratch.dir("work"), scratch.join("trace.db"));
        let mut run = run_in(&work, &trace);
        let run = run.args(options).arg("--").arg(&program).arg("file");
        let finished = finish(run);
        if finished.code() == NO_RING {
            crate::support::skip("io_uring is not allowed here");
            return;
        }
        let finished = finished.expect(0);
        assert_eq!(
            finished.stdout_text(),
            format!("{CONTENT}{}\n", CONTENT.len()),
            "{options:?}"
        );
        let written = fs::read_to_string(work.join("file")).unwrap();
        assert_eq!(written, CONTENT, "{options:?}");
        let trace = Trace::open_complete(&trace);
        let users: i64 = trace.one("SELECT SUM(value) FROM losses WHERE counter = 'io_uring_used'");
        assert_eq!(users, 1, "{options:?}");
        // Where only ordinary calls are reported, the offsets of the others are not marked as known.
        let sure: i64 = trace.one(
            "SELECT COUNT(*) FROM calls WHERE path LIKE '%/file' AND length = 8
                AND fidelity = 'exact' AND offset IS NOT 14",
        );
        assert_eq!(sure, 0, "{options:?}");
    }
}
