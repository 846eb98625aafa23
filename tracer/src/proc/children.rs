//! Waiting for untraced children. Their orphans become our children, so that none is left when the last
//! process of the tree has ended.

use std::io;

use nix::sys::prctl;

use super::lifetimes::End;
use super::ptrace::{Event, Stop, decode};

/// A change of the state of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Job control stopped it, by this signal.
    Stopped(i32),
    /// It ended, with this wait status, and is still to be reaped.
    Ended(End, i32),
}

/// Processes that lose their parent among our descendants become our children from now on.
///
/// # Errors
/// Before Linux 3.4.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(prctl::set_child_subreaper(true)?)
}

/// Waits for a change of a child, and calls `ended` for one that has ended before it is reaped: until then it
/// is in /proc. `None`: there is no child left.
pub(crate) fn wait(mut ended: impl FnMut(u32)) -> io::Result<Option<(u32, Change)>> {
    loop {
        // SAFETY: all zero is a valid siginfo_t.
        #[expect(unsafe_code)]
        let mut info = unsafe { std::mem::zeroed::<libc::siginfo_t>() };
        // Not children that end without a signal: those are helper processes of ours. Orphans end with one,
        // whatever they began with.
        let what = libc::WEXITED | libc::WSTOPPED;
        // SAFETY: `info` outlives the call, which writes nothing else.
        #[expect(unsafe_code)]
        let result = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, what | libc::WNOWAIT) };
        if result == -1 {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::ECHILD) => return Ok(None),
                Some(libc::EINTR) => continue,
                _ => return Err(error),
            }
        }
        // SAFETY: waitid fills these fields.
        #[expect(unsafe_code)]
        let pid = unsafe { info.si_pid() };
        if matches!(
            info.si_code,
            libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED
        ) {
            ended(pid.cast_unsigned());
        }
        let mut status = 0;
        let options = libc::WUNTRACED | libc::WNOHANG;
        // SAFETY: `status` outlives the call, which writes nothing else.
        #[expect(unsafe_code)]
        let reaped = unsafe { libc::waitpid(pid, &raw mut status, options) };
        if reaped != pid {
            // It was continued meanwhile.
            continue;
        }
        // Stopped for a short time by the throttle of the kernel layer.
        if info.si_code == libc::CLD_TRAPPED {
            continue;
        }
        let change = match decode(status) {
            Event::Exited(code) => Change::Ended(End::Exited(code), status),
            Event::Killed(signal) => Change::Ended(End::Killed(signal), status),
            Event::Stopped(Stop::Signal(signal) | Stop::Group(signal)) => Change::Stopped(signal),
            Event::Stopped(_) => continue,
        };
        return Ok(Some((pid.cast_unsigned(), change)));
    }
}
