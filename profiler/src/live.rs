//! A run while it is recorded: the trace is followed as it grows, and what it shows by now is a [`Picture`].
//!
//! A [`Follower`] reads each row once, in short transactions, and keeps sums. Rows of a trace come late
//! (`load/complete.rs` says how late), so that a picture is of some instant in the recent past, which it names.
//! Only the search for the limit runs an analysis of finished runs: on a copy of the last seconds.

mod budget;
mod compose;
mod follower;
mod images;
mod limit;
mod machine;
mod managers;
mod picture;
mod rates;
mod search;
mod steps;
mod threads;
mod traffic;

pub use budget::Budget;
pub use follower::Follower;
pub use limit::Limiting;
pub use picture::{
    Failures, Files, Head, Machines, ManagerRow, Picture, Running, RunningRow, State, StepGraph,
    StepRows,
};
pub use search::Search;
