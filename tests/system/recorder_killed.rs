//! `kill -9` of the process that writes the trace: the workflow ends as without flowtrace, and the trace holds
//! all but the last quarter second before.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use flowtrace_schema::Unrecorded;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::killed::{check_markers, uptime};
use crate::mount::{Mount, is_mounted};
use crate::support::process::{finish, start};
use crate::support::trace::Trace;
use crate::support::user::User;
use crate::support::{
    FLOWTRACE, Scratch, need_fuse, need_process_tracepoints, need_root, run_in, tree, unwrapped,
};

/// Steps that work with files, a database and a compiler, where these programs are there. Each one prints the
/// name of a file that it made, with the time.
const WORKFLOW: &str = r#"
    set -e
    mkdir marks
    for i in $(seq 30); do
        read -r up idle < /proc/uptime; : > marks/m.$up.$i; echo m.$up.$i
        mkdir d.$i; seq $i 300 > d.$i/in; sort -rn d.$i/in > d.$i/out; cat d.$i/out >> all
        mv d.$i/in d.$i/kept; ln d.$i/out d.$i/link; rm d.$i/kept
        (flock 9; wc -l < all >> log) 9> lock
        if command -v sqlite3 > /dev/null; then
            sqlite3 base.db "CREATE TABLE IF NOT EXISTS t (i); INSERT INTO t VALUES ($i)"
        fi
        if [ $((i % 10)) = 5 ] && command -v cc > /dev/null; then
            echo "int main(void) { return $i; }" > p.c; cc -c p.c; cc -o p p.o; rm p.o
            ./p || echo $? >> log; rm p
        fi
        sleep 0.02
    done
    if command -v sqlite3 > /dev/null; then sqlite3 base.db "SELECT COUNT(*), SUM(i) FROM t" >> log; fi
    rm -r marks
    exit 7"#;

/// Kills in each mode: FLOWTRACE_KILLS, or some.
fn kills() -> u64 {
    let kills = std::env::var("FLOWTRACE_KILLS");
    kills.map_or(3, |kills| kills.parse().expect("a number"))
}

/// A time in the life of the workflow, another one each time.
fn life(round: u64) -> Duration {
    let seed = u64::from(std::process::id()) + 1_000_003 * (round + 1);
    let random = seed.wrapping_mul(6_364_136_223_846_793_005) >> 33;
    Duration::from_millis(random % 600)
}

/// The process that writes the trace of this flowtrace.
fn recorder_of(flowtrace: i32) -> Option<Pid> {
    let children = fs::read_to_string(format!("/proc/{flowtrace}/task/{flowtrace}/children"));
    let children = children.ok()?;
    let is_it = |pid: &&str| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "flowtrace-rec\n")
    };
    let pid = children.split_whitespace().find(is_it)?;
    pid.parse().ok().map(Pid::from_raw)
}

/// Kills the process that writes the trace; returns the time, s since boot.
fn kill_recorder(flowtrace: i32) -> f64 {
    let recorder = recorder_of(flowtrace).expect("a process that writes the trace");
    kill(recorder, Signal::SIGKILL).unwrap();
    uptime()
}

/// Makes the results of an untraced run.
fn untraced(directory: &Path) {
    let mut command = Command::new("bash");
    finish(command.args(["-c", WORKFLOW]).current_dir(directory)).expect(7);
}

/// Checks the trace of a run whose recorder was killed: `printed` is what the workflow printed, `killed` the time.
fn check_trace(path: &Path, printed: &str, killed: f64, sees_files: bool) {
    let note = Unrecorded::of(path).expect("a note beside the trace");
    assert_eq!(note.by_signal, Some(9));
    assert!(note.end.is_some(), "the run has ended");
    let mut summary = Command::new(FLOWTRACE);
    let summary = finish(summary.arg("summary").arg(path)).expect(0);
    let summary = unwrapped(&summary.stdout_text());
    assert!(
        summary.contains("nothing was recorded") && summary.contains("was killed by SIGKILL"),
        "{summary}"
    );
    if sees_files {
        check_markers(path, printed, killed).unwrap();
        return;
    }
    let trace = Trace::open(path);
    let epoch: i64 = trace.one("SELECT epoch_unix_ns FROM hosts");
    let last: Option<i64> = trace.one("SELECT MAX(start_ns) FROM processes");
    // It may have been killed before the first commit of a process.
    if let Some(last) = last {
        let missing_ns = note.from_unix_ns - epoch - last;
        assert!(missing_ns < 600_000_000, "{missing_ns} ns are missing");
    }
}

