//! Daemons: a mount session goes on in the background, without a terminal.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use nix::unistd::{ForkResult, chdir, dup2_stderr, dup2_stdin, dup2_stdout, fork, setsid};

/// Side of the fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    /// The process that was started by the user.
    Parent,
    /// The process in the background: own session, no terminal, working directory `/`.
    Daemon,
}

/// Forks a daemon. Call it while the process has one thread.
///
/// # Errors
/// If the system allows no further process.
pub fn fork_daemon() -> io::Result<Fork> {
    // SAFETY: this process has one thread, as the doc comment requires.
    #[expect(unsafe_code)]
    let fork = unsafe { fork() }?;
    if let ForkResult::Parent { .. } = fork {
        return Ok(Fork::Parent);
    }
    leave_terminal()?;
    Ok(Fork::Daemon)
}

/// Moves this process into the background: into a session of its own, without a terminal, in `/`.
pub(super) fn leave_terminal() -> io::Result<()> {
    setsid()?;
    // A daemon in another working directory could keep a filesystem busy, even its own mount.
    chdir("/")?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(null.as_fd())?;
    dup2_stdout(null.as_fd())?;
    dup2_stderr(null.as_fd())?;
    Ok(())
}
