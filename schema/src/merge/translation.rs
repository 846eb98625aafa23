//! From the numbers of one file to those of the merged one.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, params};

use super::clocks::{Place, Scale};
use super::columns::{Change, Dictionary, Space};
use super::input::Input;
use super::options::refuse;
use crate::Result;
use crate::op::{FLAGS_MASK, HIGH_FIDELITY_SHIFT};
use crate::record::STACK_STEP_NS;
use crate::writer::PACKET_BITS;

/// Ids that do not change by their offset, because their things were joined with things of another file:
/// pairs of old and new, in the order of the old.
pub(super) type Moved = Vec<(i64, i64)>;

/// The changes of the rows of one file.
#[derive(Debug)]
pub(super) struct Translation {
    place: Place,
    offsets: [i64; Space::ALL.len()],
    pub(super) files: Moved,
    pub(super) channels: Moved,
    pub(super) flows: Moved,
    /// Flows, by old id, whose two sides are the other way round than in the merged file.
    pub(super) turned: Vec<i64>,
    hosts: HashMap<i64, i64>,
    counters: HashMap<i64, i64>,
    kinds: HashMap<i64, i64>,
    fidelities: HashMap<i64, i64>,
    activities: HashMap<i64, i64>,
    /// New numbers of operations; `None`: they are the same in both files, as always within one version.
    operations: Option<[i64; 64]>,
}

impl Translation {
    /// Reads the dictionaries of `input` and adds missing entries to those of the merged file.
    ///
    /// # Errors
    /// When `input` has operations or activities that this version does not know.
    pub(super) fn new(
        merged: &Connection,
        input: &Input,
        db: &Connection,
        place: Place,
        hosts: HashMap<i64, i64>,
    ) -> Result<Translation> {
        let same = |table, key, name| same_names(merged, input, db, table, key, name);
        let fidelities = same("fidelity", "fidelity", "name")?;
        let operations = same("operation", "op", "name")?;
        let is_same = operations.iter().all(|(old, new)| old == new)
            && fidelities.iter().all(|(old, new)| old == new);
        let table = || {
            let mut table = [0; 64];
            for (number, entry) in table.iter_mut().enumerate() {
                let number = number as i64;
                *entry = operations.get(&number).copied().unwrap_or(number);
            }
            table
        };
        Ok(Translation {
            place,
            offsets: input.offsets,
            hosts,
            counters: counters(merged, input, db)?,
            kinds: same("file_kind", "kind", "name")?,
            activities: same(
                "activity",
                "activity",
                "state || '/' || COALESCE(reason, '')",
            )?,
            operations: (!is_same).then(table),
            fidelities,
            files: Moved::new(),
            channels: Moved::new(),
            flows: Moved::new(),
            turned: Vec::new(),
        })
    }

    pub(super) fn offset(&self, space: Space) -> i64 {
        let place = Space::ALL.iter().position(|(other, _, _)| *other == space);
        place.map_or(0, |place| self.offsets[place])
    }

    /// The new id of an old one. 0 stays: it stands for none.
    pub(super) fn id(&self, space: Space, id: i64) -> i64 {
        if id == 0 {
            return 0;
        }
        let moved = match space {
            Space::File => &self.files,
            Space::Channel => &self.channels,
            Space::Flow => &self.flows,
            _ => return id.saturating_add(self.offset(space)),
        };
        match moved.binary_search_by_key(&id, |&(old, _)| old) {
            Ok(at) => moved[at].1,
            Err(_) => id.saturating_add(self.offset(space)),
        }
    }

    /// The new value of an integer.
    pub(super) fn integer(&self, change: Change, value: i64) -> i64 {
        let named = |names: &HashMap<i64, i64>| names.get(&value).copied().unwrap_or(value);
        match change {
            Change::Keep | Change::Side => value,
            Change::Time => self.place.on_scale(value),
            Change::StackTime => {
                let time = self.place.on_scale(value.saturating_mul(STACK_STEP_NS));
                time / STACK_STEP_NS
            }
            Change::Id(space) => self.id(space, value),
            Change::Name(Dictionary::Host) => named(&self.hosts),
            Change::Name(Dictionary::Counter) => named(&self.counters),
            Change::Name(Dictionary::FileKind) => named(&self.kinds),
            Change::Name(Dictionary::Fidelity) => named(&self.fidelities),
            Change::Name(Dictionary::Activity) => named(&self.activities),
            Change::What => self.what(value),
            Change::PacketKey => {
                let number = value & ((1 << PACKET_BITS) - 1);
                let time = self.place.on_scale(value >> PACKET_BITS);
                time.saturating_mul(1 << PACKET_BITS).saturating_add(number)
            }
            Change::PacketWhat => self.id(Space::Capture, value >> 3) << 3 | value & 7,
        }
    }

    fn what(&self, what: i64) -> i64 {
        let Some(operations) = &self.operations else {
            return what;
        };
        let fidelity = what >> 6 & 3 | what >> HIGH_FIDELITY_SHIFT & 4;
        let fidelity = self.fidelities.get(&fidelity).copied().unwrap_or(fidelity);
        let fidelity = (fidelity & 3) << 6 | (fidelity & 4) << HIGH_FIDELITY_SHIFT;
        operations[(what & 63) as usize] | fidelity | (what >> 8 & FLAGS_MASK) << 8
    }
}

