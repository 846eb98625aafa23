//! Who cannot have read from a pipe that it inherited, because nothing was in it, or what was in it stayed there.
//!
//! All that a program starts has its standard input, and mostly does not read it: `… | while read k; do expr $k; done`. A pipe that
//! nobody can write to any more only gets emptier. So an image that began with such a pipe empty, or left as much in it as there was,
//! read nothing from it.

use std::os::fd::{AsFd, AsRawFd};

use flowtrace_schema::Direction;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::super::pidfd::PidFd;
use super::Channels;

impl Channels {
    /// Takes note of what lies in the pipes that a stopped process has inherited, where nobody can add to it.
    pub(super) fn find_left(&mut self, pid: u32) {
        let Some(holder) = self.holders.get(&pid) else {
            return;
        };
        let registry = self.registry();
        let inherited = holder.ends.iter().filter(|(key, end)| {
            key.1 == Direction::Read && !end.made && !end.leaked && !registry.is_fifo(key.0)
        });
        let inherited: Vec<_> = inherited.map(|(key, end)| (*key, end.fd)).collect();
        drop(registry);
        if inherited.is_empty() {
            return;
        }
        let Some(process) = PidFd::open(pid) else {
            return;
        };
        let left = inherited.iter().map(|&(_, fd)| left(&process, fd));
        let left: Vec<_> = left.collect();
        let holder = self.holders.get_mut(&pid);
        let ends = holder.map(|holder| &mut holder.ends);
        let Some(ends) = ends else { return };
        for ((key, _), left) in inherited.iter().zip(left) {
            if let Some(end) = ends.get_mut(key) {
                end.left = left;
            }
        }
    }

    /// At the end of an image that is stopped: compares what is left with what was.
    pub(super) fn find_unread(&mut self, pid: u32) {
        let Some(holder) = self.holders.get_mut(&pid) else {
            return;
        };
        let mut ends = holder.ends.values_mut();
        let Some(first) = ends.find(|end| end.left > Some(0)) else {
            return;
        };
        let Some(process) = PidFd::open(pid) else {
            return;
        };
        for end in std::iter::once(first).chain(ends) {
            end.is_unread = end.left > Some(0) && left(&process, end.fd) == end.left;
        }
    }
}

/// Bytes in the pipe that a stopped process has open as `fd`; `None`: there may come more. That this process has it
/// open, too, for a moment makes no difference to others, because the stopped one has.
fn left(process: &PidFd, fd: i32) -> Option<u32> {
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
    (result == 0).then(|| u32::try_from(bytes).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn what_is_left_is_known_once_nobody_can_add_to_it() {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let own = PidFd::open(std::process::id()).unwrap();
        let of = |reader: &std::io::PipeReader| left(&own, reader.as_raw_fd());
        writer.write_all(b"1\n2\n").unwrap();
        assert_eq!(of(&reader), None);
        drop(writer);
        assert_eq!(of(&reader), Some(4));
        reader.read_exact(&mut [0; 4]).unwrap();
        assert_eq!(of(&reader), Some(0));
    }
}
