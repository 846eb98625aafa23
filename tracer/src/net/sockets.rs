//! State of the sockets behind the flows of a network namespace, as the kernel reports it: once a second, and
//! of a TCP connection again when it ends, so that short ones are reported, too.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flowtrace_schema::Upid;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::senders::Senders;
use crate::clock::Clock;

pub(crate) mod diag;
pub(crate) mod holders;

use diag::{Described, Diag};
use flowtrace_net::flows::{TCP, UDP};
use holders::Holders;

/// Time between two readings of all sockets.
const EVERY: Duration = Duration::from_secs(1);
/// Time between two checks if the capture has ended, or if there is a new flow whose owner is wanted.
const CHECK_MS: u8 = 20;
/// The kernel reports an end when one of its own workers comes to that, which on a busy machine is after the
/// capture was asked to stop. A silence of so long means that nothing more is to come; the capture waits at
/// most for this number of silences.
const SILENT_MS: u8 = 30;
const MOST_SILENCES: u32 = 5;
/// The lookup of holders may take one part in so many of a CPU, and after a while without any, so much at
/// once: a new flow must not wait, and may be a short one.
const SHARE: u32 = 20;
const SAVED: Duration = Duration::from_millis(250);

/// A socket at one instant.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) t_ns: i64,
    pub(crate) socket: Described,
    /// True if it was closed before.
    pub(crate) is_closed: bool,
    /// Processes that had it open; `None`: not looked for.
    pub(crate) holders: Option<Vec<Upid>>,
}

/// Asks for the sockets of one network namespace: the one of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Sockets {
    diag: Diag,
    clock: Clock,
    holders: Option<Holders>,
    senders: Option<Arc<Senders>>,
    /// Set when there is a flow whose owner is not known.
    wanted: Arc<AtomicBool>,
    asked: Option<Instant>,
    allowance: Allowance,
}

/// Time that may be spent on something: a share of the time that passes.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    /// CPU time that may be spent.
    saved: Duration,
    /// CPU time that was spent beyond it.
    owed: Duration,
    since: Instant,
}

impl Allowance {
    fn new(now: Instant) -> Allowance {
        Allowance {
            saved: SAVED,
            owed: Duration::ZERO,
            since: now,
        }
    }

    fn is_left(&mut self, now: Instant) -> bool {
        let earned = now.saturating_duration_since(self.since) / SHARE;
        self.since = now;
        self.saved = (self.saved + earned.saturating_sub(self.owed)).min(SAVED);
        self.owed = self.owed.saturating_sub(earned);
        self.owed.is_zero() && !self.saved.is_zero()
    }

    fn spend(&mut self, took: Duration) {
        self.owed += took.saturating_sub(self.saved);
        self.saved = self.saved.saturating_sub(took);
    }
}

impl Sockets {
    /// Looks up holders too, if `holders` is given; for datagram sockets, if any are known to `senders`.
    pub(crate) fn open(
        clock: Clock,
        holders: Option<Holders>,
        senders: Option<Arc<Senders>>,
        wanted: Arc<AtomicBool>,
    ) -> io::Result<Sockets> {
        Ok(Sockets {
            diag: Diag::open(senders.is_some())?,
            clock,
            holders,
            senders,
            wanted,
            asked: None,
            allowance: Allowance::new(Instant::now()),
        })
    }

    /// Calls `report` with new observations, until `stop` is set; then once more with all.
    pub(crate) fn follow(mut self, stop: &AtomicBool, mut report: impl FnMut(Vec<Observed>)) {
        loop {
            let stopping = stop.load(Ordering::Acquire);
            let mut observed = Vec::new();
            self.ends(&mut observed);
            if stopping {
                self.last_ends(&mut observed);
            }
            let is_due = self.asked.is_none_or(|at| at.elapsed() >= EVERY);
            if is_due || stopping || self.may_look_up() && self.wanted.load(Ordering::Relaxed) {
                self.asked = Some(Instant::now());
                self.all(&mut observed);
            }
            if !observed.is_empty() {
                report(observed);
            }
            if stopping {
                return;
            }
            let mut waiting: Vec<PollFd<'_>> = Vec::new();
            if let Some(ends) = self.diag.ends() {
                waiting.push(PollFd::new(ends, PollFlags::POLLIN));
            }
            // Many ends of connections are reported together.
            let _ = poll(&mut waiting, PollTimeout::from(CHECK_MS));
            if self.holders.is_none() {
                std::thread::sleep(Duration::from_millis(CHECK_MS.into()));
            }
        }
    }

    fn ends(&mut self, observed: &mut Vec<Observed>) {
        let t_ns = self.clock.now() as i64;
        let _ = self.diag.ended(&mut |socket| {
            observed.push(Observed {
                t_ns,
                socket,
                is_closed: true,
                holders: None,
            });
        });
    }

    /// Late reports of connections that ended before the capture does.
    fn last_ends(&mut self, observed: &mut Vec<Observed>) {
        for _ in 0..MOST_SILENCES {
            let Some(ends) = self.diag.ends() else {
                return;
            };
            let mut waiting = [PollFd::new(ends, PollFlags::POLLIN)];
            if poll(&mut waiting, PollTimeout::from(SILENT_MS)) != Ok(1) {
                return;
            }
            self.ends(observed);
        }
    }

    fn all(&mut self, observed: &mut Vec<Observed>) {
        let t_ns = self.clock.now() as i64;
        let mut sockets = Vec::new();
        let _ = self.diag.all(TCP, &mut |socket| sockets.push(socket));
        let senders = self.senders.as_ref();
        if self.holders.is_some() || senders.is_some_and(|senders| senders.has_makers()) {
            let _ = self.diag.all(UDP, &mut |socket| sockets.push(socket));
        }
        let holders = self.look_up(&sockets);
        observed.extend(sockets.into_iter().map(|socket| {
            Observed {
                t_ns,
                is_closed: false,
                holders: holders
                    .as_ref()
                    .zip(socket.inode)
                    .map(|(all, inode)| all.get(&inode).cloned().unwrap_or_default()),
                socket,
            }
        }));
    }

    /// True if the lookup of holders has not taken too much lately.
    fn may_look_up(&mut self) -> bool {
        self.holders.is_some() && self.allowance.is_left(Instant::now())
    }

    fn look_up(&mut self, sockets: &[Described]) -> Option<HashMap<u64, Vec<Upid>>> {
        if !self.may_look_up() {
            return None;
        }
        let holders = self.holders.as_mut()?;
        self.wanted.store(false, Ordering::Relaxed);
        let begin = Instant::now();
        let inodes: HashSet<u64> = sockets.iter().filter_map(|socket| socket.inode).collect();
        let found = holders.of(&inodes);
        self.allowance.spend(begin.elapsed());
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_take_their_share_and_no_more() {
        let begin = Instant::now();
        let after = |ms: u64| begin + Duration::from_millis(ms);
        let mut allowance = Allowance::new(begin);
        // Several lookups at once, for short flows.
        for _ in 0..5 {
            assert!(allowance.is_left(begin));
            allowance.spend(Duration::from_millis(60));
        }
        // 50 ms too much: a second to pay back.
        assert!(!allowance.is_left(after(900)));
        assert!(!allowance.is_left(after(1000)));
        assert!(allowance.is_left(after(1100)));
        allowance.spend(Duration::from_millis(20));
        assert!(!allowance.is_left(after(1200)));
        // No more time is saved than one lookup may take.
        assert!(allowance.is_left(after(60_000)));
        allowance.spend(SAVED);
        assert!(!allowance.is_left(after(60_000)));
    }
}
