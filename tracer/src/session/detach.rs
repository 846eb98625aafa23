//! `flowtrace unmount`: ends a mount session and waits until its trace is complete.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use flowtrace_schema::Unrecorded;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::nested;
use crate::mounting::{self, Mount};
use crate::proc::PidFd;
use crate::proc::links::DELETED;

/// Time that a daemon may take to complete its trace.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(300);
/// Time that a daemon may take to serve its new mount.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Time to wait for the end of a mount that was unmounted lazily, in case it had no user left.
const LAZY_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit of the search through the open files of processes: some have a million.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(5);

/// A process that keeps a mount busy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// Its command line.
    pub command: String,
    /// Uses of the mount: `cwd`, `root`, `exe`, or open files.
    pub holds: String,
}

/// Reasons why a session was not ended.
#[derive(Debug)]
pub enum DetachError {
    /// There is no traced mount at that path.
    NotMounted(PathBuf),
    /// The mount is that of the run that this process belongs to, and ends with the command.
    OfRun(PathBuf),
    /// Processes use the mount: these, and perhaps others that cannot be seen.
    Busy(Vec<Holder>),
    /// The mount is gone, but its daemon has not completed the trace.
    StillFlushing(u32),
    /// The system refused.
    Refused(io::Error),
}

/// A mount that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detached {
    /// Its daemon has completed the trace, at this path if it is known.
    Completed(Option<PathBuf>),
    /// Its daemon had died before: the trace ends at that time.
    DaemonWasDead,
    /// It is gone from its path, and a process still uses it; the trace goes on until that process ends.
    StillUsed {
        /// The known users; there may be others that cannot be seen.
        holders: Vec<Holder>,
        /// The trace, if its path is known.
        trace: Option<PathBuf>,
    },
}

/// Unmounts the mount at `mountpoint` and waits until its daemon has completed the trace. With `lazily` it
/// waits only for a short time, because the mount's last user may end much later.
///
/// # Errors
/// [`DetachError`] has the reason. The mount is then unchanged, unless `lazily`.
pub fn detach(mountpoint: &Path, lazily: bool) -> Result<Detached, DetachError> {
    let mount = mount_at(mountpoint).map_err(DetachError::Refused)?;
    let mount = mount.ok_or_else(|| DetachError::NotMounted(mountpoint.to_owned()))?;
    if nested::is_of_own_run(&mount) {
        return Err(DetachError::OfRun(mount.point));
    }
    let daemon = mount
        .source
        .strip_prefix(mounting::SOURCE_PREFIX)
        .and_then(|s| s.parse().ok());
    await_begin(&mount.point);
    // Opened before the daemon can end and its pid be reused.
    let pidfd = daemon.and_then(PidFd::open);
    let trace = daemon.and_then(trace_of);
    // Before the unmount: files that are open in an unmounted filesystem have no path that shows it.
    let users = match lazily {
        true => holders(&mount.point),
        false => Vec::new(),
    };
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
        let timeout = if lazily { LAZY_TIMEOUT } else { FLUSH_TIMEOUT };
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
        let mut ended = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ended, timeout) {
            Ok(0) if lazily => {
                let is_alive = |user: &Holder| Path::new(&format!("/proc/{}", user.pid)).exists();
                return Ok(Detached::StillUsed {
                    holders: users.into_iter().filter(is_alive).collect(),
                    trace,
                });
            }
            Ok(0) => return Err(DetachError::StillFlushing(pid)),
            _ => {}
        }
    }
    Ok(Detached::Completed(trace))
}

/// Waits until the daemon of a new mount serves it: a daemon that loses its mount before that has recorded
/// nothing, and gives up. The kernel delays calls until then. A daemon that hangs is not waited for.
fn await_begin(point: &Path) {
    let (answered, answer) = channel();
    let point = point.to_owned();
    std::thread::spawn(move || {
        // Any answer shows that the daemon serves.
        let _ = answered.send(fs::metadata(point).is_ok());
    });
    let _ = answer.recv_timeout(BEGIN_TIMEOUT);
}

