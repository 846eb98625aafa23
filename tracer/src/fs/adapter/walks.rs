//! Walking through directories without asking.
//!
//! Every component of every path is looked up, which is most of what a build asks for, although no
//! application asked for it: what it asked for is the last one. So the kernel may keep the names of
//! directories for a moment. A `stat` of a directory is still seen, because its attributes may not
//! be kept.
//!
//! Whoever looks a name up must be allowed to search its directory. Where the real filesystem
//! decides that, lookup by lookup, only names in directories that everybody may search are kept;
//! and when that may have changed, the kernel is told to ask again.

use std::sync::Arc;
use std::time::Duration;

use flowtrace_schema::FileKind;

use super::Adapter;
use crate::fs::Permission;
use crate::fs::inode::Node;
use crate::fs::protocol::{Device, notify};

/// How long the kernel may keep the name of a directory. It learns of changes made through the
/// mount at once, and of others after this time.
const KEPT: Duration = Duration::from_secs(1);

/// Whether and how names of directories are kept.
#[derive(Debug)]
pub(super) enum Walks {
    /// Each is looked up: the kernel could not be told to ask again.
    Asked,
    /// All users have the same rights, or the kernel checks them.
    Kept,
    /// Only what everybody may reach; the kernel is told here when that may have changed.
    KeptIfOpen(Arc<dyn Device>),
}

impl Walks {
    pub(super) fn new(permission: Permission, device: &Arc<dyn Device>) -> Walks {
        match permission {
            Permission::Process | Permission::Kernel => Walks::Kept,
            Permission::Caller if notify::look_up_again(&**device).is_ok() => {
                Walks::KeptIfOpen(Arc::clone(device))
            }
            Permission::Caller => Walks::Asked,
        }
    }
}

impl Adapter {
    /// How long the kernel may keep the name of `node` in the directory `parent`.
    pub(super) fn entry_ttl(&self, parent: u64, node: &Node) -> Duration {
        let may_keep = node.kind == FileKind::Directory
            && match self.walks {
                Walks::Asked => false,
                Walks::Kept => true,
                Walks::KeptIfOpen(_) => {
                    let parent = self.view.node(parent);
                    parent.is_ok_and(|parent| self.view.is_open_to_all(&parent))
                }
            };
        if may_keep {
            self.ttl.max(KEPT)
        } else {
            self.ttl
        }
    }

    /// Who may search a directory may have changed.
    pub(super) fn permissions_changed(&self, node: &Node) {
        if let Walks::KeptIfOpen(device) = &self.walks
            && node.kind == FileKind::Directory
        {
            // It knew how when this began.
            let _ = notify::look_up_again(&**device);
        }
    }
}
