//! Reading the data that a report shows beside the model: costs of processes, counters of the machines, channels.

use super::Trace;
use super::rows::{ChannelRow, CostRow, FlowRow, HostSampleRow};
use crate::Result;

impl Trace {
    /// The costs of every process image, in the order of their upids.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn costs(&self) -> Result<Vec<CostRow>> {
        self.rows(
            "SELECT upid, storage_ns, wait_ns, thread_ns, max_rss_bytes, read_bytes, write_bytes
             FROM processes ORDER BY upid",
        )
    }

    /// The counters of the machines, each in the order of time.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn host_samples(&self) -> Result<Vec<HostSampleRow>> {
        self.rows(
            "SELECT t_ns, host, counter, value FROM host_samples ORDER BY host, counter, t_ns",
        )
    }

    /// Pipes, FIFOs and sockets.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn channels(&self) -> Result<Vec<ChannelRow>> {
        self.rows("SELECT channel_id, kind, name, capacity_bytes FROM channels ORDER BY channel_id")
    }

    /// The network flows with the most bytes, `most` at most.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn largest_flows(&self, most: u32) -> Result<Vec<FlowRow>> {
        self.rows(&format!(
            "SELECT * FROM flows ORDER BY bytes DESC, flow_id LIMIT {most}"
        ))
    }

    /// Number of network flows.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn flow_count(&self) -> Result<i64> {
        self.value("SELECT COUNT(*) FROM flow")
    }
}
