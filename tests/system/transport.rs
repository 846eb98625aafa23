//! `--transport`: requests use the requested transport, and nothing else changes.

use crate::support::process::finish;
use crate::support::trace::Trace;
use crate::support::user::User;
use crate::support::{Scratch, need_fuse, need_root, run_in, skip};

/// `FUSE_OVER_IO_URING`.
const OVER_IO_URING: i64 = 1 << 41;
const SCRIPT: &str =
    "echo a > a; cat a a > b; mkdir d; mv b d/b; ls -l d; (flock 9; rm a) 9> lock; wc -c < d/b";

/// Returns true if requests came over io_uring, and the recorded calls.
fn traced(transport: &str) -> (bool, Vec<Vec<String>>) {
    let scratch = Scratch::new();
    let mut command = run_in(&scratch.dir("job"), &scratch.join("trace.db"));
    command.args(["--transport", transport, "--", "sh", "-ec", SCRIPT]);
    finish(&mut command).expect(0);
    let trace = Trace::open_complete(&scratch.join("trace.db"));
    let flags: i64 = trace.one("SELECT fuse_flags FROM traced_directories");
    let calls = "SELECT op, substr(path, instr(path, '/job')), offset, length, result, COUNT(*)
        FROM calls WHERE op NOT IN ('release', 'releasedir', 'readdir')
        GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5";
    (flags & OVER_IO_URING != 0, trace.rows(calls))
}

#[test]
fn either_way_shows_the_same_calls() {
    if !need_fuse() || !need_root() {
        return;
    }
    let (over_io_uring, seen) = traced("device");
    assert!(!over_io_uring);
    assert!(seen.iter().any(|call| call[0] == "flock"), "{seen:?}");
    let switch = "/sys/module/fuse/parameters/enable_uring";
    if std::fs::OpenOptions::new()
        .write(true)
        .open(switch)
        .is_err()
    {
        return skip(&format!("{switch} cannot be written"));
    }
    let (over_io_uring, same) = traced("io-uring");
    assert!(over_io_uring);
    assert_eq!(same, seen);
}

#[test]
fn the_lack_of_io_uring_is_reported_to_an_ordinary_user() {
    if !need_fuse() || !need_root() {
        return;
    }
    let scratch = Scratch::new();
    let user = User::new(&scratch);
    let run = |transport: &str| {
        let mut command = user.command(&user.flowtrace);
        command.args(["run", "--quiet", "--no-summary", "-o", "trace.db"]);
        command.args(["--transport", transport, "--", "true"]);
        finish(command.current_dir(&user.home))
    };
    let refused = run("io-uring").expect(125);
    let message = "no file calls over io_uring here";
    assert!(refused.stderr.contains(message), "{}", refused.stderr);
    assert!(!user.home.join("trace.db").exists());
    run("auto").expect(0);
}
