//! The part of a trace that is analysed.

/// Unit that is one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// A network address, as in the thesis.
    #[default]
    Host,
    /// A process, if the trace has the owner of the connection; otherwise the address.
    Process,
    /// An address with its port.
    Endpoint,
}

/// Part of a trace to load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Unit that is one node; `None` for a process where a run recorded the owners of connections, or all
    /// connections are within one address (loopback), else for an address.
    pub by: Option<By>,
    /// Names of the processes, hosts or addresses of the program. Empty for the connections of the recorded
    /// run's processes; without such, for the hosts with a capture of their own, or for all if at most one
    /// has a capture.
    pub hosts: Vec<String>,
    /// Begin and end, ns since the start of the trace.
    pub within_ns: Option<(i64, i64)>,
    /// Largest number of processes; a busy server may know thousands of addresses.
    pub most: Option<usize>,
}
