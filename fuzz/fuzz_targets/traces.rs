//! Traces that others wrote: values, types, tables and views changed by SQL, and bytes of the file; every analysis.
#![no_main]

use std::path::PathBuf;

use flowtrace_profiler::fuzzing::analyses;

#[allow(dead_code, reason = "each user has its own part")]
#[path = "../../profiler/tests/support/montage.rs"]
mod montage;
#[path = "../../tests/support/spoil.rs"]
mod spoil;

thread_local! {
    /// A whole trace, and where the damaged one goes; removed with the process's temporary directory.
    static WHOLE: (tempfile::TempDir, Vec<u8>, PathBuf) = {
        let (directory, path) = montage::montage_file(2, false);
        let db = rusqlite::Connection::open(&path).unwrap();
        db.execute_batch("PRAGMA journal_mode = DELETE").unwrap();
        drop(db);
        let whole = std::fs::read(&path).unwrap();
        let damaged = directory.path().join("damaged.db");
        (directory, whole, damaged)
    };
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let mut numbers = input.chunks(2);
    // What the input does not choose is the first of all.
    let mut choose = |below: usize| {
        let chosen = numbers.next().unwrap_or_default();
        chosen.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte)) % below
    };
    WHOLE.with(|(_, whole, damaged)| {
        std::fs::write(damaged, whole).unwrap();
        spoil::trace(damaged, &mut choose);
        analyses(damaged);
    });
});
