//! Reading the data that a report shows beside the model: sums of single calls, counters of the machines,
//! waits.

use rusqlite::Connection;

use super::Trace;
use super::rows::{ChannelRow, CostRow, FlowRow, HostSampleRow, amounts};
use crate::Result;
use crate::op::Op;

/// Size and time of a file call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallCost {
    /// Arrival of the request, ns.
    pub start_ns: i64,
    /// Time until the reply, ns.
    pub duration_ns: i64,
    /// Process image; `None`: the kernel itself, or not known.
    pub upid: Option<i64>,
    /// Operation.
    pub op: Op,
    /// Bytes or value returned; negative errno.
    pub result: i64,
}

impl Trace {
    /// Calls `take` with every file call, in the order of time, without storing the calls in memory: there
    /// may be many millions.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn each_call(&self, take: impl FnMut(CallCost)) -> Result<()> {
        each_call(&self.db, take).map_err(|source| self.unreadable(source))
    }

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

fn each_call(db: &Connection, mut take: impl FnMut(CallCost)) -> rusqlite::Result<()> {
    let mut ops = [None; 64];
    for &op in Op::ALL {
        ops[op as usize & 63] = Some(op);
    }
    let mut statement = db.prepare(
        "SELECT start_ns, duration_ns, upid, what & 63, COALESCE(result, length, 0)
         FROM call ORDER BY start_ns",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let time = |place, name| amounts::read::<i64>(row, place, name, true);
        let number: i64 = row.get(3)?;
        // The view shows no call of an operation that is not in the list.
        let Some(op) = usize::try_from(number).ok().and_then(|n| ops[n & 63]) else {
            continue;
        };
        take(CallCost {
            start_ns: time(0, "start_ns")?,
            duration_ns: time(1, "duration_ns")?,
            upid: row.get(2)?,
            op,
            result: row.get(4)?,
        });
    }
    Ok(())
}
