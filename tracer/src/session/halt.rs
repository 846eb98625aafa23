//! Stops of the command by SIGSTOP, which it cannot handle, as by `kill -STOP $$`. The shell that waits for
//! flowtrace has to see its job stopped, or its terminal would hang; so flowtrace stops, too. If only the
//! command is continued, flowtrace must not stay stopped, because it serves the command's files: a helper
//! process continues it then.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};

use nix::sys::signal::{Signal, raise};
use nix::unistd::{Pid, getpgrp, tcgetpgrp};

use crate::helper_process::{Group, HelperProcess};

/// Stops this process until it, or `root`, is continued. Does nothing unless a shell waits at a terminal: a
/// batch system stops all of a job.
pub(super) fn halt_with(root: Pid) {
    let is_in_front = File::open("/dev/tty").is_ok_and(|tty| tcgetpgrp(tty) == Ok(getpgrp()));
    if !is_in_front {
        return;
    }
    let Ok(path) = CString::new(format!("/proc/{root}/status")) else {
        return;
    };
    let Ok((over, ours)) = std::io::pipe() else {
        return;
    };
    let (own, end) = (Pid::this(), over.as_raw_fd());
    // SAFETY: it makes only system calls, on the path, which was made before, and on its one descriptor.
    #[expect(unsafe_code)]
    let helper = unsafe {
        HelperProcess::begin(c"flowtrace-waker", Group::Own, &[end], || {
            wake(own, &path, end);
        })
    };
    // Without the helper process no one might continue this process.
    if let Ok(helper) = helper {
        let _ = raise(Signal::SIGSTOP);
        drop(ours);
        drop(helper);
    }
}

/// Body of the helper process: it continues `halted` when the process of that `status` goes on or is gone.
/// Ends when `over` is closed.
#[expect(unsafe_code)]
fn wake(halted: Pid, status: &CString, over: RawFd) {
    const POLL_MS: libc::c_int = 20;
    let mut ends = libc::pollfd {
        fd: over,
        events: libc::POLLIN,
        revents: 0,
    };
    loop {
        let mut text = [0u8; 4096];
        // SAFETY: every pointer is to a variable of this function or to `status`, and outlives the call.
        let length = unsafe {
            if libc::poll(&raw mut ends, 1, POLL_MS) != 0 {
                return;
            }
            let file = libc::open(status.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            let length = libc::read(file, text.as_mut_ptr().cast(), text.len());
            libc::close(file);
            length
        };
        let text = text.get(..usize::try_from(length).unwrap_or(0));
        if !text.is_some_and(is_halted) {
            // SAFETY: takes numbers only.
            unsafe { libc::kill(halted.as_raw(), libc::SIGCONT) };
            return;
        }
    }
}

/// True if the text, of proc_pid_status(5), says stopped, by job control or by a tracer. A process that
/// flowtrace traces stays stopped until flowtrace goes on; if it is to be continued, it has the signal for
/// that pending.
pub(super) fn is_halted(status: &[u8]) -> bool {
    const CONTINUE: u64 = 1 << (libc::SIGCONT - 1);
    let mut is_stopped = false;
    for line in status.split(|&byte| byte == b'\n') {
        let Ok(line) = std::str::from_utf8(line) else {
            continue;
        };
        match line.split_once(":\t") {
            Some(("State", state)) => is_stopped = state.starts_with(['T', 't']),
            Some(("SigPnd" | "ShdPnd", set))
                if u64::from_str_radix(set, 16).is_ok_and(|set| set & CONTINUE != 0) =>
            {
                return false;
            }
            _ => {}
        }
    }
    is_stopped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_to_go_on_is_not_halted() {
        let status = |state: &str, pending: u64| {
            let text = format!(
                "Name:\tx\nState:\t{state}\nSigPnd:\t{:016x}\nShdPnd:\t{pending:016x}\nVmPeak:\t7 kB\n",
                0
            );
            is_halted(text.as_bytes())
        };
        assert!(status("T (stopped)", 0));
        assert!(status("t (tracing stop)", 1));
        assert!(!status("t (tracing stop)", 1 << 17));
        assert!(!status("S (sleeping)", 0));
        assert!(!is_halted(b""));
    }
}
