//! Timing of the retries for requests that wait for changes that the kernel does not report.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// The first pause between two tries, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(16));

/// Asks the other end to try.
#[derive(Debug)]
pub(super) struct Retries(Sender<Message>);

/// The receiving end of [`Retries`].
#[derive(Debug)]
pub(super) struct Retrier(Receiver<Message>);

#[derive(Clone, Copy, Debug)]
enum Message {
    Begin,
    End,
}

/// Makes both ends.
pub(super) fn pair() -> (Retries, Retrier) {
    let (sender, receiver) = channel();
    (Retries(sender), Retrier(receiver))
}

impl Retries {
    /// A request waits.
    pub(super) fn begin(&self) {
        // Fails only at the very end, when no request waits any more.
        let _ = self.0.send(Message::Begin);
    }

    /// No request waits any more.
    pub(super) fn end(&self) {
        let _ = self.0.send(Message::End);
    }
}

impl Retrier {
    /// Calls `again` from time to time while a request waits, which `again` returns.
    pub(super) fn run(&self, mut again: impl FnMut() -> bool) {
        let (first, longest) = PAUSES;
        let mut pause = None;
        loop {
            let message = match pause {
                Some(pause) => self.0.recv_timeout(pause),
                None => self.0.recv().map_err(RecvTimeoutError::from),
            };
            pause = match (message, pause) {
                (Ok(Message::Begin), _) | (Err(RecvTimeoutError::Timeout), None) => Some(first),
                (Err(RecvTimeoutError::Timeout), Some(pause)) => Some((pause * 2).min(longest)),
                (Ok(Message::End) | Err(RecvTimeoutError::Disconnected), _) => return,
            };
            if !again() {
                pause = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn it_tries_until_nobody_waits() {
        let (retries, retrier) = pair();
        let tries = Cell::new(0);
        retries.begin();
        retrier.run(|| {
            tries.set(tries.get() + 1);
            if tries.get() == 5 {
                retries.end();
            }
            tries.get() < 5
        });
        assert_eq!(tries.get(), 5);
    }
}
