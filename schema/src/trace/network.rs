//! Reading the network: hosts, captures, flows, and packets as a stream.

use std::ops::ControlFlow;

use super::rows::{
    CaptureRow, FlowBetween, FlowCaptureRow, FlowMeasure, FlowOwnerRow, FlowRow, HostRow,
    NetworkTotals, NodeRow, amounts,
};
use crate::{Result, Trace, marks};

/// A captured packet, as the view `packets` shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketRow {
    /// Timestamp on the common scale of all hosts.
    pub t_ns: i64,
    /// Capture that saw it.
    pub capture_id: i64,
    /// Flow it belongs to.
    pub flow_id: i64,
    /// 0: src to dst, 1: back.
    pub dir: u8,
    /// 0: not known, 1: sent by the host of the capture, 2: received, 3: forwarded or overheard.
    pub way: u8,
    /// See [`crate::marks`].
    pub marks: u8,
    /// Bytes of payload.
    pub payload_bytes: u32,
    /// Bytes on the wire.
    pub wire_bytes: u32,
    /// TCP sequence number; `None`: not of TCP.
    pub seq: Option<u32>,
    /// TCP acknowledgement number.
    pub ack: Option<u32>,
    /// TCP flags: 1 FIN, 2 SYN, 4 RST, 8 PSH, 16 ACK, 32 URG, 64 ECE, 128 CWR.
    pub flags: Option<u8>,
    /// TCP window, scaled where the flow's SYNs were seen.
    pub window: Option<u32>,
    /// TCP timestamp value.
    pub tsval: Option<u32>,
    /// TCP timestamp echo.
    pub tsecr: Option<u32>,
}

impl PacketRow {
    /// True if the packet stands for several segments on the wire.
    pub fn has_segments(&self) -> bool {
        self.marks & marks::SEGMENTS != 0
    }
}

/// The ends of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowEnds<'a> {
    /// Its id.
    pub flow_id: i64,
    /// Address of the side that spoke first.
    pub src: &'a str,
    /// Its port.
    pub sport: Option<i64>,
    /// Address of the other side.
    pub dst: &'a str,
    /// Its port.
    pub dport: Option<i64>,
    /// tcp, udp and the like.
    pub proto: &'a str,
    /// Process at src, where it is known.
    pub src_upid: Option<i64>,
    /// Process at dst.
    pub dst_upid: Option<i64>,
    /// True if a run recorded processes on the host that captured the flow: one without a process is then
    /// another program's.
    pub is_beside_run: bool,
}

/// The packets of hosts with one clock.
const IN_ORDER: &str = "SELECT at >> 6, {fields} FROM packet WHERE at >= ?1 ORDER BY at";

/// The packets of hosts whose clocks are corrected as the views do it.
const CORRECTED: &str = "
  SELECT (p.at >> 6) + h.clock_offset_ns
      - CAST((p.at >> 6) * (h.clock_drift_ppb / 1e9) AS INTEGER) AS t_ns, {fields}
  FROM packet AS p CROSS JOIN capture AS c ON c.capture_id = p.what >> 3
  CROSS JOIN host AS h ON h.host_id = c.host_id
  WHERE t_ns >= ?1 >> 6
  ORDER BY t_ns, at";

/// The fields of a packet beside its time: two numbers of 32 bits in one where they come together. Reading a
/// column takes longer than joining two, and there are millions of rows.
const FIELDS: &str =
    "flow_id << 32 | what, payload_bytes << 32 | (header_bytes & 4294967295), flags,
  seq << 32 | (ack & 4294967295), window";

