//! `flowtrace run` ends with the status of the command, and signals reach the command.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::support::process::{Running, finish, start, state};
use crate::support::trace::Trace;
use crate::support::{
    PATIENCE, Scratch, need_announcements, need_fuse, need_program, need_root, run_in, wait_for,
};

mod halted;
mod once;

const LIMIT: Duration = Duration::from_secs(180);

struct Case {
    scratch: Scratch,
    trace: PathBuf,
    options: &'static [&'static str],
}

impl Case {
    /// Runs `test` once for each way to follow processes.
    fn each(test: impl Fn(&Case)) {
        if !need_fuse() {
            return;
        }
        for options in [&[][..], &["--no-ptrace"], &["--ptrace"]] {
            if options == ["--no-ptrace"] && !need_announcements() {
                continue;
            }
            let scratch = Scratch::new();
            let trace = scratch.join("trace.db");
            test(&Case {
                scratch,
                trace,
                options,
            });
        }
    }

    /// `flowtrace run -- sh -c SCRIPT`, in the directory `work`, replacing an earlier trace.
    fn shell(&self, script: &str) -> Command {
        let mut command = run_in(&self.scratch.dir("job"), &self.trace);
        command
            .args(self.options)
            .args(["--force", "--", "sh", "-c", script]);
        command
    }
}

/// `flowtrace`, executed by Python after `preparation`, whose effects it inherits.
fn prepared(preparation: &str, flowtrace: &Command) -> Command {
    let mut command = Command::new("python3");
    let script =
        format!("import os, signal, sys; {preparation}; os.execvp(sys.argv[1], sys.argv[1:])");
    command.args(["-c", &script]).arg(flowtrace.get_program());
    command.args(flowtrace.get_args());
    if let Some(directory) = flowtrace.get_current_dir() {
        command.current_dir(directory);
    }
    command
}

/// `flowtrace capture` of the loopback interface.
fn capture(scratch: &Scratch, script: &str) -> Command {
    let mut command = Command::new(crate::support::FLOWTRACE);
    command.args([
        "capture",
        "-i",
        "lo",
        "-o",
        "packets.db",
        "--force",
        "--",
        "sh",
        "-c",
        script,
    ]);
    command.current_dir(scratch.dir("job"));
    command
}

/// Supervisors that ignore SIGCHLD pass that on to the programs that they start. A process that ignores it
/// cannot wait for its own child.
#[test]
fn a_caller_that_ignores_the_end_of_children() {
    const IGNORE: &str = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)";
    if !need_program("python3") {
        return;
    }
    let mut plain = Command::new("grep");
    plain.args(["SigIgn", "/proc/self/status"]);
    let plain = finish(&mut prepared(IGNORE, &plain))
        .expect(0)
        .stdout_text();
    Case::each(|case| {
        for detach in [false, true] {
            let mut command = run_in(&case.scratch.dir("job"), &case.trace);
            command.args(case.options).arg("--force");
            if detach {
                command.arg("--detach");
            }
            command.args(["--", "grep", "SigIgn", "/proc/self/status"]);
            let finished = finish(&mut prepared(IGNORE, &command)).expect(0);
            assert_eq!(finished.stdout_text(), plain, "{:?}", case.options);
        }
        let command = case.shell("sleep 0.1; exit 9");
        finish(&mut prepared(IGNORE, &command)).expect(9);
        let stored: i32 = Trace::open_complete(&case.trace).one("SELECT exit_code FROM runs");
        assert_eq!(stored, 9);
        if need_root() {
            let capture = capture(&case.scratch, "sleep 0.1; exit 9");
            finish(&mut prepared(IGNORE, &capture)).expect(9);
        }
    });
}

