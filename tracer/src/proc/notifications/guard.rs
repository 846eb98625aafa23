//! What becomes of held processes when this one is killed: their calls would fail, and their files be unreachable. They end with it,
//! as processes do that are traced. A process of its own sees to that, which knows of our end by a socket.

use std::convert::Infallible;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, chdir, dup2_stderr, dup2_stdin, dup2_stdout, fork, setsid};

use super::super::pidfd::PidFd;
use super::Listener;
use crate::mounting;

/// How often is looked for processes that make no call, and how often in vain.
const ROUND_MS: u16 = 50;
const ROUNDS: u32 = 200;

/// Ends the processes if this one ends before them without a word.
#[derive(Debug)]
pub(crate) struct Guard(UnixStream);

/// All has ended in order.
impl Drop for Guard {
    fn drop(&mut self) {
        let _ = (&self.0).write_all(b"d");
    }
}

impl Guard {
    /// Begins to watch over this process. Call it before any thread is started.
    ///
    /// # Errors
    /// When there can be no process for it.
    pub(crate) fn start() -> io::Result<Guard> {
        let (ours, theirs) = UnixStream::pair()?;
        let own = std::process::id();
        // SAFETY: this process has one thread, as the doc comment demands; then a child of fork
        // is an ordinary process.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => {
                drop(theirs);
                waitpid(child, None)?;
                Ok(Guard(ours))
            }
            ForkResult::Child => {
                drop(ours);
                // Its parent ends at once, so that nobody who waits for our children meets it.
                // SAFETY: likewise.
                if let Ok(ForkResult::Child) = unsafe { fork() } {
                    let Err(_) = watch(theirs, own);
                }
                // SAFETY: ends the process without what other code of ours wants to do at its end.
                unsafe { libc::_exit(0) }
            }
        }
    }

    /// Guards process `root`, and all that is held by this listener.
    ///
    /// # Errors
    /// When the guard is gone.
    pub(crate) fn guard(&self, root: u32, listener: BorrowedFd<'_>) -> io::Result<()> {
        (&self.0).write_all(&root.to_ne_bytes())?;
        mounting::send_descriptor(self.0.as_fd(), listener)
    }
}

fn watch(mut socket: UnixStream, guarded: u32) -> io::Result<Infallible> {
    let guarded = PidFd::open(guarded).ok_or(io::ErrorKind::NotFound)?;
    setsid()?;
    chdir("/")?;
    prctl::set_name(c"guard")?;
    let nothing = fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    dup2_stdin(&nothing)?;
    dup2_stdout(&nothing)?;
    dup2_stderr(&nothing)?;
    let mut kept = [socket.as_raw_fd(), guarded.as_fd().as_raw_fd()].map(i32::cast_unsigned);
    kept.sort_unstable();
    let [one, other] = kept;
    for (first, last) in [(3, one - 1), (one + 1, other - 1), (other + 1, u32::MAX)] {
        // SAFETY: what else is open here is used by nobody in this process.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
    for ignored in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: no handler of ours is put in place.
        unsafe { signal(ignored, SigHandler::SigIgn) }?;
    }
    let mut root = [0; 4];
    socket.read_exact(&mut root)?;
    let duplicate = socket.as_fd().try_clone_to_owned()?;
    let listener = Listener::new(mounting::receive_descriptor(&duplicate)?);
    let namespace = mounts_of(u32::from_ne_bytes(root));
    let own = mounts_of(std::process::id());
    // The command has a copy of the other end of our socket until it executes.
    let mut ended = [
        PollFd::new(socket.as_fd(), PollFlags::POLLIN),
        PollFd::new(guarded.as_fd(), PollFlags::POLLIN),
    ];
    while matches!(poll(&mut ended, PollTimeout::NONE), Err(Errno::EINTR)) {}
    socket.set_nonblocking(true)?;
    if socket.read(&mut [0]).unwrap_or(0) > 0 {
        return Err(io::ErrorKind::NotFound.into());
    }
    // Who was received and not answered is not told again, and goes on with an error when we are gone.
    let mut quiet = 0;
    while !is_over(&listener)? && quiet < ROUNDS {
        quiet += 1;
        // Where the command has no mounts of its own, others are told from it by their calls alone. As long as one of its
        // processes lives, the number of its namespace is no other one's.
        if let Some(namespace) = namespace.as_ref().filter(|of| Some(*of) != own.as_ref()) {
            end_all_in(namespace);
        }
        while let Some(held) = listener.receive()? {
            let _ = kill(Pid::from_raw(held.tid.cast_signed()), Signal::SIGKILL);
            listener.go_on(held.id);
            quiet = 0;
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Waits a little for a call, and says whether there will be none any more.
fn is_over(listener: &Listener) -> io::Result<bool> {
    let mut ready = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    poll(&mut ready, PollTimeout::from(ROUND_MS))?;
    Ok(ready[0]
        .revents()
        .is_some_and(|got| got.contains(PollFlags::POLLHUP)))
}

fn mounts_of(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/mnt")).ok()
}

fn end_all_in(namespace: &PathBuf) {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for pid in pids.filter(|&pid| mounts_of(pid).as_ref() == Some(namespace)) {
        let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
    }
}
