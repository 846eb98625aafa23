//! Tables whose rows meet rows of other files: names and paths of files that were joined, the
//! joined rows themselves, and counters that add up.

use std::collections::HashSet;

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, params};

use super::columns::{self, Space};
use super::copy::Columns;
use super::input::Input;
use super::translation::Translation;
use super::work::Work;
use crate::Result;

/// Statements that reconcile the rows of two files about one joined thing.
const RECONCILE: &[(&str, &str)] = &[
    (
        "file",
        "INSERT INTO file ({columns}) VALUES ({values}) ON CONFLICT (file_id) DO UPDATE SET
           size_bytes = CASE WHEN excluded.last_ns > last_ns
             THEN COALESCE(excluded.size_bytes, size_bytes) ELSE size_bytes END,
           first_ns = MIN(first_ns, excluded.first_ns), last_ns = MAX(last_ns, excluded.last_ns),
           coverage = MAX(coverage, excluded.coverage)",
    ),
    (
        "channel",
        "INSERT INTO channel ({columns}) VALUES ({values}) ON CONFLICT (channel_id) DO UPDATE SET
           name = COALESCE(name, excluded.name),
           capacity_bytes = COALESCE(capacity_bytes, excluded.capacity_bytes)",
    ),
    (
        "flow",
        "INSERT INTO flow ({columns}) VALUES ({values}) ON CONFLICT (flow_id) DO UPDATE SET
           first_ns = MIN(first_ns, excluded.first_ns),
           src_wscale = COALESCE(src_wscale, excluded.src_wscale),
           dst_wscale = COALESCE(dst_wscale, excluded.dst_wscale),
           src_mss = COALESCE(src_mss, excluded.src_mss),
           dst_mss = COALESCE(dst_mss, excluded.dst_mss),
           src_sack = COALESCE(src_sack, excluded.src_sack),
           dst_sack = COALESCE(dst_sack, excluded.dst_sack)",
    ),
    (
        // Collectors ran one after the other.
        "node",
        "INSERT INTO node ({columns}) VALUES ({values}) ON CONFLICT (host_id) DO UPDATE SET
           received = received + excluded.received, expected = expected + excluded.expected,
           ignored = ignored + excluded.ignored, sessions = sessions + excluded.sessions,
           period_ms = excluded.period_ms, final = excluded.final",
    ),
    (
        "loss",
        "INSERT INTO loss ({columns}) VALUES ({values}) ON CONFLICT (source, counter) DO UPDATE SET
           value = value + excluded.value",
    ),
];

/// True if rows of this table are reconciled with those of other files.
pub(super) fn is_reconciled(table: &str) -> bool {
    RECONCILE.iter().any(|(name, _)| *name == table)
}

/// Copies a table of which some rows are in the merged file already.
///
/// # Errors
/// When one of the files refuses.
pub(super) fn reconcile(
    work: &Work,
    (input, db): (&Input, &Connection),
    translation: &Translation,
    table: &str,
) -> Result<u64> {
    let Some((_, sql)) = RECONCILE.iter().find(|(name, _)| *name == table) else {
        return Ok(0);
    };
    let columns = Columns::of(&work.db, input, db, table)?;
    if columns.is_empty() {
        return Ok(0);
    }
    let places = vec!["?"; columns.names.len()].join(", ");
    let sql = sql
        .replace("{columns}", &columns.names.join(", "))
        .replace("{values}", &places);
    let mut insert = work.db.prepare(&sql).map_err(|e| work.error(e))?;
    let select = format!("SELECT {} FROM {table}", columns.names.join(", "));
    let mut select = db.prepare(&select).map_err(|e| input.error(e))?;
    let mut rows = select.query([]).map_err(|e| input.error(e))?;
    let turns = (table == "flow" && !translation.turned.is_empty()).then(|| Turn::of(&columns));
    let mut count = 0;
    let mut values: Vec<Value> = Vec::new();
    while let Some(row) = rows.next().map_err(|e| input.error(e))? {
        values.clear();
        columns
            .translate(translation, row, 0, |_, value| {
                values.push(value.try_into()?);
                Ok(())
            })
            .map_err(|e| input.error(e))?;
        if let Some(turn) = &turns {
            let old: i64 = row.get(turn.id).map_err(|e| input.error(e))?;
            if translation.turned.binary_search(&old).is_ok() {
                turn.apply(&mut values);
            }
        }
        let mut store = || -> rusqlite::Result<()> {
            for (place, value) in values.iter().enumerate() {
                let value = ToSqlOutput::Borrowed(ValueRef::from(value));
                insert.raw_bind_parameter(place + 1, value)?;
            }
            insert.raw_execute().map(|_| ())
        };
        store().map_err(|e| work.refused(input, e))?;
        count += 1;
    }
    Ok(count)
}

