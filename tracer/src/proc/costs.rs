//! Costs of the threads of a process, as the kernel reports them at their ends.

use std::ops::AddAssign;

/// Costs of one thread, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Costs {
    pub(super) user_ns: u64,
    pub(super) sys_ns: u64,
    pub(super) on_cpu_ns: u64,
    pub(super) run_queue_ns: u64,
    pub(super) minor_faults: u64,
    pub(super) major_faults: u64,
    pub(super) voluntary_switches: u64,
    pub(super) involuntary_switches: u64,
    /// `None` in records of taskstats, where the kernel rounds each of these numbers, those of calls
    /// included, down to a multiple of 1024.
    pub(super) io: Option<Io>,
    /// Peak of the address space, so the largest of all threads.
    pub(super) max_rss_bytes: u64,
    pub(super) threads: u32,
}

/// Bytes and calls of reading and writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Io {
    pub(super) read_calls: u64,
    pub(super) write_calls: u64,
    pub(super) read_bytes: u64,
    pub(super) write_bytes: u64,
}

impl AddAssign for Io {
    fn add_assign(&mut self, other: Io) {
        add(&mut self.read_calls, other.read_calls);
        add(&mut self.write_calls, other.write_calls);
        add(&mut self.read_bytes, other.read_bytes);
        add(&mut self.write_bytes, other.write_bytes);
    }
}

impl AddAssign for Costs {
    fn add_assign(&mut self, other: Costs) {
        add(&mut self.user_ns, other.user_ns);
        add(&mut self.sys_ns, other.sys_ns);
        add(&mut self.on_cpu_ns, other.on_cpu_ns);
        add(&mut self.run_queue_ns, other.run_queue_ns);
        add(&mut self.minor_faults, other.minor_faults);
        add(&mut self.major_faults, other.major_faults);
        add(&mut self.voluntary_switches, other.voluntary_switches);
        add(&mut self.involuntary_switches, other.involuntary_switches);
        if let Some(io) = other.io {
            *self.io.get_or_insert_default() += io;
        }
        self.max_rss_bytes = self.max_rss_bytes.max(other.max_rss_bytes);
        self.threads = self.threads.saturating_add(other.threads);
    }
}

fn add(ours: &mut u64, other: u64) {
    *ours = ours.saturating_add(other);
}
