//! What a parallel program does, from its packets alone: who talks to whom, how often it
//! iterates, who keeps the others waiting, and what that costs.
//!
//! The methods are those of A. Gupta, *Black Box Methods for Inferring Parallel Applications'
//! Properties in Virtual Environments* (2008); "section", "table" and "equation" in this module
//! mean that text. Where it leaves something open or contradicts itself, `docs/network-inference.md`
//! says what is done here. Every call has two modes ([`Mode`]): `thesis` follows the text to the
//! digit, `default` is what the tool reports.
//!
//! Layers, lowest first:
//! - [`run`] the packets of a run, one stream per process as its own capture saw it;
//! - pure methods on numbers ([`topology`], [`spectrum`], [`balance`], [`placement`] …), which
//!   know nothing of packets and are held against the printed tables;
//! - methods on streams ([`matrix`], [`rir`], [`ball`], [`messages`] …);
//! - [`calls`] the interface of section 7.3, by name.

pub mod analysis;
pub mod archetype;
pub mod balance;
pub mod ball;
pub mod calls;
mod chance;
pub mod component;
pub mod components;
pub mod decomposition;
pub mod evidence;
mod links;
pub mod load;
pub mod lost;
pub mod matrix;
pub mod messages;
pub mod page;
pub mod pages;
pub mod period;
pub mod periods;
pub mod placement;
pub mod plain;
pub mod pop;
pub mod quantile;
pub mod repeat;
pub mod replay;
pub mod rir;
pub mod rtt;
pub mod run;
pub mod schedule;
pub mod slowdown;
pub mod smoothing;
pub mod spectrum;
pub mod state;
pub mod stationary;
mod steps;
mod student;
pub mod tables;
pub mod topology;
pub mod trigger;
pub mod turns;
pub mod wording;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use run::{Answer, Known, Mode, Run, Unknown};