/// The columns of a flow that change places when its sides do.
struct Turn {
    id: usize,
    pairs: Vec<(usize, usize)>,
}

impl Turn {
    fn of(columns: &Columns) -> Turn {
        let place = |name: &str| columns.names.iter().position(|other| other == name);
        let pair = |a: &str, b: &str| place(a).zip(place(b));
        let pairs = columns.names.iter().filter_map(|name| {
            let is_first = name.starts_with('s');
            pair(name, &columns::turned(name).filter(|_| is_first)?)
        });
        Turn {
            id: place("flow_id").unwrap_or(0),
            pairs: pairs.collect(),
        }
    }

    fn apply(&self, values: &mut [Value]) {
        for &(a, b) in &self.pairs {
            values.swap(a, b);
        }
    }
}

/// The tables of names of files and directories over time: their key beside the times.
const NAMES: &[(&str, &[&str])] = &[
    ("directory_path", &["directory_id", "path"]),
    ("file_name", &["file_id", "directory_id", "name"]),
];

/// True if this is a table of names over time.
pub(super) fn is_of_names(table: &str) -> bool {
    NAMES.iter().any(|(name, _)| *name == table)
}

/// Copies names over time. A name that a file has in both inputs becomes one row: from the earlier begin to
/// the end that one of them saw, or without an end.
///
/// # Errors
/// When one of the files refuses.
pub(super) fn names(
    work: &Work,
    (input, db): (&Input, &Connection),
    translation: &Translation,
    table: &str,
) -> Result<u64> {
    let Some((_, keys)) = NAMES.iter().find(|(name, _)| *name == table) else {
        return Ok(0);
    };
    let joined: HashSet<i64> = translation.files.iter().map(|&(_, new)| new).collect();
    let columns = Columns::of(&work.db, input, db, table)?;
    let place = |name: &str| columns.names.iter().position(|other| other == name);
    let key_places: Option<Vec<usize>> = keys.iter().map(|key| place(key)).collect();
    let (Some(key_places), Some(from), Some(to)) = (key_places, place("from_ns"), place("to_ns"))
    else {
        return Ok(0);
    };
    let by_key: Vec<String> = (keys.iter().zip(1..))
        .map(|(key, place)| format!("{key} = ?{place}"))
        .collect();
    let by_key = by_key.join(" AND ");
    let (from_place, to_place) = (keys.len() + 1, keys.len() + 2);
    let find = format!("SELECT from_ns, to_ns FROM {table} WHERE {by_key} ORDER BY from_ns");
    let change = format!(
        "UPDATE {table} SET from_ns = MIN(from_ns, ?{from_place}), to_ns = ?{to_place}
         WHERE {by_key} AND from_ns = ?{}",
        keys.len() + 3
    );
    let out = |e| work.error(e);
    let mut find = work.db.prepare(&find).map_err(out)?;
    let mut change = work.db.prepare(&change).map_err(out)?;
    let mut insert = work.db.prepare(&columns.insert(table)).map_err(out)?;
    let select = format!("SELECT {} FROM {table}", columns.names.join(", "));
    let mut select = db.prepare(&select).map_err(|e| input.error(e))?;
    let mut rows = select.query([]).map_err(|e| input.error(e))?;
    let mut count = 0;
    let mut values: Vec<Value> = Vec::new();
    while let Some(row) = rows.next().map_err(|e| input.error(e))? {
        count += 1;
        values.clear();
        columns
            .translate(translation, row, 0, |_, value| {
                values.push(value.try_into()?);
                Ok(())
            })
            .map_err(|e| input.error(e))?;
        let is_joined = matches!(values[key_places[0]], Value::Integer(id) if joined.contains(&id));
        let period = Period::of(&values[from], &values[to]);
        let mut store = || -> rusqlite::Result<()> {
            if is_joined {
                for (at, &place) in key_places.iter().enumerate() {
                    find.raw_bind_parameter(at + 1, &values[place])?;
                }
                let mut known = find.raw_query();
                let mut meets = None;
                while let Some(row) = known.next()? {
                    let known = Period {
                        from: row.get(0)?,
                        to: row.get(1)?,
                    };
                    if let Some(both) = known.with(period) {
                        meets = Some((known.from, both));
                        break;
                    }
                }
                drop(known);
                if let Some((old_from, both)) = meets {
                    for (at, &place) in key_places.iter().enumerate() {
                        change.raw_bind_parameter(at + 1, &values[place])?;
                    }
                    change.raw_bind_parameter(from_place, both.from)?;
                    change.raw_bind_parameter(to_place, both.to)?;
                    change.raw_bind_parameter(to_place + 1, old_from)?;
                    return change.raw_execute().map(|_| ());
                }
            }
            for (place, value) in values.iter().enumerate() {
                insert.raw_bind_parameter(place + 1, value)?;
            }
            insert.raw_execute().map(|_| ())
        };
        store().map_err(|e| work.refused(input, e))?;
    }
    Ok(count)
}

