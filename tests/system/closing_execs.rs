//! Execs that close descriptors of a mount. The process waits for flowtrace's answer to the close while it
//! has a lock that most of its files in /proc need, so the thread that reads /proc must not be the one that
//! answers.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::mount::Mount;
use crate::support::process::{finish, start};
use crate::support::programs::program;
use crate::support::trace::Trace;
use crate::support::{Scratch, need_fuse, run_in};

/// Many times the normal duration; a deadlock lasts for ever.
const LIMIT: Duration = Duration::from_secs(120);
const AT_ONCE: usize = 4;
const ROUNDS: usize = 100;
const WIDTH: usize = 4;
/// Number of forked processes, each of which runs two programs.
const FORKED: i64 = (AT_ONCE * ROUNDS * WIDTH) as i64;

/// Script that runs several instances at the same time on files of the current directory.
fn script(program: &Path) -> String {
    let one = |n| format!("{} file{n} {ROUNDS} {WIDTH} & p{n}=$!; ", program.display());
    let all: String = (0..AT_ONCE).map(one).collect();
    let ends: String = (0..AT_ONCE).map(|n| format!("wait $p{n} && ")).collect();
    format!("{all}{ends}echo done")
}

/// Every close is in the trace, and its process, if known, is one that closes files.
fn check(trace: &Trace) {
    let count = |sql: &str| trace.one::<i64>(sql);
    let flushes = count("SELECT COUNT(*) FROM calls WHERE op = 'flush'");
    assert!(flushes >= FORKED, "{flushes} closes");
    let layer: String = trace.one("SELECT process_layer FROM runs");
    if !["connector", "tracepoints", "ebpf"].contains(&&*layer) {
        return;
    }
    let dropped =
        count("SELECT COALESCE(SUM(value), 0) FROM losses WHERE counter = 'events_dropped'");
    if dropped > 0 {
        return;
    }
    let unknown = count("SELECT COUNT(*) FROM calls WHERE op = 'flush' AND upid IS NULL");
    assert_eq!(unknown, 0, "closes by nobody");
    // Closed within the second exec of a process, before that exec is announced.
    let others = count(
        "SELECT COUNT(*) FROM calls JOIN processes USING (upid)
         WHERE op = 'flush' AND processes.start_ns > calls.start_ns",
    );
    assert_eq!(others, 0, "closes by an image that came later");
    let images = count("SELECT COUNT(*) FROM processes WHERE origin = 'exec' AND exit_code = 0");
    assert!(images >= FORKED, "{images} images");
}

#[test]
fn execs_that_close_files_of_a_mount_go_on() {
    let Some(program) = program("closing_execs", &[]) else {
        return;
    };
    let Some(mut mounted) = Mount::open() else {
        return;
    };
    let mut command = Command::new("sh");
    command.args(["-c", &script(&program)]);
    let mut running = start(command.current_dir(&mounted.point));
    let deadline = Instant::now() + LIMIT;
    while !running.has_ended() {
        if Instant::now() > deadline {
            // Otherwise no process that hangs in the mount could end.
            mounted.kill_daemon();
            panic!("no end after {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(running.wait(LIMIT).expect(0).stdout_text(), "done\n");
    finish(&mut mounted.unmount()).expect(0);
    check(&mounted.complete_trace());
}

#[test]
fn execs_that_close_files_go_on_without_ptrace() {
    if !need_fuse() {
        return;
    }
    let Some(program) = program("closing_execs", &[]) else {
        return;
    };
    let scratch = Scratch::new();
    let path = scratch.join("trace.db");
    let mut command = run_in(&scratch.dir("job"), &path);
    command.args(["--no-ptrace", "--", "sh", "-c", &script(&program)]);
    let finished = start(&mut command).wait(LIMIT).expect(0);
    assert_eq!(finished.stdout_text(), "done\n");
    check(&Trace::open(&path));
}
