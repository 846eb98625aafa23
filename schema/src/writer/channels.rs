//! Rows of channels and of their traffic.

use rusqlite::{Connection, Result, params};

use crate::{ChannelEndClosed, ChannelEndRecord, ChannelRecord, ChannelTraffic, Upid};

pub(super) fn channel(db: &Connection, r: &ChannelRecord) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO channel (channel_id, host_id, kind, inode, name, name_raw,
           capacity_bytes)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        r.id.0,
        r.host.0,
        r.kind.name(),
        r.inode as i64,
        r.name.as_ref().map(|t| t.text()),
        r.name.as_ref().and_then(|t| t.raw()),
        r.capacity_bytes.map(|v| v as i64)
    ])?;
    Ok(())
}

pub(super) fn end(db: &Connection, r: &ChannelEndRecord) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO channel_end (end_id, channel_id, upid, fd, direction, from_ns)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        r.id,
        r.channel.0,
        r.upid.0,
        r.fd,
        r.direction.name(),
        r.from_ns as i64
    ])?;
    Ok(())
}

pub(super) fn closed(db: &Connection, r: &ChannelEndClosed) -> Result<()> {
    db.prepare_cached(
        "UPDATE channel_end SET to_ns = MAX(from_ns, ?2), used = ?3, bytes = ?4,
           at_most_bytes = ?5
         WHERE end_id = ?1",
    )?
    .execute(params![
        r.id,
        r.to_ns.map(|v| v as i64),
        r.used,
        r.bytes.map(|v| v as i64),
        r.at_most_bytes.map(|v| v as i64)
    ])?;
    Ok(())
}

/// Comes after all ends of the image are closed. Counted bytes replace inferred ones if the image had one end
/// for the side: with several ends, nothing says which it was.
pub(super) fn traffic(db: &Connection, r: &ChannelTraffic) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO channel_sum (channel_id, upid, side, calls, bytes, duration_ns, first_ns,
           last_ns, exact)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        r.channel.0,
        r.upid.0,
        r.side.name(),
        r.calls as i64,
        r.bytes.map(|v| v as i64),
        r.duration_ns as i64,
        r.first_ns as i64,
        r.last_ns as i64,
        r.exact
    ])?;
    if !r.exact || r.bytes.is_none() {
        return Ok(());
    }
    db.prepare_cached(
        "UPDATE channel_end SET (bytes, at_most_bytes, used) = (
           SELECT SUM(t.bytes), SUM(t.bytes), SUM(t.bytes) > 0 FROM channel_sum AS t
           WHERE t.channel_id = ?1 AND t.upid = ?2
             AND (t.side = channel_end.direction OR channel_end.direction = 'both'))
         WHERE channel_id = ?1 AND upid = ?2 AND direction IN (?3, 'both')
           AND (SELECT COUNT(*) FROM channel_end
                WHERE channel_id = ?1 AND upid = ?2 AND direction IN (?3, 'both')) = 1",
    )?
    .execute(params![r.channel.0, r.upid.0, r.side.name()])?;
    Ok(())
}

/// The image moved nothing but the bytes given to [`traffic`].
pub(super) fn all_traffic(db: &Connection, upid: Upid) -> Result<()> {
    db.prepare_cached("INSERT OR IGNORE INTO channels_counted (upid) VALUES (?1)")?
        .execute(params![upid.0])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChannelId, Direction, Side, contract};

    fn sum(upid: u32, side: Side, bytes: Option<u64>, exact: bool) -> ChannelTraffic {
        ChannelTraffic {
            channel: ChannelId(1),
            upid: Upid(upid),
            side,
            calls: 2,
            bytes,
            duration_ns: 5,
            first_ns: 10,
            last_ns: 20,
            exact,
        }
    }

    /// Bytes and use of the ends, by row.
    fn ends(db: &Connection) -> Vec<(Option<i64>, Option<i64>, Option<bool>)> {
        let mut rows = db
            .prepare("SELECT bytes, at_most_bytes, used FROM channel_end ORDER BY end_id")
            .unwrap();
        let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        rows.unwrap().collect::<Result<_>>().unwrap()
    }

    #[test]
    fn what_was_counted_stands_in_place_of_what_was_concluded() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(contract::TABLES).unwrap();
        let open_ends = [
            (1, 1, Direction::Write),
            (2, 2, Direction::Both),
            (3, 3, Direction::Read),
            (4, 3, Direction::Read),
            (5, 4, Direction::Read),
            (6, 5, Direction::Read),
        ];
        for (id, upid, direction) in open_ends {
            let row = ChannelEndRecord {
                id,
                channel: ChannelId(1),
                upid: Upid(upid),
                fd: 3,
                direction,
                from_ns: 1,
            };
            end(&db, &row).unwrap();
            let over = ChannelEndClosed {
                id,
                to_ns: None,
                used: None,
                bytes: None,
                at_most_bytes: Some(99),
            };
            closed(&db, &over).unwrap();
        }
        for row in [
            sum(1, Side::Write, Some(7), true),
            sum(2, Side::Read, Some(30), true),
            sum(2, Side::Write, Some(4), true),
            // With two ends nothing says which it was; lost and uncounted bytes conclude nothing.
            sum(3, Side::Read, Some(8), true),
            sum(4, Side::Read, Some(9), false),
            sum(5, Side::Read, None, true),
        ] {
            traffic(&db, &row).unwrap();
        }
        let before = (None, Some(99), None);
        assert_eq!(
            ends(&db),
            [
                (Some(7), Some(7), Some(true)),
                (Some(34), Some(34), Some(true)),
                before,
                before,
                before,
                before,
            ]
        );
    }

    #[test]
    fn who_is_known_to_have_moved_nothing_else_used_no_other_end() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(contract::TABLES).unwrap();
        // Ends 1 and 2 of the image that read 7 bytes, 3 of the one that read nothing, 4 of the one that may
        // have.
        for (id, upid, direction) in [
            (1, 1, Direction::Read),
            (2, 1, Direction::Write),
            (3, 2, Direction::Read),
            (4, 3, Direction::Read),
        ] {
            let channel = ChannelId(1);
            let row = ChannelEndRecord {
                id,
                channel,
                upid: Upid(upid),
                fd: 3,
                direction,
                from_ns: 1,
            };
            end(&db, &row).unwrap();
        }
        traffic(&db, &sum(1, Side::Read, Some(7), true)).unwrap();
        traffic(&db, &sum(2, Side::Read, Some(0), true)).unwrap();
        for upid in [1, 2] {
            all_traffic(&db, Upid(upid)).unwrap();
        }
        db.execute_batch(&crate::store::INFERRED_ENDS).unwrap();
        let none = (Some(0), Some(0), Some(false));
        let seven = (Some(7), Some(7), Some(true));
        assert_eq!(ends(&db), [seven, none, none, (None, None, None)]);
    }
}