type Names = Vec<(i64, String)>;

fn names(db: &Connection, table: &str, key: &str, name: &str) -> rusqlite::Result<Names> {
    db.prepare(&format!("SELECT {key}, {name} FROM {table}"))?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

/// The numbers of a dictionary that is fixed by the version.
fn same_names(
    merged: &Connection,
    input: &Input,
    db: &Connection,
    table: &str,
    key: &str,
    name: &str,
) -> Result<HashMap<i64, i64>> {
    let known: HashMap<String, i64> = names(merged, table, key, name)
        .map_err(|e| input.error(e))?
        .into_iter()
        .map(|(number, name)| (name, number))
        .collect();
    let theirs = names(db, table, key, name).map_err(|e| input.error(e))?;
    let number = |(old, name): (i64, String)| match known.get(&name) {
        Some(&new) => Ok((old, new)),
        None => Err(refuse(
            format!(
                "{} has the {table} {name}, which this flowtrace does not know",
                input.path.display()
            ),
            "merge with the newest flowtrace of those that recorded",
        )),
    };
    theirs.into_iter().map(number).collect()
}

fn counters(merged: &Connection, input: &Input, db: &Connection) -> Result<HashMap<i64, i64>> {
    let add = || -> rusqlite::Result<HashMap<i64, i64>> {
        let mut insert = merged.prepare_cached(
            "INSERT OR IGNORE INTO counter (counter_id, name, unit, meaning)
             SELECT COALESCE(MAX(counter_id), 0) + 1, ?1, ?2, ?3 FROM counter",
        )?;
        let mut find = merged.prepare_cached("SELECT counter_id FROM counter WHERE name = ?1")?;
        let mut theirs = db.prepare("SELECT counter_id, name, unit, meaning FROM counter")?;
        let mut rows = theirs.query([])?;
        let mut numbers = HashMap::new();
        while let Some(row) = rows.next()? {
            let (name, unit, meaning): (String, String, String) =
                (row.get(1)?, row.get(2)?, row.get(3)?);
            let number = match number_of(&mut find, &name)? {
                Some(number) => Some(number),
                None => {
                    insert.execute(params![name, unit, meaning])?;
                    number_of(&mut find, &name)?
                }
            };
            numbers.extend(Some(row.get(0)?).zip(number));
        }
        Ok(numbers)
    };
    add().map_err(|e| input.error(e))
}

fn number_of(
    find: &mut rusqlite::CachedStatement<'_>,
    name: &str,
) -> rusqlite::Result<Option<i64>> {
    find.query_row([name], |row| row.get(0)).optional()
}

/// The machines of all files as one list: those of one name and boot are one.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    of: HashMap<(String, Option<String>), i64>,
}

impl Hosts {
    /// The numbers of the hosts of `input` in the merged file; those that are new get a row.
    ///
    /// # Errors
    /// When the merged file cannot be written.
    pub(super) fn add(
        &mut self,
        merged: &Connection,
        input: &Input,
        db: &Connection,
        (scale, at): (&Scale, usize),
    ) -> rusqlite::Result<HashMap<i64, i64>> {
        let mut numbers = HashMap::new();
        let place = scale.places[at];
        for host in &input.hosts {
            let next = self.of.len() as i64 + 1;
            let number = *self
                .of
                .entry((host.name.clone(), host.boot.clone()))
                .or_insert(next);
            numbers.insert(host.id, number);
            if number < next {
                continue;
            }
            let own = db.query_row(
                "SELECT system, cpus, memory_bytes, clock_offset_ns, clock_drift_ppb,
                   clock_error_ns FROM host WHERE host_id = ?1",
                [host.id],
                |row| {
                    Ok((
                        row.get::<_, String>(0)?,
                        row.get::<_, Option<i64>>(1)?,
                        row.get::<_, Option<i64>>(2)?,
                        row.get::<_, i64>(3)?,
                        row.get::<_, i64>(4)?,
                        row.get::<_, Option<i64>>(5)?,
                    ))
                },
            )?;
            let (system, cpus, memory, offset, drift, error) = own;
            // An offset that was still to be added stays to be added; the drift counts from time 0, which has
            // moved.
            let moved = i128::from(drift) * i128::from(place.on_scale(0)) / 1_000_000_000;
            let offset = offset.saturating_add(i64::try_from(moved).unwrap_or(0));
            let error = match input.hosts.len() {
                1 => place.error_ns,
                // The machine was related to the others of its file with that error already.
                _ => place.error_ns.zip(error).map(|(a, b)| a.saturating_add(b)),
            };
            merged
                .prepare_cached(
                    "INSERT OR IGNORE INTO host (host_id, name, boot_id, system, cpus, memory_bytes,
                       epoch_unix_ns, clock_offset_ns, clock_drift_ppb, clock_error_ns,
                       clock_method, monotonic_ns, wall_error_ns)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
                )?
                .execute(params![
                    number,
                    host.name,
                    host.boot,
                    system,
                    cpus,
                    memory,
                    scale.epoch_unix_ns,
                    offset,
                    drift,
                    error,
                    place.method.name(),
                    host.monotonic_ns.map(|m| m.saturating_sub(place.on_scale(0))),
                    host.wall_error_ns,
                ])?;
        }
        Ok(numbers)
    }

    /// Number of machines.
    pub(super) fn len(&self) -> usize {
        self.of.len()
    }
}
