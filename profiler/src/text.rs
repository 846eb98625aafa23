//! Results as text for people.

pub mod summary;
pub mod tree;
pub mod units;
