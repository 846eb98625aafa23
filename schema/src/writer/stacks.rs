//! Rows of sampled call stacks, and the process images to which they belong.

use std::collections::HashMap;

use rusqlite::{Connection, Result, params};

use crate::record::{STACK_STEP_NS, StackRecord, StackScope};

pub(super) fn record(db: &Connection, record: &StackRecord) -> Result<()> {
    match record {
        StackRecord::Sampling {
            run,
            period_ns,
            waits,
            scope,
            program,
        } => db
            .prepare_cached(
                "INSERT INTO stack_sampling (run_id, period_ns, waits, scope, program)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                run.0,
                *period_ns as i64,
                waits,
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
            execs,
        } => db
            .prepare_cached(
                "INSERT INTO stack_thread (thread_id, pid, tid, start_ns, execs)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![id, pid, tid, *start_ns as i64, execs])?,
        StackRecord::Sample {
            t_ns,
            thread,
            stack,
            blocked_ns: None,
        } => db
            .prepare_cached(
                "INSERT INTO stack_sample (at, thread_id, stack_id)
                 SELECT MAX(?1, COALESCE(MAX(at) + 1, 0)), ?2, ?3 FROM stack_sample",
            )?
            .execute(params![*t_ns as i64 / STACK_STEP_NS, thread, stack])?,
        StackRecord::Sample {
            t_ns,
            thread,
            stack,
            blocked_ns: Some(blocked_ns),
        } => db
            .prepare_cached(
                "INSERT INTO stack_wait (at, thread_id, stack_id, blocked_us)
                 SELECT MAX(?1, COALESCE(MAX(at) + 1, 0)), ?2, ?3, ?4 FROM stack_wait",
            )?
            .execute(params![
                *t_ns as i64 / STACK_STEP_NS,
                thread,
                stack,
                *blocked_ns as i64 / 1000
            ])?,
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

/// The begin of an image: time, and number of execs of the process up to then.
type Begin = (i64, i64);

/// An image that the source of processes saw.
#[derive(Clone, Copy, Debug)]
struct Known {
    upid: i64,
    begin: Begin,
    end_ns: Option<i64>,
}

/// Finds the process image of each sampled thread. Sampler and source of processes saw the same forks and execs,
/// at times that differ a little.
pub(super) fn store_images(db: &Connection) -> Result<()> {
    let sampled = db
        .prepare("SELECT DISTINCT pid, start_ns, execs FROM stack_thread WHERE upid IS NULL")?
        .query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?
        .collect::<Result<Vec<(i64, Begin)>>>()?;
    if sampled.is_empty() {
        return Ok(());
    }
    let mut execs: HashMap<i64, i64> = HashMap::new();
    let mut images: HashMap<i64, Vec<Known>> = HashMap::new();
    let mut select = db.prepare(
        "SELECT upid, pid, prev_upid, origin = 'exec', start_ns, end_ns FROM process ORDER BY upid",
    )?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let (upid, prev): (i64, Option<i64>) = (row.get(0)?, row.get(2)?);
        let before = prev.and_then(|prev| execs.get(&prev)).copied();
        let count = before.unwrap_or(0) + i64::from(row.get::<_, bool>(3)?);
        execs.insert(upid, count);
        images.entry(row.get(1)?).or_default().push(Known {
            upid,
            begin: (row.get(4)?, count),
            end_ns: row.get(5)?,
        });
    }
    let mut update = db.prepare(
        "UPDATE stack_thread SET upid = ?1 WHERE pid = ?2 AND start_ns = ?3 AND execs = ?4",
    )?;
    for (pid, begin) in sampled {
        let known = images.get(&pid).map_or(&[][..], Vec::as_slice);
        if let Some(image) = same(known, begin) {
            update.execute(params![image.upid, pid, begin.0, begin.1])?;
        }
    }
    Ok(())
}

/// Longest difference between the times at which two sources saw the begin of an image, ns.
const MOST_APART: u64 = 5_000_000_000;

/// The image among all of a pid that began so. The number of execs decides, for one source may be later than
/// another by more than the life of an image; the time distinguishes processes that had the pid one after the
/// other. Where the source of processes missed some, the image counts that lived then.
fn same(known: &[Known], (time, execs): Begin) -> Option<Known> {
    let mut same = Vec::from(known);
    same.retain(|image| image.begin.1 == execs);
    let apart = |image: &Known| image.begin.0.abs_diff(time);
    let nearest = same.into_iter().min_by_key(apart);
    let lived =
        |image: &&Known| image.begin.0 <= time && image.end_ns.is_none_or(|end| time <= end);
    nearest
        .filter(|image| apart(image) < MOST_APART)
        .or_else(|| known.iter().rev().find(lived).copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_found_by_its_execs_and_its_time() {
        let image = |upid, start, execs, end| Known {
            upid,
            begin: (start, execs),
            end_ns: Some(end),
        };
        // A fork that runs two programs, reported later than they began; then another process with that pid.
        let known = [
            image(1, 150, 0, 290),
            image(2, 290, 1, 350),
            image(3, 350, 2, 400),
            image(4, 9_000_000_000, 0, 9_000_000_500),
        ];
        let upid = |begin| same(&known, begin).map(|image| image.upid);
        assert_eq!(upid((100, 0)), Some(1));
        assert_eq!(upid((200, 1)), Some(2));
        assert_eq!(upid((260, 2)), Some(3));
        assert_eq!(upid((8_999_999_000, 0)), Some(4));
        // An exec that the other source did not see.
        assert_eq!(upid((9_000_000_100, 1)), Some(4));
        assert_eq!(upid((9_500_000_000, 7)), None);
        assert!(same(&[], (1, 1)).is_none());
    }
}
