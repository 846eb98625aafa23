//! The capacities of this machine: disk, memory, CPUs, network; measured in under a minute.

mod capacity;
pub(crate) mod compare;
mod disk;
mod measure;
mod network;
mod speed;
mod store;

pub(crate) use capacity::{Capacities, Measured};
pub(crate) use measure::{Plan, measure};
pub(crate) use network::serve;
pub(crate) use store::{default_path, read, write};
