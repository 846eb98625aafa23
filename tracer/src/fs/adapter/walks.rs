//! Names of directories that the kernel may keep, so that walks through directories need no requests.
//!
//! Every component of every path is looked up. That is most of the requests of a build, although the
//! application means only the last component. So the kernel may keep the names of directories for a short
//! time. A `stat` of a directory is still seen, because its attributes may not be kept.
//!
//! A process that looks up a name must be allowed to search its directory. Where the real filesystem decides
//! that, lookup by lookup, only names in directories that every user may search are kept; when that changes,
//! the kernel is notified to look them up again.
//!
//! With that notification, the kernel detaches mounts on the names in question (`d_invalidate` in
//! fs/dcache.c). If something is mounted below this mount, the change waits instead until the kept names have
//! expired, and from then on none is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flowtrace_schema::FileKind;

use crate::fs::Permission;
use crate::fs::node::Node;
use crate::fs::passthrough::Passthrough;
use crate::fs::protocol::{Device, notify};
use crate::mounting;

/// Time for which the kernel may keep the name of a directory. It sees changes made through the mount at
/// once, and others after this time.
const KEPT: Duration = Duration::from_secs(1);

/// Policy for the names of directories that the kernel may keep.
#[derive(Debug)]
pub(super) enum Walks {
    /// No name is kept: the kernel could not be notified to look them up again.
    Asked,
    /// All users have the same rights, or the kernel checks them.
    Kept,
    /// Only names in directories that every user may search.
    KeptIfOpen(Reach),
}

/// The way to make the kernel look names up again.
#[derive(Debug)]
pub(super) struct Reach {
    device: Arc<dyn Device>,
    since: Instant,
    /// True if something is mounted below this mount.
    is_mounted_on: AtomicBool,
}

impl Walks {
    pub(super) fn new(permission: Permission, device: &Arc<dyn Device>) -> Walks {
        match permission {
            Permission::Process | Permission::Kernel => Walks::Kept,
            Permission::Caller if notify::look_up_again(&**device).is_ok() => {
                Walks::KeptIfOpen(Reach {
                    device: Arc::clone(device),
                    since: Instant::now(),
                    is_mounted_on: AtomicBool::new(false),
                })
            }
            Permission::Caller => Walks::Asked,
        }
    }
}

impl Reach {
    fn now_ns(&self) -> u64 {
        (self.since.elapsed().as_nanos() as u64).max(1)
    }
}

impl Walks {
    /// Time for which the kernel may keep the name of `node` in the directory `parent`, without a lookup.
    pub(super) fn entry_ttl(
        &self,
        passthrough: &Passthrough,
        parent: u64,
        node: &Node,
    ) -> Duration {
        let may_keep = node.kind == FileKind::Directory
            && match self {
                Walks::Asked => false,
                Walks::Kept => true,
                Walks::KeptIfOpen(reach) if reach.is_mounted_on.load(Ordering::Relaxed) => false,
                Walks::KeptIfOpen(reach) => passthrough.node(parent).is_ok_and(|parent| {
                    // Noted before the check: a thread that restricts the directory after the check finds the
                    // note.
                    let now = reach.now_ns();
                    parent.name_kept_ns.store(now, Ordering::SeqCst);
                    passthrough.is_open_to_all(&parent)
                }),
            };
        if may_keep { KEPT } else { Duration::ZERO }
    }

    /// Thread `tid` has changed the permission to search directory `node`.
    pub(super) fn permissions_changed(&self, passthrough: &Passthrough, node: &Node, tid: u32) {
        self.shut(passthrough, node, node, tid);
    }

    /// Thread `tid` has moved a directory out of the directory `from` into another one.
    pub(super) fn moved(
        &self,
        passthrough: &Passthrough,
        node: &Node,
        from: &Node,
        into: &Node,
        tid: u32,
    ) {
        if node.kind == FileKind::Directory && from.id != into.id {
            self.shut(passthrough, from, into, tid);
        }
    }

    /// Names kept for the directory `asked` are now in `now`. If not every user may search that one, no name
    /// may be kept any more.
    fn shut(&self, passthrough: &Passthrough, asked: &Node, now: &Node, tid: u32) {
        let Walks::KeptIfOpen(reach) = self else {
            return;
        };
        let last = asked.name_kept_ns.load(Ordering::SeqCst);
        let age = reach.now_ns().saturating_sub(last);
        let left = KEPT.saturating_sub(Duration::from_nanos(age));
        if last == 0 || left.is_zero() || passthrough.is_open_to_all(now) {
            return;
        }
        if reach.is_mounted_on.load(Ordering::Relaxed) || mounting::is_mounted_on(tid) {
            reach.is_mounted_on.store(true, Ordering::Relaxed);
            thread::sleep(left);
        } else {
            // The kernel has this notification: that was tested at the start.
            let _ = notify::look_up_again(&*reach.device);
        }
    }
}
