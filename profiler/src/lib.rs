//! Explains a trace: which processes ran, which data flowed between them, and where the time went.
//!
//! Data moves one way: [`load`] reads a trace once into a [`model::Workflow`]; [`graph`] and
//! [`analysis`] compute from it; [`text`] and [`export`] turn results into strings or bytes.
//!
//! Invariants:
//! - a trace is never opened for writing, and SQL stays in `schema`;
//! - nothing here prints, reads the environment or knows a terminal;
//! - an incomplete trace (killed run, unreadable `/proc`) gives a result that says so, not an error;
//! - the same trace always gives the same bytes.

pub mod analysis;
pub mod argv;
pub mod check;
pub mod clocks;
pub mod compare;
pub mod distribution;
pub mod export;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod generate;
pub mod graph;
mod intervals;
pub mod jobs;
pub mod live;
pub mod load;
pub mod managers;
pub mod model;
pub mod packets;
pub mod paths;
pub mod replay;
pub mod report;
pub mod rules;
pub mod signals;
pub mod stacks;
pub mod text;
pub mod timeline;

#[cfg(test)]
#[path = "../tests/support/montage.rs"]
mod montage;
#[cfg(test)]
#[path = "../../tests/support/spoil.rs"]
mod spoil;
