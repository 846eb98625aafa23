//! CPUs that a process may use.

use std::collections::BTreeSet;
/// The part of its machine that a process may use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Confined {
    /// CPUs of its affinity mask; `None`: all.
    pub cpus: Option<BTreeSet<u32>>,
    /// Quota of its control groups, in CPUs; `None`: none.
    pub quota: Option<f64>,
}

/// The part of a machine that several processes together may use, less than all of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// Number of CPUs.
    pub cores: f64,
    /// The CPUs of their masks, as `0-3,8`, where it is these that limit.
    pub cpus: Option<String>,
}

impl Limit {
    /// The limit in words.
    pub fn text(&self) -> String {
        match &self.cpus {
            Some(cpus) if cpus.contains([',', '-']) => {
                format!("its affinity mask allows CPUs {cpus} only")
            }
            Some(cpus) => format!("its affinity mask allows CPU {cpus} only"),
            None => {
                let cores = (self.cores * 100.0).round() / 100.0;
                let word = if cores == 1.0 { "core" } else { "cores" };
                format!("a CPU quota (cpu.max) allows {cores} {word}")
            }
        }
    }
}
