//! A line on standard error during long work, if standard error is a terminal.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Shorter work shows no line.
const SILENCE: Duration = Duration::from_millis(800);
const EVERY: Duration = Duration::from_millis(250);

/// Work that goes on; its line is removed with it.
#[derive(Debug)]
pub(crate) struct Working(Option<(Sender<()>, JoinHandle<()>)>);

/// Begins to show `what`, as in "reading trace.db".
pub(crate) fn working(what: impl Into<String>) -> Working {
    if !std::io::stderr().is_terminal() {
        return Working(None);
    }
    let what = what.into();
    let (stop, stopped) = channel();
    let began = Instant::now();
    let show = move || {
        let mut wait = SILENCE;
        let mut is_shown = false;
        while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            // A terminal that went away is no reason to stop the work.
            let mut error = std::io::stderr().lock();
            let _ = write!(
                error,
                "\r\x1b[Kflowtrace: {what}, {} s",
                began.elapsed().as_secs()
            );
            let _ = error.flush();
            is_shown = true;
            wait = EVERY;
        }
        if is_shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    };
    Working(Some((stop, std::thread::spawn(show))))
}

impl Drop for Working {
    fn drop(&mut self) {
        if let Some((stop, shows)) = self.0.take() {
            drop(stop);
            // The thread only writes; a panic in it changes nothing.
            let _ = shows.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_shown_to_a_pipe_and_nothing_waits() {
        let began = Instant::now();
        drop(working("reading"));
        drop(Working(None));
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
