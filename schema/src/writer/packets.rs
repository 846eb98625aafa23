//! Packets on their way into their table, which keeps them in the order of time.
//!
//! The key is the time with six more bits, which distinguish packets of the same ns: no index is needed to
//! read them in the order of time, and a row has about 45 bytes.

use std::collections::HashMap;

use rusqlite::{Connection, Result};

use super::bulk::{Inserts, ROWS, is_taken};
use crate::{FlowSeen, Packet};

/// Bits of the key below the time.
pub(crate) const PACKET_BITS: u32 = 6;
/// Largest distance from time 0 that can be stored.
const FURTHEST_NS: i64 = 1 << (61 - PACKET_BITS);
/// Times with many packets that are remembered, so that not all of their keys need be tried again.
const CROWDED: usize = 4096;

const COLUMNS: [&str; 11] = [
    "at",
    "what",
    "flow_id",
    "flags",
    "payload_bytes",
    "header_bytes",
    "seq",
    "ack",
    "window",
    "tsval",
    "tsecr",
];

type Row = super::bulk::Row<{ COLUMNS.len() }>;

/// The table of packets of one connection.
#[derive(Default)]
pub(super) struct PacketTable<'db> {
    inserts: Inserts<'db, { COLUMNS.len() }>,
    /// Time of the latest packet, and the last key used for it.
    latest: Option<(i64, i64)>,
    /// Keys to try next for times that were found full.
    crowded: HashMap<i64, i64>,
}

impl<'db> PacketTable<'db> {
    /// Stores packets, best in the order of time.
    pub(super) fn insert(&mut self, db: &'db Connection, packets: &[Packet]) -> Result<()> {
        let mut rest = packets;
        while !rest.is_empty() {
            let (insert, rows) = self.inserts.of(db, "packet", &COLUMNS, rest.len())?;
            let (now, later) = rest.split_at(rows);
            let mut keys = [0; ROWS[0]];
            for (place, packet) in now.iter().enumerate() {
                let t_ns = packet.t_ns.clamp(-FURTHEST_NS, FURTHEST_NS);
                keys[place] = next_key(&mut self.latest, t_ns);
                insert.bind(place, row(packet, keys[place]))?;
            }
            match insert.statement.raw_execute() {
                Ok(_) => {}
                Err(error) if is_taken(&error) => {
                    let stored = db.changes() as usize;
                    for (packet, &key) in now.iter().zip(&keys).skip(stored) {
                        self.insert_beside(db, packet, key)?;
                    }
                }
                Err(error) => return Err(error),
            }
            rest = later;
        }
        Ok(())
    }

    /// Stores a packet under the first free key from `wanted` on.
    #[cold]
    fn insert_beside(&mut self, db: &'db Connection, packet: &Packet, wanted: i64) -> Result<()> {
        let mut key = wanted.max(
            self.crowded
                .get(&(wanted >> PACKET_BITS))
                .copied()
                .unwrap_or(wanted),
        );
        let (insert, _) = self.inserts.of(db, "packet", &COLUMNS, 1)?;
        loop {
            insert.bind(0, row(packet, key))?;
            match insert.statement.raw_execute() {
                Ok(_) => break,
                Err(error) if is_taken(&error) => key += 1,
                Err(error) => return Err(error),
            }
        }
        if key - wanted > 8 {
            if self.crowded.len() >= CROWDED {
                self.crowded.clear();
            }
            self.crowded.insert(wanted >> PACKET_BITS, key + 1);
        }
        if self.latest.is_some_and(|(_, last)| key > last) {
            self.latest = self.latest.map(|(t_ns, _)| (t_ns, key));
        }
        Ok(())
    }

    /// Stores the packets of a flow that a capture saw; those seen before are kept.
    pub(super) fn seen(db: &Connection, seen: &FlowSeen) -> Result<()> {
        db.prepare_cached(
            "INSERT INTO flow_capture (flow_id, capture_id, first_ns, last_ns, out_packets,
               out_bytes, back_packets, back_bytes, src_local, dst_local)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
             ON CONFLICT (flow_id, capture_id) DO UPDATE SET
               first_ns = MIN(first_ns, excluded.first_ns),
               last_ns = MAX(last_ns, excluded.last_ns),
               out_packets = out_packets + excluded.out_packets,
               out_bytes = out_bytes + excluded.out_bytes,
               back_packets = back_packets + excluded.back_packets,
               back_bytes = back_bytes + excluded.back_bytes,
               src_local = COALESCE(src_local, excluded.src_local),
               dst_local = COALESCE(dst_local, excluded.dst_local)",
        )?
        .execute(rusqlite::params![
            seen.flow.0,
            seen.capture.0,
            seen.first_ns,
            seen.last_ns,
            seen.packets[0] as i64,
            seen.bytes[0] as i64,
            seen.packets[1] as i64,
            seen.bytes[1] as i64,
            seen.local[0].then_some(1),
            seen.local[1].then_some(1)
        ])?;
        Ok(())
    }
}

/// The key of a packet at `t_ns`, free unless packets come out of order.
fn next_key(latest: &mut Option<(i64, i64)>, t_ns: i64) -> i64 {
    let first = t_ns << PACKET_BITS;
    match *latest {
        // More packets in a ns than there are keys for: the later ones are put a ns later.
        Some((latest_ns, last)) if t_ns >= latest_ns => {
            let key = first.max(last + 1);
            *latest = Some((t_ns, key));
            key
        }
        Some(_) => first,
        None => {
            *latest = Some((t_ns, first));
            first
        }
    }
}

fn row(packet: &Packet, key: i64) -> Row {
    let marks = i64::from(packet.marks) << 8;
    // Signed numbers of 32 bits take four bytes, unsigned ones six.
    let signed = |value: u32| Some(i64::from(value as i32));
    let what = i64::from(packet.capture) << 3 | (packet.way as i64) << 1 | i64::from(packet.back);
    let header = packet.wire_bytes.saturating_sub(packet.payload_bytes);
    let mut row = [
        Some(key),
        Some(what),
        Some(i64::from(packet.flow)),
        (marks > 0).then_some(marks),
        Some(i64::from(packet.payload_bytes)),
        Some(i64::from(header)),
        None,
        None,
        None,
        None,
        None,
    ];
    if let Some(tcp) = packet.tcp {
        row[3] = Some(i64::from(tcp.flags) | marks);
        row[6] = signed(tcp.seq);
        row[7] = signed(tcp.ack);
        row[8] = Some(i64::from(tcp.window));
        row[9] = tcp.timestamps.and_then(|(value, _)| signed(value));
        row[10] = tcp.timestamps.and_then(|(_, echo)| signed(echo));
    }
    row
}
