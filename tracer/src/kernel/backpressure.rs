//! Signals between the thread that empties the rings and threads that wait for it: for free space in the
//! rings, or for its end.
//!
//! A record without space in its ring would be lost. So an eBPF program stops a thread that makes calls while
//! a ring is half full ([`super::programs`]), after the call, and the tracer keeps the thread stopped until
//! the ring was emptied and little of its content is still to be joined. The slowest part then sets the pace,
//! and nothing is lost.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::PollFd;
use nix::sys::eventfd::{EfdFlags, EventFd};

/// Longest time that a thread is kept stopped. If the reader is behind for longer, losses, which are counted,
/// are better than a command that hangs.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The state that both sides share.
#[derive(Debug)]
pub(super) struct Backpressure {
    wake: EventFd,
    ends: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Number of times that the rings were emptied.
    emptied: u64,
    /// True if little of their content is still to be joined.
    keeps_up: bool,
    /// True if the rings will not be emptied any more.
    over: bool,
}

impl Backpressure {
    /// # Errors
    /// When there are no descriptors left.
    pub(super) fn new() -> io::Result<Backpressure> {
        Ok(Backpressure {
            wake: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            ends: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Waits until the rings have free space.
    pub(super) fn wait(&self) {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.state();
        let before = state.emptied;
        let _ = self.wake.write(1);
        while !(state.over || state.emptied > before && state.keeps_up) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The reader has read the rings. `emptied`: all of them; `keeps_up`: its samples are joined about as
    /// fast as they come.
    pub(super) fn rings_read(&self, emptied: bool, keeps_up: bool) {
        let mut state = self.state();
        state.emptied += u64::from(emptied);
        state.keeps_up = keeps_up;
        self.changed.notify_all();
    }

    /// Makes the reader read for the last time.
    pub(super) fn end(&self) {
        self.ends.store(true, Ordering::Release);
        let _ = self.wake.write(1);
    }

    /// True if the reader is to read for the last time.
    pub(super) fn ends(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }

    /// Readable when the reader is to read at once.
    pub(super) fn wakes(&self) -> PollFd<'_> {
        PollFd::new(self.wake.as_fd(), nix::poll::PollFlags::POLLIN)
    }

    /// The reader is about to read.
    pub(super) fn woken(&self) {
        let _ = self.wake.read();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kept by the reader: when it ends, however it does, no thread waits for it any more.
pub(super) struct Reading<'a>(pub(super) &'a Backpressure);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.state().over = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    #[test]
    fn whoever_waits_goes_on_when_the_rings_are_empty_and_the_rest_is_joined() {
        let backpressure = Arc::new(Backpressure::new().unwrap());
        backpressure.rings_read(true, true);
        let (sender, receiver) = channel();
        let waiting = {
            let backpressure = Arc::clone(&backpressure);
            std::thread::spawn(move || {
                backpressure.wait();
                sender.send(()).unwrap();
            })
        };
        // The thread asks for a read.
        while backpressure.wake.read().is_err() {
            std::thread::yield_now();
        }
        backpressure.rings_read(true, false);
        backpressure.rings_read(false, false);
        assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err());
        backpressure.rings_read(false, true);
        receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        waiting.join().unwrap();
    }

    #[test]
    fn nobody_waits_for_a_reader_that_is_gone() {
        let backpressure = Backpressure::new().unwrap();
        drop(Reading(&backpressure));
        backpressure.wait();
        backpressure.end();
        assert!(backpressure.ends());
    }
}
