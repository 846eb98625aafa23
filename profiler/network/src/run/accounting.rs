//! Time accounting of the processes behind the addresses.

/// Time accounting of a node's process over its whole life, from the kernel's totals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimeAccounting {
    /// On a CPU, s.
    pub on_cpu_s: f64,
    /// Runnable, and waiting for a CPU, s.
    pub run_queue_s: f64,
    /// Waiting for storage, s.
    pub storage_s: f64,
}

impl TimeAccounting {
    /// Time in which the process waited for no other one, s: it worked, or its machine did not let it
    /// work.
    pub fn busy_s(&self) -> f64 {
        self.on_cpu_s + self.run_queue_s + self.storage_s
    }
}
