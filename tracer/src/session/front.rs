//! The process that the shell waits for, when the one that traces may have to live longer.
//!
//! A process that flowtrace detaches from keeps its files in the traced mounts, and those need their daemon.
//! The daemon therefore is a child from the start. Its parent, the process that the shell has started, waits
//! in front of it: it passes signals on, stops with the job, and ends with the status that the daemon
//! reports.

use std::fs::File;
use std::io::{self, Read, Write};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getppid, pipe2};

use super::daemon::leave_terminal;
use super::ending::end_by;
use super::signals::{self, SignalForwarder};
use super::{End, Error, Result};

/// Side of the fork.
#[derive(Debug)]
pub enum Side {
    /// The process that the shell waits for; it has to end like this.
    Front(End),
    /// The process that traces, with the handle by which it leaves the front behind.
    Behind(Front),
}

/// The front, as the process behind it sees it.
#[derive(Debug)]
pub struct Front {
    pid: Pid,
    status: File,
}

/// Forks the process that traces. Call it while this one has one thread.
///
/// # Errors
/// If the system allows no further process.
pub fn fork_behind() -> Result<Side> {
    let before = signals::block().map_err(Error::errno("block signals"))?;
    let (reading, writing) =
        pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(Error::errno("make a pipe"))?;
    let front = Pid::this();
    // SAFETY: this process has one thread, as the doc comment requires.
    #[expect(unsafe_code)]
    match unsafe { fork() }.map_err(Error::errno("start a process"))? {
        ForkResult::Parent { child } => {
            drop(writing);
            let forwarder = SignalForwarder::in_front().inspect_err(|_| {
                let _ = kill(child, Signal::SIGKILL);
            });
            let forwarder = forwarder.map_err(Error::system("start a process"))?;
            Ok(Side::Front(wait_in_front(
                child,
                &forwarder,
                &mut File::from(reading),
            )))
        }
        ForkResult::Child => {
            // If the front is killed, it takes the whole run with it, as a flowtrace of one process does.
            let _ = prctl::set_pdeathsig(Signal::SIGKILL);
            if getppid() != front {
                std::process::exit(0);
            }
            before.restore().map_err(Error::errno("restore signals"))?;
            let status = File::from(writing);
            Ok(Side::Behind(Front { pid: front, status }))
        }
    }
}

impl Front {
    /// Makes the front end like the command, and lives on without it and its terminal.
    ///
    /// # Errors
    /// If the status could not be sent to the front, which then waits for the end of this process.
    pub fn leave(mut self, end: End) -> io::Result<()> {
        prctl::set_pdeathsig(None)?;
        leave_terminal()?;
        let status = match end {
            End::Exited(code) => [0, code as u8],
            End::Killed(signal) => [1, signal as u8],
        };
        self.status.write_all(&status)?;
        // The front may be waiting for signals only.
        kill(self.pid, Signal::SIGCHLD)?;
        Ok(())
    }
}

/// Waits until `behind` has ended or reports the end of the command, which is returned.
fn wait_in_front(behind: Pid, forwarder: &SignalForwarder, status: &mut File) -> End {
    let mut set = signals::handled();
    set.add(Signal::SIGCHLD);
    let _ = set.thread_block();
    loop {
        match signals::wait_for(&set) {
            Ok(got) if got.signal == Signal::SIGCHLD => {}
            Ok(got) => {
                let alone = forwarder.is_for_us_alone(got);
                let signal = got.signal;
                if alone || signal == Signal::SIGCONT {
                    let _ = kill(behind, signal);
                }
                continue;
            }
            Err(_) => continue,
        }
        // Two bytes are always written at once.
        let mut end = [0; 2];
        if status.read(&mut end).is_ok_and(|read| read == end.len()) {
            return match end {
                [0, code] => End::Exited(code.into()),
                [_, signal] => End::Killed(signal.into()),
            };
        }
        loop {
            let options = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
            match waitpid(behind, Some(options)) {
                Ok(WaitStatus::Exited(_, code)) => return End::Exited(code),
                Ok(WaitStatus::Signaled(_, signal, _)) => {
                    forwarder.end();
                    end_by(signal as i32)
                }
                Ok(WaitStatus::Stopped(_, signal)) => signals::stop_by(signal as i32),
                Err(Errno::EINTR) => {}
                _ => break,
            }
        }
    }
}
