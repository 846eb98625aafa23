//! Child processes that cannot hang a test.

use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Status and output of a process that has ended.
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    pub(crate) duration: Duration,
}

impl Finished {
    /// Exit status as a shell shows it: 128+n for signal n.
    pub(crate) fn code(&self) -> i32 {
        let by_signal = || 128 + self.status.signal().expect("neither code nor signal");
        self.status.code().unwrap_or_else(by_signal)
    }

    /// Panics with all output of the process unless it ended with `code`.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        let stdout = String::from_utf8_lossy(&self.stdout);
        assert_eq!(
            self.code(),
            code,
            "exit status\n--- stdout\n{stdout}\n--- stderr\n{}",
            self.stderr
        );
        self
    }

    pub(crate) fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

/// A process in a group of its own, whose output is collected; killed with its group when dropped.
pub(crate) struct Running {
    child: Child,
    started: Instant,
    stdout: Collector,
    stderr: Collector,
}

/// Starts a command with nothing on its standard input.
#[track_caller]
pub(crate) fn start(command: &mut Command) -> Running {
    start_with_input(command, None)
}

#[track_caller]
fn start_with_input(command: &mut Command, input: Option<Vec<u8>>) -> Running {
    let stdin = if input.is_some() {
        Stdio::piped()
    } else {
        Stdio::null()
    };
    let mut child = command
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
    if let Some(input) = input {
        let mut stdin = child.stdin.take().expect("piped");
        // A reader may end before it has read everything.
        std::thread::spawn(move || drop(stdin.write_all(&input)));
    }
    Running {
        stdout: Collector::new(child.stdout.take().expect("piped")),
        stderr: Collector::new(child.stderr.take().expect("piped")),
        started: Instant::now(),
        child,
    }
}

/// Runs a command to its end, at most two minutes.
#[track_caller]
pub(crate) fn finish(command: &mut Command) -> Finished {
    start(command).wait(Duration::from_secs(300))
}

/// The same, with bytes on the command's standard input.
#[track_caller]
pub(crate) fn finish_with_input(command: &mut Command, input: Vec<u8>) -> Finished {
    start_with_input(command, Some(input)).wait(Duration::from_secs(300))
}

impl Running {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap_or_else(|e| panic!("cannot send {signal}: {e}"));
    }

    /// Sends a signal to the whole process group, as a terminal does.
    pub(crate) fn signal_group(&self, signal: Signal) {
        let group = Pid::from_raw(-self.pid().as_raw());
        kill(group, signal).unwrap_or_else(|e| panic!("cannot send {signal} to the group: {e}"));
    }

    /// The standard output so far.
    pub(crate) fn stdout_so_far(&self) -> String {
        self.stdout.text()
    }

    /// The standard error so far.
    pub(crate) fn stderr_so_far(&self) -> String {
        self.stderr.text()
    }

    /// Waits until the process has printed `text`.
    #[track_caller]
    pub(crate) fn wait_for_output(&self, text: &str) {
        super::wait_for(
            &format!("{text:?} on standard output"),
            super::PATIENCE,
            || self.stdout.text().contains(text).then_some(()),
        );
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("can wait").is_some()
    }

    /// Waits for the end of the process and for the end of its output, which its descendants may have open.
    #[track_caller]
    pub(crate) fn wait(mut self, limit: Duration) -> Finished {
        let deadline = self.started + limit;
        let status = loop {
            match self.child.try_wait().expect("can wait") {
                Some(status) => break status,
                None if Instant::now() > deadline => self.hangs(limit),
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        let duration = self.started.elapsed();
        while !(self.stdout.is_done() && self.stderr.is_done()) {
            if Instant::now() > deadline {
                self.hangs(limit);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Finished {
            status,
            stdout: self.stdout.bytes(),
            stderr: self.stderr.text(),
            duration,
        }
    }

    #[track_caller]
    fn hangs(&self, limit: Duration) -> ! {
        panic!(
            "still running after {limit:?}\n--- stdout\n{}\n--- stderr\n{}",
            self.stdout.text(),
            self.stderr.text()
        );
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended() {
            let _ = kill(Pid::from_raw(-self.pid().as_raw()), Signal::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

/// Reads a stream to its end on a thread of its own.
struct Collector {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Collector {
    fn new(mut stream: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&bytes);
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 1 << 16];
            loop {
                match stream.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(n) => sink.lock().unwrap().extend_from_slice(&buffer[..n]),
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
        });
        Collector { bytes, thread }
    }

    fn is_done(&self) -> bool {
        self.thread.is_finished()
    }

    fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }
}

/// State letter of a process (`R`, `S`, `T`, …); `None` if the process has ended.
pub(crate) fn state(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    // The name may contain anything, even parentheses: the last one ends it.
    stat.ok()?.rsplit_once(") ")?.1.chars().next()
}
