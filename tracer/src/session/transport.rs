//! How the kernel's requests for files travel to flowtrace.

use nix::unistd::geteuid;

use super::{Error, Result};
use crate::cpus;
use crate::fs::IoUring;
use crate::linux;

/// The way of requests and answers between the kernel and flowtrace.
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

/// The kernel that all was proven on; io_uring for FUSE came with Linux 6.14.
const PROVEN: (u32, u32) = (6, 18);
/// Each processor that there can be takes threads and memory of its own.
const PROCESSORS: usize = 64;

impl Transport {
    /// Has the kernel offer io_uring to mounts that are made while the result lives, if that is
    /// wanted.
    ///
    /// # Errors
    /// [`Error::Transport`] where io_uring was asked for and is not to be had.
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

    /// True if requests shall come over io_uring where the kernel offers that.
    pub(super) fn is_io_uring(self) -> bool {
        match self {
            Transport::Auto => is_proven(),
            Transport::IoUring => true,
            Transport::Device => false,
        }
    }
}

/// True if requests come over io_uring where nobody asks for a transport: as root, with a kernel
/// on which that has been tested, on a machine of a usual size.
pub(crate) fn is_proven() -> bool {
    geteuid().is_root()
        && linux::release().1 >= PROVEN
        && cpus::possible().is_ok_and(|count| count <= PROCESSORS)
}
