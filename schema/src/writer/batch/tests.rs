//! A database that may not grow stands for a full disk.

use super::*;
use crate::{HostId, Origin, ProcessEnd, ProcessStart, Upid, Usage, store};

fn start(upid: u32) -> Record {
    Record::ProcessStart(Box::new(ProcessStart {
        upid: Upid(upid),
        host: HostId(1),
        pid: upid,
        parent: None,
        prev: None,
        origin: Origin::Fork,
        exe: None,
        argv: Some(format!("{upid:02000}").into()),
        cwd: None,
        environment: None,
        start_ns: u64::from(upid),
    }))
}

fn end(upid: u32) -> Record {
    Record::ProcessEnd(Box::new(ProcessEnd {
        upid: Upid(upid),
        end_ns: Some(1_000_000),
        exit_code: Some(0),
        exit_signal: None,
        inner_pid: None,
        usage: Usage::default(),
    }))
}

#[test]
fn processes_are_stored_when_there_is_space_again() {
    let directory = tempfile::tempdir().unwrap();
    let (db, _lock, _) = store::create(&directory.path().join("t.db"), false).unwrap();
    let limit = |pages: u32| db.execute_batch(&format!("PRAGMA max_page_count = {pages}"));
    let pages: u32 = db
        .query_row("PRAGMA page_count", [], |row| row.get(0))
        .unwrap();
    limit(pages + 4).unwrap();
    let mut batches = Batches::new(&db, ReservedSpace::default());
    for upid in 1..=100 {
        batches.record(&start(upid));
    }
    batches.commit();
    assert!(batches.losses.contains_key(&Loss::StoreFull));
    limit(1_000_000).unwrap();
    for upid in 1..=100 {
        batches.record(&end(upid));
    }
    let summary = batches.finish();
    let stored = "SELECT COUNT(*) FROM processes WHERE exit_code = 0";
    let stored: u32 = db.query_row(stored, [], |row| row.get(0)).unwrap();
    assert_eq!((stored, summary.dropped), (100, 0));
}

#[test]
fn rows_that_never_find_space_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let (db, _lock, _) = store::create(&directory.path().join("t.db"), false).unwrap();
    let pages: u32 = db
        .query_row("PRAGMA page_count", [], |row| row.get(0))
        .unwrap();
    db.execute_batch(&format!("PRAGMA max_page_count = {}", pages + 20))
        .unwrap();
    let mut batches = Batches::new(&db, ReservedSpace::default());
    for upid in 1..=1000 {
        batches.record(&start(upid));
    }
    let summary = batches.finish();
    let stored: i64 = db
        .query_row("SELECT COUNT(*) FROM processes", [], |row| row.get(0))
        .unwrap();
    assert!(stored > 0 && stored < 1000, "{stored}");
    assert_eq!(stored as u64 + summary.dropped, 1000);
}
