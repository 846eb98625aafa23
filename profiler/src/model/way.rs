//! Direction of data between two processes.

/// Direction of data between the first and the second end of a stream or edge. It is decided in one place,
/// where a trace is loaded (`load/ways.rs`), by the best available evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// No evidence: the older process comes first.
    Unknown,
    /// From the first to the second alone, as far as is known.
    #[default]
    Forth,
    /// Both ways: the older process comes first, because it is mostly the one that asks.
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

    /// The arrow between the names of the two processes.
    pub const fn arrow(self) -> &'static str {
        match self {
            Way::Unknown => "–",
            Way::Forth => "→",
            Way::Both => "↔",
        }
    }

    /// Direction of two streams between the same ends together.
    pub fn and(self, other: Way) -> Way {
        self.max(other)
    }
}