/// The trace of a run in this directory, which is there or beside it.
fn trace_of(job: &Path) -> PathBuf {
    let inside = job.join("trace.db");
    match inside.exists() {
        true => inside,
        false => job.with_file_name("trace.db"),
    }
}

/// Runs the workflow by `run` in fresh directories, and kills the recorder at some time.
fn survives(run: impl Fn(&Scratch) -> Option<(Command, PathBuf)>, sees_files: bool) {
    let expected = Scratch::new();
    let expected = expected.dir("untraced");
    untraced(&expected);
    for round in 0..kills() {
        let scratch = Scratch::new();
        let Some((mut command, job)) = run(&scratch) else {
            return;
        };
        let running = start(command.args(["--", "bash", "-c", WORKFLOW]));
        running.wait_for_output("m.");
        std::thread::sleep(life(round));
        let killed = kill_recorder(running.pid().as_raw());
        let finished = running.wait(Duration::from_secs(120)).expect(7);
        assert!(
            finished.stderr.contains("nothing was recorded"),
            "{}",
            finished.stderr
        );
        let path = trace_of(&job);
        check_trace(&path, &finished.stdout_text(), killed, sees_files);
        assert!(!is_mounted(&job));
        let mut beside = path.clone().into_os_string();
        beside.push("-wal");
        assert!(!Path::new(&beside).exists(), "the log is left");
        if path.starts_with(&job) {
            fs::remove_file(&path).unwrap();
            fs::remove_file(job.join("trace.db-unrecorded")).unwrap();
        }
        tree::assert_same(&expected, &job);
    }
}

/// A run in a directory of its own, with these options.
fn with(options: &'static [&'static str]) -> impl Fn(&Scratch) -> Option<(Command, PathBuf)> {
    move |scratch| {
        let job = scratch.dir("job");
        let mut command = run_in(&job, &scratch.join("trace.db"));
        command.args(options);
        Some((command, job))
    }
}

/// The same as an ordinary user, in the home directory.
fn of_user(options: &'static [&'static str]) -> impl Fn(&Scratch) -> Option<(Command, PathBuf)> {
    move |scratch| {
        let user = User::new(scratch);
        let mut command = user.command(&user.flowtrace);
        command.args(["run", "-q", "--no-summary", "-o", "trace.db"]);
        command.args(options);
        Some((command, user.home))
    }
}

#[test]
fn a_workflow_in_a_mount_survives() {
    if need_fuse() && need_root() && need_process_tracepoints() {
        survives(with(&["--layer", "fuse"]), true);
    }
}

#[test]
fn a_workflow_followed_by_ptrace_survives() {
    if need_fuse() && need_root() {
        survives(with(&["--ptrace"]), true);
    }
}

#[test]
fn a_workflow_without_a_mount_survives() {
    if need_root() {
        survives(with(&[]), false);
    }
}

#[test]
fn a_workflow_of_a_user_survives() {
    if need_fuse() {
        survives(of_user(&[]), true);
    }
}

#[test]
fn a_workflow_of_a_user_without_a_mount_survives() {
    survives(of_user(&["--no-mount"]), false);
}

#[test]
fn a_mount_serves_on() {
    let expected = Scratch::new();
    let expected = expected.dir("untraced");
    untraced(&expected);
    for round in 0..kills() {
        let Some(mounted) = Mount::open() else { return };
        fs::remove_file(mounted.source.join("before")).unwrap();
        let mut command = Command::new("bash");
        let command = command.args(["-c", WORKFLOW]).current_dir(&mounted.point);
        let running = start(command);
        running.wait_for_output("m.");
        std::thread::sleep(life(round));
        let killed = kill_recorder(mounted.daemon());
        let finished = running.wait(Duration::from_secs(120)).expect(7);
        let unmounted = finish(&mut mounted.unmount()).expect(0);
        assert!(
            unmounted.stderr.contains("nothing was recorded"),
            "{}",
            unmounted.stderr
        );
        assert!(!is_mounted(&mounted.point), "still mounted");
        check_trace(&mounted.trace, &finished.stdout_text(), killed, true);
        tree::assert_same(&expected, &mounted.source);
    }
}
