//! What a process has at a moment at which that changes: when it forks, when it runs a new program, and when it ends.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::descriptors::Descriptor;
use super::exec_reads::{ExecReads, Programs};
use super::pipe_content::Found;
use super::reading::Traffic;
use super::sampler::objects::Target;
use crate::stat::Attributes;

mod live;

pub(super) use live::LiveSnapshot;

/// The descriptors that every program has.
const STANDARD: i32 = 3;
/// Descriptors that a shell can redirect by one digit; the higher ones are its own. Those beyond the
/// standard ones are told up to the first that is not there: each look has its price.
const REDIRECTABLE: i32 = 10;

/// Answers about a process at a moment.
pub(crate) trait ProcessSnapshot {
    /// The numbers of its descriptors.
    fn numbers(&self) -> Vec<i32>;
    /// The same moment of process `pid`, if that is its parent and was told with it.
    fn of_parent(&self, pid: u32) -> Option<&dyn ProcessSnapshot> {
        let _ = pid;
        None
    }
    /// What is open as each of its first descriptors: a path, or text such as `pipe:[7]`.
    fn targets(&self) -> BTreeMap<i32, OsString>;
    /// Access mode and `O_APPEND` of one of them, and its position.
    fn state(&self, fd: i32) -> Option<(u32, u64)>;
    /// Device and inode of what is open there, which are to be compared with what other moments of this kind say, and
    /// its size in bytes.
    fn extent(&self, fd: i32) -> Option<((u64, u64), u64)>;
    /// Attributes of what is open there, as far as the kernel knows them by itself.
    fn attributes(&self, fd: i32) -> Option<Attributes>;
    /// What the kernel tells by itself of a file that is open there, where it does: enough to know it from others while it lives.
    fn as_reported(&self, fd: i32) -> Option<Attributes> {
        let _ = fd;
        None
    }
    /// Its pipes and sockets. `None`: they cannot be looked at.
    fn channels(&self) -> Option<Vec<Descriptor>>;
    /// Whether some of these are missing: it had more descriptors than could be told, and cannot be looked at any more.
    fn lacks_channels(&self) -> bool {
        false
    }
    /// At a fork: whether the new process has the same table of descriptors. `None`: that is not told.
    fn shares_descriptors(&self) -> Option<bool> {
        None
    }
    /// Whether the calls of its program have the numbers of this architecture.
    fn is_native(&self) -> bool;
    /// What descriptor `fd` stands for; `None`: it is closed, or not known.
    fn stands_for(&self, fd: i32) -> Option<Target>;
    /// What lies in the pipe that it may read from as descriptor `fd`; `None`: there may come more.
    fn left(&self, fd: i32) -> Option<Found>;
    /// What its first thread has read and written so far, if it is the only one.
    fn traffic(&self) -> Option<Traffic>;
    /// Its arguments, each ended by a NUL.
    fn arguments(&self) -> Vec<u8>;
    /// At an exec: what of its traffic is that of the exec itself, if that can be known.
    fn read_by_exec(&self, programs: &mut Programs) -> Option<ExecReads>;
}

/// The first descriptors with what `target` says of each.
pub(super) fn first(target: impl Fn(i32) -> Option<OsString>) -> BTreeMap<i32, OsString> {
    let mut targets = BTreeMap::new();
    for fd in 0..REDIRECTABLE {
        match target(fd) {
            Some(target) => {
                targets.insert(fd, target);
            }
            None if fd >= STANDARD => break,
            None => {}
        }
    }
    targets
}
