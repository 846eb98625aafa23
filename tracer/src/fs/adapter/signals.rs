//! Signals of threads that wait for an answer.

use std::fs;

/// Returns true if a signal waits for thread `tid` or its process and the thread does not block it; false for
/// a thread that cannot be seen.
pub(super) fn is_pending(tid: u32) -> bool {
    fs::read_to_string(format!("/proc/{tid}/status")).is_ok_and(|status| is_in(&status))
}

/// Parses `/proc/PID/status`, proc(5).
fn is_in(status: &str) -> bool {
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
            .unwrap_or(0)
    };
    (set("SigPnd:") | set("ShdPnd:")) & !set("SigBlk:") != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_blocked_waits_for_nobody() {
        let status = |own: u64, shared: u64, blocked: u64| {
            format!(
                "Name:\tx\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\n"
            )
        };
        assert!(!is_in(&status(0, 0, 0)));
        assert!(is_in(&status(0x100, 0, 0)));
        assert!(is_in(&status(0, 0x200, 0x100)));
        assert!(!is_in(&status(0x100, 0x200, 0x300)));
        assert!(!is_in(""));
    }

    #[test]
    fn nobody_signals_this_thread() {
        assert!(!is_pending(nix::unistd::gettid().as_raw() as u32));
        assert!(!is_pending(0));
    }
}
