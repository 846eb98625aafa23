//! Snapshots that are read from /proc.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};

use nix::fcntl::AT_FDCWD;

use super::super::descriptors::{self, Descriptor};
use super::super::exec_reads::{ExecReads, Programs};
use super::super::links;
use super::super::near;
use super::super::pipe_content::{self, Found};
use super::super::reading::{self, Traffic};
use super::{ProcessSnapshot, first};
use crate::stat::{self, Attributes};

/// Process of this pid, which is stopped or does not change soon: each method reads /proc.
pub(in super::super) struct LiveSnapshot(pub(in super::super) u32);

impl ProcessSnapshot for LiveSnapshot {
    fn numbers(&self) -> Vec<i32> {
        descriptors::numbers_of(self.0)
    }

    fn targets(&self) -> BTreeMap<i32, OsString> {
        first(|fd| Some(links::target(self.0, fd)?.into_os_string()))
    }

    fn state(&self, fd: i32) -> Option<(u32, u64)> {
        descriptors::state(self.0, fd)
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
        pipe_content::left_in(self.0, fd)
    }

    fn traffic(&self) -> Option<Traffic> {
        Traffic::of(self.0)
    }

    fn arguments(&self) -> Vec<u8> {
        reading::arguments(self.0).unwrap_or_default()
    }

    fn read_by_exec(&self, programs: &mut Programs) -> Option<ExecReads> {
        let of = |name: &str| links::led_to(&format!("/proc/{}/{name}", self.0));
        let program = of("exe")?;
        // If the process sees a mount, its path leads elsewhere for us, mostly to the same file.
        let link = CString::new(format!("/proc/{}/exe", self.0)).ok()?;
        let size = stat::known(AT_FDCWD, &link).ok()?.size;
        let found = near::behind(&program);
        let is_it = matches!(found, near::Found::Is(there) if there.attributes.size == size);
        is_it.then(|| programs.exec(&program, &self.arguments(), &of("cwd")?))?
    }
}
