//! Runs for tests: packets made by hand, made-up programs, and the reference captures.

mod programs;
mod reference;
mod streams;

pub use programs::{Bsp, Made, Noise, Style, bsp};
pub use reference::{reference, true_period, unpacked};
pub use streams::{data, delayed_run_of, run_of};