/// `alarm(2)`, then exec: the timer applies to the command.
#[test]
fn a_timer_of_the_caller_goes_on() {
    use std::os::unix::process::ExitStatusExt;
    if !need_program("python3") {
        return;
    }
    Case::each(|case| {
        let command = case.shell("exec sleep 60");
        let finished = finish(&mut prepared("signal.alarm(1)", &command));
        let alarm = Some(Signal::SIGALRM as i32);
        assert_eq!(finished.status.signal(), alarm, "{}", finished.stderr);
        let stored: i32 = Trace::open_complete(&case.trace).one("SELECT exit_signal FROM runs");
        assert_eq!(Some(stored), alarm);
        let command = case.shell("trap 'echo rang; exit 7' ALRM; while :; do sleep 0.05; done");
        let finished = finish(&mut prepared("signal.alarm(1)", &command)).expect(7);
        assert_eq!(finished.stdout_text(), "rang\n");
        let finished = finish(&mut prepared("signal.alarm(60)", &case.shell("exit 3"))).expect(3);
        assert!(finished.duration < Duration::from_secs(60));
        if need_root() {
            let capture = capture(&case.scratch, "exec sleep 60");
            finish(&mut prepared("signal.alarm(1)", &capture)).expect(128 + Signal::SIGALRM as i32);
        }
    });
}

/// The parent of flowtrace can distinguish a signal from an exit status with the value that a shell shows for
/// it.
#[test]
fn a_signal_that_ended_the_command_ends_flowtrace() {
    use std::os::unix::process::ExitStatusExt;
    Case::each(|case| {
        for (signal, detach) in [(15, false), (9, false), (11, false), (2, true)] {
            let mut command = case.shell(&format!("sleep 0.3 & kill -{signal} $$"));
            if detach {
                command = run_in(&case.scratch.dir("job"), &case.trace);
                let script = format!("sleep 2 & kill -{signal} $$");
                command
                    .args(case.options)
                    .args(["--force", "--detach", "--"]);
                command.args(["sh", "-c", &script]);
            }
            let finished = finish(&mut command);
            assert_eq!(
                finished.status.signal(),
                Some(signal),
                "{}",
                finished.stderr
            );
            assert!(!finished.status.core_dumped());
        }
        let finished = finish(&mut case.shell("exit 143"));
        assert_eq!(finished.status.code(), Some(143));
    });
}

/// The reader of standard error may have ended (`2>&1 | head`); messages of flowtrace then do not end the
/// recording.
#[test]
fn nobody_reads_standard_error() {
    Case::each(|case| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        // flowtrace reports the process that the command leaves behind.
        let mut command = case.shell("(sleep 2; : > late) & exit 3");
        let status = command.stderr(writer).status().unwrap();
        assert_eq!(status.code(), Some(3));
        let trace = Trace::open_complete(&case.trace);
        let stored: i32 = trace.one("SELECT exit_code FROM runs");
        assert_eq!(stored, 3);
    });
}

#[test]
fn codes() {
    Case::each(|case| {
        for code in [0, 1, 2, 42, 125, 126, 127, 130, 255] {
            finish(&mut case.shell(&format!("exit {code}"))).expect(code);
            let trace = Trace::open_complete(&case.trace);
            let stored: i32 = trace.one("SELECT exit_code FROM runs");
            assert_eq!(stored, code, "in the trace");
        }
    });
}

#[test]
fn signals_of_the_command() {
    Case::each(|case| {
        for signal in [
            Signal::SIGHUP,
            Signal::SIGINT,
            Signal::SIGKILL,
            Signal::SIGTERM,
            Signal::SIGSEGV,
        ] {
            let number = signal as i32;
            finish(&mut case.shell(&format!("ulimit -c 0; kill -{number} $$")))
                .expect(128 + number);
            let trace = Trace::open_complete(&case.trace);
            let stored: i32 = trace.one("SELECT exit_signal FROM runs");
            assert_eq!(stored, number, "in the trace");
        }
    });
}

#[test]
fn signal_of_a_grandchild_is_its_own() {
    Case::each(|case| {
        finish(&mut case.shell("sh -c 'kill -9 $$'; echo $? > status; exit 4")).expect(4);
        let status = std::fs::read_to_string(case.scratch.join("job/status")).unwrap();
        assert_eq!(status, "137\n");
        let trace = Trace::open_complete(&case.trace);
        let killed: i64 = trace.one("SELECT COUNT(*) FROM processes WHERE exit_signal = 9");
        assert_eq!(killed, 1);
    });
}

