//! The handshake with the kernel, and the threads that serve.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use flowtrace_schema::FileLayer;
use fuser::{Config, Filesystem, InitFlags, KernelConfig, Request, Session, SessionACL};

use super::invalidate::{self, Dropper};
use super::retries::{self, Retrier};
use super::{Adapter, Backings, Walks};
use crate::fs::Permission;
use crate::fs::locks::Locks;
use crate::fs::log::Log;
use crate::fs::passthrough::View;
use crate::fs::protocol::{self, Device, IoUring, KernelDevice, Rings, Serve};
use crate::kernel::Opens;
use crate::priority;

/// What the handshake settled.
#[derive(Debug)]
pub(in crate::fs) struct Shared {
    /// How file calls are seen.
    pub(in crate::fs) layer: FileLayer,
    /// INIT flags that were asked for and granted.
    pub(in crate::fs) granted: u64,
    /// Bytes of the largest read or write request.
    pub(super) largest_request: u32,
}

/// What to ask the kernel for.
#[derive(Clone, Copy, Debug)]
pub(in crate::fs) struct Wanted {
    /// Kernel passthrough, with this many filesystems stacked on each other.
    pub(in crate::fs) passthrough: Option<u32>,
    /// Who decides what a caller may do.
    pub(in crate::fs) permission: Permission,
    /// Reads come from the page cache of the mount.
    pub(in crate::fs) cached: bool,
    /// How long the kernel answers by itself.
    pub(in crate::fs) ttl: Duration,
    /// Threads that read from the device.
    pub(in crate::fs) threads: usize,
    /// A device descriptor for each thread.
    pub(in crate::fs) clone_fd: bool,
    /// Requests over io_uring, where the kernel offers that.
    pub(in crate::fs) io_uring: bool,
}

/// A mount whose kernel side is ready.
pub(in crate::fs) struct Served {
    adapter: Arc<Adapter>,
    /// One for each thread.
    devices: Vec<Arc<dyn Device>>,
    /// Where the kernel grants it, requests come this way.
    rings: Option<Rings>,
    dropper: Dropper,
    retrier: Retrier,
}

/// The first words with the kernel, which fuser speaks.
struct Handshake {
    wanted: Wanted,
    has_rings: bool,
    largest_request: u32,
    granted: Arc<AtomicU64>,
}

/// Asked for one by one: the kernel refuses a set as a whole if it lacks one of it.
///
/// Not asked for, since each hides calls: `NO_OPEN_SUPPORT`, `NO_OPENDIR_SUPPORT`,
/// `CACHE_SYMLINKS`, `WRITEBACK_CACHE`.
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

const OVER_IO_URING: u64 = InitFlags::FUSE_OVER_IO_URING.bits();
/// Requests that may wait in the kernel in the background.
const BACKGROUND: u16 = 64;
/// Pages of the largest request unless the administrator allows more.
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
            // What a listing brings of each file is otherwise asked for again at once.
            flags.extend([
                InitFlags::FUSE_DO_READDIRPLUS,
                InitFlags::FUSE_READDIRPLUS_AUTO,
            ]);
        }
        if self.wanted.cached {
            // Without, the kernel compares times by itself, and asks for them all the time.
            flags.push(InitFlags::FUSE_EXPLICIT_INVAL_DATA);
        } else {
            // Not in the cached case: locks go with closes, which are not all told there. The kernel
            // keeps them by itself then.
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
        // Values above the allowed come back as the nearest allowed one.
        if let Err(nearest) = config.set_max_write(self.largest_request) {
            let _ = config.set_max_write(nearest);
        }
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }
}

impl Shared {
    /// Whether requests come over io_uring.
    pub(super) fn is_over_io_uring(&self) -> bool {
        self.granted & OVER_IO_URING != 0
    }

    /// Whether files are registered with the kernel.
    pub(super) fn registers(&self) -> bool {
        matches!(self.layer, FileLayer::DirectPassthrough | FileLayer::Kernel)
    }
}

