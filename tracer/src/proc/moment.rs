//! What a process has at a moment at which that changes: when it forks, when it runs a new program, and when it ends.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};

use nix::fcntl::AT_FDCWD;

use super::channels::unread::{self, Found};
use super::descriptors::{self, Descriptor};
use super::exec_reads::{ExecReads, Programs};
use super::inherited;
use super::near;
use super::ptrace;
use super::reading::{self, Traffic};
use super::sampler::objects::{Holder, Target};
use crate::fs::{Attributes, stat};

/// The descriptors that every program has.
const STANDARD: i32 = 3;
/// Descriptors that a shell can redirect by one digit; the higher ones are its own. Those beyond the
/// standard ones are told up to the first that is not there: each look has its price.
const TOLD: i32 = 10;

/// Answers about a process at a moment.
pub(crate) trait Moment {
    /// The numbers of its descriptors.
    fn numbers(&self) -> Vec<i32>;
    /// The same moment of process `pid`, if that is its parent and was told with it.
    fn of_parent(&self, pid: u32) -> Option<&dyn Moment> {
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
    fn as_told(&self, fd: i32) -> Option<Attributes> {
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

/// A process that is held, or whose moment is not over soon: looked at when something is asked.
pub(super) struct Held(pub(super) u32);

impl Moment for Held {
    fn is_native(&self) -> bool {
        ptrace::is_native(self.0)
    }

    fn stands_for(&self, fd: i32) -> Option<Target> {
        let (pid, tid) = (self.0, self.0);
        Holder { pid, tid }.target(fd)
    }

    fn numbers(&self) -> Vec<i32> {
        descriptors::numbers_of(self.0)
    }

    fn targets(&self) -> BTreeMap<i32, OsString> {
        first(|fd| Some(descriptors::target(self.0, fd)?.into_os_string()))
    }

    fn state(&self, fd: i32) -> Option<(u32, u64)> {
        inherited::state(self.0, fd)
    }

    fn extent(&self, fd: i32) -> Option<((u64, u64), u64)> {
        let found = self.attributes(fd)?;
        Some(((found.dev, found.ino), found.size))
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

    fn traffic(&self) -> Option<Traffic> {
        Traffic::of(self.0)
    }

    fn arguments(&self) -> Vec<u8> {
        reading::arguments(self.0).unwrap_or_default()
    }

    fn read_by_exec(&self, programs: &mut Programs) -> Option<ExecReads> {
        let of = |name: &str| descriptors::led_to(&format!("/proc/{}/{name}", self.0));
        let program = of("exe")?;
        // Where it sees a view its path leads elsewhere for us, mostly to the same file.
        let link = CString::new(format!("/proc/{}/exe", self.0)).ok()?;
        let size = stat::known(AT_FDCWD, &link).ok()?.size;
        let found = near::behind(&program);
        let is_it = matches!(found, near::Found::Is(there) if there.attributes.size == size);
        is_it.then(|| programs.exec(&program, &self.arguments(), &of("cwd")?))?
    }
}

/// The first descriptors with what `target` says of each.
pub(super) fn first(target: impl Fn(i32) -> Option<OsString>) -> BTreeMap<i32, OsString> {
    let mut targets = BTreeMap::new();
    for fd in 0..TOLD {
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