impl Trace {
    /// The machines, in the order of their ids.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn hosts(&self) -> Result<Vec<HostRow>> {
        self.rows("SELECT * FROM hosts ORDER BY host_id")
    }

    /// The machines of the run: those of which a process, a counter or a packet was seen. A collector that
    /// only writes what agents send is none; if nothing was seen of any machine, all are returned.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn machines(&self) -> Result<Vec<HostRow>> {
        let seen = "SELECT h.* FROM hosts AS h WHERE EXISTS (SELECT 1 FROM node WHERE node.host_id = h.host_id)
               OR EXISTS (SELECT 1 FROM capture WHERE capture.host_id = h.host_id)
               OR EXISTS (SELECT 1 FROM host_sample WHERE host_sample.host_id = h.host_id)
               OR EXISTS (SELECT 1 FROM process WHERE process.host_id = h.host_id)
             ORDER BY h.host_id";
        let machines = self.rows(seen)?;
        match machines.is_empty() {
            true => self.hosts(),
            false => Ok(machines),
        }
    }

    /// The machines that agents watched for a collector, in the order of their numbers.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn nodes(&self) -> Result<Vec<NodeRow>> {
        self.rows(
            "SELECT node.*, host.name AS host, final AS is_final
             FROM node LEFT JOIN host USING (host_id) ORDER BY host_id",
        )
    }

    /// The places where packets were captured.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn captures(&self) -> Result<Vec<CaptureRow>> {
        self.rows("SELECT * FROM captures ORDER BY capture_id")
    }

    /// The flows, in the order of their ids.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn flows(&self) -> Result<Vec<FlowRow>> {
        self.rows("SELECT * FROM flows ORDER BY flow_id")
    }

    /// Calls `each` with the flows above this id, in the order of ids: without their sums, which for a trace
    /// that is being recorded are made of all its packets each time. While a trace grows, only the owners of
    /// a flow change here.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn flow_ends(&self, above: i64, mut each: impl FnMut(&FlowEnds<'_>)) -> Result<()> {
        let mut stream = || -> rusqlite::Result<()> {
            let mut statement = self.db.prepare(
                "SELECT f.flow_id, src, sport, dst, dport, proto, o.src_upid, o.dst_upid,
                   f.capture_id IN (SELECT c.capture_id FROM capture AS c JOIN run AS r USING (host_id)
                     WHERE r.process_layer <> 'none')
                 FROM flow AS f LEFT JOIN flow_main_owners AS o ON o.flow_id = f.flow_id
                 WHERE f.flow_id > ?1 ORDER BY f.flow_id",
            )?;
            let mut rows = statement.query([above])?;
            while let Some(row) = rows.next()? {
                each(&FlowEnds {
                    flow_id: row.get(0)?,
                    src: row.get_ref(1)?.as_str()?,
                    sport: row.get(2)?,
                    dst: row.get_ref(3)?.as_str()?,
                    dport: row.get(4)?,
                    proto: row.get_ref(5)?.as_str()?,
                    src_upid: row.get(6)?,
                    dst_upid: row.get(7)?,
                    is_beside_run: row.get(8)?,
                });
            }
            Ok(())
        };
        stream().map_err(|source| self.unreadable(source))
    }

    /// The flows with payload between two processes that are known.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn flows_between(&self) -> Result<Vec<FlowBetween>> {
        self.rows(
            "SELECT src_upid, dst_upid, sport, dport, out_bytes, back_bytes, first_ns, last_ns FROM flows
             WHERE src_upid IS NOT NULL AND dst_upid IS NOT NULL AND bytes > 0 ORDER BY flow_id",
        )
    }

    /// Amount of captured data; `None`: nothing was captured.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn network_totals(&self) -> Result<Option<NetworkTotals>> {
        let rows: Vec<NetworkTotals> = self.rows(
            "SELECT COUNT(*) AS flows, COALESCE(SUM(packets), 0) AS packets,
               COALESCE(SUM(bytes), 0) AS bytes FROM (
               SELECT MAX(out_packets) + MAX(back_packets) AS packets,
                 MAX(out_bytes) + MAX(back_bytes) AS bytes
               FROM flow_captures GROUP BY flow_id)",
        )?;
        Ok(rows.into_iter().next().filter(|totals| totals.flows > 0))
    }

    /// The measures of each flow by the kernels, by the end that was asked.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn flow_measures(&self) -> Result<Vec<FlowMeasure>> {
        self.rows(
            "SELECT flow_id, side, MIN(min_rtt_ns) AS min_rtt_ns, MAX(retransmits) AS retransmits,
               MAX(rwnd_limited_ns) AS rwnd_limited_ns, MAX(sndbuf_limited_ns) AS sndbuf_limited_ns,
               MAX(busy_ns) AS busy_ns
             FROM flow_samples GROUP BY flow_id, side ORDER BY flow_id, side",
        )
    }

    /// The packets of each flow by the capture that saw them.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn flow_captures(&self) -> Result<Vec<FlowCaptureRow>> {
        self.rows("SELECT * FROM flow_captures ORDER BY flow_id, capture_id")
    }

    /// As [`Trace::flow_captures`], in any order: SQLite need not sort millions of rows.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn flow_captures_unordered(&self) -> Result<Vec<FlowCaptureRow>> {
        self.rows("SELECT * FROM flow_captures")
    }

    /// The processes at the ends of flows.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn flow_owners(&self) -> Result<Vec<FlowOwnerRow>> {
        self.rows("SELECT * FROM flow_owners ORDER BY flow_id, side, from_ns")
    }

    /// Calls `each` with every packet, in the order of time on the common scale, until it breaks. Memory does
    /// not grow with the number of packets.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn packets(&self, each: impl FnMut(&PacketRow) -> ControlFlow<()>) -> Result<()> {
        self.stream(i64::MIN, true, each)
    }

    /// As [`Trace::packets`], from a time on, ns, without the timestamps of TCP. If all hosts have one clock,
    /// earlier packets are not read.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn packets_since(
        &self,
        from_ns: i64,
        each: impl FnMut(&PacketRow) -> ControlFlow<()>,
    ) -> Result<()> {
        self.stream(from_ns, false, each)
    }

    fn stream(
        &self,
        from_ns: i64,
        has_timestamps: bool,
        mut each: impl FnMut(&PacketRow) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut stream = || -> rusqlite::Result<()> {
            // On one scale the order of the table is that of time. Otherwise SQLite sorts, on disk
            // when there are many.
            let is_one_scale: bool = self.db.query_row(
                "SELECT NOT EXISTS (SELECT 1 FROM host
                 WHERE clock_offset_ns <> 0 OR clock_drift_ppb <> 0)",
                [],
                |row| row.get(0),
            )?;
            let select = if is_one_scale { IN_ORDER } else { CORRECTED };
            let timestamps = if has_timestamps { ", tsval, tsecr" } else { "" };
            let mut statement = self
                .db
                .prepare(&select.replace("{fields}", &(FIELDS.to_owned() + timestamps)))?;
            let mut rows = statement.query([from_ns.saturating_mul(64)])?;
            while let Some(row) = rows.next()? {
                let mut packet = packet(row)?;
                if has_timestamps {
                    (packet.tsval, packet.tsecr) = (unsigned(row.get(6)?), unsigned(row.get(7)?));
                }
                if each(&packet).is_break() {
                    break;
                }
            }
            Ok(())
        };
        stream().map_err(|source| self.unreadable(source))
    }
}

