//! Numbers, tables and charts for people.
//!
//! - [`units`] writes numbers for people, and makes names that others chose safe to print;
//! - [`table`] aligns rows in columns;
//! - [`blocks`] draws plots of characters, for a terminal;
//! - [`plot`] draws lines, bars and spans as SVG, or for Graphviz;
//! - [`markup`] writes XML, SVG and HTML, [`dot`] the strings of Graphviz.
//!
//! The same input gives the same bytes: nothing here reads the environment, a file or a clock, and nothing
//! knows a terminal. Every incoming name may be hostile; it is written as text, whatever the format. The
//! crate knows no trace: the caller decides the meaning of a number.

pub mod blocks;
pub mod dot;
pub mod markup;
pub mod plot;
pub mod table;
pub mod units;

#[cfg(test)]
mod hostile;
