//! Reading the evidence for the direction of data through sockets.

use super::Trace;
use super::rows::{SocketPortsRow, SocketTrafficRow, SocketWaitsRow};
use crate::{Activity, Result};

impl Trace {
    /// The traffic of the sides of sockets, counted call by call, in the order of channels; empty if it was
    /// not counted.
    pub fn socket_traffic(&self) -> Vec<SocketTrafficRow> {
        // Traces of earlier versions have no such view.
        let rows = self.rows(
            "SELECT channel_id, upid, side, bytes, exact
             FROM channel_traffic JOIN channels USING (channel_id)
             WHERE kind NOT IN ('pipe', 'fifo') ORDER BY channel_id, upid, side",
        );
        rows.unwrap_or_default()
    }

    /// Numbers of waits of images at sockets, in the order of channels. An event loop waits until it can read
    /// each of its sockets, also those through which it only writes; for a socket that it wants to write,
    /// only the waits for writing are counted.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn socket_waits(&self) -> Result<Vec<SocketWaitsRow>> {
        self.rows(&format!(
            "WITH waited AS (
               SELECT upid, t_ns, end_ns, side, channel_id, object,
                 op GLOB '*poll*' OR op GLOB '*select*' AS polls
               FROM sample
               WHERE activity = {channel} AND side IS NOT NULL
                 AND COALESCE(op, '') NOT IN ('connect', 'accept', 'accept4')
               UNION ALL
               SELECT s.upid, s.t_ns, s.end_ns, p.side, p.channel_id, p.object, 2
               FROM polled AS p JOIN sample AS s USING (sample_id)
               WHERE p.side = 'write' OR NOT EXISTS (SELECT 1 FROM polled AS w
                 WHERE w.sample_id = p.sample_id AND w.object = p.object AND w.side = 'write')
             ), known AS (
               SELECT upid, t_ns, end_ns, side, COALESCE(polls, 0) AS polls,
                 COALESCE(channel_id, (SELECT c.channel_id FROM channel AS c WHERE c.inode = object LIMIT 1))
                   AS channel_id
               FROM waited
             )
             SELECT channel_id, upid,
               SUM(side = 'write' AND NOT polls) AS writes,
               SUM(side = 'write' AND polls) AS write_polls,
               SUM(side = 'read' AND NOT polls) AS reads,
               SUM(side = 'read' AND polls = 1) AS read_polls,
               SUM(side = 'read' AND polls = 2) AS interests,
               COALESCE(MIN(CASE WHEN side = 'read' AND NOT polls THEN end_ns END) <= MAX(t_ns), 0)
                 AS went_on
             FROM known JOIN channels USING (channel_id) WHERE kind NOT IN ('pipe', 'fifo')
             GROUP BY channel_id, upid ORDER BY channel_id, upid",
            channel = Activity::Channel as i64
        ))
    }

    /// The ports of the sockets that have any, in the order of channels.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn socket_ports(&self) -> Result<Vec<SocketPortsRow>> {
        self.rows(
            "SELECT DISTINCT channel_id, port, peer_port
             FROM socket_end JOIN channel_end USING (end_id)
             WHERE peer_port IS NOT NULL ORDER BY channel_id, port",
        )
    }
}
