//! `flowtrace unmount`: end a mount session and wait until its trace is complete.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::nested;
use crate::mounting::{self, Mount};
use crate::proc::PidFd;
use crate::proc::links::DELETED;

/// How long a daemon may take to complete its trace.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(300);
/// How long a daemon may take to serve what it has mounted.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to see whether a view that was taken away lazily had no user left.
const LAZY_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to look through what processes have open: some have a million files.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(5);

/// A process that keeps a view busy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// Its command line.
    pub command: String,
    /// Uses of the mount: `cwd`, `root`, `exe`, or open files.
    pub holds: String,
}

/// Why a session was not ended.
#[derive(Debug)]
pub enum DetachError {
    /// There is no traced view at that path.
    NotMounted(PathBuf),
    /// The view is that of the run that this process belongs to, and ends with the command.
    OfRun(PathBuf),
    /// Somebody uses the view; those that are known, others may be out of sight.
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
    /// It is gone from its path, and somebody still uses it; the trace goes on until that ends.
    StillUsed {
        /// Those that are known; others may be out of sight.
        holders: Vec<Holder>,
        /// The trace, where it can be told.
        trace: Option<PathBuf>,
    },
}

/// Unmounts the view at `mountpoint` and waits until its daemon has completed the trace; `lazily`
/// for a moment only, because that may be as far off as the end of the view's last user.
///
/// # Errors
/// [`DetachError`] says what is in the way. The view then stays as it was, unless `lazily`.
pub fn detach(mountpoint: &Path, lazily: bool) -> Result<Detached, DetachError> {
    let mount = view_at(mountpoint).map_err(DetachError::Refused)?;
    let mount = mount.ok_or_else(|| DetachError::NotMounted(mountpoint.to_owned()))?;
    if nested::is_of_own_run(&mount) {
        return Err(DetachError::OfRun(mount.point));
    }
    let daemon = mount
        .source
        .strip_prefix(mounting::SOURCE_PREFIX)
        .and_then(|s| s.parse().ok());
    await_begin(&mount.point);
    // Opened before the daemon can end and its number be given away.
    let pidfd = daemon.and_then(PidFd::open);
    let trace = daemon.and_then(trace_of);
    // Before: what is open in a view that is gone has no path that tells.
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

/// Waits until the daemon of a view that was mounted a moment ago serves it: one that loses its view before has recorded nothing,
/// and gives up. The kernel keeps calls waiting until then; one that is stuck is not waited for.
fn await_begin(point: &Path) {
    let (answered, answer) = channel();
    let point = point.to_owned();
    std::thread::spawn(move || {
        // Whatever the answer, somebody gave it.
        let _ = answered.send(fs::metadata(point).is_ok());
    });
    let _ = answer.recv_timeout(BEGIN_TIMEOUT);
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

/// The trace that a daemon writes: the open file that has an open `-wal` beside it, whether or not
/// somebody has deleted them.
fn trace_of(pid: u32) -> Option<PathBuf> {
    let open: Vec<_> = fs::read_dir(format!("/proc/{pid}/fd"))
        .ok()?
        .flatten()
        .collect();
    let open: Vec<_> = open
        .iter()
        .filter_map(|fd| fs::read_link(fd.path()).ok())
        .map(undeleted)
        .collect();
    open.iter()
        .find(|path| {
            let mut wal = path.as_os_str().to_owned();
            wal.push("-wal");
            open.iter().any(|other| other.as_os_str() == wal)
        })
        .cloned()
}

/// The path that an open file had before it was deleted, as /proc marks it.
fn undeleted(path: PathBuf) -> PathBuf {
    match path.as_os_str().as_bytes().strip_suffix(DELETED) {
        Some(before) => PathBuf::from(OsStr::from_bytes(before)),
        None => path,
    }
}

/// Processes that use the filesystem mounted at `point`, as far as [`SEARCH_TIMEOUT`] allows. Links in /proc
/// are read, not followed: following them would make requests to the view.
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

/// The command line of a process; its name where there is none, as at the moment of an exec.
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
