//! Numbers, tables and charts for people.
//!
//! - [`units`] writes numbers as people read them, and makes names that others chose safe to print;
//! - [`table`] aligns rows in columns;
//! - [`blocks`] draws plots of characters, for a terminal;
//! - [`plot`] draws lines, bars and spans as SVG, or for Graphviz;
//! - [`markup`] writes XML, SVG and HTML, [`dot`] the strings of Graphviz.
//!
//! Same input, same bytes: nothing here reads the environment, a file or a clock, and nothing knows a
//! terminal. Every name that comes in may be hostile; it goes out as text, whatever the format. The crate
//! knows no trace: what a number means is the caller's.

pub mod blocks;
pub mod dot;
pub mod markup;
pub mod plot;
pub mod table;
pub mod units;

#[cfg(test)]
mod hostile;
