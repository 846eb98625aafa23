//! Statistics of the file calls and of the use of files by processes (ParaTrac, section 6.3).
//!
//! Calls are read once ([`calls::gather`]) and never kept. Everything else is computed from the model.

pub mod calls;
pub mod findings;
pub mod jobs;
pub mod patterns;
pub mod phases;
