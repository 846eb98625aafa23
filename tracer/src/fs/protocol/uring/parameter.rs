//! The kernel's switch for requests over io_uring, `fuse.enable_uring`.
//!
//! The kernel (6.18, `fs/fuse/inode.c` and `dev_uring.c`) reads it twice for a mount: at mount(2), when it
//! composes its offer, and when the answer to the offer comes. From then on the mount has io_uring or not,
//! whatever the switch says. It is off by default, so it is turned on for those two instants and put back,
//! even if this process is killed there.

use std::fs::File;
use std::io::{self, PipeWriter, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::helper_process::{Group, HelperProcess, is_silent_end};

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
/// Limit of the wait for other processes, which lock the switch for some ms each.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_micros(500);

/// `Some(true)` if new mounts may have requests over io_uring. `None` if the kernel does not have them: it is
/// older than Linux 6.14 or built without.
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

/// While this value lives, new mounts may have requests over io_uring.
///
/// Keep it only as long as necessary: other flowtraces wait for their turn, so that none of them finds the
/// switch as another one has set it.
#[derive(Debug)]
pub struct IoUring {
    file: Flock<File>,
    /// If the switch was off: the process that turns it off again if this one is killed.
    stand_in: Option<StandIn>,
}

/// A process that turns the switch off if this one is killed. It has the lock, too, as long as it lives.
#[derive(Debug)]
struct StandIn {
    over: PipeWriter,
    /// Dropped, which waits for its end, after the byte is sent.
    _helper: HelperProcess,
}

impl IoUring {
    /// Turns it on, if it is off.
    ///
    /// # Errors
    /// If this process may not use io_uring, the kernel has no such switch, it may not be turned, or another
    /// process that has turned it is stopped.
    pub fn turn_on() -> io::Result<IoUring> {
        // The administrator may have disabled io_uring altogether (`kernel.io_uring_disabled`).
        io_uring::IoUring::new(1)?;
        let file = File::options().read(true).write(true).open(PARAMETER)?;
        let mut file = lock(file)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let is_off = !is_yes(&text).ok_or(Errno::EINVAL)?;
        let stand_in = is_off.then(|| StandIn::of(&file)).transpose()?;
        let mut on = IoUring { file, stand_in };
        if is_off {
            on.set(b"Y")?;
        }
        Ok(on)
    }

    fn set(&mut self, to: &[u8]) -> io::Result<()> {
        self.file.rewind()?;
        self.file.write_all(to)
    }
}

impl StandIn {
    #[expect(unsafe_code)]
    fn of(parameter: &File) -> io::Result<StandIn> {
        let (end, over) = io::pipe()?;
        let (parameter, end) = (parameter.as_raw_fd(), end.as_raw_fd());
        let kept = [parameter.min(end), parameter.max(end)];
        // SAFETY: it makes two system calls, on descriptors that it keeps.
        let helper = unsafe {
            HelperProcess::begin(c"flowtrace-guard", Group::Own, &kept, || {
                if is_silent_end(end) {
                    libc::pwrite(parameter, c"N".as_ptr().cast(), 1, 0);
                }
            })
        }?;
        Ok(StandIn {
            over,
            _helper: helper,
        })
    }
}

impl Drop for IoUring {
    fn drop(&mut self) {
        if let Some(mut stand_in) = self.stand_in.take() {
            // A switch that could be turned on can be turned off; the lock ends with the file.
            let _ = self.set(b"N");
            let _ = stand_in.over.write(&[0]);
        }
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
        let was_off = first.stand_in.is_some();
        let other = std::thread::spawn(IoUring::turn_on);
        drop(first);
        let other = other.join().unwrap().unwrap();
        assert_eq!((is_on(), other.stand_in.is_some()), (Some(true), was_off));
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
