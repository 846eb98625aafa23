//! Network inference: the behaviour of a parallel program, from its packets alone.
//!
//! The traffic between nodes, the topology that it forms, the iterations of the program, the node that
//! holds up the others, and the cost of that. The methods are those of A. Gupta, *Black Box Methods for
//! Inferring Parallel Applications' Properties in Virtual Environments* (2008); "section", "table" and
//! "equation" in this crate refer to that text. Where it leaves something open or contradicts itself,
//! `docs/network-inference.md` describes the choice made here. Every call has two modes ([`Mode`]):
//! `thesis` follows the text to the digit, `default` is the rule of the tool.
//!
//! # Door
//!
//! - [`load::Connections`] reads the connections of a trace and loads a [`Run`] (the packets of the program, one
//!   stream per node as its own capture saw it); [`load::Growing`] does so again and again while a trace grows;
//! - [`calls`] has the interface of section 7.3 by name, [`analysis`] the further questions: each takes a [`Run`]
//!   and gives an [`Answer`];
//! - [`pages`] turns an answer into lines and rows ([`page::Page`]), [`tables`] does so for flows.
//!
//! ```no_run
//! # fn main() -> flowtrace_schema::Result<()> {
//! use std::collections::HashMap;
//!
//! use flowtrace_network::load::{Connections, Selection};
//! use flowtrace_network::pages;
//!
//! let trace = flowtrace_schema::Trace::open("trace.db".as_ref())?;
//! let connections = Connections::read(&trace)?;
//! if let Ok(run) = connections.load(&trace, &Selection::default(), &HashMap::new())? {
//!     print!("{}", pages::overview(&run).text(false));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Promise
//!
//! - An answer that is not known is [`Unknown`] with its reason, never 0. A value that is known within bounds
//!   is a range.
//! - The same packets give the same answer.
//! - Captures may be damaged, incomplete or hostile: memory stays bounded, and nothing panics.
//!
//! # Layers, lowest first
//!
//! 1. [`run`]: packets, nodes, interval, options;
//! 2. pure methods on numbers ([`topology`], [`spectrum`], [`balance`], [`placement`] …), which know nothing of
//!    packets and are compared with the printed tables;
//! 3. methods on streams ([`matrix`], [`rir`], [`ball`], [`messages`] …);
//! 4. [`calls`] and [`analysis`], then [`pages`].
//!
//! No two files import each other. The crate knows the rows of packets, flows and captures in `flowtrace-schema`,
//! and `flowtrace-render` for text. It may not know how processes are named (names come in as labels), graphs of
//! workflows, or the terminal.

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
pub mod held;
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
mod roles;
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
pub mod wording;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use run::{Answer, Known, Mode, Run, Unknown};
