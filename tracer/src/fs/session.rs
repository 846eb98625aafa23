//! A served mount, from the handshake until the kernel releases it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use flowtrace_schema::{FileLayer, Op, Recorder};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::statfs::{FsType, fstatfs};

use super::Config;
use super::adapter::{Served, Shared, Wanted};
use super::log::{Event, Log};
use super::passthrough::Passthrough;
use crate::callers::{Callers, Effort};
use crate::clock::Clock;
use crate::file_table::FileTable;

/// A mount that is being served. If it is dropped, serving goes on.
#[derive(Debug)]
pub struct Session {
    shared: Arc<Shared>,
    thread: JoinHandle<io::Result<()>>,
}

/// Serves the mount behind `device` (an open `/dev/fuse` that was given to mount(2)) until it is unmounted.
/// Files and names go to `files`, calls to `recorder`.
///
/// Raises the limit of open files of this process as far as possible: every inode that the kernel knows takes
/// a descriptor.
///
/// # Errors
/// If the handshake with the kernel fails, the root is not usable, or threads cannot be made.
pub fn serve(
    device: OwnedFd,
    config: Config,
    files: Arc<FileTable>,
    recorder: Recorder,
    clock: Clock,
    callers: Arc<dyn Callers>,
) -> io::Result<Session> {
    raise_descriptor_limit();
    let filtered = config.log && !config.filter.is_empty();
    let log = Arc::new(Log::new(recorder, clock, callers, config.log, filtered));
    let wanted = Wanted {
        passthrough: (config.kernel_passthrough && !config.cached)
            .then(|| stack_depth(&config.root)),
        permission: config.permission,
        ttl: config.attribute_ttl,
        cached: config.cached,
        threads: config.threads,
        clone_fd: config.clone_fd,
        io_uring: config.io_uring,
    };
    let rings = Arc::clone(&config.rings);
    let passthrough = Arc::new(Passthrough::new(config, files, clock)?);
    let served = Served::begin(
        device,
        wanted,
        Arc::clone(&passthrough),
        Arc::clone(&log),
        rings,
    )?;
    let shared = served.shared();
    let thread = thread::Builder::new()
        .name("fs-session".into())
        .spawn(move || {
            let result = served.run();
            release_rest(&passthrough, &log);
            log.finish();
            result
        })?;
    Ok(Session { shared, thread })
}

impl Session {
    /// Way in which file calls are seen.
    pub fn layer(&self) -> FileLayer {
        self.shared.layer
    }

    /// FUSE INIT flags that were requested and granted.
    pub fn granted_flags(&self) -> u64 {
        self.shared.granted
    }

    /// True if the kernel has released the mount.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until the kernel has released the mount: it is unmounted, and the last file that was open on it
    /// is closed. All records are passed on by then, losses included.
    ///
    /// # Errors
    /// If serving failed before that.
    pub fn join(self) -> io::Result<()> {
        self.thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the session thread panicked")))
    }
}

/// Releases the files that the kernel did not: when a mount goes away, the kernel does not wait until its
/// last releases are answered, or even read.
fn release_rest(passthrough: &Passthrough, log: &Log) {
    for number in passthrough.open_files() {
        if let Ok(open) = passthrough.release(number) {
            log.end_pieces(&open.split);
            let started = log.start(0, Effort::Tables).or_opener(open.opener);
            log.end(started, Event::new(Op::Release, open.node.recorded()), 0);
        }
    }
    for number in passthrough.open_directories() {
        if let Ok(open) = passthrough.releasedir(number) {
            let started = log.start(0, Effort::Tables).or_opener(open.opener);
            log.end(started, Event::new(Op::Releasedir, open.node.recorded()), 0);
        }
    }
}

/// Number of filesystems stacked with the mount on top: the kernel allows two, and one leaves space for
/// another one above.
fn stack_depth(root: &OwnedFd) -> u32 {
    const OVERLAYFS: FsType = FsType(0x794c_7630);
    const ECRYPTFS: FsType = FsType(0xf15f);
    let stacked = fstatfs(root.as_fd())
        .is_ok_and(|figures| [OVERLAYFS, ECRYPTFS].contains(&figures.filesystem_type()));
    if stacked { 2 } else { 1 }
}

/// Raises the limit: as root to the maximum that the kernel allows a process, otherwise to the hard limit.
pub(crate) fn raise_descriptor_limit() {
    let allowed = std::fs::read_to_string("/proc/sys/fs/nr_open");
    if let Some(allowed) = allowed.ok().and_then(|text| text.trim().parse().ok())
        && setrlimit(Resource::RLIMIT_NOFILE, allowed, allowed).is_ok()
    {
        return;
    }
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // If even this fails, the limit stays, and exceeding it is an errno.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