/// Ctrl-C: the terminal sends SIGINT to all processes of the foreground group.
#[test]
fn interrupt_of_the_group() {
    Case::each(|case| {
        let trap = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.05; done";
        let running = start(&mut case.shell(trap));
        running.wait_for_output("ready");
        running.signal_group(Signal::SIGINT);
        let finished = running.wait(LIMIT).expect(7);
        assert_eq!(finished.stdout_text(), "ready\ncaught\n");
        Trace::open_complete(&case.trace);

        let running = start(&mut case.shell("echo ready; sleep 30; echo not reached"));
        running.wait_for_output("ready");
        running.signal_group(Signal::SIGINT);
        let finished = running.wait(LIMIT).expect(130);
        assert_eq!(finished.stdout_text(), "ready\n");
        Trace::open_complete(&case.trace);
    });
}

/// Ctrl-C while flowtrace starts: an older trace is replaced by the trace of a command that ran, or not at
/// all.
#[test]
fn interrupt_before_the_command_runs() {
    Case::each(|case| {
        finish(&mut case.shell("exit 3")).expect(3);
        let (directory, began) = (case.trace.parent().unwrap(), case.scratch.join("job/began"));
        let (mut kept, mut in_vain) = (0, 0);
        for delay_ms in (0..200).step_by(8) {
            let running = start(&mut case.shell(": > began; exec sleep 30"));
            std::thread::sleep(Duration::from_millis(delay_ms));
            running.signal_group(Signal::SIGINT);
            let finished = running.wait(LIMIT);
            let command: String = Trace::open_complete(&case.trace).one("SELECT command FROM runs");
            match (command.contains("sleep"), began.exists()) {
                (true, true) => {
                    std::fs::remove_file(&began).unwrap();
                    finish(&mut case.shell("exit 3")).expect(3);
                }
                // The signal came between the exec and the first command of the shell, a millisecond or two.
                (true, false) => in_vain += 1,
                (false, began) => {
                    assert!(!began, "after {delay_ms} ms: {}", finished.stderr);
                    kept += 1;
                }
            }
            let beside = std::fs::read_dir(directory).unwrap();
            let beside = beside.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let beside: Vec<String> = beside.filter(|name| name.contains("trace.db")).collect();
            assert_eq!(
                beside,
                ["trace.db"],
                "after {delay_ms} ms: {}",
                finished.stderr
            );
        }
        assert!(kept > 0, "no signal came early enough");
        assert!(in_vain < 4, "replaced {in_vain} times, kept {kept} times");
    });
}

/// `ssh -t host flowtrace run …`: flowtrace leads the session, so the kernel signals the loss of the terminal
/// to flowtrace alone.
#[test]
fn a_terminal_that_hangs_up_ends_the_command() {
    const HANG_UP: &str = "import os, pty, sys
pid, terminal = pty.fork()
if pid == 0: os.execvp(sys.argv[1], sys.argv[1:])
said = b''
while b'ready' not in said: said += os.read(terminal, 100)
os.close(terminal)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))";
    if !need_program("python3") {
        return;
    }
    Case::each(|case| {
        let flowtrace = case.shell("sleep 300 & echo ready; wait; echo after > after");
        let mut command = Command::new("python3");
        command.args(["-c", HANG_UP]).arg(flowtrace.get_program());
        command.args(flowtrace.get_args());
        command.current_dir(case.scratch.join("job"));
        let finished = finish(&mut command).expect(0);
        assert_eq!(finished.stdout_text(), "-1\n", "ended by SIGHUP");
        let trace = Trace::open_complete(&case.trace);
        let hung_up: i64 = trace.one("SELECT COUNT(*) FROM processes WHERE exit_signal = 1");
        assert_eq!(hung_up, 2, "the shell and what it waited for");
    });
}

/// `kill PID` or a batch system: the signal goes to flowtrace alone.
#[test]
fn signals_to_flowtrace_are_passed_on() {
    Case::each(|case| {
        for name in ["TERM", "HUP", "INT", "USR1"] {
            let script = format!(
                "trap 'echo caught; exit 9' {name}; echo ready; while :; do sleep 0.05; done"
            );
            let running = start(&mut case.shell(&script));
            running.wait_for_output("ready");
            running.signal(format!("SIG{name}").parse().unwrap());
            let finished = running.wait(LIMIT).expect(9);
            assert_eq!(finished.stdout_text(), "ready\ncaught\n", "SIG{name}");
            Trace::open_complete(&case.trace);
        }
    });
}

