//! Results as text for people.

pub mod critical_path;
pub mod statistics;
pub mod summary;
pub mod tree;
pub mod units;
