//! `run --detach`: processes that outlive the command go on, with their files, and flowtrace does not wait
//! for them.

use std::fs;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::process::{start, state};
use crate::support::trace::Trace;
use crate::support::wait_for;

use super::{LIMIT, Stage};

/// A daemon that counts into a file of the traced directory, and into one by its absolute path, until it
/// finds a file named `enough`. Then it prints that, and ends.
const DAEMON: &str = "cd \"$0\"; echo $$ > pid; exec > log 2>&1; i=0
    while [ ! -e enough ]; do i=$((i+1)); echo $i; echo $i > \"$0/last\"; sleep 0.02; done
    echo done $i > finished";

fn pid_in(text: &str) -> Pid {
    Pid::from_raw(text.trim().parse().unwrap())
}

/// The pid of the tracer of process `pid`.
fn tracer(pid: Pid) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let tracer = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.unwrap_or_default().trim().to_owned()
}

fn flowtraces(stage: &Stage) -> usize {
    let trace = stage.trace_path();
    let trace = trace.as_os_str().as_encoded_bytes();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let commands = processes.filter_map(|p| fs::read(p.path().join("cmdline")).ok());
    commands
        .filter(|c| c.windows(trace.len()).any(|part| part == trace))
        .count()
}

#[test]
fn a_daemon_lives_on_with_its_files() {
    let Some(stage) = Stage::new() else { return };
    let job = stage.scratch.dir("job");
    let mut command = stage.run(&["--detach"]);
    // `wait` returns when all processes that write to the two streams have closed them: the daemon has, and
    // flowtrace has, too.
    let script = "setsid sh -c \"$1\" \"$0\" & while [ ! -s last ]; do sleep 0.01; done; exit 3";
    command.args(["sh", "-c", script]).arg(&job).arg(DAEMON);
    let finished = start(&mut command).wait(LIMIT).expect(3);
    assert!(
        finished.duration < Duration::from_secs(180),
        "{:?}",
        finished.duration
    );

    let pid = pid_in(&fs::read_to_string(job.join("pid")).unwrap());
    assert!(state(pid).is_some(), "the daemon is gone");
    assert_eq!(tracer(pid), "0");
    let count = || fs::read_to_string(job.join("log")).unwrap().lines().count();
    let before = count();
    wait_for("the daemon to write on", Duration::from_secs(20), || {
        (count() > before + 20).then_some(())
    });
    // The trace is complete by then, a single file.
    let trace = Trace::open(&stage.trace_path());
    trace.assert_no_loss();
    let run = &trace.rows("SELECT exit_code, end_ns IS NULL FROM runs")[0];
    assert_eq!(*run, ["3", "0"]);
    let left =
        trace.rows("SELECT pid, on_cpu_ns IS NULL, exit_code FROM processes WHERE end_ns IS NULL");
    assert!(
        !left.is_empty() && left.iter().all(|row| row[2].is_empty()),
        "{left:?}"
    );
    assert!(
        left.iter()
            .any(|row| *row == [pid.to_string(), "0".into(), String::new()]),
        "{left:?}"
    );
    let let_go: i64 = trace.one("SELECT value FROM losses WHERE counter = 'let_go'");
    assert_eq!(let_go, left.len() as i64);
    drop(trace);

    assert_eq!(flowtraces(&stage), 1, "one flowtrace serves the files");
    fs::write(job.join("enough"), "").unwrap();
    wait_for("the daemon's last words", Duration::from_secs(20), || {
        job.join("finished").exists().then_some(())
    });
    wait_for("flowtrace to end with it", Duration::from_secs(20), || {
        (flowtraces(&stage) == 0).then_some(())
    });
    wait_for("the daemon's end", Duration::from_secs(20), || {
        matches!(state(pid), None | Some('Z')).then_some(())
    });
}

/// If no process is left, a run is the same as without the option.
#[test]
fn without_anything_left_it_changes_nothing() {
    let Some(stage) = Stage::new() else { return };
    for (script, code) in [("exit 4", 4), ("kill -TERM $$", 143)] {
        let mut command = stage.run(&["--detach"]);
        command.args(["sh", "-c", script]);
        stage.finish(&mut command, code);
    }
    let running = {
        let script = "trap 'echo caught; exit 9' TERM; echo ready; while :; do sleep 0.05; done";
        start(stage.run(&["--detach"]).args(["sh", "-c", script]))
    };
    running.wait_for_output("ready");
    running.signal(Signal::SIGTERM);
    let finished = running.wait(LIMIT).expect(9);
    assert_eq!(finished.stdout_text(), "ready\ncaught\n");
    Trace::open_complete(&stage.trace_path());
}

#[test]
fn the_front_stops_goes_on_and_dies_with_the_rest() {
    let Some(stage) = Stage::new() else { return };
    let script = "echo $$; while :; do sleep 0.05; done";
    let running = start(stage.run(&["--detach"]).args(["sh", "-c", script]));
    running.wait_for_output("\n");
    let shell = pid_in(&running.stdout_so_far());
    let is = |pid: Pid, wanted: bool| {
        wait_for("the job to stop or go on", Duration::from_secs(20), || {
            (matches!(state(pid)?, 'T' | 't') == wanted).then_some(())
        });
    };
    running.signal_group(Signal::SIGTSTP);
    is(running.pid(), true);
    running.signal_group(Signal::SIGCONT);
    is(running.pid(), false);
    is(shell, false);
    running.signal(Signal::SIGKILL);
    running.wait(LIMIT).expect(137);
    wait_for("the command to end", Duration::from_secs(20), || {
        (state(shell).is_none() && flowtraces(&stage) == 0).then_some(())
    });
}

/// Threads, stopped processes and those in a call are detached alike.
#[test]
fn whatever_they_are_doing() {
    let Some(stage) = Stage::new() else { return };
    let job = stage.scratch.dir("job");
    let mut command = stage.run(&["--detach"]);
    let script = "exec > /dev/null 2>&1; $0 threaded-exec 50 & sleep 300 & echo $! > sleep
        setsid sh -c 'kill -STOP $$; exit 7' & echo $! > stopped
        setsid sh -c 'while :; do :; done' & echo $! > busy
        sleep 0.4; exit 2";
    command.args(["sh", "-c", script]).arg(&stage.program);
    start(&mut command).wait(LIMIT).expect(2);
    let pid = |name: &str| pid_in(&fs::read_to_string(job.join(name)).unwrap());
    assert_eq!(state(pid("sleep")), Some('S'));
    assert_eq!(state(pid("stopped")), Some('T'));
    assert_eq!(state(pid("busy")), Some('R'));
    for name in ["sleep", "stopped", "busy"] {
        assert_eq!(tracer(pid(name)), "0", "{name}");
        kill(pid(name), Signal::SIGKILL).unwrap();
    }
    wait_for("flowtrace to end", Duration::from_secs(20), || {
        (flowtraces(&stage) == 0).then_some(())
    });
}

#[test]
fn the_user_gets_a_message() {
    let Some(stage) = Stage::new() else { return };
    let mut command = Command::new(crate::support::FLOWTRACE);
    command
        .args(["run", "--detach", "--no-summary", "-o"])
        .arg(stage.trace_path());
    command.args(["--", "sh", "-c", "sleep 1.5 > /dev/null 2>&1 & sleep 0.5"]);
    command.current_dir(stage.scratch.dir("job"));
    let finished = start(&mut command).wait(LIMIT).expect(0);
    assert!(
        finished.stderr.contains("run on untraced: sleep 1.5"),
        "{}",
        finished.stderr
    );
}
