//! Stops, continues and kills have the same effect as in the untraced system.

use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::process::{finish, start};
use crate::support::trace::Trace;
use crate::support::{PYTHON, need_process_tracepoints, need_python, wait_for};

use super::{LIMIT, Stage, nobody_is_left};

#[test]
fn a_trap_of_its_own_reaches_the_program() {
    let Some(stage) = Stage::new() else { return };
    let played = stage.play(&["trap-yourself"], 0);
    assert_eq!(
        played.count("exit_signal = 5"),
        1,
        "SIGTRAP without a handler kills"
    );
}

#[test]
fn every_signal_arrives_once() {
    let Some(stage) = Stage::new() else { return };
    stage.play(&["signals-arrive"], 0);
}

#[test]
fn a_parent_sees_its_child_stop_and_go_on() {
    let Some(stage) = Stage::new() else { return };
    let played = stage.play(&["stop-child"], 0);
    assert_eq!(played.count("exit_code = 4 AND parent_upid = 1"), 1);
    assert_eq!(played.count("exit_signal = 9 AND parent_upid = 1"), 1);
}

#[test]
fn a_group_is_killed() {
    let Some(stage) = Stage::new() else { return };
    let played = stage.play(&["kill-group", "8"], 0);
    assert_eq!(played.count("exit_signal = 9"), 8);
}

/// The workflow's first process is killed from outside, and then the others one by one.
#[test]
fn the_workflow_is_killed() {
    let Some(stage) = Stage::new() else { return };
    let mut command = stage.run(&[]);
    let running = start(command.args(["sh", "-c", "sleep 300 & sleep 300 & echo $! $$; wait"]));
    running.wait_for_output("\n");
    let printed = running.stdout_so_far();
    let pids = printed.split_whitespace().rev();
    for pid in pids {
        kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGKILL).unwrap();
    }
    // One sleep is left. flowtrace follows it until a signal asks flowtrace to end it.
    std::thread::sleep(Duration::from_millis(300));
    running.signal(Signal::SIGTERM);
    running.wait(LIMIT).expect(137);
    let trace = Trace::open_complete(&stage.trace_path());
    let ends = trace
        .rows("SELECT exit_signal FROM processes WHERE exit_signal IS NOT NULL ORDER BY end_ns, 1");
    assert_eq!(ends, [["9"], ["9"], ["15"]]);
}

/// The processes of a run end with flowtrace: no process stays behind stopped, or goes on without its files.
#[test]
fn flowtrace_is_killed() {
    let Some(stage) = Stage::new() else { return };
    let mut command = stage.run(&["--layer", "fuse"]);
    let script = "$0 stop-child & $0 daemonize 100000 & while :; do $0 exit 0; done";
    // A name of its own, which distinguishes it from the programs of other tests.
    let program = stage.scratch.join("killed-with-flowtrace");
    std::fs::copy(&stage.program, &program).unwrap();
    let running = start(command.args(["sh", "-c", script]).arg(&program));
    running.wait_for_output("daemon");
    running.signal(Signal::SIGKILL);
    running.wait(LIMIT).expect(137);
    wait_for("all its processes to end", Duration::from_secs(20), || {
        nobody_is_left(&program).then_some(())
    });
    // All but the last quarter second is in the trace.
    Trace::open(&stage.trace_path());
}

/// No process is stopped by ptrace, so none is ended: a process that uses a mount gets errors, and does not
/// hang.
#[test]
fn flowtrace_is_killed_without_ptrace() {
    if !need_process_tracepoints() {
        return;
    }
    let Some(stage) = Stage::new() else { return };
    let mut command = stage.run(&["--no-ptrace"]);
    let program = stage.scratch.join("goes-on-without-flowtrace");
    std::fs::copy(&stage.program, &program).unwrap();
    let script = "echo begun; while echo x >> file && $0 exit 0; do :; done";
    let running = start(command.args(["sh", "-c", script]).arg(&program));
    running.wait_for_output("begun");
    running.signal(Signal::SIGKILL);
    running.wait(LIMIT).expect(137);
    wait_for("an error to end the loop", Duration::from_secs(20), || {
        nobody_is_left(&program).then_some(())
    });
    Trace::open(&stage.trace_path());
}

/// Ctrl-Z and `fg` at a terminal, with a shell of job control.
const TERMINAL: &str = r#"
import os, pty, select, signal, sys, time
pid, terminal = pty.fork()
if pid == 0:
    os.environ["PS1"] = "$ "
    os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
seen = b""
def expect(text, limit=60):
    global seen
    deadline = time.time() + limit
    while text not in seen:
        if time.time() > deadline: sys.exit("no %r in %r" % (text, seen))
        if select.select([terminal], [], [], 0.1)[0]:
            try: seen += os.read(terminal, 4096)
            except OSError: sys.exit("closed before %r in %r" % (text, seen))
    seen = seen[seen.index(text) + len(text):]
def say(text): os.write(terminal, text)
# Not right after a tick: a shell that makes its child by vfork does not stop then, nor
# does it without flowtrace.
def suspend(): time.sleep(0.02); say(b"\x1a")
say(b"stty -echo; echo begin\n"); expect(b"begin\r\n")
say(" ".join(sys.argv[1:]).encode() + b"\n"); expect(b"tick 3")
suspend(); expect(b"Stopped")
time.sleep(0.3)
while select.select([terminal], [], [], 0)[0]: seen += os.read(terminal, 4096)
seen = b""
say(b"echo quiet\n"); expect(b"quiet"); time.sleep(0.3)
while select.select([terminal], [], [], 0)[0]: seen += os.read(terminal, 4096)
if b"tick" in seen: sys.exit("goes on while stopped: %r" % seen)
say(b"fg\n"); expect(b"tick 9")
suspend(); expect(b"Stopped"); say(b"bg\n"); expect(b"tick 15")
# It ticks in the background, too: the shell says the command when it takes fg, and then gives the
# terminal away. A Ctrl-C before that would be the shell's.
say(b"fg\n"); expect(b"count.sh"); time.sleep(1)
say(b"\x03"); expect(b"interrupted")
say(b"echo status $?\n"); expect(b"status 9")
say(b"exit\n")
"#;

#[test]
fn the_job_control_of_a_terminal_works() {
    let Some(stage) = Stage::new() else { return };
    if !need_python("pty") {
        return;
    }
    let job = stage.scratch.dir("job");
    let script = "trap 'echo interrupted; exit 9' INT; i=0
        while :; do i=$((i+1)); echo tick $i; sleep 0.05; done";
    std::fs::write(job.join("count.sh"), script).unwrap();
    let run = stage.run(&[]);
    let mut command = Command::new(PYTHON);
    command
        .args(["-c", TERMINAL])
        .arg(run.get_program())
        .args(run.get_args());
    finish(command.args(["sh", "count.sh"]).current_dir(&job)).expect(0);
    Trace::open_complete(&stage.trace_path());
}

#[test]
fn a_system_call_filter_of_its_own_works() {
    let Some(stage) = Stage::new() else { return };
    let played = stage.play(&["own-filter"], 0);
    assert_eq!(played.count("exit_code IN (17, 18)"), 2);
    assert_eq!(
        played.count("exit_signal = 31"),
        1,
        "killed by its filter: SIGSYS"
    );
}
