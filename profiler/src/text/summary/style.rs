//! Style of a summary.

/// Style of the summary.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Columns to fill.
    pub width: usize,
    /// True if ANSI escapes for colour are allowed.
    pub is_coloured: bool,
}