/// The time for which a name was valid; without an end: to the end of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Period {
    from: i64,
    to: Option<i64>,
}

impl Period {
    fn of(from: &Value, to: &Value) -> Period {
        let integer = |value: &Value| match value {
            Value::Integer(value) => Some(*value),
            _ => None,
        };
        Period {
            from: integer(from).unwrap_or(0),
            to: integer(to),
        }
    }

    /// Both periods in one, where they meet. An end that one of them saw counts, unless the other saw the
    /// name begin after that end.
    fn with(self, other: Period) -> Option<Period> {
        let from = self.from.min(other.from);
        let later = self.from.max(other.from);
        let both = match (self.to, other.to) {
            (Some(a), Some(b)) => (later <= a.min(b)).then_some(Some(a.max(b))),
            (Some(end), None) | (None, Some(end)) => (later <= end).then_some(Some(end)),
            (None, None) => Some(None),
        };
        both.map(|to| Period { from, to })
    }
}

/// Completes the rows of the runs of one file with facts that only merging knows.
///
/// # Errors
/// When the merged file cannot be written.
pub(super) fn runs(
    work: &Work,
    input: &Input,
    translation: &Translation,
    has_start: bool,
) -> Result<()> {
    let source = input.path.to_string_lossy();
    let first = translation.offset(Space::Run);
    for (at, run) in input.runs.iter().enumerate() {
        // Run numbers are counted from 1; a gap finds no row.
        let number = first.saturating_add(at as i64 + 1);
        work.db
            .execute(
                "UPDATE run SET recorded_unix_ns = COALESCE(recorded_unix_ns, ?2),
                   source = COALESCE(source, ?3),
                   start_ns = CASE WHEN ?4 THEN start_ns ELSE ?5 END,
                   first_upid = CASE WHEN ?4 THEN first_upid ELSE ?6 END
                 WHERE run_id = ?1",
                params![
                    number,
                    run.recorded_unix_ns,
                    source,
                    has_start,
                    translation.integer(super::columns::Change::Time, 0),
                    translation.offset(Space::Upid).saturating_add(1),
                ],
            )
            .map_err(|e| work.error(e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_a_name_are_reconciled() {
        let period = |from, to| Period { from, to };
        // Both saw it to the end.
        assert_eq!(period(5, None).with(period(2, None)), Some(period(2, None)));
        // One saw it renamed away.
        assert_eq!(
            period(5, None).with(period(2, Some(9))),
            Some(period(2, Some(9)))
        );
        // It was renamed away and came again.
        assert_eq!(period(10, None).with(period(2, Some(9))), None);
        assert_eq!(period(10, Some(12)).with(period(2, Some(9))), None);
    }
}
