//! Calls on pipes and sockets on their way into their table.

use rusqlite::{Connection, Result};

use super::bulk::Inserts;
use crate::{ChannelCall, Side};

const COLUMNS: [&str; 9] = [
    "start_ns",
    "duration_ns",
    "upid",
    "tid",
    "channel_id",
    "inode",
    "what",
    "length",
    "result",
];

/// Bits of the column `what`.
const WRITES: i64 = 1;
const PEEKED: i64 = 2;
const NOT_COUNTED: i64 = 4;
const LOSSY: i64 = 8;
/// The bytes moved are in the place of the length asked for, which is not known.
const SUMMED: i64 = PEEKED | NOT_COUNTED;

/// The table of one connection.
#[derive(Default)]
pub(super) struct ChannelCallTable<'db> {
    inserts: Inserts<'db, { COLUMNS.len() }>,
}

impl<'db> ChannelCallTable<'db> {
    pub(super) fn insert(&mut self, db: &'db Connection, calls: &[ChannelCall]) -> Result<()> {
        let mut rest = calls;
        while !rest.is_empty() {
            let of = &mut self.inserts;
            let (insert, rows) = of.of(db, "channel_call", &COLUMNS, rest.len())?;
            let (now, later) = rest.split_at(rows);
            for (place, call) in now.iter().enumerate() {
                insert.bind(place, row(call))?;
            }
            insert.statement.raw_execute()?;
            rest = later;
        }
        Ok(())
    }
}

fn row(call: &ChannelCall) -> super::bulk::Row<{ COLUMNS.len() }> {
    let whole = call
        .length
        .is_some_and(|length| i64::try_from(length) == Ok(call.result));
    [
        Some(call.start_ns as i64),
        Some(call.duration_ns as i64),
        Some(call.upid.into()),
        call.tid.map(i64::from),
        call.channel.map(i64::from),
        call.channel.is_none().then_some(call.inode as i64),
        Some(what(call)),
        match what(call) & SUMMED {
            SUMMED => call.bytes,
            _ => call.length,
        }
        .map(|v| v as i64),
        (!whole).then_some(call.result),
    ]
}

fn what(call: &ChannelCall) -> i64 {
    let bytes = match call.bytes {
        None => NOT_COUNTED,
        Some(bytes) if bytes == call.result.max(0).cast_unsigned() => 0,
        Some(0) => PEEKED,
        Some(_) => SUMMED,
    };
    let side = match call.side {
        Side::Read => 0,
        Side::Write => WRITES,
    };
    side | bytes | if call.lossy { LOSSY } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChannelId, Tid, Upid, contract};

    #[test]
    fn the_view_shows_the_recorded_calls() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(contract::TABLES).unwrap();
        db.execute_batch(contract::VIEWS).unwrap();
        let call = ChannelCall {
            start_ns: 10,
            duration_ns: 3,
            upid: Upid(2),
            tid: Some(Tid(9)),
            channel: Some(ChannelId(4)),
            inode: 77,
            side: Side::Write,
            length: Some(50),
            result: 50,
            bytes: Some(50),
            lossy: false,
        };
        let calls = [
            call,
            ChannelCall {
                side: Side::Read,
                length: None,
                result: 6,
                bytes: Some(0),
                ..call
            },
            ChannelCall {
                channel: None,
                result: 2,
                bytes: None,
                lossy: true,
                ..call
            },
            ChannelCall {
                result: -11,
                bytes: Some(0),
                ..call
            },
            ChannelCall {
                length: None,
                result: 2,
                bytes: Some(700),
                ..call
            },
        ];
        let mut table = ChannelCallTable::default();
        table.insert(&db, &calls).unwrap();
        let mut rows = db
            .prepare(
                "SELECT format('%s %s %s %s %s %s %s %s', tid, COALESCE(channel_id, '-'),
                   COALESCE(inode, '-'), side, COALESCE(length, '-'), result, COALESCE(bytes, '-'),
                   fidelity) FROM channel_calls ORDER BY start_ns",
            )
            .unwrap();
        let rows = rows.query_map([], |row| row.get::<_, String>(0)).unwrap();
        let rows: Vec<String> = rows.collect::<Result<_>>().unwrap();
        assert_eq!(
            rows,
            [
                "9 4 - write 50 50 50 exact",
                "9 4 - read - 6 0 exact",
                "9 - 77 write 50 2 - lossy",
                "9 4 - write 50 -11 0 exact",
                "9 4 - write - 2 700 exact",
            ]
        );
    }
}
