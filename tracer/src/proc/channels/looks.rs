//! Looks at descriptors, which tell what a process has given up, and what a program was not told of.

use std::collections::BTreeMap;

use flowtrace_schema::{ChannelId, Direction, Loss};

use super::super::descriptors::Descriptor;
use super::super::near;
use super::super::reading::ProcessStat;
use super::super::snapshot::{LiveSnapshot, ProcessSnapshot};
use super::Channels;
use super::holder::{LOOKS, Moved};

/// The descriptors of each end that a process holds.
type Held = BTreeMap<(ChannelId, Direction), Vec<Descriptor>>;

impl Channels {
    /// What a program holds its parent has passed on to it, unless it leaked.
    pub(super) fn tell_parent(&mut self, pid: u32) {
        let Some(holder) = self.holders.get(&pid) else {
            return;
        };
        let told = holder.ends.iter().filter(|(_, end)| !end.leaked);
        let keys: Vec<_> = told.map(|(&key, _)| key).collect();
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

    /// A program uses its standard descriptors. It can only know of another one that it inherits
    /// if its arguments tell, as in `--status-fd 3` or `/dev/fd/3`.
    pub(super) fn find_leaked(&mut self, pid: u32, moment: &dyn ProcessSnapshot) {
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
        let arguments = moment.arguments();
        for (_, end) in suspect {
            end.leaked = !mentions(&arguments, end.fd);
        }
    }

    pub(super) fn look_at_parent(&mut self, pid: u32, moment: &dyn ProcessSnapshot, now: u64) {
        let parent = self.holders.get(&pid).and_then(|holder| holder.parent);
        let Some((pid, holder)) = parent.and_then(|pid| Some((pid, self.holders.get_mut(&pid)?)))
        else {
            return;
        };
        let mut worth = false;
        for end in holder.ends.values_mut() {
            if end.made && end.looks < LOOKS {
                end.looks += 1;
                worth = true;
            }
        }
        if worth {
            let here = LiveSnapshot(pid);
            self.look_for_gone(pid, moment.of_parent(pid).unwrap_or(&here), now);
        }
    }

    /// Brings what is known of process `pid` up to date by what it has at a moment.
    pub(super) fn look_at(&mut self, pid: u32, moment: &dyn ProcessSnapshot, now: u64) {
        let Some(held) = self.held(pid, moment) else {
            return;
        };
        self.give_up_all_but(pid, &held, moment, true, now);
        for (key, descriptors) in held {
            for descriptor in descriptors {
                self.hold(pid, key, &descriptor, false, None, now);
            }
        }
    }

    /// The same for a process that runs meanwhile: what it may just be making is told by the
    /// call that makes it.
    pub(super) fn look_for_gone(&mut self, pid: u32, moment: &dyn ProcessSnapshot, now: u64) {
        if let Some(held) = self.held(pid, moment) {
            self.give_up_all_but(pid, &held, moment, false, now);
        }
    }

    fn held(&self, pid: u32, moment: &dyn ProcessSnapshot) -> Option<Held> {
        let Some(descriptors) = moment.channels() else {
            // Who has ended meanwhile tells by his end.
            let lives = ProcessStat::of(pid).is_some_and(|stat| !stat.is_zombie);
            self.recorder
                .lost(Loss::DescriptorsUnreadable, u64::from(lives));
            return None;
        };
        let lacks = u64::from(moment.lacks_channels());
        self.recorder.lost(Loss::DescriptorsUnreadable, lacks);
        let mut registry = self.registry();
        let mut held = Held::new();
        for descriptor in descriptors {
            if let Some(channel) = registry.identify(pid, &descriptor) {
                let key = (channel, descriptor.direction);
                held.entry(key).or_default().push(descriptor);
            }
        }
        Some(held)
    }

    fn give_up_all_but(
        &mut self,
        pid: u32,
        held: &Held,
        moment: &dyn ProcessSnapshot,
        is_stopped: bool,
        now: u64,
    ) {
        // It may still have what was not told.
        let has_told = !moment.lacks_channels();
        let Some(holder) = self.holders.get(&pid).filter(|_| has_told) else {
            return;
        };
        let forked = holder.forked;
        let gone = holder
            .ends
            .iter()
            .filter(|(key, _)| !held.contains_key(key));
        let gone: Vec<_> = gone.map(|(key, end)| (*key, end.since)).collect();
        if gone.is_empty() {
            return;
        }
        // It may be in an exec that waits for a server of the workflow, and hold the lock that is taken to tell.
        let may_wait = !is_stopped && near::may_serve();
        let traffic = if holder.threaded || may_wait {
            None
        } else {
            moment.traffic()
        };
        for (key, since) in gone {
            // Of what an image began with: it moved no more through this than the process ever did in all.
            let moved = traffic.map(|now| Moved::from(now - since.unwrap_or_default()));
            // Seen from outside it may be in the middle of an exec, which will tell.
            if forked && !is_stopped && moved.is_some_and(Moved::may_be_exec) {
                continue;
            }
            self.give_up(pid, key, Some(now), moved, false);
        }
    }
}

/// Whether a number stands in a text by itself.
fn mentions(text: &[u8], number: i32) -> bool {
    let number = number.to_string();
    text.split(|byte| !byte.is_ascii_digit())
        .any(|digits| digits == number.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_told_of_a_descriptor_by_its_number() {
        for told in ["gpg --status-fd 3", "diff /dev/fd/3 x", "x --fds=4,3"] {
            assert!(mentions(told.as_bytes(), 3), "{told}");
        }
        for not in ["x 33", "x --a=13", ""] {
            assert!(!mentions(not.as_bytes(), 3), "{not}");
        }
    }
}
