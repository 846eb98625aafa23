//! The low-rate system calls that change names and channels, stopped by a seccomp filter
//! (seccomp(2), `SECCOMP_RET_TRACE`). Calls that move data are never stopped, nor is `close`.
//!
//! [`filter`] picks the calls, leaving out opens that the C library makes for itself ([`library`]), [`call`]
//! decodes them, [`memory`] reads the memory that their arguments point to.

mod call;
mod filter;
mod library;
mod memory;

pub(crate) use call::{Call, CallKind, UNTRACED};
pub(crate) use filter::{CHANGES, Picked, UNNAMED, install};
#[cfg(any(test, fuzzing))]
pub(crate) use library::opens_in;
pub(crate) use library::{IN_PAGE, own_opens};
pub(crate) use memory::{bytes_at, is_resident, path_at, some_at};