fn wait_until_stopped(who: &str, pid: Pid, stopped: bool) {
    wait_for(
        &format!("{who} to {}", if stopped { "stop" } else { "go on" }),
        PATIENCE,
        || (matches!(state(pid)?, 'T' | 't') == stopped).then_some(()),
    );
}

/// The output of the command once there was no more of it for 600 ms.
fn quiet_output(running: &Running) -> String {
    let (mut last, mut since) = (running.stdout_so_far(), Instant::now());
    let deadline = Instant::now() + PATIENCE;
    while since.elapsed() < Duration::from_millis(600) {
        assert!(Instant::now() < deadline, "the command does not stop");
        std::thread::sleep(Duration::from_millis(20));
        let now = running.stdout_so_far();
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    last
}

/// Ctrl-Z. A shell that is in a vfork at that instant does not stop, with or without flowtrace, so the signal
/// is sent again.
fn stop_group(running: &Running) {
    wait_for("flowtrace to stop", PATIENCE, || {
        running.signal_group(Signal::SIGTSTP);
        for _ in 0..250 {
            if matches!(state(running.pid())?, 'T' | 't') {
                return Some(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        running.signal_group(Signal::SIGCONT);
        None
    });
}

fn is_stopped(pid: Pid) -> bool {
    matches!(state(pid), Some('T' | 't'))
}

/// Returns true if a process is in the middle of a vfork and its child is stopped, so that it cannot stop
/// itself.
fn is_blocked_by_its_child(pid: Pid) -> bool {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let mut children = children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok());
    state(pid) == Some('D') && children.any(|child| is_stopped(Pid::from_raw(child)))
}

/// Ctrl-Z and `fg`.
#[test]
fn stop_and_continue_of_the_group() {
    Case::each(|case| {
        let script = "echo shell $$.; i=0
        while [ ! -e enough ]; do i=$((i+1)); echo $i; sleep 0.05; done; exit 5";
        let running = start(&mut case.shell(script));
        running.wait_for_output("\n3\n");
        let output = running.stdout_so_far();
        let shell = output
            .split(['.', ' '])
            .nth(1)
            .expect("the pid of the shell");
        let shell = Pid::from_raw(shell.parse().unwrap());

        stop_group(&running);
        let before = quiet_output(&running);
        assert!(
            is_stopped(shell) || is_blocked_by_its_child(shell),
            "{:?}",
            state(shell)
        );

        running.signal_group(Signal::SIGCONT);
        wait_until_stopped("flowtrace", running.pid(), false);
        wait_for("more output", PATIENCE, || {
            (running.stdout_so_far().len() > before.len()).then_some(())
        });
        std::fs::write(case.scratch.join("job/enough"), "").unwrap();
        running.wait(LIMIT).expect(5);
        let trace = Trace::open_complete(&case.trace);
        let stopped: i64 = trace.one(
            "SELECT COALESCE(SUM(duration_ns), 0) / 1000000 FROM samples WHERE state = 'stopped'",
        );
        assert!(
            stopped > 400 || case.options == ["--no-ptrace"],
            "{:?}: {stopped} ms of the stop",
            case.options
        );
    });
}

/// `kill -TSTP` of flowtrace alone stops the command, and flowtrace with it by the same signal.
#[test]
fn a_stop_of_flowtrace_alone_stops_the_command() {
    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
    Case::each(|case| {
        let running = start(&mut case.shell("echo ready; sleep 0.3; exit 5"));
        running.wait_for_output("ready");
        running.signal(Signal::SIGTSTP);
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT;
        let stopped = waitid(Id::Pid(running.pid()), flags).unwrap();
        assert_eq!(
            stopped,
            WaitStatus::Stopped(running.pid(), Signal::SIGTSTP),
            "{:?}",
            case.options
        );
        running.signal_group(Signal::SIGCONT);
        running.wait(LIMIT).expect(5);
        Trace::open_complete(&case.trace);
    });
}

/// The command has ended, but a process that it left in the background has not.
#[test]
fn orphans_are_traced_to_their_end() {
    Case::each(|case| {
        let script = "(sleep 1; echo late > late; exit 6) > /dev/null 2>&1 & exit 3";
        let finished = finish(&mut case.shell(script)).expect(3);
        assert!(
            finished.duration > Duration::from_millis(900),
            "{:?}",
            finished.duration
        );
        let late = std::fs::read_to_string(case.scratch.join("job/late")).unwrap();
        assert_eq!(late, "late\n");
        let trace = Trace::open_complete(&case.trace);
        let writer: i64 = trace.one(
            "SELECT p.exit_code FROM file_access AS a JOIN processes AS p USING (upid)
           JOIN files AS f USING (file_id)
         WHERE f.path LIKE '%/job/late' AND a.relation = 'create'",
        );
        assert_eq!(writer, 6, "exit code of the orphan");
        let run: i64 = trace.one("SELECT exit_code FROM runs");
        assert_eq!(run, 3, "exit code of the command");
    });
}

/// As without flowtrace, a background job that ignores the signal which ends the command lives on. A further
/// signal asks it to end.
#[test]
fn what_survives_a_signal_to_the_command_lives_on() {
    Case::each(|case| {
        for (signal, code) in [("INT", 130), ("HUP", 129)] {
            let background = "trap '' INT HUP; sleep 1 & trap - INT HUP";
            finish(&mut case.shell(&format!("{background}; kill -{signal} 0"))).expect(code);
            let trace = Trace::open_complete(&case.trace);
            let job: i64 = trace.one("SELECT exit_code FROM processes ORDER BY end_ns DESC");
            assert_eq!(job, 0, "{signal}, {:?}", case.options);
        }
        let mut command = Command::new(crate::support::FLOWTRACE);
        command.args(["run", "--no-summary", "--force", "-o"]);
        command.arg(&case.trace).args(case.options);
        let script = "trap '' INT; sleep 300 & trap 'exit 3' INT; kill -INT 0";
        command.args(["--", "sh", "-c", script]);
        command.current_dir(case.scratch.dir("job"));
        let running = start(&mut command);
        wait_for("the message", PATIENCE, || {
            let said = running.stderr_so_far();
            said.contains("Ctrl-C ends them").then_some(())
        });
        running.signal_group(Signal::SIGINT);
        running.wait(LIMIT).expect(3);
        let trace = Trace::open_complete(&case.trace);
        let job: i64 = trace.one("SELECT exit_signal FROM processes ORDER BY end_ns DESC");
        assert_eq!(job, Signal::SIGTERM as i64, "{:?}", case.options);
    });
}

#[test]
fn what_is_left_behind_ends_when_flowtrace_is_asked_to() {
    Case::each(|case| {
        let script = "setsid sleep 300 > /dev/null 2>&1 & echo up; exit 3";
        let running = start(&mut case.shell(script));
        running.wait_for_output("up");
        let pid = wait_for("the process", PATIENCE, || {
            let trace = Trace::open(&case.trace);
            let sleep = "SELECT pid FROM processes WHERE command = 'sleep 300'";
            trace.rows(sleep).pop()?.pop()
        });
        running.signal(Signal::SIGTERM);
        running.wait(LIMIT).expect(3);
        let trace = Trace::open_complete(&case.trace);
        let signal: i64 = trace.one(&format!(
            "SELECT exit_signal FROM processes WHERE pid = {pid} AND command = 'sleep 300'"
        ));
        assert_eq!(signal, Signal::SIGTERM as i64);
    });
}

#[test]
fn a_wrong_option_is_no_command() {
    Case::each(|case| {
        let mut command = std::process::Command::new(crate::support::FLOWTRACE);
        let refused = finish(command.args(["run", "--outptu", "x.db", "--", "true"])).expect(125);
        assert!(refused.stderr.contains("--output"), "{}", refused.stderr);
        assert!(!case.trace.exists());
    });
}
