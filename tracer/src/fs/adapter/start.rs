//! The handshake with the kernel, and the threads that serve.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use flowtrace_schema::FileLayer;
use fuser::{BackingId, Config, InitFlags, KernelConfig, Session, SessionACL};
use nix::fcntl::{OFlag, open};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::Mode;

use super::invalidate::{self, Dropper};
use super::{Adapter, Backings};
use crate::fs::log::Log;
use crate::fs::passthrough::View;

/// What the handshake settled.
#[derive(Debug)]
pub(in crate::fs) struct Shared {
    wanted: Wanted,
    largest_request: u32,
    granted: AtomicU64,
    layer: OnceLock<FileLayer>,
}

/// What to ask the kernel for.
#[derive(Clone, Copy, Debug)]
pub(in crate::fs) struct Wanted {
    /// Kernel passthrough, with this many filesystems stacked on each other.
    pub(in crate::fs) passthrough: Option<u32>,
    /// The kernel checks permissions, access lists included, for several users.
    pub(in crate::fs) access_lists: bool,
    /// How long the kernel answers by itself.
    pub(in crate::fs) ttl: Duration,
    /// Threads.
    pub(in crate::fs) threads: usize,
    /// A device descriptor for each thread.
    pub(in crate::fs) clone_fd: bool,
}

/// A mount whose kernel side is ready.
pub(in crate::fs) struct Served {
    session: Session<Adapter>,
    dropper: Dropper,
    shared: Arc<Shared>,
}

/// Asked for one by one: the kernel refuses a set as a whole if it lacks one of it.
///
/// Not asked for, since each hides calls: `NO_OPEN_SUPPORT`, `NO_OPENDIR_SUPPORT`,
/// `CACHE_SYMLINKS`, `WRITEBACK_CACHE`. Nor `SETXATTR_EXT`, which panics fuser 0.18, nor locks,
/// which the kernel then keeps by itself.
const FLAGS: [InitFlags; 13] = [
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_BIG_WRITES,
    InitFlags::FUSE_MAX_PAGES,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    InitFlags::FUSE_NO_EXPORT_SUPPORT,
    InitFlags::FUSE_HAS_IOCTL_DIR,
];

/// Requests that may wait in the kernel in the background.
const BACKGROUND: u16 = 64;
/// Pages of the largest request unless the administrator allows more.
const PAGES: u32 = 256;
/// Largest request that fuser has a buffer for.
const LARGEST: u32 = 16 << 20;

impl Shared {
    /// How file calls are seen.
    pub(in crate::fs) fn layer(&self) -> FileLayer {
        self.layer.get().copied().unwrap_or(FileLayer::Direct)
    }

    /// Bytes of the largest read or write request.
    pub(super) fn largest_request(&self) -> u64 {
        u64::from(self.largest_request)
    }

    /// INIT flags that were asked for and granted.
    pub(in crate::fs) fn granted(&self) -> u64 {
        self.granted.load(Ordering::Relaxed)
    }
}

impl Adapter {
    /// Settles the terms with the kernel.
    pub(super) fn negotiate(&self, config: &mut KernelConfig) {
        let wanted = self.shared.wanted;
        let mut flags = FLAGS.to_vec();
        if let Some(depth) = wanted.passthrough {
            flags.push(InitFlags::FUSE_PASSTHROUGH);
            let _ = config.set_max_stack_depth(depth);
        }
        if wanted.access_lists {
            flags.push(InitFlags::FUSE_POSIX_ACL);
        }
        let mut granted = InitFlags::empty();
        for flag in flags {
            if config.add_capabilities(flag).is_ok() {
                granted |= flag;
            }
        }
        self.shared.granted.store(granted.bits(), Ordering::Relaxed);
        // Values above the allowed come back as the nearest allowed one.
        if let Err(nearest) = config.set_max_write(self.shared.largest_request) {
            let _ = config.set_max_write(nearest);
        }
        let _ = config.set_max_background(BACKGROUND);
    }
}

impl Served {
    /// Shakes hands on the device of a mount and finds out what is possible.
    pub(in crate::fs) fn begin(
        device: OwnedFd,
        wanted: Wanted,
        view: Arc<View>,
        log: Arc<Log>,
    ) -> io::Result<Served> {
        let shared = Arc::new(Shared {
            wanted,
            largest_request: largest_request(),
            granted: AtomicU64::new(0),
            layer: OnceLock::new(),
        });
        let (drops, dropper) = invalidate::pair(Arc::clone(&view), wanted.threads);
        let adapter = Adapter {
            view,
            log,
            shared: Arc::clone(&shared),
            backings: Backings::default(),
            drops,
            ttl: wanted.ttl,
        };
        let mut config = Config::default();
        config.acl = SessionACL::All;
        config.n_threads = Some(wanted.threads.max(1));
        config.clone_fd = wanted.clone_fd;
        let session = Session::from_fd(adapter, device, SessionACL::All, config)?;
        dropper.set_notifier(session.notifier());
        let granted = InitFlags::from_bits_retain(shared.granted());
        let layer = if granted.contains(InitFlags::FUSE_PASSTHROUGH) && may_register(&session) {
            FileLayer::DirectPassthrough
        } else if granted.contains(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP) {
            FileLayer::DirectMmap
        } else {
            FileLayer::Direct
        };
        let _ = shared.layer.set(layer);
        Ok(Served {
            session,
            dropper,
            shared,
        })
    }

    /// What the handshake settled.
    pub(in crate::fs) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Serves until the kernel has let go of the mount.
    pub(in crate::fs) fn run(self) -> io::Result<()> {
        let dropper = self.dropper;
        let invalidation = std::thread::Builder::new()
            .name("fs-invalidate".into())
            .spawn(move || dropper.run())?;
        let result = match self.session.run() {
            // The connection was aborted, as a forced unmount does.
            Err(error) if error.raw_os_error() == Some(libc::ECONNABORTED) => Ok(()),
            result => result,
        };
        // The sending side went with the session.
        let _ = invalidation.join();
        result
    }
}

/// Whether this process may register files for passthrough: needs `CAP_SYS_ADMIN` in the first
/// user namespace. The probe is an empty file in memory that goes with the session.
fn may_register(session: &Session<Adapter>) -> bool {
    let probe = || -> io::Result<u32> {
        let file = memfd_create(c"flowtrace-probe", MFdFlags::MFD_CLOEXEC)?;
        BackingId::create_raw(session.as_fd(), file)
    };
    probe().is_ok()
}

/// Opens the inode of a descriptor for reading.
pub(super) fn readable(fd: impl AsFd) -> io::Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    Ok(open(
        path.as_str(),
        OFlag::O_RDONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?)
}

fn largest_request() -> u32 {
    let limit = std::fs::read_to_string("/proc/sys/fs/fuse/max_pages_limit");
    let pages = limit.ok().and_then(|text| text.trim().parse().ok());
    (pages.unwrap_or(PAGES).saturating_mul(4096)).clamp(4096, LARGEST)
}
