//! `flowtrace unmount`: end a mount session and wait until its trace is complete.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::mounting::{self, Mount};
use crate::proc::PidFd;

/// How long a daemon may take to complete its trace.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(300);

/// A process that keeps a view busy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// Its command line.
    pub command: String,
    /// What it holds: `cwd`, `root`, `exe`, or open files.
    pub holds: String,
}

/// Why a session was not ended.
#[derive(Debug)]
pub enum DetachError {
    /// There is no traced view at that path.
    NotMounted(PathBuf),
    /// Somebody uses the view.
    Busy(Vec<Holder>),
    /// The view is gone, but its daemon has not completed the trace.
    StillFlushing(u32),
    /// The system refused.
    Refused(io::Error),
}

/// A view that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detached {
    /// Its daemon has completed the trace, at this path where it can be told.
    Completed(Option<PathBuf>),
    /// Its daemon had died before: the trace ends where that happened.
    DaemonWasDead,
}

/// Unmounts the view at `mountpoint` and waits until its daemon has completed the trace.
///
/// # Errors
/// [`DetachError`] says what is in the way. The view then stays as it was, unless `lazily`.
pub fn detach(mountpoint: &Path, lazily: bool) -> Result<Detached, DetachError> {
    let mount = view_at(mountpoint).map_err(DetachError::Refused)?;
    let mount = mount.ok_or_else(|| DetachError::NotMounted(mountpoint.to_owned()))?;
    let daemon = mount
        .source
        .strip_prefix(mounting::SOURCE_PREFIX)
        .and_then(|s| s.parse().ok());
    // Opened before the daemon can end and its number be given away.
    let pidfd = daemon.and_then(PidFd::open);
    let trace = daemon.and_then(trace_of);
    let unmounted = match lazily {
        true => mounting::unmount_lazily(&mount.point),
        false => mounting::unmount(&mount.point),
    };
    match unmounted {
        Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
            return Err(DetachError::Busy(holders(&mount.point)));
        }
        result => result.map_err(DetachError::Refused)?,
    }
    if let Some(pid) = daemon {
        let Some(pidfd) = pidfd else {
            return Ok(Detached::DaemonWasDead);
        };
        let timeout = PollTimeout::try_from(FLUSH_TIMEOUT).unwrap_or(PollTimeout::MAX);
        let mut ended = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
        if poll(&mut ended, timeout) == Ok(0) {
            return Err(DetachError::StillFlushing(pid));
        }
    }
    Ok(Detached::Completed(trace))
}

/// The traced view mounted at `path`. A view whose daemon died cannot be looked at any more, so
/// the path is compared as text first.
fn view_at(path: &Path) -> io::Result<Option<Mount>> {
    let absolute = std::path::absolute(path)?;
    let resolved = absolute.canonicalize().unwrap_or_else(|_| absolute.clone());
    let is_view = |m: &Mount| m.kind == mounting::FILESYSTEM_TYPE;
    let is_there = |m: &Mount| m.point == absolute || m.point == resolved;
    Ok(mounting::mounts()?
        .into_iter()
        .rfind(|m| is_view(m) && is_there(m)))
}

/// The trace that a daemon writes: the open file that has an open `-wal` beside it.
fn trace_of(pid: u32) -> Option<PathBuf> {
    let open: Vec<_> = fs::read_dir(format!("/proc/{pid}/fd"))
        .ok()?
        .flatten()
        .collect();
    let open: Vec<_> = open
        .iter()
        .filter_map(|fd| fs::read_link(fd.path()).ok())
        .collect();
    open.iter()
        .find(|path| {
            let mut wal = path.as_os_str().to_owned();
            wal.push("-wal");
            open.iter().any(|other| other.as_os_str() == wal)
        })
        .cloned()
}

/// Who uses the filesystem mounted at `point`. Links in /proc are read, not followed: following
/// them would make requests to the view.
fn holders(point: &Path) -> Vec<Holder> {
    let mut found: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let name = process.file_name();
        let pid = name.to_string_lossy().parse::<u32>().ok();
        let Some(pid) = pid.filter(|&pid| pid != std::process::id()) else {
            continue;
        };
        let inside =
            |link: &Path| fs::read_link(link).is_ok_and(|target| target.starts_with(point));
        for name in ["cwd", "root", "exe"] {
            if inside(&process.path().join(name)) {
                found.entry(pid).or_default().push(name.to_owned());
            }
        }
        let open = fs::read_dir(process.path().join("fd"))
            .into_iter()
            .flatten()
            .flatten();
        let open = open.filter(|fd| inside(&fd.path())).count();
        if open > 0 {
            found.entry(pid).or_default().push(format!(
                "{open} open file{}",
                if open == 1 { "" } else { "s" }
            ));
        }
    }
    found
        .into_iter()
        .map(|(pid, holds)| {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let command = flowtrace_schema::quote_argv(
                command
                    .strip_suffix(b"\0")
                    .unwrap_or(&command)
                    .split(|&b| b == 0),
            );
            Holder {
                pid,
                command: command.text().into_owned(),
                holds: holds.join(", "),
            }
        })
        .collect()
}
