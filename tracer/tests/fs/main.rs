//! The passthrough filesystem behind a real mount.
//!
//! Needs root and /dev/fuse. Without them a test prints why it is skipped and passes, or fails
//! if FLOWTRACE_REQUIRE_SYSTEM=1.

mod child;
mod mounted;

mod data;
mod first;
