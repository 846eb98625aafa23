//! The way `stops`: a tracer that follows every process by the events that flowtrace needs, does nothing
//! at a stop, and records nothing. What it costs is what no tracer by ptrace can go below. This
//! program is that tracer, started again with [`argv`].

use std::process::{Command, ExitCode};

use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

const ARGUMENT: &str = "--stops-alone";

/// Waits until it is traced, then becomes the command.
const HELD: &str = r#"kill -STOP $$; exec "$@""#;

/// The beginning of a command line that runs what is appended to it.
pub(crate) fn argv(own: &str) -> Vec<String> {
    vec![own.to_owned(), ARGUMENT.to_owned()]
}

/// The command to run, when the arguments are those of [`argv`].
pub(crate) fn asked_for(arguments: &[String]) -> Option<&[String]> {
    let (first, command) = arguments.split_first()?;
    (first == ARGUMENT).then_some(command)
}

/// Runs `command` and follows it; succeeds if it does.
pub(crate) fn run(command: &[String]) -> ExitCode {
    match follow(command) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("stops: {error}");
            ExitCode::FAILURE
        }
    }
}

fn follow(command: &[String]) -> std::io::Result<i32> {
    let child = Command::new("sh")
        .args(["-c", HELD, "sh"])
        .args(command)
        .spawn()?;
    let root = Pid::from_raw(child.id() as i32);
    waitpid(root, Some(WaitPidFlag::WUNTRACED))?;
    let events = Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_TRACEEXIT
        | Options::PTRACE_O_EXITKILL;
    ptrace::seize(root, events)?;
    kill(root, Signal::SIGCONT)?;
    let mut code = 0;
    loop {
        // A task that was killed in its stop cannot be let go, and needs not.
        let _ = match waitpid(None, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Stopped(pid, signal)) => ptrace::cont(pid, signal),
            Ok(WaitStatus::PtraceEvent(pid, ..)) => ptrace::cont(pid, None),
            Ok(WaitStatus::Exited(pid, status)) if pid == root => {
                code = status;
                Ok(())
            }
            Err(nix::errno::Errno::ECHILD) => return Ok(code),
            Err(nix::errno::Errno::EINTR) | Ok(_) => Ok(()),
            Err(error) => return Err(error.into()),
        };
    }
}