/// The traced mount at `path`. A mount whose daemon died cannot be accessed any more, so the path is first
/// compared as text.
fn mount_at(path: &Path) -> io::Result<Option<Mount>> {
    let absolute = std::path::absolute(path)?;
    let resolved = absolute.canonicalize().unwrap_or_else(|_| absolute.clone());
    let is_ours = |m: &Mount| m.kind == mounting::FILESYSTEM_TYPE;
    let is_there = |m: &Mount| m.point == absolute || m.point == resolved;
    Ok(mounting::mounts()?
        .into_iter()
        .rfind(|m| is_ours(m) && is_there(m)))
}

/// The trace that the recorder process of a daemon writes: its open file that has an open `-wal` file next to
/// it, even if both were deleted. If that process is gone, the open file of the daemon with a note next to it.
fn trace_of(daemon: u32) -> Option<PathBuf> {
    let children = fs::read_to_string(format!("/proc/{daemon}/task/{daemon}/children"));
    let children = children.unwrap_or_default();
    let written = children.split_whitespace().find_map(|pid| {
        let open = open_files(pid);
        open.iter()
            .find(|path| {
                let mut wal = path.as_os_str().to_owned();
                wal.push("-wal");
                open.iter().any(|other| other.as_os_str() == wal)
            })
            .cloned()
    });
    written.or_else(|| {
        let has_note = |path: &PathBuf| Unrecorded::of(path).is_some();
        open_files(&daemon.to_string()).into_iter().find(has_note)
    })
}

/// Paths of the open files of a process, as far as they may be read.
fn open_files(pid: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter();
    let links = entries.flatten().flatten().map(|fd| fd.path());
    let paths = links.filter_map(|link| fs::read_link(link).ok());
    paths.map(undeleted).collect()
}

/// The path that an open file had before it was deleted, as /proc marks it.
fn undeleted(path: PathBuf) -> PathBuf {
    match path.as_os_str().as_bytes().strip_suffix(DELETED) {
        Some(before) => PathBuf::from(OsStr::from_bytes(before)),
        None => path,
    }
}

/// Processes that use the filesystem mounted at `point`, as far as [`SEARCH_TIMEOUT`] allows. Links in /proc
/// are read, not followed: following them would make requests to the mount.
fn holders(point: &Path) -> Vec<Holder> {
    let deadline = Instant::now() + SEARCH_TIMEOUT;
    let inside = |link: &Path| fs::read_link(link).is_ok_and(|target| target.starts_with(point));
    let mut found: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for (pid, process) in processes() {
        for name in ["cwd", "root", "exe"] {
            if inside(&process.join(name)) {
                found.entry(pid).or_default().push(name.to_owned());
            }
        }
    }
    for (pid, process) in processes() {
        let open = fs::read_dir(process.join("fd"))
            .into_iter()
            .flatten()
            .flatten();
        let open = open.take_while(|_| Instant::now() < deadline);
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
        .map(|(pid, holds)| Holder {
            pid,
            command: command_of(pid),
            holds: holds.join(", "),
        })
        .collect()
}

/// The other processes, with their directories in /proc.
fn processes() -> impl Iterator<Item = (u32, PathBuf)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_string_lossy().parse().ok()?;
        (pid != std::process::id()).then(|| (pid, entry.path()))
    })
}

/// The command line of a process; its name if there is none, as at the instant of an exec.
fn command_of(pid: u32) -> String {
    let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let arguments = read("cmdline");
    match arguments.strip_suffix(b"\0").unwrap_or(&arguments) {
        [] => String::from_utf8_lossy(&read("comm")).trim_end().to_owned(),
        arguments => flowtrace_schema::quote_argv(arguments.split(|&b| b == 0))
            .text()
            .into_owned(),
    }
}
