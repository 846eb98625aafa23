//! Transport of the kernel's requests for files to flowtrace.

use nix::unistd::geteuid;

use super::{Error, Result};
use crate::cpus;
use crate::fs::IoUring;
use crate::linux;

/// Transport of requests and answers between the kernel and flowtrace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// io_uring where it is proven, else the device.
    #[default]
    Auto,
    /// io_uring.
    IoUring,
    /// `read` and `write` on `/dev/fuse`.
    Device,
}

/// The first kernel on which everything was tested; io_uring for FUSE came with Linux 6.14.
const PROVEN: (u32, u32) = (6, 18);
/// Largest number of CPUs: each possible CPU takes threads and memory of its own.
const CPUS: usize = 64;

impl Transport {
    /// Makes the kernel offer io_uring to mounts that are made while the result lives, if that is wanted.
    ///
    /// # Errors
    /// [`Error::Transport`] if io_uring was requested and is not available.
    pub(super) fn prepare(self) -> Result<Option<IoUring>> {
        match self {
            Transport::Device => Ok(None),
            Transport::Auto if is_proven() => Ok(IoUring::turn_on().ok()),
            Transport::Auto => Ok(None),
            Transport::IoUring => match IoUring::turn_on() {
                Ok(on) => Ok(Some(on)),
                Err(error) => Err(Error::Transport(error.to_string())),
            },
        }
    }

    /// True if requests should come over io_uring where the kernel offers it.
    pub(super) fn is_io_uring(self) -> bool {
        match self {
            Transport::Auto => is_proven(),
            Transport::IoUring => true,
            Transport::Device => false,
        }
    }
}

/// True if requests come over io_uring without a requested transport: as root, with a kernel on which that
/// has been tested, on a machine of a usual size.
pub(crate) fn is_proven() -> bool {
    geteuid().is_root()
        && linux::release().1 >= PROVEN
        && cpus::possible().is_ok_and(|count| count <= CPUS)
}
