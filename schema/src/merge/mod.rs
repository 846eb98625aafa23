//! Many traces become one: of the ranks of a parallel run, of several machines, of several runs.
//!
//! Every table of every file is copied row by row with its ids renumbered and its times shifted to one scale.
//! A thing that several files saw becomes one row (`joins`). File calls, packets and counters of machines are
//! kept in the order of time across all files. The work can be interrupted and goes on where it stopped
//! (`work`). Memory is needed for one row of every file, some buffers, and two numbers for each joined thing.

use std::collections::HashSet;

use rusqlite::Connection;

use crate::{Result, contract, doc, store};

mod clocks;
mod columns;
mod copy;
mod input;
mod joined;
mod joins;
mod options;
mod translation;
mod work;

use columns::Space;
use input::Input;
use options::refuse;
pub use options::{ClockMethod, KernelClocks, MergeOptions, MergeReport, MergedHost};
use translation::{Hosts, Translation};
use work::Work;

/// The tables whose rows stay in the order of time over all files: table, column, and true if no two rows may
/// have the same time.
const ORDERED: &[(&str, &str, bool)] = &[
    ("call", "start_ns", true),
    ("channel_call", "start_ns", false),
    ("packet", "at", true),
    ("stack_sample", "at", true),
    ("stack_wait", "at", true),
    ("host_sample", "t_ns", false),
];

/// Tables that every trace of this version has the same, or that are made from all files at once.
const DICTIONARIES: &[&str] = &[
    "operation",
    "fidelity",
    "file_kind",
    "activity",
    "counter",
    "host",
];

/// The tables that [`MergeOptions::packets_only`] copies.
const OF_PACKETS: &[&str] = &["run", "capture", "flow", "flow_capture", "packet"];

/// Merges traces into a new one. `progress` is called with the table and the rows done so far.
///
/// # Errors
/// [`Error::Merge`](crate::Error::Merge) if the files do not belong together; an error that names a file that
/// is no trace; or an error of writing the output. The work done until then is kept, and goes on if the same
/// merge is asked for again.
pub fn merge(options: &MergeOptions, progress: &mut dyn FnMut(&str, u64)) -> Result<MergeReport> {
    if options.inputs.is_empty() {
        return Err(refuse(
            "there is nothing to merge",
            "name one trace or more",
        ));
    }
    let inputs = input::open(options)?;
    let scale = clocks::scale(&inputs, options.clocks.as_ref());
    let work = Work::begin(options, &inputs)?;
    let mut hosts = Hosts::default();
    let mut translations = Vec::with_capacity(inputs.len());
    work.sql("BEGIN IMMEDIATE")?;
    for (at, input) in inputs.iter().enumerate() {
        let db = input.connect()?;
        let numbers = hosts
            .add(&work.db, input, &db, (&scale, at))
            .map_err(|e| work.refused(input, e))?;
        let place = scale.places[at];
        translations.push(Translation::new(&work.db, input, &db, place, numbers)?);
    }
    work.sql("COMMIT")?;
    join(options, &work, &inputs, &scale, &mut translations)?;
    for table in doc::relations(contract::TABLES) {
        let table = table.name.as_str();
        let is_wanted = !options.packets_only || OF_PACKETS.contains(&table);
        if DICTIONARIES.contains(&table) || !is_wanted {
            continue;
        }
        if let Some(&ordered) = ORDERED.iter().find(|(name, ..)| *name == table) {
            copy::ordered(&work, &inputs, &translations, ordered, progress)?;
            continue;
        }
        for (at, (input, translation)) in inputs.iter().zip(&translations).enumerate() {
            work.once(&format!("{table} {at}"), |_| {
                let db = input.connect()?;
                let copied = copy_table(&work, (input, &db), translation, table)?;
                progress(table, copied);
                Ok(())
            })?;
        }
    }
    work.once("clocks", |db| note_clocks(db).map_err(|e| work.error(e)))?;
    let mut report = report(&work).map_err(|e| work.error(e))?;
    let unmatched = joins::unmatched(&work.db, &options.shared).map_err(|e| work.error(e))?;
    report.unmatched = unmatched;
    debug_assert_eq!(report.hosts.len(), hosts.len());
    work.finish()?;
    Ok(report)
}

