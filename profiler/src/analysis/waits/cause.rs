//! Causes of waits.

use crate::timeline::State;
/// Activity of a blocker while others waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Root {
    /// The blocker was in this state.
    Doing(State),
    /// Data from the blocker was on its way through a network connection.
    Network,
    /// Blocker and waiter waited for each other.
    EachOther,
    /// No place of a jobserver was free.
    NoPlace,
    /// No process of the run had the other end open.
    Outside,
    /// The channel at which the process waited is not known.
    Unseen,
}

impl Root {
    /// The root cause in words.
    pub const fn text(self) -> &'static str {
        match self {
            Root::Doing(State::Cpu) => "computed",
            Root::Doing(State::Queue) => "waited for a CPU",
            Root::Doing(State::File) => "waited for storage",
            Root::Doing(State::Fault) => "waited for memory",
            Root::Doing(State::Lock) => "waited for a lock",
            Root::Doing(State::Sleep) => "slept",
            Root::Doing(State::Stopped) => "was stopped",
            Root::Doing(State::In | State::Out | State::Child) => "waited itself",
            Root::Doing(State::Tracer) => "was stopped by its tracer",
            Root::Doing(State::Other) => "waited for something else",
            Root::Doing(State::Unknown) => "unknown activity",
            Root::Network => "the network carried no more",
            Root::EachOther => "they waited for each other",
            Root::NoPlace => "no job slot was free",
            Root::Outside => "outside of the run",
            Root::Unseen => "unknown cause",
        }
    }
}

/// A root cause of waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// Rule that is charged; `None`: no process of the run.
    pub blocker: Option<String>,
    /// Activity of that rule during the waits.
    pub root: Root,
    /// Time that steps waited for it, ns.
    pub ns: f64,
    /// The rules that waited, the longest first, with their time.
    pub waiters: Vec<(String, f64)>,
}
