//! The processes that show a run from its begin: `run` and `collect` start them beside themselves.
//!
//! They are processes of their own, because the recorder must not open its trace a second time: closing it
//! would drop the locks by which readers see that it is being recorded.

use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use flowtrace_profiler::live::Follower;
use nix::sys::signal::SigSet;

use crate::failure::Failure;

/// Time for which a companion waits for its trace.
const PATIENCE: Duration = Duration::from_secs(60);

/// Serves the page of the run that writes a trace; prints its address, and returns it. Without a page the run
/// goes on.
pub(in crate::commands) fn page(trace: &Path) -> Option<String> {
    let mut words = vec!["--companion"];
    if !io::stdout().is_terminal() {
        words.push("--no-open");
    }
    let started = start(&words, trace, Stdio::null(), Stdio::null());
    let address = started.and_then(|mut child| {
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        // It has left this process's session, and is nobody's child by now.
        child.wait()?;
        Ok(line)
    });
    let missing = match address {
        Ok(address) if !address.is_empty() => {
            message!("flowtrace: live at {}", address.trim());
            return Some(address.trim().to_owned());
        }
        Ok(_) => "its server did not start".to_owned(),
        Err(error) => error.to_string(),
    };
    message!("flowtrace: --live: there is no page: {missing}");
    None
}

/// A line at the bottom of the terminal, until it is dropped.
#[derive(Debug)]
pub(in crate::commands) struct Progress {
    /// Its end ends the line.
    stdin: Option<ChildStdin>,
    /// Its end shows that the line is gone.
    stdout: ChildStdout,
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // Whatever comes, the line is gone at its end.
        let _ = self.stdout.read_to_end(&mut Vec::new());
    }
}

/// Keeps a line at the bottom of the terminal; `None`: output does not go to one.
pub(in crate::commands) fn progress(trace: &Path) -> Option<Progress> {
    if !io::stdout().is_terminal() || !io::stderr().is_terminal() {
        return None;
    }
    let started = start(&["--status"], trace, Stdio::piped(), Stdio::inherit());
    let mut child = started.ok()?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take()?);
    child.wait().ok()?;
    Some(Progress { stdin, stdout })
}

fn start(words: &[&str], trace: &Path, stdin: Stdio, stderr: Stdio) -> io::Result<Child> {
    Command::new("/proc/self/exe")
        .arg0("flowtrace")
        .arg("live")
        .args(words)
        .arg("--")
        .arg(trace)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
}

/// Goes on as a process of nobody, in a session of its own: the recorder waits for all its children, and
/// Ctrl-C on its terminal is for the command. Signals that the recorder blocks for itself are for this process.
pub(super) fn leave_session() -> Result<(), Failure> {
    // Without that it ends with its recording.
    let _ = SigSet::all().thread_unblock();
    nix::unistd::daemon(true, true)
        .map_err(|error| Failure::usage(format!("cannot leave the session: {error}")))
}

/// The trace of a run that begins.
pub(super) fn wait_for(trace: &Path) -> Result<Follower, Failure> {
    let begin = Instant::now();
    loop {
        // An older trace may still be there: the new one is being recorded.
        match Follower::open(trace) {
            Ok(follower) if follower.is_being_recorded() => return Ok(follower),
            _ if begin.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(20)),
            Ok(_) => {
                return Err(Failure::usage(format!(
                    "{} is not being recorded",
                    trace.display()
                )));
            }
            Err(error) => return Err(error.into()),
        }
    }
}
