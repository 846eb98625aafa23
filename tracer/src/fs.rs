//! A passthrough filesystem over a directory that logs every call it serves.
//!
//! The caller mounts; [`serve`] answers the kernel on the `/dev/fuse` descriptor of that mount.
//! Everything below `adapter` is plain functions on node ids and handles that return
//! an errno: they know nothing of FUSE and run in tests without a mount.
//!
//! ```text
//! kernel <-> protocol (messages, device) <-> adapter (what each request means)
//!                                              |         |         |
//!               log, split (CallRing) ---------+      locks     passthrough (system calls)
//!                                                                  |              |
//!                                    identity (File, Name records) +   node_table, handle, descriptor
//! ```
//!
//! Invariants:
//! - the real directory is reached only through descriptors, never by path;
//! - a request waits for another request's system call only where the real directory makes it
//!   wait, too: for the position in an open directory, for a name while names in the same
//!   directory change, and for a lock while another one is asked for, which never waits itself;
//!   no other lock is held across one;
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
pub use crate::opens::Opens;
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
    /// Absolute path under which the workflow sees it.
    pub seen_path: PathBuf,
    /// Host of the files.
    pub host: HostId,
    /// Use in-kernel passthrough for mappings if this process may; otherwise, and where it may
    /// not, mappings go through the page cache of the mount.
    pub kernel_passthrough: bool,
    /// Record the calls. Without it the filesystem behaves the same and records nothing.
    pub log: bool,
    /// Let the page cache of the mount answer reads. Without, each read is seen.
    pub cached: bool,
    /// Which files are recorded.
    pub filter: Filter,
    /// How long the kernel may answer `stat` and lookups by itself. 0: every one is seen.
    pub attribute_ttl: Duration,
    /// Threads that serve requests, unless those come over io_uring, which has its own for each
    /// processor.
    pub threads: usize,
    /// Give each thread a `/dev/fuse` descriptor of its own; needs the right to open it.
    pub clone_fd: bool,
    /// Have requests come over io_uring, where the kernel offers that: [`IoUring`] must have been on
    /// when the view was mounted.
    pub io_uring: bool,
    /// Party that checks the permissions of a caller.
    pub permission: Permission,
    /// The mount belongs to a user namespace that maps only this user and group.
    ///
    /// Other owners then appear as nobody, and the kernel refuses every change of what nobody
    /// owns. What the user may change all the same is therefore shown as the user's own. The
    /// mount must not have `default_permissions`: this process has the user's credentials, so
    /// its own calls give the true errno. Whoever mounts must `stat` the mount once before
    /// anything else uses it: until then the kernel takes its root for nobody's.
    pub owner: Option<(u32, u32)>,
    /// Files that the view does not show.
    pub hidden: Vec<Hidden>,
    /// Open files that the command inherits, and opens again through the view.
    pub offers: Arc<Offers>,
    /// Layer that records reads and writes where the kernel serves them by itself. With it, and where the
    /// kernel allows that, it does so.
    pub kernel: Option<Arc<Opens>>,
    /// Processes that use io_uring: the kernel serves the data of what they open, where it can.
    pub rings: Arc<crate::rings::Rings>,
}

/// Party that checks the permissions of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// All callers have the rights of this process: they are the same ordinary user.
    Process,
    /// The real filesystem: each call is made with the ids and groups of its caller. This process
    /// is root. Nothing but the calls themselves is asked for, so that all are seen.
    Caller,
    /// The kernel, from the attributes that it is told, access lists included. This process is
    /// root and the mount has `default_permissions`. Needed where the kernel answers lookups by
    /// itself; otherwise it would ask for the attributes of every directory on a path.
    Kernel,
}

/// A name that the view does not show: looking it up fails with `ENOENT`, making it with
/// `EACCES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hidden {
    /// Directory that holds it, relative to the root; empty for the root itself.
    pub directory: PathBuf,
    /// Name in that directory.
    pub name: OsString,
}
