//! Results as text for people.

pub mod bottlenecks;
pub mod critical_path;
pub mod ideal;
mod names;
pub mod resources;
pub mod shape;
pub mod statistics;
mod storage;
pub mod summary;
pub mod tree;
pub(crate) mod unseen;
pub mod waits;
