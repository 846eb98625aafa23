//! State of a process at an instant at which it changes: at a fork, at an exec, at an exit.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use super::descriptors::Descriptor;
use super::exec_reads::{ExecReads, Programs};
use super::pipe_content::Found;
use super::reading::Traffic;
use crate::stat::Attributes;

mod live;

pub(super) use live::LiveSnapshot;

/// The descriptors that every program has.
const STANDARD: i32 = 3;
/// Descriptors that a shell can redirect by one digit; the higher ones are its own. Those above the standard
/// ones are reported up to the first that is closed: each read costs time.
const REDIRECTABLE: i32 = 10;

/// State of a process at one instant.
pub(crate) trait ProcessSnapshot {
    /// Numbers of the descriptors.
    fn numbers(&self) -> Vec<i32>;
    /// The snapshot of process `pid` at the same instant, if `pid` is the parent and was reported with this
    /// one.
    fn of_parent(&self, pid: u32) -> Option<&dyn ProcessSnapshot> {
        let _ = pid;
        None
    }
    /// Targets of the first descriptors: a path, or text such as `pipe:[7]`.
    fn targets(&self) -> BTreeMap<i32, OsString>;
    /// Access mode and `O_APPEND` of descriptor `fd`, and its position.
    fn state(&self, fd: i32) -> Option<(u32, u64)>;
    /// Device and inode of the file open as `fd`, comparable with those of other snapshots of this kind only,
    /// and its size in bytes.
    fn extent(&self, fd: i32) -> Option<((u64, u64), u64)>;
    /// Attributes of the file open as `fd`, as far as the kernel knows them without asking a server.
    fn attributes(&self, fd: i32) -> Option<Attributes>;
    /// The attributes that the kernel reported of the regular file open as `fd`: enough to distinguish it
    /// from others while it lives. `None`: none were reported.
    fn as_reported(&self, fd: i32) -> Option<Attributes> {
        let _ = fd;
        None
    }
    /// Pipes and sockets of the process. `None`: they cannot be read.
    fn channels(&self) -> Option<Vec<Descriptor>>;
    /// True if [`ProcessSnapshot::channels`] is incomplete: the process had more descriptors than fit into
    /// the report, and is gone.
    fn lacks_channels(&self) -> bool {
        false
    }
    /// The unread bytes of the pipe that the process may read from as descriptor `fd`; `None`: more may come.
    fn left(&self, fd: i32) -> Option<Found>;
    /// The bytes that the first thread has read and written so far, if it is the only one.
    fn traffic(&self) -> Option<Traffic>;
    /// Arguments, each ended by a NUL.
    fn arguments(&self) -> Vec<u8>;
    /// At an exec: the path of the program, if the kernel reported it.
    fn program(&self) -> Option<&Path> {
        None
    }
    /// At an exec: the part of the traffic that the exec itself caused, if that can be known.
    fn read_by_exec(&self, programs: &mut Programs) -> Option<ExecReads>;
}

/// The first descriptors, each with its `target`.
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
