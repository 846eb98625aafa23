//! The FUSE protocol: messages, and the device or the rings by which they travel. It knows nothing of files.
//!
//! fuser 0.18 makes the handshake with the kernel (see `adapter::start`) and stops there. Requests are served
//! here, because its interface drops facts that a true trace and a true filesystem need: the kind of lock
//! (`lk_flags`), interrupts of calls that wait, `O_TMPFILE`, `statx` with the time of birth, copies of more
//! than 4 GiB, a node id that is not the inode number, and times of any year.

pub(super) mod abi;
mod buffer;
pub(super) mod device;
pub(super) mod notify;
pub(super) mod reply;
pub(super) mod request;
mod uring;

pub(super) use abi::InHeader;
pub(super) use device::{Device, KernelDevice, Serve, serve};
pub(super) use reply::{Deferred, Reply};
pub(super) use request::{Body, Malformed};
pub use uring::IoUring;
pub(super) use uring::Rings;
pub(crate) use uring::is_on as io_uring_is_on;
