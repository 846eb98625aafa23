//! The threads that serve a mount.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use super::handshake::{self, OVER_IO_URING, Shared, Wanted};
use super::invalidate::{self, Dropper};
use super::retries::{self, Retrier};
use super::{Adapter, Backings, Walks};
use crate::fs::locks::Locks;
use crate::fs::log::Log;
use crate::fs::passthrough::Passthrough;
use crate::fs::protocol::{self, Device, IoUring, KernelDevice, Rings, Serve};
use crate::priority;

/// A mount whose kernel side is ready.
pub(in crate::fs) struct Served {
    adapter: Arc<Adapter>,
    /// One for each thread.
    devices: Vec<Arc<dyn Device>>,
    /// Rings, if the kernel grants them: requests then come over them.
    rings: Option<Rings>,
    dropper: Dropper,
    retrier: Retrier,
}

impl Served {
    /// Makes the handshake on the device of a mount and finds out which features are available.
    pub(in crate::fs) fn begin(
        device: OwnedFd,
        wanted: Wanted,
        passthrough: Arc<Passthrough>,
        log: Arc<Log>,
        users_of_rings: Arc<crate::rings::Rings>,
    ) -> io::Result<Served> {
        let largest_request = handshake::largest_request();
        // Without rings the device serves as well.
        let first = Arc::new(KernelDevice::new(device.try_clone()?));
        let rings = wanted
            .io_uring
            .then(|| Rings::new(&first, largest_request as usize).ok())
            .flatten();
        // The kernel reads the switch again when the handshake is answered.
        let on = rings.as_ref().and_then(|_| IoUring::turn_on().ok());
        let own = device.try_clone()?;
        let granted = handshake::shake(device, wanted, on.is_some(), largest_request)?;
        drop(on);
        let rings = rings.filter(|_| granted & OVER_IO_URING != 0);
        let backings = Backings::new(Arc::new(own));
        let shared = Shared::new(wanted, granted, largest_request, &backings);
        let shared = Arc::new(shared);
        let mut devices: Vec<Arc<dyn Device>> = Vec::new();
        if wanted.clone_fd {
            for _ in 1..wanted.threads {
                devices.push(Arc::new(first.another()?));
            }
        }
        let first: Arc<dyn Device> = first;
        devices.resize(wanted.threads.max(1), Arc::clone(&first));
        // A thread with a ring gets the next request while it still notifies the kernel, and that request may
        // be the one for which the kernel waits.
        let may_notify = match rings {
            Some(_) => 0,
            None => wanted.threads.saturating_sub(1),
        };
        let (drops, dropper) = invalidate::pair(Arc::clone(&first), may_notify);
        let (retries, retrier) = retries::pair();
        let adapter = Arc::new(Adapter {
            walks: Walks::new(wanted.permission, &first),
            passthrough,
            log,
            shared,
            backings,
            locks: Locks::default(),
            retries,
            drops,
            ttl: wanted.ttl,
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

    /// Result of the handshake.
    pub(in crate::fs) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.adapter.shared)
    }

    /// Serves until the kernel releases the mount.
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
                    // If this thread is late, processes read old data.
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
                // The device still gets forgets and interrupts.
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
    /// No thread serves any more, so the helper threads end.
    fn end_helpers(&self) {
        self.drops.end();
        self.retries.end();
    }
}
