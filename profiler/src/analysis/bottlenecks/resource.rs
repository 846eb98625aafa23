//! Resources that can limit a step, and the confidence of such a statement.

/// What a step lacked while it limited the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// It computed.
    Cpu,
    /// It was ready to compute and waited for a processor for much of the time.
    Processors,
    /// The same, while others were idle or may not be used: an affinity mask or a quota keeps it from them.
    Limit,
    /// It waited for storage.
    Disk,
    /// It waited for the answers to its file calls, which are so many that their way through the traced view
    /// explains it: a cost of tracing.
    View,
    /// It waited for pages of memory.
    Memory,
    /// It waited for locks.
    Lock,
    /// It waited for time to pass.
    Sleep,
    /// Job control had stopped it.
    Stopped,
    /// Who traced it held it.
    Tracer,
    /// Data went through a connection as fast as that allows.
    Network,
    /// Data went from hand to hand, and neither side had much to do.
    HandOver,
    /// Something else, or nothing is known.
    Other,
}

impl Resource {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Resource::Cpu => "CPU",
            Resource::Processors => "processors",
            Resource::Limit => "CPU limit",
            Resource::Disk => "disk",
            Resource::View => "traced view",
            Resource::Memory => "memory",
            Resource::Lock => "lock",
            Resource::Sleep => "sleep",
            Resource::Stopped => "stopped",
            Resource::Tracer => "its tracer",
            Resource::Network => "network",
            Resource::HandOver => "hand-over",
            Resource::Other => "other",
        }
    }

    /// The kind of the finding that blames it ([`crate::analysis::findings::Finding::kind`]).
    pub const fn kind(self) -> &'static str {
        match self {
            Resource::Cpu => "cpu",
            Resource::Limit => "cpu limit",
            other => other.name(),
        }
    }
}

/// How sure a statement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Confidence {
    /// It rests on little, or on assumptions that cannot be checked.
    Low,
    /// Likely.
    Medium,
    /// Many observations agree.
    High,
}

impl Confidence {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        }
    }
}
