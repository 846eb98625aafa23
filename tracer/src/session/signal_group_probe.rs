//! Distinguishes signals to this process from signals to its process group.
//!
//! kill(2) of a group looks to each of its processes like a signal to it alone, so a process that stands
//! between the sender and a command of the same group does not know if the command has the signal already. A
//! process of our own in the group does: no one else knows its pid, so a signal that reaches it was sent to
//! the whole group.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpgrp};

use super::pending_signals::pending;
use crate::helper_process::{Group, HelperProcess};

/// A process in our group that keeps its signals until it is asked for them.
#[derive(Debug)]
pub(super) struct SignalGroupProbe {
    group: Pid,
    asked: UnixStream,
    seen: Mutex<Seen>,
    /// The process; it ends when `asked` is closed, and is waited for if we close that.
    helper: Mutex<Option<HelperProcess>>,
}

/// Signals that the group got and about which [`SignalGroupProbe::saw`] was not asked yet: sets of [`bit`]s.
#[derive(Debug, Default)]
struct Seen {
    /// Signals that we have, too, and will be asked about.
    due: u64,
    /// Signals that we may get within [`ALL_HAVE_IT`] of that instant.
    fresh: Option<(u64, Instant)>,
}

/// Time within which one call of kill(2) has reached all of a group.
const ALL_HAVE_IT: Duration = Duration::from_millis(5);
/// Time limit of an answer: the probe makes a handful of system calls, unless it was stopped.
const PATIENCE: Duration = Duration::from_millis(200);

impl SignalGroupProbe {
    /// Starts a probe.
    ///
    /// # Errors
    /// If the system allows no further process.
    pub(super) fn begin() -> io::Result<SignalGroupProbe> {
        let (asked, answering) = UnixStream::pair()?;
        asked.set_read_timeout(Some(PATIENCE))?;
        let socket = answering.as_raw_fd();
        // SAFETY: it makes only system calls, on its one descriptor.
        #[expect(unsafe_code)]
        let helper = unsafe {
            HelperProcess::begin(c"flowtrace-group", Group::Ours, &[socket], || {
                answer(socket);
            })
        }?;
        Ok(SignalGroupProbe {
            group: getpgrp(),
            asked,
            seen: Mutex::default(),
            helper: Mutex::new(Some(helper)),
        })
    }

    /// True if `signal`, which this process just got, went to the whole group. Ask for every signal that
    /// comes. A probe that does not answer counts as one that has seen nothing.
    pub(super) fn saw(&self, signal: Signal) -> bool {
        let got = Instant::now();
        sleep(ALL_HAVE_IT);
        // A process that left its group does not get the group's signals.
        if getpgrp() != self.group {
            return false;
        }
        let now = self.ask().unwrap_or(0);
        let ours = pending()
            .iter()
            .fold(0, |set, signal| set | bit(signal as i32));
        let own = bit(signal as i32);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = seen.fresh.take();
        let fresh = fresh.filter(|(_, at)| got.saturating_duration_since(*at) <= ALL_HAVE_IT);
        let all = seen.due | now | fresh.map_or(0, |(signals, _)| signals);
        // Two signals in quick succession are one for the probe and may be two for us: those that are still
        // pending here were sent to all as well.
        seen.due = all & ours;
        let rest = now & !ours & !own;
        seen.fresh = (rest != 0).then(|| (rest, Instant::now()));
        all & own != 0
    }

    fn ask(&self) -> io::Result<u64> {
        let mut seen = [0; 8];
        let heard = (&self.asked)
            .write_all(&[0])
            .and_then(|()| (&self.asked).read_exact(&mut seen));
        if heard.is_err() {
            // A late answer would be taken for the answer to another question.
            let _ = self.asked.shutdown(Shutdown::Both);
        }
        heard.map(|()| u64::from_ne_bytes(seen))
    }
}

impl SignalGroupProbe {
    /// Ends the probe, so that it does not become an orphan. Later signals count as sent to us alone.
    pub(super) fn end(&self) {
        // A child that has not run its program yet may have a copy of the descriptor.
        let _ = self.asked.shutdown(Shutdown::Both);
        drop(
            self.helper
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
    }
}

impl Drop for SignalGroupProbe {
    fn drop(&mut self) {
        self.end();
    }
}

fn bit(signal: i32) -> u64 {
    1 << (signal as u32 & 63)
}

/// Body of the probe: it answers each byte with the signals that it got since the last one.
#[expect(unsafe_code)]
fn answer(socket: RawFd) {
    let at_once = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut byte = 0u8;
    // SAFETY: every pointer is to a variable of this function, which outlives the call; all zero is a valid set.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        while libc::read(socket, (&raw mut byte).cast(), 1) == 1 {
            let mut seen = 0u64;
            loop {
                let signal =
                    libc::sigtimedwait(&raw const all, std::ptr::null_mut(), &raw const at_once);
                if signal <= 0 {
                    break;
                }
                seen |= bit(signal);
            }
            let length = size_of_val(&seen);
            let _ = libc::send(socket, (&raw const seen).cast(), length, libc::MSG_NOSIGNAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::{SigSet, kill, killpg};
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork, setpgid};

    /// In a group of its own, because signals to the group of the tests would reach all of them.
    #[test]
    fn it_distinguishes_the_group_from_one_process() {
        // SAFETY: the child makes system calls only, on existing data.
        #[expect(unsafe_code)]
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                let wrong = in_its_own_group().err().unwrap_or(0);
                // SAFETY: ends without the exit handlers of the test harness.
                #[expect(unsafe_code)]
                unsafe {
                    libc::_exit(wrong)
                }
            }
            ForkResult::Parent { child } => {
                assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
            }
        }
    }

    /// Runs the test; the error is the step that failed.
    fn in_its_own_group() -> Result<(), i32> {
        let step = |step: i32, holds: bool| if holds { Ok(()) } else { Err(step) };
        let signal = Signal::SIGUSR1;
        let own = SigSet::from(signal);
        own.thread_block().map_err(|_| 1)?;
        setpgid(Pid::this(), Pid::this()).map_err(|_| 2)?;
        let probe = SignalGroupProbe::begin().map_err(|_| 3)?;
        let get = |sent: nix::Result<()>| sent.and_then(|()| own.wait());
        step(4, get(kill(Pid::this(), signal)) == Ok(signal))?;
        step(5, !probe.saw(signal))?;
        step(6, get(killpg(getpgrp(), signal)) == Ok(signal))?;
        step(7, probe.saw(signal))?;
        step(8, get(kill(Pid::this(), signal)) == Ok(signal))?;
        step(9, !probe.saw(signal))?;
        drop(probe);
        // The probe was waited for: there is no child left.
        step(
            10,
            waitpid(None, Some(nix::sys::wait::WaitPidFlag::__WALL)) == Err(nix::Error::ECHILD),
        )
    }
}