/// Options to merge the packets alone, beside the output. `None` if the packets cannot improve the relations
/// of the clocks, for which several kernels must have captured some. The result is to be read and removed.
///
/// # Errors
/// As [`merge`].
pub fn packets_alone(options: &MergeOptions) -> Result<Option<MergeOptions>> {
    store::check_place(&options.output, options.replace)?;
    let mut kernels = HashSet::new();
    for input in input::open(options)? {
        let db = input.connect()?;
        let has_packets = !input.columns(&db, "packet")?.is_empty()
            && db
                .prepare("SELECT 1 FROM packet LIMIT 1")
                .and_then(|mut find| find.exists([]))
                .map_err(|e| input.error(e))?;
        if let ([host], true) = (&input.hosts[..], has_packets) {
            kernels.insert(host.kernel().to_owned());
        }
    }
    Ok((kernels.len() > 1).then(|| MergeOptions {
        output: crate::beside::beside(&options.output, ".clocks"),
        replace: true,
        packets_only: true,
        ..options.clone()
    }))
}

fn copy_table(
    work: &Work,
    from: (&Input, &Connection),
    translation: &Translation,
    table: &str,
) -> Result<u64> {
    if joined::is_reconciled(table) {
        return joined::reconcile(work, from, translation, table);
    }
    if joined::is_of_names(table) {
        return joined::names(work, from, translation, table);
    }
    let copied = copy::whole(work, from, translation, table)?;
    if table == "run" {
        let (input, db) = from;
        let has_start = input
            .columns(db, "run")?
            .iter()
            .any(|name| name == "start_ns");
        joined::runs(work, input, translation, has_start)?;
    }
    Ok(copied)
}

/// Finds things that several files have seen.
fn join(
    options: &MergeOptions,
    work: &Work,
    inputs: &[Input],
    scale: &clocks::Scale,
    translations: &mut [Translation],
) -> Result<()> {
    let kernels = joins::shared_kernels(inputs);
    let prefixes = joins::prefixes(&options.shared);
    let error_ns = scale
        .places
        .iter()
        .filter_map(|place| place.error_ns)
        .max()
        .unwrap_or(0);
    for (at, input) in inputs.iter().enumerate() {
        let translation = &translations[at];
        work.once(&format!("join {at}"), |_| {
            let db = input.connect()?;
            let from = (at, input, &db);
            if options.packets_only {
                // The distance of the clocks is not known yet; it is the result of this step.
                return joins::flows(work, from, translation, i64::MAX);
            }
            joins::files(work, from, translation, (&kernels, &prefixes))?;
            joins::channels(work, from, translation, (&kernels, error_ns))?;
            joins::flows(work, from, translation, error_ns)
        })?;
    }
    for (at, translation) in translations.iter_mut().enumerate() {
        (translation.files, _) = joins::moved(work, Space::File, at)?;
        (translation.channels, _) = joins::moved(work, Space::Channel, at)?;
        (translation.flows, translation.turned) = joins::moved(work, Space::Flow, at)?;
    }
    Ok(())
}

/// States that the clocks of some machines may be off by an unknown amount.
fn note_clocks(db: &Connection) -> rusqlite::Result<()> {
    let (source, counter, severity, meaning) = crate::Loss::ClocksNotRelated.describe();
    db.execute(
        "INSERT INTO loss (source, counter, severity, value, meaning)
         SELECT ?1, ?2, ?3, COUNT(*), ?4 FROM host WHERE clock_error_ns IS NULL
         GROUP BY 1 HAVING COUNT(*) > 0
         ON CONFLICT (source, counter) DO UPDATE SET value = excluded.value",
        (source, counter, severity.name(), meaning),
    )?;
    Ok(())
}

fn report(work: &Work) -> rusqlite::Result<MergeReport> {
    let db = &work.db;
    let count = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0).map(|n| n as u64));
    let joined = |space: Space| {
        let name = joins::space_name(space);
        count(&format!(
            "SELECT COUNT(DISTINCT new) FROM merge_moved WHERE space = '{name}'"
        ))
    };
    let hosts = db
        .prepare("SELECT name, clock_method, clock_error_ns FROM host ORDER BY host_id")?
        .query_map([], |row| {
            Ok(MergedHost {
                name: row.get(0)?,
                method: row.get::<_, Option<String>>(1)?.unwrap_or_default(),
                error_ns: row.get(2)?,
            })
        })?
        .collect::<rusqlite::Result<_>>()?;
    Ok(MergeReport {
        runs: count("SELECT COUNT(*) FROM run")?,
        hosts,
        calls: count("SELECT COUNT(*) FROM call")?,
        joined_files: joined(Space::File)?,
        joined_channels: joined(Space::Channel)?,
        joined_flows: joined(Space::Flow)?,
        unmatched: Vec::new(),
        is_resumed: work.is_resumed,
    })
}

#[cfg(test)]
mod tests;