impl Served {
    /// Shakes hands on the device of a mount and finds out what is possible.
    pub(in crate::fs) fn begin(
        device: OwnedFd,
        wanted: Wanted,
        view: Arc<View>,
        log: Arc<Log>,
        kernel: Option<Arc<Opens>>,
        users_of_rings: Arc<crate::rings::Rings>,
    ) -> io::Result<Served> {
        let largest_request = largest_request();
        let granted = Arc::new(AtomicU64::new(0));
        // Without them the device serves as well.
        let first = Arc::new(KernelDevice::new(device.try_clone()?));
        let rings = wanted
            .io_uring
            .then(|| Rings::new(&first, largest_request as usize).ok())
            .flatten();
        // The kernel looks again whether it is on when it is answered.
        let on = rings.as_ref().and_then(|_| IoUring::turn_on().ok());
        let handshake = Handshake {
            wanted,
            has_rings: on.is_some(),
            largest_request,
            granted: Arc::clone(&granted),
        };
        let own = device.try_clone()?;
        // Dropped at once: it would serve, and we do.
        Session::from_fd(handshake, device, SessionACL::All, Config::default())?;
        drop(on);
        let granted = granted.load(Ordering::Relaxed);
        let rings = rings.filter(|_| granted & OVER_IO_URING != 0);
        let backings = Backings::new(Arc::new(own));
        let shared = Arc::new(Shared {
            layer: layer(
                wanted,
                InitFlags::from_bits_retain(granted),
                &backings,
                kernel.is_some(),
            ),
            granted,
            largest_request,
        });
        let mut devices: Vec<Arc<dyn Device>> = Vec::new();
        if wanted.clone_fd {
            for _ in 1..wanted.threads {
                devices.push(Arc::new(first.another()?));
            }
        }
        let first: Arc<dyn Device> = first;
        devices.resize(wanted.threads.max(1), Arc::clone(&first));
        // A thread with a ring is given the next request while it still tells the kernel, and that
        // may be the one the kernel waits for.
        let may_tell = match rings {
            Some(_) => 0,
            None => wanted.threads.saturating_sub(1),
        };
        let (drops, dropper) = invalidate::pair(Arc::clone(&first), may_tell);
        let (retries, retrier) = retries::pair();
        let adapter = Arc::new(Adapter {
            walks: Walks::new(wanted.permission, &first),
            view,
            log,
            shared,
            backings,
            locks: Locks::default(),
            retries,
            drops,
            ttl: wanted.ttl,
            kernel,
            rings: users_of_rings,
        });
        Ok(Served {
            adapter,
            devices,
            rings,
            dropper,
            retrier,
        })
    }

    /// What the handshake settled.
    pub(in crate::fs) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.adapter.shared)
    }

    /// Serves until the kernel has let go of the mount.
    pub(in crate::fs) fn run(self) -> io::Result<()> {
        let Served {
            adapter,
            mut devices,
            rings,
            dropper,
            retrier,
        } = self;
        let largest = adapter.shared.largest_request as usize;
        let server: Arc<dyn Serve> = adapter.clone();
        let adapter = &*adapter;
        thread::scope(|scope| {
            let dropping = thread::Builder::new()
                .name("fs-invalidate".into())
                .spawn_scoped(scope, move || {
                    // What it is late to drop is what somebody reads instead of newer data.
                    priority::at_once();
                    dropper.run();
                });
            let locking = thread::Builder::new()
                .name("fs-locks".into())
                .spawn_scoped(scope, move || retrier.run(|| adapter.retry_locks()));
            if let Err(error) = dropping.and(locking) {
                adapter.end_helpers();
                return Err(error);
            }
            let rings = rings.map(|rings| rings.start(&server));
            if rings
                .as_ref()
                .is_some_and(|rings| rings.refusal().is_none())
            {
                // What is left for the device: forgets and interrupts.
                devices.truncate(1);
            }
            let serve = |(number, device): (usize, Arc<dyn Device>)| {
                thread::Builder::new()
                    .name(format!("fs-serve-{number}"))
                    .spawn_scoped(scope, move || protocol::serve(&device, largest, adapter))
            };
            let threads: Vec<_> = devices.into_iter().enumerate().map(serve).collect();
            let mut result = Ok(());
            for thread in threads {
                let served = thread.and_then(|thread| {
                    let served = thread.join();
                    let panicked = || io::Error::other("a thread that serves requests panicked");
                    served.map_err(|_| panicked())?.map_err(io::Error::from)
                });
                result = result.and(served);
            }
            if let Some(rings) = rings {
                result = result.and(rings.end());
            }
            adapter.end_helpers();
            result
        })
    }
}

impl Adapter {
    /// Nobody serves any more, so nobody is helped.
    fn end_helpers(&self) {
        self.drops.end();
        self.retries.end();
    }
}

/// How file calls are seen, with these flags granted.
fn layer(
    wanted: Wanted,
    granted: InitFlags,
    backings: &Backings,
    has_tracepoints: bool,
) -> FileLayer {
    if wanted.cached {
        FileLayer::Cached
    } else if granted.contains(InitFlags::FUSE_PASSTHROUGH) && backings.are_allowed() {
        match has_tracepoints {
            true => FileLayer::Kernel,
            false => FileLayer::DirectPassthrough,
        }
    } else if granted.contains(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP) {
        FileLayer::DirectMmap
    } else {
        FileLayer::Direct
    }
}

fn largest_request() -> u32 {
    let limit = std::fs::read_to_string("/proc/sys/fs/fuse/max_pages_limit");
    let pages = limit.ok().and_then(|text| text.trim().parse().ok());
    (pages.unwrap_or(PAGES).saturating_mul(4096)).clamp(4096, LARGEST)
}
