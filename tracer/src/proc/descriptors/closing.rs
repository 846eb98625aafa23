//! Going on with few descriptors.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::RawFd;

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_thread_keeps_few_and_others_keep_all() {
        let files: Vec<File> = (0..3).map_while(|_| File::open("/dev/null").ok()).collect();
        let numbers: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
        let kept = [0, 1, 2, numbers[1]];
        let thread = std::thread::spawn(move || {
            // SAFETY: this thread holds nothing.
            unsafe { keep_only(&kept) }.unwrap();
            let links = std::fs::read_dir("/proc/thread-self/fd").unwrap();
            // With that of the directory.
            links.count()
        });
        assert_eq!(thread.join().unwrap(), 5);
        assert!(files.iter().all(|file| file.metadata().is_ok()));
    }
}
