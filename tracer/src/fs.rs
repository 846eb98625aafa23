//! A passthrough filesystem over a directory that logs every call it serves.
//!
//! The caller mounts; [`serve`] answers the kernel on the `/dev/fuse` descriptor of that mount. Everything
//! below `adapter` is plain functions on node ids and handles that return an errno: they know nothing of FUSE
//! and run in tests without a mount.
//!
//! ```text
//! kernel <-> protocol (messages, device) <-> adapter (what each request means)
//!                                              |         |         |
//!               log, split (Recorder) ---------+      locks     passthrough (system calls)
//!                                                                  |              |
//!                                    identity (File, Name records) +   node_table, handle, descriptor
//! ```
//!
//! Invariants:
//! - the real directory is reached only through descriptors, never by path;
//! - a request waits for another request's system call only where the real directory makes it wait, too: for
//!   the position in an open directory, for a name while names in the same directory change, and for a lock
//!   while another lock is requested, which never waits itself; no other mutex is locked during a system
//!   call;
//! - the application sees the errno of the real filesystem.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use flowtrace_schema::HostId;

mod adapter;
mod again;
mod credentials;
mod descriptor;
mod filter;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod handle;
mod in_flight;
mod locks;
mod log;
mod node;
mod node_table;
pub(crate) mod offers;
mod passthrough;
mod protocol;
mod session;
mod split;
mod sys;

pub use crate::file_table::FileTable;
pub use filter::{Filter, PatternError};
pub use offers::Offers;
pub use protocol::IoUring;
pub(crate) use protocol::io_uring_is_on;
pub(crate) use session::raise_descriptor_limit;
pub use session::{Session, serve};

/// Directory to serve, and settings.
#[derive(Debug)]
pub struct Config {
    /// The real directory (`O_PATH | O_DIRECTORY`), opened before a mount covered it.
    pub root: OwnedFd,
    /// Absolute path under which the workflow sees the directory.
    pub seen_path: PathBuf,
    /// Host of the files.
    pub host: HostId,
    /// Use in-kernel passthrough for mappings if this process may. Otherwise mappings go through the page
    /// cache of the mount.
    pub kernel_passthrough: bool,
    /// Record the calls. Without recording, the filesystem behaves the same.
    pub log: bool,
    /// Let the page cache of the mount answer reads. If false, each read is seen.
    pub cached: bool,
    /// The files that are recorded.
    pub filter: Filter,
    /// Time for which the kernel may answer `stat` and lookups by itself. 0: every one is seen.
    pub attribute_ttl: Duration,
    /// Threads that serve requests, unless requests come over io_uring, which has threads for each CPU.
    pub threads: usize,
    /// Give each thread a `/dev/fuse` descriptor of its own; this needs the right to open it.
    pub clone_fd: bool,
    /// Get requests over io_uring if the kernel offers it: [`IoUring`] must have been on when the mount was
    /// made.
    pub io_uring: bool,
    /// Party that checks the permissions of a caller.
    pub permission: Permission,
    /// The mount belongs to a user namespace that maps only this user and group.
    ///
    /// Other owners then appear as nobody, and the kernel refuses every change of nobody's files. Files that
    /// the user may change all the same are therefore shown as the user's own. The mount must not have
    /// `default_permissions`: this process has the user's credentials, so its own calls give the true errno.
    /// The process that mounts must `stat` the mount once before any other use: until then the kernel takes
    /// the root for nobody's.
    pub owner: Option<(u32, u32)>,
    /// Files that the mount does not show.
    pub hidden: Vec<Hidden>,
    /// Open files that the command inherits, and opens again through the mount.
    pub offers: Arc<Offers>,
    /// Processes that use io_uring: the kernel serves the data of the files that they open, where it can.
    pub rings: Arc<crate::rings::Rings>,
}

/// Party that checks the permissions of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// All callers have the rights of this process: they are the same ordinary user.
    Process,
    /// The real filesystem: each call is made with the ids and groups of its caller. This process is root.
    /// The kernel sends no requests but the calls themselves, so that all are seen.
    Caller,
    /// The kernel, from the attributes that it gets, access lists included. This process is root and the
    /// mount has `default_permissions`. This is needed where the kernel answers lookups by itself; otherwise
    /// it would request the attributes of every directory on a path.
    Kernel,
}

/// A name that the mount does not show: its lookup fails with `ENOENT`, its creation with `EACCES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hidden {
    /// Directory that contains it, relative to the root; empty for the root itself.
    pub directory: PathBuf,
    /// Name in that directory.
    pub name: OsString,
}
