//! Style of a summary.

/// How to write the summary.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Columns to fill.
    pub width: usize,
    /// Whether ANSI escapes for colour are welcome.
    pub is_coloured: bool,
}
