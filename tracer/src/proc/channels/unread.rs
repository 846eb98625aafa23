//! Processes that cannot have read from a pipe that they inherited, because it was empty, or its content
//! stayed.
//!
//! All that a program starts has its standard input, and mostly does not read it: `… | while read k; do expr
//! $k; done`. A pipe without writers only gets emptier. So an image that began with such a pipe empty, or
//! left as much in it as there was, read nothing from it.
//!
//! The content of a pipe into which nobody but its maker has written was written by a shell before it started
//! the program: a here-document. It is a part of the script as arguments are, and recorded as these are.

use flowtrace_schema::{ChannelId, Direction, Record};

use super::super::observer::Tracee;
use super::super::pipe_content::LONGEST;
use super::super::snapshot::ProcessSnapshot;
use super::Channels;

impl Channels {
    /// Records the unread bytes in the pipes that a program has inherited, where nobody can add to them.
    pub(super) fn find_left(&mut self, tracee: Tracee, snapshot: &dyn ProcessSnapshot) {
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
            let Some(found) = snapshot.left(fd) else {
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

    /// True if a process other than its maker has an end to write to it, or had one and has just ended
    /// without having been reported yet.
    fn may_be_written_by_others(&self, channel: ChannelId) -> bool {
        let key = (channel, Direction::Write);
        let mut ends = self
            .holders
            .values()
            .filter_map(|holder| holder.ends.get(&key));
        ends.any(|end| !end.made)
    }

    /// At the end of an image: compares the unread bytes with those at its begin.
    pub(super) fn find_unread(&mut self, pid: u32, snapshot: &dyn ProcessSnapshot) {
        let Some(holder) = self.holders.get_mut(&pid) else {
            return;
        };
        for end in holder.ends.values_mut() {
            if let Some(then) = end.left.filter(|left| left.is_some()) {
                let now = snapshot.left(end.fd).map(|found| found.left);
                end.is_unread = Some(then) == now;
            }
        }
    }
}
