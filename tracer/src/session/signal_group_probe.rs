//! Distinguishes signals to this process from signals to its process group.
//!
//! kill(2) of a group looks the same to each of its processes as one of it alone, so one that stands between the sender
//! and a command of the same group cannot tell whether the command has the signal already. A process of our own in the
//! group can: nobody knows it, so what reaches it was sent to all.

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

/// A process in our group that keeps the signals it gets until it is asked for them.
#[derive(Debug)]
pub(super) struct SignalGroupProbe {
    group: Pid,
    asked: UnixStream,
    seen: Mutex<Seen>,
    /// Ends when `asked` does; waited for where that is closed by us.
    aside: Mutex<Option<HelperProcess>>,
}

/// Signals that the group got and that [`SignalGroupProbe::saw`] was not asked about yet: sets of [`bit`]s.
#[derive(Debug, Default)]
struct Seen {
    /// We have these, too, and will be asked about them.
    due: u64,
    /// We may get these within [`ALL_HAVE_IT`] of that moment.
    fresh: Option<(u64, Instant)>,
}

/// In which one call of kill(2) has reached all of a group.
const ALL_HAVE_IT: Duration = Duration::from_millis(5);
/// It makes a handful of system calls, unless somebody stopped it.
const PATIENCE: Duration = Duration::from_millis(200);

impl SignalGroupProbe {
    /// Begins one.
    ///
    /// # Errors
    /// When there is no room for another process.
    pub(super) fn begin() -> io::Result<SignalGroupProbe> {
        let (asked, answering) = UnixStream::pair()?;
        asked.set_read_timeout(Some(PATIENCE))?;
        let socket = answering.as_raw_fd();
        // SAFETY: it makes nothing but system calls, on the descriptor that it keeps.
        #[expect(unsafe_code)]
        let aside = unsafe {
            HelperProcess::begin(c"flowtrace-group", Group::Ours, &[socket], || {
                answer(socket);
            })
        }?;
        Ok(SignalGroupProbe {
            group: getpgrp(),
            asked,
            seen: Mutex::default(),
            aside: Mutex::new(Some(aside)),
        })
    }

    /// True if `signal`, which this process just got, went to the whole group. Ask for every signal that comes. A probe that
    /// cannot be heard has seen nothing.
    pub(super) fn saw(&self, signal: Signal) -> bool {
        let got = Instant::now();
        sleep(ALL_HAVE_IT);
        // One that left its group gets nothing with it.
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
        // One that came twice in a moment is one for the probe and may be two for us: what we still have was sent to all as well.
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
            // What it says later would be taken for the answer to another question.
            let _ = self.asked.shutdown(Shutdown::Both);
        }
        heard.map(|()| u64::from_ne_bytes(seen))
    }
}

impl SignalGroupProbe {
    /// Ends it, so that it is nobody's orphan. What comes later was sent to us alone.
    pub(super) fn end(&self) {
        // A child that has not run its program yet may have a copy of the descriptor.
        let _ = self.asked.shutdown(Shutdown::Both);
        drop(
            self.aside
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

    /// In a group of its own, as signals to that of the tests would reach all of them.
    #[test]
    fn it_tells_the_group_from_one_process() {
        // SAFETY: the child makes system calls only, on what exists.
        #[expect(unsafe_code)]
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                let wrong = in_its_own_group().err().unwrap_or(0);
                // SAFETY: without what the test harness does at its end.
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

    /// The error is the step that went wrong.
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
        // It was waited for: there is no child left.
        step(
            10,
            waitpid(None, Some(nix::sys::wait::WaitPidFlag::__WALL)) == Err(nix::Error::ECHILD),
        )
    }
}
