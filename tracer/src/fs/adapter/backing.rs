//! Files registered with the kernel for passthrough: one registration per inode, shared by all its opens.
//!
//! While an inode is open with a registration, the kernel refuses every open with another one or with none
//! (`EIO`), and it remembers the first until the last open is gone. So the first open decides for all. This
//! is true even for an open that needs no registration, such as one for writing only, because answers may
//! reach the inode in another order than they were sent.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::BackingId;
use nix::fcntl::{OFlag, open};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::Mode;

use crate::fs::descriptor::Pin;
use crate::fs::sys::device;
use nix::Result;

const SHARDS: usize = 16;

/// Registrations by node id.
#[derive(Debug)]
pub(super) struct Backings {
    device: Arc<OwnedFd>,
    shards: [Mutex<HashMap<u64, Backing>>; SHARDS],
}

#[derive(Debug)]
struct Backing {
    /// `None`: registering failed, so no open of this inode passes through.
    registration: Option<Registration>,
    opens: usize,
}

/// A registration, which ends when this is dropped.
#[derive(Debug)]
struct Registration {
    device: Arc<OwnedFd>,
    id: u32,
}

impl Registration {
    fn new(device: &Arc<OwnedFd>, file: impl AsFd) -> io::Result<Registration> {
        let id = BackingId::create_raw(device, file)?;
        let device = Arc::clone(device);
        Ok(Registration { device, id })
    }

    /// Registers a node. The descriptor is never writable: a file with one could not be executed while
    /// registered.
    fn of(device: &Arc<OwnedFd>, node: &Pin) -> io::Result<Registration> {
        Registration::new(device, node).or_else(|error| match error.raw_os_error() {
            // Kernels before 6.16 refuse O_PATH descriptors.
            Some(libc::EBADF) => Registration::new(device, readable(node)?),
            _ => Err(error),
        })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Fails only if the mount is gone, and the registration with it.
        let _ = device::close_backing(self.device.as_fd(), self.id);
    }
}

impl Backings {
    /// A set without files, on an open `/dev/fuse`.
    pub(super) fn new(device: Arc<OwnedFd>) -> Backings {
        Backings {
            device,
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// True if this process may register files, which needs `CAP_SYS_ADMIN` in the first user namespace.
    pub(super) fn are_allowed(&self) -> bool {
        let probe = || -> io::Result<Registration> {
            let file = memfd_create(c"flowtrace-probe", MFdFlags::MFD_CLOEXEC)?;
            Registration::new(&self.device, file)
        };
        probe().is_ok()
    }

    /// The registration for one more open of a node; the first open registers.
    pub(super) fn acquire(&self, node: u64, pin: impl FnOnce() -> Result<Arc<Pin>>) -> Option<u32> {
        let mut shard = self.shard(node);
        let register = || Registration::of(&self.device, &*pin().ok()?).ok();
        let backing = shard.entry(node).or_insert_with(|| Backing {
            registration: register(),
            opens: 0,
        });
        backing.opens += 1;
        backing.registration.as_ref().map(|known| known.id)
    }

    /// An open of a node was released; with the last one the registration ends.
    pub(super) fn release(&self, node: u64) {
        let mut shard = self.shard(node);
        if let Some(backing) = shard.get_mut(&node) {
            backing.opens -= 1;
            if backing.opens == 0 {
                shard.remove(&node);
            }
        }
    }

    fn shard(&self, node: u64) -> MutexGuard<'_, HashMap<u64, Backing>> {
        let shard = &self.shards[(node / 64) as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens the inode of a descriptor for reading.
fn readable(fd: impl AsFd) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    Ok(open(
        path.as_str(),
        OFlag::O_RDONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?)
}
