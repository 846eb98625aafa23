//! A helper process that closes descriptors in place of flowtrace, which then need not wait for it.
#![expect(unsafe_code)]

use std::io::{self, PipeWriter};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use crate::helper_process::{Group, HelperProcess, is_silent_end};

/// While it lives, a helper process has the same descriptors open.
#[must_use]
#[derive(Debug)]
pub(super) struct DeferredClose {
    /// Its end makes the helper process exit.
    _ours: PipeWriter,
}

/// Keeps these descriptors open in a helper process until the result is dropped. A close here before is then
/// not the last one, and only the last close of perf's tracepoints waits until no CPU uses them any more,
/// some 0.2 s in all.
///
/// # Errors
/// When no process can be made.
pub(super) fn leave_to_another(open: &[BorrowedFd<'_>]) -> io::Result<DeferredClose> {
    let (other, ours) = io::pipe()?;
    let mut kept: Vec<RawFd> = open.iter().map(AsRawFd::as_raw_fd).collect();
    kept.push(other.as_raw_fd());
    kept.sort_unstable();
    let wait = || {
        is_silent_end(other.as_raw_fd());
    };
    // SAFETY: it reads from a pipe that it keeps, and nothing else.
    unsafe { HelperProcess::begin(c"flowtrace-close", Group::Own, &kept, wait) }?.leave();
    Ok(DeferredClose { _ours: ours })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::time::Duration;

    #[test]
    fn another_is_the_last_to_let_go() {
        let (reader, writer) = io::pipe().unwrap();
        let (mut other_reader, other_writer) = io::pipe().unwrap();
        let deferred = leave_to_another(&[writer.as_fd()]).unwrap();
        drop(writer);
        drop(other_writer);
        // The helper process does not have descriptors that were not passed to it.
        assert_eq!(io::Read::read(&mut other_reader, &mut [0]).unwrap(), 0);
        let (sender, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut reader = reader;
            sender.send(io::Read::read(&mut reader, &mut [0]).unwrap())
        });
        let soon = Duration::from_millis(100);
        assert!(ended.recv_timeout(soon).is_err(), "it has let go too soon");
        drop(deferred);
        assert_eq!(ended.recv().unwrap(), 0);
    }
}
