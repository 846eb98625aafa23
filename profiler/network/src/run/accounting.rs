//! Time accounting of the processes behind the addresses.

/// Where the time of a node's process went, from the kernel's totals, over its whole life.
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
    /// Time in which the process waited for nobody, s: at work, or kept from it by its machine.
    pub fn busy_s(&self) -> f64 {
        self.on_cpu_s + self.run_queue_s + self.storage_s
    }
}
