//! What a program begins with: descriptors and arguments, as they are at its exec.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::channels::unread::{self, Found};
use super::descriptors::{self, Descriptor};
use super::inherited;
use super::reading;
use crate::fs::Attributes;

/// The descriptors that every program has.
const STANDARD: i32 = 3;
/// Descriptors that a shell can redirect by one digit; the higher ones are its own. Those beyond the
/// standard ones are looked at up to the first that is not there: each look has its price.
const LOOKED_AT: i32 = 10;

/// Answers about a program at its begin.
pub(crate) trait Beginning {
    /// What is open as each of its first descriptors: a path, or text such as `pipe:[7]`.
    fn targets(&self) -> BTreeMap<i32, OsString>;
    /// Access mode and `O_APPEND` of one of them, and its position.
    fn state(&self, fd: i32) -> Option<(u32, u64)>;
    /// Attributes of what is open there, as far as the kernel knows them by itself.
    fn attributes(&self, fd: i32) -> Option<Attributes>;
    /// Its pipes and sockets. `None`: they cannot be looked at.
    fn channels(&self) -> Option<Vec<Descriptor>>;
    /// What lies in the pipe that it may read from as descriptor `fd`; `None`: there may come more.
    fn left(&self, fd: i32) -> Option<Found>;
    /// Its arguments, each ended by a NUL.
    fn arguments(&self) -> Vec<u8>;
}

/// A process that is held at its exec, and looked at when something is asked.
pub(super) struct Held(pub(super) u32);

impl Beginning for Held {
    fn targets(&self) -> BTreeMap<i32, OsString> {
        first_targets(self.0)
    }

    fn state(&self, fd: i32) -> Option<(u32, u64)> {
        inherited::state(self.0, fd)
    }

    fn attributes(&self, fd: i32) -> Option<Attributes> {
        descriptors::attributes(self.0, fd)
    }

    fn channels(&self) -> Option<Vec<Descriptor>> {
        descriptors::of(self.0)
    }

    fn left(&self, fd: i32) -> Option<Found> {
        unread::left_in(self.0, fd)
    }

    fn arguments(&self) -> Vec<u8> {
        reading::arguments(self.0).unwrap_or_default()
    }
}

/// A process that ran on: what it had just before its exec, of which an exec closes some.
#[derive(Default)]
pub(crate) struct Kept {
    files: BTreeMap<i32, File>,
    channels: Option<Vec<Descriptor>>,
    left: BTreeMap<i32, Found>,
    /// Told later, with the exec.
    pub(super) arguments: Vec<u8>,
}

struct File {
    target: OsString,
    state: Option<(u32, u64)>,
    attributes: Option<Attributes>,
}

impl Kept {
    /// What process `pid`, which is held at the entry of an exec, will begin with.
    pub(super) fn of(pid: u32) -> Kept {
        let targets = first_targets(pid).into_iter();
        let kept = targets.filter(|(fd, _)| *fd < STANDARD || !inherited::ends_at_exec(pid, *fd));
        let files = kept.map(|(fd, target)| {
            let is_file = target.as_encoded_bytes().starts_with(b"/");
            let file = File {
                state: inherited::state(pid, fd),
                attributes: is_file.then(|| descriptors::attributes(pid, fd)).flatten(),
                target,
            };
            (fd, file)
        });
        Kept {
            files: files.collect(),
            ..Kept::default()
        }
    }

    /// Also its pipes and sockets, and what lies in those that it may read from.
    pub(super) fn keep_channels(&mut self, pid: u32) {
        let Some(mut channels) = descriptors::of(pid) else {
            return;
        };
        channels.retain(|channel| !inherited::ends_at_exec(pid, channel.fd));
        self.left = channels
            .iter()
            .filter(|channel| channel.is_read_end())
            .filter_map(|channel| {
                let left = unread::left_in(pid, channel.fd)?;
                Some((channel.fd, left.read()))
            })
            .collect();
        self.channels = Some(channels);
    }
}

impl Beginning for Kept {
    fn targets(&self) -> BTreeMap<i32, OsString> {
        let files = self.files.iter();
        files.map(|(&fd, file)| (fd, file.target.clone())).collect()
    }

    fn state(&self, fd: i32) -> Option<(u32, u64)> {
        self.files.get(&fd)?.state
    }

    fn attributes(&self, fd: i32) -> Option<Attributes> {
        self.files.get(&fd)?.attributes
    }

    fn channels(&self) -> Option<Vec<Descriptor>> {
        self.channels.clone()
    }

    fn left(&self, fd: i32) -> Option<Found> {
        self.left.get(&fd).cloned()
    }

    fn arguments(&self) -> Vec<u8> {
        self.arguments.clone()
    }
}

fn first_targets(pid: u32) -> BTreeMap<i32, OsString> {
    let mut targets = BTreeMap::new();
    for fd in 0..LOOKED_AT {
        match descriptors::target(pid, fd) {
            Some(target) => {
                targets.insert(fd, target.into_os_string());
            }
            None if fd >= STANDARD => break,
            None => {}
        }
    }
    targets
}
