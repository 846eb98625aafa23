//! Rows of channels and of what went through them.

use rusqlite::{Connection, Result, params};

use crate::{ChannelEndClosed, ChannelEndRecord, ChannelRecord, ChannelTraffic};

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

/// Comes after all ends of the image are closed. What was counted stands in place of what was
/// concluded, where the image had one end for the side: of several nobody knows which it was.
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
