//! Statistics of the file calls and of what processes did with files (ParaTrac, section 6.3).
//!
//! Calls go by once ([`calls::gather`]) and are never held; everything else is computed from
//! the model.

pub mod calls;
pub mod findings;
pub mod patterns;
pub mod phases;
