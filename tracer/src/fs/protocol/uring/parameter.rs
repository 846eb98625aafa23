//! The kernel's switch for requests over io_uring, `fuse.enable_uring`.
//!
//! The kernel (6.18, `fs/fuse/inode.c` and `dev_uring.c`) looks at it twice for a mount: at
//! mount(2), when it composes what it offers, and when the answer to that comes. From then on the
//! mount has io_uring or has it not, whatever becomes of the switch. It is off where nobody turned
//! it on, so it is turned on for those two moments and put back.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
/// Others hold it for some ms each.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_micros(500);

/// Whether new mounts may have requests over io_uring. `None`: the kernel, older than Linux 6.14 or
/// built without, does not know them.
pub(crate) fn is_on() -> Option<bool> {
    is_yes(&std::fs::read_to_string(PARAMETER).ok()?)
}

fn is_yes(text: &str) -> Option<bool> {
    match text.trim() {
        "Y" => Some(true),
        "N" => Some(false),
        _ => None,
    }
}

/// While this lives, new mounts may have requests over io_uring.
///
/// Hold it for the moments that count and no longer: other flowtraces wait for their turn, so
/// that none finds the switch as another one has put it.
#[derive(Debug)]
pub struct IoUring {
    file: Flock<File>,
    was: bool,
}

impl IoUring {
    /// Turns it on, if it is off.
    ///
    /// # Errors
    /// When this process may not use io_uring, the kernel has no such switch, it may not be turned,
    /// or another process that has turned it is stopped.
    pub fn turn_on() -> io::Result<IoUring> {
        // The administrator may have disabled all of it (`kernel.io_uring_disabled`).
        io_uring::IoUring::new(1)?;
        let file = File::options().read(true).write(true).open(PARAMETER)?;
        let mut file = lock(file)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let was = is_yes(&text).ok_or(Errno::EINVAL)?;
        let mut on = IoUring { file, was };
        on.set(true)?;
        Ok(on)
    }

    fn set(&mut self, to: bool) -> io::Result<()> {
        if self.was {
            return Ok(());
        }
        self.file.rewind()?;
        self.file.write_all(if to { b"Y" } else { b"N" })
    }
}

impl Drop for IoUring {
    fn drop(&mut self) {
        // What could be turned on can be turned off; the lock ends with the file.
        let _ = self.set(false);
    }
}

fn lock(mut file: File) -> io::Result<Flock<File>> {
    let end = Instant::now() + PATIENCE;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(locked) => return Ok(locked),
            Err((back, Errno::EWOULDBLOCK)) if Instant::now() < end => file = back,
            Err((_, errno)) => return Err(errno.into()),
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_put_back() {
        let Ok(first) = IoUring::turn_on() else {
            // Without the right or the switch there is nothing to put back.
            return;
        };
        assert_eq!(is_on(), Some(true));
        let was = first.was;
        let other = std::thread::spawn(IoUring::turn_on);
        drop(first);
        let other = other.join().unwrap().unwrap();
        assert_eq!((is_on(), other.was), (Some(true), was));
        drop(other);
    }

    #[test]
    fn words_of_the_kernel() {
        assert_eq!(
            ["Y\n", "N\n", ""].map(is_yes),
            [Some(true), Some(false), None]
        );
    }
}
