//! Which way data goes between two processes.

/// Which way data went from the first to the second end of a stream or edge. It is decided in one place, where a trace is
/// loaded (`load/ways.rs`), by the best evidence that there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// Nothing tells: the older process stands first.
    Unknown,
    /// From the first to the second alone, as far as is known.
    #[default]
    Forth,
    /// Both ways: the older process stands first, for mostly it asks.
    Both,
}

impl Way {
    /// Name in results for machines.
    pub const fn name(self) -> &'static str {
        match self {
            Way::Unknown => "unknown",
            Way::Forth => "forth",
            Way::Both => "both",
        }
    }

    /// The arrow between the names of the two.
    pub const fn arrow(self) -> &'static str {
        match self {
            Way::Unknown => "–",
            Way::Forth => "→",
            Way::Both => "↔",
        }
    }

    /// What two between the same ends are together.
    pub fn and(self, other: Way) -> Way {
        self.max(other)
    }
}
