//! How many file calls and file records a second the writer stores, and how large a call gets.
//!
//! `cargo bench -p flowtrace-schema --bench writer`
#![allow(missing_docs)]

use std::time::Instant;

use flowtrace_schema::{
    Call, Coverage, Fidelity, FileId, FileKind, FileRecord, HostId, NameRecord, Op, Record, RunEnd,
    RunId, Upid, Writer,
};

const CALLS: u64 = 3_000_000;
const FILES: u32 = 200_000;

fn main() {
    let directory = tempfile::tempdir().expect("a directory for the trace");
    let path = directory.path().join("t.db");
    let (writer, recorder) = Writer::create(&path, false).expect("a trace");
    let end = RunEnd {
        id: RunId(1),
        end_ns: 0,
        exit_code: None,
        exit_signal: None,
    };
    let begin = Instant::now();
    let mut ring = recorder.call_ring();
    for i in 0..CALLS {
        ring.push(Call {
            start_ns: 60_000_000_000 + i * 2000,
            duration_ns: 1500 + i % 100,
            upid: Some(Upid(100 + (i / 1000) as u32)),
            tid: None,
            op: Op::Read,
            file: Some(FileId(200 + (i / 500) as u32)),
            offset: Some(i % 500 * 4096),
            length: Some(4096),
            flags: None,
            result: 4096,
            fidelity: Fidelity::Exact,
        });
    }
    drop(ring);
    let pushed = begin.elapsed();
    for i in 0..FILES {
        recorder.record(Record::File(FileRecord {
            id: FileId(1 + i),
            host: HostId(1),
            inode: Some((1, u64::from(i))),
            kind: FileKind::File,
            size_bytes: Some(0),
            first_ns: u64::from(i),
            coverage: Coverage::Exact,
        }));
        recorder.record(Record::Name(Box::new(NameRecord {
            file: FileId(1 + i),
            directory: Some(FileId(1)),
            name: format!("file{i}").as_str().into(),
            from_ns: u64::from(i),
        })));
    }
    let recorded = begin.elapsed() - pushed;
    let summary = writer.finish(&recorder, end);
    let finished = begin.elapsed() - pushed - recorded;
    assert_eq!((summary.calls, summary.dropped), (CALLS, 0));
    let size = std::fs::metadata(&path).expect("the trace").len();
    println!("{:.0} calls/s stored", CALLS as f64 / pushed.as_secs_f64());
    println!(
        "{:.0} files/s stored, each with a name",
        f64::from(FILES) / recorded.as_secs_f64()
    );
    println!(
        "{:.1} s to finish (indexes, folding the log)",
        finished.as_secs_f64()
    );
    println!(
        "{:.1} bytes for a call, indexes and files included",
        size as f64 / CALLS as f64
    );
}
