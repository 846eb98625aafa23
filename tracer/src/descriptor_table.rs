//! Going on with few descriptors, in a table of one's own.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::mpsc::channel;
use std::thread::{Builder, JoinHandle};

use nix::errno::Errno;

/// Leaves the calling thread these descriptors alone, whose numbers are in order. The table of them is its own from then on: other
/// threads keep what they have. Nothing but system calls, as the child of a fork may make them.
///
/// # Errors
/// Where the system refuses; a table that is shared is then as it was.
///
/// # Safety
/// Nothing that the thread still uses, or drops, holds another descriptor.
pub(crate) unsafe fn keep_only(kept: &[RawFd]) -> io::Result<()> {
    let close = |from: u32, to: u32| {
        // SAFETY: a plain system call; the caller vouches for what is closed.
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

/// Begins to run `act` on a thread with a table of descriptors of its own, which holds `kept` and the standard streams: what the
/// runtime has to say goes there, and to no file that gets their number. When this process is killed, what the thread has
/// is closed whatever others still close.
///
/// # Errors
/// When there is no room for a thread, or the system refuses it a table.
///
/// # Safety
/// `act` holds no descriptor.
pub(crate) unsafe fn spawn_apart<T: Send + 'static>(
    kept: BorrowedFd<'_>,
    act: impl FnOnce(OwnedFd) -> T + Send + 'static,
) -> io::Result<JoinHandle<Option<T>>> {
    let kept = kept.as_raw_fd();
    let (tell, told) = channel();
    let run = move || {
        // SAFETY: this thread has the number of `kept` alone, and the caller vouches for `act`.
        let own = unsafe { keep_only(&[0, 1, 2, kept]) };
        let is_own = own.is_ok();
        let _ = tell.send(own);
        // SAFETY: in the table of this thread nobody else knows the number.
        is_own.then(|| act(unsafe { OwnedFd::from_raw_fd(kept) }))
    };
    let thread = Builder::new().name("apart".into()).spawn(run)?;
    told.recv().map_err(io::Error::other)??;
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
        let look = |kept: OwnedFd| {
            let links = std::fs::read_dir("/proc/thread-self/fd").unwrap();
            (kept.as_raw_fd(), links.count())
        };
        // SAFETY: `look` holds nothing.
        let thread = unsafe { spawn_apart(files[1].as_fd(), look) }.unwrap();
        // With that of the directory.
        assert_eq!(thread.join().unwrap(), Some((files[1].as_raw_fd(), 5)));
        assert!(files.iter().all(|file| file.metadata().is_ok()));
    }
}
