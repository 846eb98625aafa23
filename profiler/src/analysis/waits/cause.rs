//! Causes of waits.

use crate::timeline::State;
/// What a culprit was doing while others waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Root {
    /// It was in this state.
    Doing(State),
    /// What it had sent was on its way through a network connection.
    Network,
    /// They waited for each other.
    EachOther,
    /// No place to run was free, of those that a jobserver hands out.
    NoPlace,
    /// Nobody of the run held the other end.
    Outside,
    /// On which channel it waited is not known.
    Unseen,
}

impl Root {
    /// In words.
    pub const fn text(self) -> &'static str {
        match self {
            Root::Doing(State::Cpu) => "computed",
            Root::Doing(State::Queue) => "waited for a processor",
            Root::Doing(State::File) => "waited for storage",
            Root::Doing(State::Fault) => "waited for memory",
            Root::Doing(State::Lock) => "waited for a lock",
            Root::Doing(State::Sleep) => "slept",
            Root::Doing(State::Stopped) => "was stopped",
            Root::Doing(State::In | State::Out | State::Child) => "waited itself",
            Root::Doing(State::Tracer) => "was held by the tracer",
            Root::Doing(State::Other) => "waited for something else",
            Root::Doing(State::Unknown) => "nobody saw what it did",
            Root::Network => "the network carried no more",
            Root::EachOther => "they waited for each other",
            Root::NoPlace => "no job slot was free",
            Root::Outside => "outside of the run",
            Root::Unseen => "nobody saw for what",
        }
    }
}

/// What made others wait in the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// Rule that is charged; `None`: nobody of the run.
    pub culprit: Option<String>,
    /// What it did meanwhile.
    pub root: Root,
    /// Time that steps waited for that, ns.
    pub ns: f64,
    /// The rules that waited, the longest first, with their time.
    pub waiters: Vec<(String, f64)>,
}
