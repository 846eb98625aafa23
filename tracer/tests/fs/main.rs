//! The passthrough filesystem behind a real mount.
//!
//! Needs root and /dev/fuse. Without them a test prints why it is skipped and passes, or fails
//! if FLOWTRACE_REQUIRE_SYSTEM=1.

mod calls;
mod child;
mod mounted;

mod attributes;
mod data;
mod first;
mod limits;
mod locks;
mod model;
mod names;
mod programs;
mod speed;
mod users;
