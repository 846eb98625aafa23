//! Results in formats for other programs. An exporter writes to `impl Write` and never prints.

pub mod chart;
pub mod dot;
pub mod drawing;
pub mod graphml;
pub mod plot;
pub mod rows;
pub mod sheet;
