//! Runs for tests: made by hand, by programs made up in a test, and of the reference captures.

mod programs;
mod reference;
mod streams;

pub use programs::{Bsp, Made, Noise, Style, bsp};
pub use reference::{reference, true_period, unpacked};
pub use streams::{data, delayed_run_of, run_of};
