//! Part of a trace that a question is about.

/// Unit that is one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// A network address, as the thesis has it.
    #[default]
    Host,
    /// A process, where the trace knows whose a connection is; the address otherwise.
    Process,
    /// An address with its port.
    Endpoint,
}

/// Part of a trace to load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Unit that is one node; `None`: an address, unless all connections are within one (loopback).
    pub by: Option<By>,
    /// Names of the processes, hosts or addresses that belong to the program; empty: those with a
    /// capture of their own, or all when no more than one has.
    pub hosts: Vec<String>,
    /// Begin and end, ns since the start of the trace.
    pub within_ns: Option<(i64, i64)>,
    /// Largest number of processes; a busy server may know thousands of addresses.
    pub most: Option<usize>,
}
