//! Content of a pipe without writers.

use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::fcntl::{SpliceFFlags, tee};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::fstat;

use super::descriptors;
use super::pidfd::PidFd;

/// Longest here-document that is recorded, bytes: the size of a pipe, unless it is enlarged.
pub(super) const LONGEST: u32 = 1 << 16;

/// A pipe to which nobody can add.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Process that has it open.
    pid: u32,
    fd: i32,
    pub(super) left: Left,
    /// Content, if it was read already.
    content: Option<String>,
}

impl Found {
    /// The pipe that process `pid` may read from as `fd`, with its unread bytes.
    pub(super) fn new(pid: u32, fd: i32, left: Left, content: Option<String>) -> Found {
        Found {
            pid,
            fd,
            left,
            content,
        }
    }

    /// Content of the pipe, unless something was read from it since.
    pub(super) fn content(&self) -> Option<String> {
        let read = || {
            let (pipe, now) = left(&PidFd::open(self.pid)?, self.fd)?;
            let is_short = (1..=LONGEST).contains(&now.bytes);
            (now == self.left && is_short).then(|| content(&pipe, now.bytes))?
        };
        self.content.clone().or_else(read)
    }
}

/// The unread bytes of the pipe that process `pid` has open as `fd`; `None`: more may come.
pub(super) fn left_in(pid: u32, fd: i32) -> Option<Found> {
    // A duplicate of a file's descriptor, even if it is only closed again, involves the file's server.
    descriptors::one(pid, fd)?;
    let (_, left) = left(&PidFd::open(pid)?, fd)?;
    Some(Found::new(pid, fd, left, None))
}

/// Unread bytes of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// Inode of the pipe: by the end of a program its descriptor may be open on another one.
    inode: u64,
    pub(super) bytes: u32,
}

impl Left {
    /// A count of unread bytes of the pipe with this inode.
    pub(super) fn new(inode: u64, bytes: u32) -> Left {
        Left { inode, bytes }
    }

    pub(super) fn is_nothing(self) -> bool {
        self.bytes == 0
    }

    pub(super) fn is_some(self) -> bool {
        self.bytes > 0
    }
}

/// The pipe that a process has open as `fd`, and its unread bytes; `None`: more may come. It has no writers,
/// so that a second reader for a short time makes no difference.
fn left(process: &PidFd, fd: i32) -> Option<(OwnedFd, Left)> {
    let own = process.duplicate(fd)?;
    let mut events = [PollFd::new(own.as_fd(), PollFlags::POLLIN)];
    poll(&mut events, PollTimeout::ZERO).ok()?;
    let has_writers = !events[0].revents()?.contains(PollFlags::POLLHUP);
    if has_writers {
        return None;
    }
    let mut bytes: libc::c_int = 0;
    // SAFETY: the call writes one int, which outlives it.
    #[expect(unsafe_code)]
    let result = unsafe { libc::ioctl(own.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
    let bytes = u32::try_from(bytes).ok().filter(|_| result == 0)?;
    let inode = fstat(&own).ok()?.st_ino;
    Some((own, Left { inode, bytes }))
}

/// Content of a pipe, which stays in it; `None`: it is no text.
fn content(pipe: &OwnedFd, bytes: u32) -> Option<String> {
    let (copy, filled) = std::io::pipe().ok()?;
    let copied = tee(
        pipe,
        &filled,
        bytes as usize,
        SpliceFFlags::SPLICE_F_NONBLOCK,
    )
    .ok()?;
    drop(filled);
    let mut content = String::with_capacity(copied);
    copy.take(bytes.into()).read_to_string(&mut content).ok()?;
    (content.len() == bytes as usize).then_some(content)
}

/// Has a program begin with a pipe as its standard input that its own process made and wrote `text` into, as a shell
/// does for a here-document. If it `keeps` the writing end, that is its standard output. Children that other threads
/// start meanwhile have no end of it, unlike of a pipe of this process.
#[cfg(test)]
pub(super) fn begin_with_unread(command: &mut std::process::Command, text: &str, keeps: bool) {
    use std::os::unix::process::CommandExt;

    use nix::unistd::{dup2_stdin, dup2_stdout, write};

    let text = text.to_owned();
    let begin = move || {
        let (reader, writer) = std::io::pipe()?;
        dup2_stdin(reader)?;
        dup2_stdout(writer)?;
        let written = write(std::io::stdout(), text.as_bytes())?;
        if !keeps {
            dup2_stdout(std::fs::File::open("/dev/null")?)?;
        }
        (written == text.len())
            .then_some(())
            .ok_or_else(|| std::io::ErrorKind::WriteZero.into())
    };
    // SAFETY: it makes system calls only.
    #[expect(unsafe_code)]
    unsafe {
        command.pre_exec(begin);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::process::{Child, Command};

    use super::*;

    #[test]
    fn what_is_left_is_known_once_nobody_can_add_to_it() {
        let sleeps = |keeps| {
            let mut command = Command::new("/bin/sleep");
            begin_with_unread(command.arg("60"), "1\n2\n", keeps);
            command.spawn().unwrap()
        };
        let of = |child: &Child| left(&PidFd::open(child.id())?, 0);
        let (mut writer, mut reader) = (sleeps(true), sleeps(false));
        assert!(of(&writer).is_none());
        let (pipe, found) = of(&reader).expect("a pipe without writers");
        assert_eq!((content(&pipe, 4), found.bytes), (Some("1\n2\n".into()), 4));
        let mut read = [0; 4];
        File::from(pipe).read_exact(&mut read).unwrap();
        assert_eq!(&read, b"1\n2\n");
        assert!(of(&reader).is_some_and(|(_, left)| left.is_nothing()));
        for child in [&mut writer, &mut reader] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