fn unsigned(value: Option<i64>) -> Option<u32> {
    value.map(|value| value as u32)
}

/// A packet without its timestamps.
fn packet(row: &rusqlite::Row<'_>) -> rusqlite::Result<PacketRow> {
    let both = |packed: i64| ((packed >> 32) as u32, packed as u32);
    let (flow_id, what) = both(integer(row, 1)?.unwrap_or(0));
    let (payload_bytes, header_bytes) = both(integer(row, 2)?.unwrap_or(0));
    let flags = integer(row, 3)?;
    let numbers = integer(row, 4)?.map(both);
    Ok(PacketRow {
        t_ns: amounts::checked(integer(row, 0)?.unwrap_or(0), 0, "t_ns")?,
        capture_id: i64::from(what >> 3),
        flow_id: i64::from(flow_id),
        dir: (what & 1) as u8,
        way: (what >> 1 & 3) as u8,
        marks: flags.map_or(0, |flags| (flags >> 8) as u8),
        payload_bytes,
        wire_bytes: payload_bytes.saturating_add(header_bytes),
        seq: numbers.map(|(seq, _)| seq),
        ack: numbers.map(|(_, ack)| ack),
        flags: numbers.and(flags).map(|flags| flags as u8),
        window: unsigned(integer(row, 5)?),
        tsval: None,
        tsecr: None,
    })
}

/// A number, read without the checks of a conversion.
fn integer(row: &rusqlite::Row<'_>, at: usize) -> rusqlite::Result<Option<i64>> {
    Ok(row.get_ref(at)?.as_i64_or_null()?)
}
