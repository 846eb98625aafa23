//! The contents of a trace as numbers. Every number is also a query on the views; the tests compare the two.

pub mod bottlenecks;
mod bound;
pub mod counters;
pub mod critical_path;
pub mod data;
pub mod degrees;
pub mod findings;
pub mod grouping;
pub mod habits;
pub mod hot;
pub mod ideal;
pub mod nodes;
pub mod phrases;
pub mod resources;
pub mod serial;
pub mod statistics;
pub mod threads;
pub mod time;
pub mod waits;
