//! The handshake with the kernel: the requested features, and those that it grants.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flowtrace_schema::FileLayer;
use fuser::{Config, Filesystem, InitFlags, KernelConfig, Request, Session, SessionACL};

use super::backing::Backings;
use crate::fs::Permission;

/// Result of the handshake.
#[derive(Debug)]
pub(in crate::fs) struct Shared {
    /// Way in which file calls are seen.
    pub(in crate::fs) layer: FileLayer,
    /// INIT flags that were requested and granted.
    pub(in crate::fs) granted: u64,
    /// Bytes of the largest read or write request.
    pub(super) largest_request: u32,
}

/// Features to request from the kernel.
#[derive(Clone, Copy, Debug)]
pub(in crate::fs) struct Wanted {
    /// Kernel passthrough, with this number of filesystems stacked on each other.
    pub(in crate::fs) passthrough: Option<u32>,
    /// Party that checks the permissions of a caller.
    pub(in crate::fs) permission: Permission,
    /// Reads come from the page cache of the mount.
    pub(in crate::fs) cached: bool,
    /// Time for which the kernel answers by itself.
    pub(in crate::fs) ttl: Duration,
    /// Threads that read from the device.
    pub(in crate::fs) threads: usize,
    /// A device descriptor for each thread.
    pub(in crate::fs) clone_fd: bool,
    /// Requests over io_uring, if the kernel offers it.
    pub(in crate::fs) io_uring: bool,
}

/// The INIT request, which fuser answers.
struct Handshake {
    wanted: Wanted,
    has_rings: bool,
    largest_request: u32,
    granted: Arc<AtomicU64>,
}

/// Answers the INIT request of a mount; returns the flags that were requested and granted.
pub(super) fn shake(
    device: OwnedFd,
    wanted: Wanted,
    has_rings: bool,
    largest_request: u32,
) -> io::Result<u64> {
    let granted = Arc::new(AtomicU64::new(0));
    let handshake = Handshake {
        wanted,
        has_rings,
        largest_request,
        granted: Arc::clone(&granted),
    };
    // Dropped at once: a fuser session would serve the mount, but this process does that itself.
    Session::from_fd(handshake, device, SessionACL::All, Config::default())?;
    Ok(granted.load(Ordering::Relaxed))
}

/// Flags that are requested one by one: the kernel refuses a whole set if it lacks one of them.
///
/// Not requested, because each hides calls: `NO_OPEN_SUPPORT`, `NO_OPENDIR_SUPPORT`, `CACHE_SYMLINKS`,
/// `WRITEBACK_CACHE`.
const FLAGS: [InitFlags; 11] = [
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_BIG_WRITES,
    InitFlags::FUSE_MAX_PAGES,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    InitFlags::FUSE_NO_EXPORT_SUPPORT,
    InitFlags::FUSE_HAS_IOCTL_DIR,
];

pub(super) const OVER_IO_URING: u64 = InitFlags::FUSE_OVER_IO_URING.bits();

/// Requests that may wait in the kernel in the background.
const BACKGROUND: u16 = 64;

/// Pages of the largest request, unless the administrator allows more.
const PAGES: u32 = 256;

/// Largest request that fuser negotiates.
const LARGEST: u32 = 16 << 20;

impl Filesystem for Handshake {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut flags = FLAGS.to_vec();
        if let Some(depth) = self.wanted.passthrough {
            flags.push(InitFlags::FUSE_PASSTHROUGH);
            let _ = config.set_max_stack_depth(depth);
        }
        if self.has_rings {
            flags.push(InitFlags::FUSE_OVER_IO_URING);
        }
        if !self.wanted.ttl.is_zero() {
            // Otherwise the attributes of each listed file are requested again at once.
            flags.extend([
                InitFlags::FUSE_DO_READDIRPLUS,
                InitFlags::FUSE_READDIRPLUS_AUTO,
            ]);
        }
        if self.wanted.cached {
            // Without this flag the kernel compares times by itself, and requests them all the time.
            flags.push(InitFlags::FUSE_EXPLICIT_INVAL_DATA);
        } else {
            // Not in the cached case: locks end with closes, which are not all reported there. The kernel
            // then keeps locks by itself.
            flags.extend([InitFlags::FUSE_POSIX_LOCKS, InitFlags::FUSE_FLOCK_LOCKS]);
        }
        if self.wanted.permission == Permission::Kernel {
            flags.push(InitFlags::FUSE_POSIX_ACL);
        }
        let mut granted = InitFlags::empty();
        for flag in flags {
            if config.add_capabilities(flag).is_ok() {
                granted |= flag;
            }
        }
        self.granted.store(granted.bits(), Ordering::Relaxed);
        // Values above the limit come back as the nearest allowed one.
        if let Err(nearest) = config.set_max_write(self.largest_request) {
            let _ = config.set_max_write(nearest);
        }
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }
}

impl Shared {
    /// State of a mount to which the kernel has granted these flags.
    pub(super) fn new(
        wanted: Wanted,
        granted: u64,
        largest_request: u32,
        backings: &Backings,
    ) -> Shared {
        let flags = InitFlags::from_bits_retain(granted);
        Shared {
            layer: layer(wanted, flags, backings),
            granted,
            largest_request,
        }
    }

    /// True if requests come over io_uring.
    pub(super) fn is_over_io_uring(&self) -> bool {
        self.granted & OVER_IO_URING != 0
    }

    /// True if files are registered with the kernel.
    pub(super) fn registers(&self) -> bool {
        self.layer == FileLayer::DirectPassthrough
    }
}

/// Way in which file calls are seen, with these flags granted.
fn layer(wanted: Wanted, granted: InitFlags, backings: &Backings) -> FileLayer {
    if wanted.cached {
        FileLayer::Cached
    } else if granted.contains(InitFlags::FUSE_PASSTHROUGH) && backings.are_allowed() {
        FileLayer::DirectPassthrough
    } else if granted.contains(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP) {
        FileLayer::DirectMmap
    } else {
        FileLayer::Direct
    }
}

pub(super) fn largest_request() -> u32 {
    let limit = std::fs::read_to_string("/proc/sys/fs/fuse/max_pages_limit");
    let pages = limit.ok().and_then(|text| text.trim().parse().ok());
    (pages.unwrap_or(PAGES).saturating_mul(4096)).clamp(4096, LARGEST)
}
