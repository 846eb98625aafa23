//! Rows of sampled call stacks, and the process images to which they belong.

use std::collections::HashMap;

use rusqlite::{Connection, Result, params};

use crate::record::{STACK_STEP_NS, StackRecord, StackScope};

pub(super) fn record(db: &Connection, record: &StackRecord) -> Result<()> {
    match record {
        StackRecord::Sampling {
            run,
            period_ns,
            scope,
            program,
        } => db
            .prepare_cached(
                "INSERT INTO stack_sampling (run_id, period_ns, scope, program)
                 VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![
                run.0,
                *period_ns as i64,
                match scope {
                    StackScope::All => "all",
                    StackScope::User => "user",
                },
                program
            ])?,
        StackRecord::Module { id, path, build_id } => db
            .prepare_cached(
                "INSERT INTO stack_module (module_id, path, path_raw, build_id)
                 VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![
                id,
                path.text(),
                path.raw(),
                build_id.as_deref().map(hexadecimal)
            ])?,
        StackRecord::ModuleSymbols { module, symbols } => db
            .prepare_cached("UPDATE stack_module SET symbols = ?2 WHERE module_id = ?1")?
            .execute(params![module, symbols.name()])?,
        StackRecord::Frame {
            id,
            module,
            address,
        } => db
            .prepare_cached(
                "INSERT INTO stack_frame (frame_id, module_id, address) VALUES (?1, ?2, ?3)",
            )?
            .execute(params![id, module, *address as i64])?,
        StackRecord::Stack { id, caller, frame } => db
            .prepare_cached(
                "INSERT INTO stack (stack_id, caller_id, frame_id) VALUES (?1, ?2, ?3)",
            )?
            .execute(params![id, caller, frame])?,
        StackRecord::Thread {
            id,
            pid,
            tid,
            start_ns,
            is_exec,
        } => db
            .prepare_cached(
                "INSERT INTO stack_thread (thread_id, pid, tid, start_ns, is_exec)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![id, pid, tid, *start_ns as i64, is_exec])?,
        StackRecord::Sample {
            t_ns,
            thread,
            stack,
        } => db
            .prepare_cached(
                "INSERT INTO stack_sample (at, thread_id, stack_id)
                 SELECT MAX(?1, COALESCE(MAX(at) + 1, 0)), ?2, ?3 FROM stack_sample",
            )?
            .execute(params![*t_ns as i64 / STACK_STEP_NS, thread, stack])?,
        StackRecord::Function {
            id,
            module,
            name,
            file,
        } => db
            .prepare_cached(
                "INSERT INTO stack_function (function_id, module_id, name, file)
                 VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![id, module, name, file])?,
        StackRecord::Location {
            frame,
            depth,
            function,
            line,
        } => db
            .prepare_cached(
                "INSERT OR IGNORE INTO stack_location (frame_id, depth, function_id, line)
                 VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![frame, depth, function, line])?,
    };
    Ok(())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The begin of an image: time, and true for an exec.
type Begin = (i64, bool);

/// Finds the process image of each sampled thread. Sampler and source of processes saw the same forks and execs,
/// at times that differ a little.
pub(super) fn store_images(db: &Connection) -> Result<()> {
    let mut sampled: HashMap<u32, Vec<Begin>> = HashMap::new();
    let mut select = db.prepare(
        "SELECT DISTINCT pid, start_ns, is_exec FROM stack_thread WHERE upid IS NULL
         ORDER BY pid, start_ns",
    )?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        sampled
            .entry(row.get(0)?)
            .or_default()
            .push((row.get(1)?, row.get(2)?));
    }
    let mut images = db.prepare(
        "SELECT upid, start_ns, origin <> 'fork' FROM process WHERE pid = ?1 ORDER BY start_ns, upid",
    )?;
    let mut update = db.prepare(
        "UPDATE stack_thread SET upid = ?1 WHERE pid = ?2 AND start_ns = ?3 AND is_exec = ?4",
    )?;
    for (pid, begins) in sampled {
        let images =
            images.query_map([pid], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?;
        let images: Vec<(i64, Begin)> = images.collect::<Result<_>>()?;
        let known: Vec<Begin> = images.iter().map(|&(_, begin)| begin).collect();
        for (begin, image) in begins.iter().zip(image_of_each(&begins, &known)) {
            if let Some(at) = image {
                update.execute(params![images[at].0, pid, begin.0, begin.1])?;
            }
        }
    }
    Ok(())
}

/// Longest difference between the times at which two sources saw the begin of an image, ns.
const MOST_APART: i64 = 2_000_000_000;

/// For each image that the sampler saw of a pid the place of the same image among all of that pid; both are in
/// the order of time. The sampler may not have sampled all, and has a different time for each. So each one gets
/// the nearest of its kind that comes after the one before, as long as enough are left for the others.
fn image_of_each(sampled: &[Begin], known: &[Begin]) -> Vec<Option<usize>> {
    let mut found = Vec::with_capacity(sampled.len());
    let mut first = 0;
    for (at, &(time, is_exec)) in sampled.iter().enumerate() {
        let left = sampled.len() - at - 1;
        let end = known.len().saturating_sub(left).max(first);
        let place = (first..end)
            .filter(|&place| known[place].1 == is_exec)
            .map(|place| (known[place].0.abs_diff(time), place))
            .min()
            .filter(|&(apart, _)| apart < MOST_APART as u64)
            .map(|(_, place)| place);
        first = place.map_or(first, |place| place + 1);
        found.push(place);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_found_by_kind_order_and_time() {
        // A fork that runs three programs in a row; the sampler saw two of these.
        let known = [(100, false), (200, true), (260, true), (300, true)];
        assert_eq!(
            image_of_each(&[(205, true), (310, true)], &known),
            [Some(1), Some(3)]
        );
        // Late times of another source do not move an image onto the one before.
        let late = [(150, false), (290, true), (350, true), (390, true)];
        let all = [(100, false), (200, true), (260, true), (300, true)];
        assert_eq!(
            image_of_each(&all, &late),
            [Some(0), Some(1), Some(2), Some(3)]
        );
        // The pid was used again much later.
        let again = [(100, false), (9_000_000_000, false)];
        assert_eq!(image_of_each(&[(8_999_999_000, false)], &again), [Some(1)]);
        assert_eq!(image_of_each(&[(5_000_000_000, false)], &again), [None]);
        assert_eq!(image_of_each(&[(1, true)], &[]), [None]);
    }
}
