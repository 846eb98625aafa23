//! Tests of the passthrough filesystem through a real mount.
//!
//! They need root and /dev/fuse. Without them a test prints why it is skipped and passes, or fails if
//! FLOWTRACE_REQUIRE_SYSTEM=1.

mod backing;
mod calls;
mod child;
mod long;
mod mounted;
mod operations;
mod random;

mod attributes;
mod data;
mod deep;
mod errors;
mod first;
mod limits;
mod locks;
mod model;
mod names;
mod programs;
mod races;
mod speed;
mod storm;
mod transport;
mod users;
