//! Resources that can limit a step, and the confidence of such a statement.

/// The resource that limited a step while the step limited the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// The step computed.
    Cpu,
    /// The step was ready to compute and waited for a CPU for much of the time.
    Cpus,
    /// The step waited for a CPU while others were idle: an affinity mask or a quota keeps it from them.
    Limit,
    /// The step waited for storage.
    Disk,
    /// The step waited for the answers to its file calls. The calls are so many that their way through the
    /// traced mount explains the wait: a cost of tracing.
    Mount,
    /// The step waited for pages of memory.
    Memory,
    /// The step waited for locks.
    Lock,
    /// The step waited for time to pass.
    Sleep,
    /// Job control had stopped the step.
    Stopped,
    /// The step's tracer had stopped it.
    Tracer,
    /// Data went through a connection as fast as the connection allows.
    Network,
    /// Data was passed from process to process, and neither side had much to do.
    HandOver,
    /// Another resource, or nothing is known.
    Other,
}

impl Resource {
    /// Name of the resource in output.
    pub const fn name(self) -> &'static str {
        match self {
            Resource::Cpu => "CPU",
            Resource::Cpus => "free CPU",
            Resource::Limit => "CPU limit",
            Resource::Disk => "disk",
            Resource::Mount => "traced view",
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

/// Confidence in a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Confidence {
    /// The statement rests on few observations, or on assumptions that cannot be checked.
    Low,
    /// The statement is likely.
    Medium,
    /// Many observations agree.
    High,
}

impl Confidence {
    /// Name of the confidence in output.
    pub const fn name(self) -> &'static str {
        match self {
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        }
    }
}
