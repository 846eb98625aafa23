//! Threads with a descriptor table of their own, which has few descriptors.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::mpsc::channel;
use std::thread::{Builder, JoinHandle};

use nix::errno::Errno;

/// Closes all descriptors of the calling thread but these, whose numbers are sorted. The thread has its own
/// table from then on: other threads keep theirs. Makes only system calls, so that the child of a fork may
/// call it.
///
/// # Errors
/// If the system refuses; a shared table is then unchanged.
///
/// # Safety
/// No value that the thread still uses or drops owns another descriptor.
pub(crate) unsafe fn keep_only(kept: &[RawFd]) -> io::Result<()> {
    let close = |from: u32, to: u32| {
        // SAFETY: a plain system call; the caller vouches for the closed descriptors.
        let closed =
            unsafe { libc::syscall(libc::SYS_close_range, from, to, libc::CLOSE_RANGE_UNSHARE) };
        Errno::result(closed)
    };
    let mut from = 0;
    for &fd in kept {
        let number = fd.cast_unsigned();
        if number > from {
            close(from, number - 1)?;
        }
        from = number + 1;
    }
    close(from, u32::MAX)?;
    Ok(())
}

/// Runs `act` on a thread with its own descriptor table, which has `kept` and the standard streams: messages
/// of the runtime go to these, and not to a file that gets their numbers. If this process is killed, the
/// thread's descriptors are closed, whatever other threads still have to close.
///
/// # Errors
/// If no thread can be started, or the system refuses it a table.
///
/// # Safety
/// `act` owns no descriptor.
pub(crate) unsafe fn spawn_apart<T: Send + 'static>(
    kept: BorrowedFd<'_>,
    act: impl FnOnce(OwnedFd) -> T + Send + 'static,
) -> io::Result<JoinHandle<Option<T>>> {
    let kept = kept.as_raw_fd();
    let (report, result) = channel();
    let run = move || {
        // SAFETY: this thread uses no number but that of `kept`, and the caller vouches for `act`.
        let own = unsafe { keep_only(&[0, 1, 2, kept]) };
        let is_own = own.is_ok();
        let _ = report.send(own);
        // SAFETY: the number is known only to this thread, and its table is its own.
        is_own.then(|| act(unsafe { OwnedFd::from_raw_fd(kept) }))
    };
    let thread = Builder::new().name("apart".into()).spawn(run)?;
    result.recv().map_err(io::Error::other)??;
    Ok(thread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn a_thread_keeps_few_and_others_keep_all() {
        let files: Vec<File> = (0..3).map_while(|_| File::open("/dev/null").ok()).collect();
        let act = |kept: OwnedFd| {
            let links = std::fs::read_dir("/proc/thread-self/fd").unwrap();
            (kept.as_raw_fd(), links.count())
        };
        // SAFETY: `act` owns no descriptor.
        let thread = unsafe { spawn_apart(files[1].as_fd(), act) }.unwrap();
        // The three streams, the kept file, and the descriptor of the listing itself.
        assert_eq!(thread.join().unwrap(), Some((files[1].as_raw_fd(), 5)));
        assert!(files.iter().all(|file| file.metadata().is_ok()));
    }
}
