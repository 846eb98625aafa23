//! Reads of descriptors, which show the ends that a process closed, and those that leaked into a program.

use std::collections::BTreeMap;

use flowtrace_schema::{ChannelId, Direction, Loss};

use super::super::descriptors::Descriptor;
use super::super::near;
use super::super::reading::ProcessStat;
use super::super::snapshot::{LiveSnapshot, ProcessSnapshot};
use super::Channels;
use super::holder::{MAX_READS, Moved};

/// The descriptors of each end that a process has open.
type Ends = BTreeMap<(ChannelId, Direction), Vec<Descriptor>>;

impl Channels {
    /// Marks ends of a program, unless they leaked, as passed on by its parent.
    pub(super) fn mark_passed(&mut self, pid: u32) {
        let Some(holder) = self.holders.get(&pid) else {
            return;
        };
        let passed = holder.ends.iter().filter(|(_, end)| !end.leaked);
        let keys: Vec<_> = passed.map(|(&key, _)| key).collect();
        let parent = holder
            .parent
            .and_then(|parent| self.holders.get_mut(&parent));
        let Some(parent) = parent.filter(|parent| parent.has_made()) else {
            return;
        };
        for key in keys {
            if let Some(end) = parent.ends.get_mut(&key) {
                end.passed = true;
            }
        }
    }

    /// A program uses its standard descriptors. It can only know of another one that it inherits if its
    /// arguments name it, as in `--status-fd 3` or `/dev/fd/3`.
    pub(super) fn find_leaked(&mut self, pid: u32, snapshot: &dyn ProcessSnapshot) {
        let Some(holder) = self.holders.get_mut(&pid) else {
            return;
        };
        let mut suspect = holder
            .ends
            .iter_mut()
            .filter(|(key, end)| end.fd > 2 && key.1 != Direction::Both)
            .peekable();
        if suspect.peek().is_none() {
            return;
        }
        let arguments = snapshot.arguments();
        for (_, end) in suspect {
            end.leaked = !mentions(&arguments, end.fd);
        }
    }

    pub(super) fn read_parent(&mut self, pid: u32, snapshot: &dyn ProcessSnapshot, now: u64) {
        let parent = self.holders.get(&pid).and_then(|holder| holder.parent);
        let Some((pid, holder)) = parent.and_then(|pid| Some((pid, self.holders.get_mut(&pid)?)))
        else {
            return;
        };
        let mut worth = false;
        for end in holder.ends.values_mut() {
            if end.made && end.reads < MAX_READS {
                end.reads += 1;
                worth = true;
            }
        }
        if worth {
            let here = LiveSnapshot(pid);
            self.find_closed(pid, snapshot.of_parent(pid).unwrap_or(&here), now);
        }
    }

    /// Updates the ends of process `pid` to those of a snapshot.
    pub(super) fn read_descriptors(&mut self, pid: u32, snapshot: &dyn ProcessSnapshot, now: u64) {
        let Some(ends) = self.ends_of(pid, snapshot) else {
            return;
        };
        self.give_up_all_but(pid, &ends, snapshot, true, now);
        for (key, descriptors) in ends {
            for descriptor in descriptors {
                self.add(pid, key, &descriptor, false, None, now);
            }
        }
    }

    /// Updates the ends of a process that runs meanwhile: only closed ones are noticed, because an end that
    /// is just being made is reported by the call that makes it.
    pub(super) fn find_closed(&mut self, pid: u32, snapshot: &dyn ProcessSnapshot, now: u64) {
        if let Some(ends) = self.ends_of(pid, snapshot) {
            self.give_up_all_but(pid, &ends, snapshot, false, now);
        }
    }

    fn ends_of(&self, pid: u32, snapshot: &dyn ProcessSnapshot) -> Option<Ends> {
        let Some(descriptors) = snapshot.channels() else {
            // The end of a process that has ended meanwhile is reported as such.
            let lives = ProcessStat::of(pid).is_some_and(|stat| !stat.is_zombie);
            self.recorder
                .lost(Loss::DescriptorsUnreadable, u64::from(lives));
            return None;
        };
        let lacks = u64::from(snapshot.lacks_channels());
        self.recorder.lost(Loss::DescriptorsUnreadable, lacks);
        let mut registry = self.registry();
        let mut ends = Ends::new();
        for descriptor in descriptors {
            if let Some(channel) = registry.identify(pid, &descriptor) {
                let key = (channel, descriptor.direction);
                ends.entry(key).or_default().push(descriptor);
            }
        }
        Some(ends)
    }

    fn give_up_all_but(
        &mut self,
        pid: u32,
        ends: &Ends,
        snapshot: &dyn ProcessSnapshot,
        is_stopped: bool,
        now: u64,
    ) {
        // An end that is missing in an incomplete snapshot may still be open.
        let is_complete = !snapshot.lacks_channels();
        let Some(holder) = self.holders.get(&pid).filter(|_| is_complete) else {
            return;
        };
        let forked = holder.forked;
        let gone = holder
            .ends
            .iter()
            .filter(|(key, _)| !ends.contains_key(key));
        let gone: Vec<_> = gone.map(|(key, end)| (*key, end.since)).collect();
        if gone.is_empty() {
            return;
        }
        // The process may be in an exec that waits for a server of the workflow, and hold the lock that a
        // read of its traffic takes.
        let may_wait = !is_stopped && near::may_serve();
        let traffic = if holder.threaded || may_wait {
            None
        } else {
            snapshot.traffic()
        };
        for (key, since) in gone {
            // For an end from the begin of the image: no more than all traffic of the process.
            let moved = traffic.map(|now| Moved::from(now - since.unwrap_or_default()));
            // A running process may be in the middle of an exec, which will be reported.
            if forked && !is_stopped && moved.is_some_and(Moved::may_be_exec) {
                continue;
            }
            self.give_up(pid, key, Some(now), moved, false);
        }
    }
}

/// True if a number stands in a text by itself.
fn mentions(text: &[u8], number: i32) -> bool {
    let number = number.to_string();
    text.split(|byte| !byte.is_ascii_digit())
        .any(|digits| digits == number.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_given_a_descriptor_by_its_number() {
        for arguments in ["gpg --status-fd 3", "diff /dev/fd/3 x", "x --fds=4,3"] {
            assert!(mentions(arguments.as_bytes(), 3), "{arguments}");
        }
        for not in ["x 33", "x --a=13", ""] {
            assert!(!mentions(not.as_bytes(), 3), "{not}");
        }
    }
}
