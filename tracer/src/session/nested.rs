//! Detection of an outer `flowtrace run` that traces this process.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{fs, io};

use nix::unistd::{AccessFlags, access};

use super::Error;
use super::trace_files::own_files;
use crate::mounting::{self, FILESYSTEM_TYPE, Mount, SOURCE_PREFIX};
use crate::proc;

/// No process has more ancestors than these; a ring of them comes from a race of process ids.
const MOST_ANCESTORS: usize = 10_000;

/// True if a mount is that of a run that this process is part of. Such a mount is made by the process that
/// then becomes the command, so all processes of the run descend from it. A mount of `flowtrace mount` is
/// made by its daemon, which has no descendants.
pub(super) fn is_of_own_run(mount: &Mount) -> bool {
    let by: Option<u32> = mount
        .source
        .strip_prefix(SOURCE_PREFIX)
        .and_then(|pid| pid.parse().ok());
    by.is_some_and(|by| descends_from(std::process::id(), by, parent_of))
}

/// The same, also if the command has ended already and this process was left behind.
pub(super) fn may_be_of_own_run(mount: &Mount) -> bool {
    is_of_own_run(mount) || proc::tracer_of(std::process::id()).is_some()
}

/// True if the trace that cannot be written, with this error, is that of a run that this process is part of.
pub(super) fn is_outer_trace(trace: &Path, error: &Error) -> bool {
    match error {
        Error::Store(flowtrace_schema::Error::Recording(_)) => {
            ancestors(std::process::id(), parent_of).any(|pid| has_open(pid, trace))
        }
        Error::Store(flowtrace_schema::Error::Create { source, .. }) => {
            source.kind() == io::ErrorKind::PermissionDenied && is_hidden(trace)
        }
        _ => false,
    }
}

/// True if the mount of an outer run hides a name: it refuses the name in a directory in which files may be
/// made.
fn is_hidden(trace: &Path) -> bool {
    let files = own_files(trace);
    let Some(directory) = files.first().and_then(|file| file.parent()) else {
        return false;
    };
    let mount = mounting::mount_of(directory).ok().flatten();
    mount.is_some_and(|mount| mount.kind == FILESYSTEM_TYPE && is_of_own_run(&mount))
        && access(directory, AccessFlags::W_OK).is_ok()
}

fn has_open(pid: u32, file: &Path) -> bool {
    let Ok(wanted) = fs::metadata(file) else {
        return false;
    };
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let mut open = entries
        .flatten()
        .filter_map(|entry| fs::metadata(entry.path()).ok());
    open.any(|open| (open.dev(), open.ino()) == (wanted.dev(), wanted.ino()))
}

/// Iterates over a process and its ancestors.
fn ancestors(pid: u32, parent_of: impl Fn(u32) -> Option<u32>) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(pid), move |&pid| parent_of(pid)).take(MOST_ANCESTORS)
}

fn descends_from(pid: u32, ancestor: u32, parent_of: impl Fn(u32) -> Option<u32>) -> bool {
    ancestors(pid, parent_of).any(|pid| pid == ancestor)
}

/// The parent of a process; `None` if it has none here, or is gone.
fn parent_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok().filter(|&parent| parent != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descent_follows_parents() {
        let parents = |pid| (pid > 1).then_some(pid - 1);
        assert!(descends_from(9, 4, parents));
        assert!(descends_from(4, 4, parents));
        assert!(!descends_from(3, 4, parents));
        // A ring ends, too.
        assert!(!descends_from(3, 4, |pid| Some(3 - pid)));
        assert!(descends_from(
            std::process::id(),
            std::os::unix::process::parent_id(),
            parent_of
        ));
    }
}
