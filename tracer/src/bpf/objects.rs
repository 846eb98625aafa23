//! The objects that `tracer/bpf/build` compiled from C.

use std::io;

use super::object::Object;

/// The objects, by the names of their sources.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// Entries and returns of calls.
    Calls,
    /// Forks, execs, exits, and calls by which a process gets files and channels.
    Processes,
    /// Changes of the running task of a CPU.
    Switches,
    /// Call stacks of threads that waited.
    Stacks,
    /// Programs of tests.
    #[cfg(test)]
    Tests,
}

/// # Errors
/// When there are no programs for this CPU architecture: they read registers, and were tried on x86-64 alone.
#[cfg(target_arch = "x86_64")]
pub(crate) fn open(source: Source) -> io::Result<Object<'static>> {
    Object::parse(match source {
        Source::Calls => include_bytes!("../../bpf/prebuilt/calls.o"),
        Source::Processes => include_bytes!("../../bpf/prebuilt/processes.o"),
        Source::Switches => include_bytes!("../../bpf/prebuilt/switches.o"),
        Source::Stacks => include_bytes!("../../bpf/prebuilt/stacks.o"),
        #[cfg(test)]
        Source::Tests => include_bytes!("../../bpf/prebuilt/tests.o"),
    })
}

/// # Errors
/// Always.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn open(_: Source) -> io::Result<Object<'static>> {
    Err(io::Error::other(
        "there are no eBPF programs for this CPU architecture",
    ))
}
