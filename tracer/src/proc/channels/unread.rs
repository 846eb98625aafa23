//! Who cannot have read from a pipe that it inherited, because nothing was in it, or what was in it stayed there.
//!
//! All that a program starts has its standard input, and mostly does not read it: `… | while read k; do expr $k; done`. A pipe that
//! nobody can write to any more only gets emptier. So an image that began with such a pipe empty, or left as much in it as there was,
//! read nothing from it.
//!
//! And what lies in a pipe into which nobody but its maker has written was written by a shell before it started the program: a
//! here-document. That is a part of its script as arguments are, and kept as these are.

use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use flowtrace_schema::{ChannelId, Direction, Record};
use nix::fcntl::{SpliceFFlags, tee};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::fstat;

use super::super::descriptors;
use super::super::moment::Moment;
use super::super::observer::Tracee;
use super::super::pidfd::PidFd;
use super::Channels;

/// The longest here-document, bytes: what a pipe holds, unless it is enlarged.
pub(in super::super) const LONGEST: u32 = 1 << 16;

impl Channels {
    /// Takes note of what lies in the pipes that a program has inherited, where nobody can add to it.
    pub(super) fn find_left(&mut self, tracee: Tracee, moment: &dyn Moment) {
        let Some(holder) = self.holders.get(&tracee.pid) else {
            return;
        };
        let registry = self.registry();
        let inherited = holder.ends.iter().filter(|(key, end)| {
            key.1 == Direction::Read && !end.made && !end.leaked && !registry.is_fifo(key.0)
        });
        let inherited: Vec<_> = inherited.map(|(key, end)| (*key, end.fd)).collect();
        drop(registry);
        for (key, fd) in inherited {
            let Some(found) = moment.left(fd) else {
                continue;
            };
            let left = found.left;
            let is_shared = self.may_be_written_by_others(key.0);
            if !is_shared
                && let Some(is_kept) = self.unshared.get_mut(&key.0)
                && (1..=LONGEST).contains(&left.bytes)
            {
                let content = match *is_kept {
                    true => None,
                    false => found.content(),
                };
                *is_kept |= content.is_some();
                self.recorder.record(Record::HereDocument {
                    upid: tracee.upid,
                    fd,
                    channel: key.0,
                    bytes: left.bytes,
                    content,
                });
            }
            let holder = self.holders.get_mut(&tracee.pid);
            if let Some(end) = holder.and_then(|holder| holder.ends.get_mut(&key)) {
                end.left = Some(left);
            }
        }
    }

    /// Whether somebody but its maker has an end to write to it, or has just given that up by ending, of which we will be told.
    fn may_be_written_by_others(&self, channel: ChannelId) -> bool {
        let key = (channel, Direction::Write);
        let mut ends = self
            .holders
            .values()
            .filter_map(|holder| holder.ends.get(&key));
        ends.any(|end| !end.made)
    }

    /// At the end of an image: compares what is left with what was.
    pub(super) fn find_unread(&mut self, pid: u32, moment: &dyn Moment) {
        let Some(holder) = self.holders.get_mut(&pid) else {
            return;
        };
        for end in holder.ends.values_mut() {
            if let Some(then) = end.left.filter(|left| left.is_some()) {
                let now = moment.left(end.fd).map(|found| found.left);
                end.is_unread = Some(then) == now;
            }
        }
    }
}

/// A pipe that nobody can add to.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Who has it open, and as what.
    pid: u32,
    fd: i32,
    left: Left,
    /// What it is, if that was read already.
    content: Option<String>,
}

impl Found {
    /// So much is left in what process `pid` may read from as `fd`.
    pub(in super::super) fn new(pid: u32, fd: i32, left: Left, content: Option<String>) -> Found {
        Found {
            pid,
            fd,
            left,
            content,
        }
    }

    /// What is in the pipe, unless somebody has read from it since.
    pub(in super::super) fn content(&self) -> Option<String> {
        let read = || {
            let (pipe, now) = left(&PidFd::open(self.pid)?, self.fd)?;
            let is_short = (1..=LONGEST).contains(&now.bytes);
            (now == self.left && is_short).then(|| content(&pipe, now.bytes))?
        };
        self.content.clone().or_else(read)
    }
}

/// What lies in the pipe that process `pid` has open as `fd`; `None`: there may come more.
pub(in super::super) fn left_in(pid: u32, fd: i32) -> Option<Found> {
    // To have a descriptor of a file, if only to close it, takes its server.
    descriptors::one(pid, fd)?;
    let (_, left) = left(&PidFd::open(pid)?, fd)?;
    Some(Found::new(pid, fd, left, None))
}

/// What lies in a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Left {
    /// Of the pipe: by the end of a program its descriptor may be another one's.
    inode: u64,
    bytes: u32,
}

impl Left {
    /// So many bytes in the pipe with this inode.
    pub(in super::super) fn new(inode: u64, bytes: u32) -> Left {
        Left { inode, bytes }
    }

    pub(super) fn is_nothing(self) -> bool {
        self.bytes == 0
    }

    fn is_some(self) -> bool {
        self.bytes > 0
    }
}

/// The pipe that a process has open as `fd`, and what lies in it; `None`: there may come more. Nobody writes to it any more, so that
/// it makes no difference to anybody that we have it open, too, for a moment.
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

/// What is in a pipe, which stays there; `None`: it is no text.
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn what_is_left_is_known_once_nobody_can_add_to_it() {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let own = PidFd::open(std::process::id()).unwrap();
        let of = |reader: &std::io::PipeReader| {
            let (pipe, left) = left(&own, reader.as_raw_fd())?;
            Some((content(&pipe, left.bytes), left.bytes))
        };
        writer.write_all(b"1\n2\n").unwrap();
        assert_eq!(of(&reader), None);
        drop(writer);
        assert_eq!(of(&reader), Some((Some("1\n2\n".into()), 4)));
        let mut read = [0; 4];
        reader.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"1\n2\n");
        let left = left(&own, reader.as_raw_fd()).map(|(_, left)| left);
        assert!(left.is_some_and(Left::is_nothing));
    }
}
