use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::*;
use crate::{
    Call, ChannelEndClosed, ChannelEndRecord, ChannelId, ChannelKind, ChannelRecord, CounterRecord,
    Coverage, Direction, Fidelity, FileId, FileKind, FileLayer, FileRecord, HostClock, HostId,
    HostRecord, HostSample, LaunchRecord, Loss, NameRecord, Op, Origin, ProcessLayer, ProcessStart,
    Record, Recorder, RunEnd, RunId, RunRecord, Trace, Upid, Writer,
};

mod joins;

/// A recording on machine `host` of boot `boot` that began at `epoch` on the wall clock.
struct Made<'a> {
    host: &'a str,
    boot: &'a str,
    epoch: i64,
    monotonic: Option<i64>,
    job: Option<&'a str>,
}

const NODE: Made<'static> = Made {
    host: "n1",
    boot: "boot-1",
    epoch: 1_000_000,
    monotonic: None,
    job: None,
};

fn make(path: &Path, made: &Made<'_>, fill: impl FnOnce(&Recorder)) {
    let (writer, recorder) = Writer::create(path, false).unwrap();
    recorder.record(Record::Host(Box::new(HostRecord {
        id: HostId(1),
        name: made.host.into(),
        boot_id: Some(made.boot.into()),
        system: "Linux".into(),
        cpus: Some(2),
        memory_bytes: None,
        epoch_unix_ns: made.epoch,
    })));
    if let Some(monotonic_ns) = made.monotonic {
        recorder.record(Record::HostClock(HostClock {
            host: HostId(1),
            monotonic_ns,
            wall_error_ns: Some(100),
        }));
    }
    recorder.record(Record::Run(Box::new(RunRecord {
        id: RunId(1),
        host: HostId(1),
        command: Some("app".into()),
        cwd: "/w".into(),
        version: "0.1.0",
        file_layer: FileLayer::DirectMmap,
        process_layer: ProcessLayer::Ptrace,
    })));
    if let Some(job) = made.job {
        recorder.record(Record::Launch(Box::new(LaunchRecord {
            run: RunId(1),
            launcher: "slurm".into(),
            job: Some(job.into()),
            rank: Some(3),
        })));
    }
    fill(&recorder);
    let end = RunEnd {
        id: RunId(1),
        end_ns: 1_000,
        exit_code: Some(0),
        exit_signal: None,
    };
    let summary = writer.finish(&recorder, end);
    assert_eq!(summary.write_error, None);
}

fn process(recorder: &Recorder, upid: u32, prev: Option<u32>, start_ns: u64) {
    recorder.record(Record::ProcessStart(Box::new(ProcessStart {
        upid: Upid(upid),
        host: HostId(1),
        pid: 100 + upid,
        parent: None,
        prev: prev.map(Upid),
        origin: Origin::Exec,
        exe: Some("/bin/app".into()),
        argv: Some(b"app\0".to_vec()),
        cwd: None,
        environment: None,
        start_ns,
    })));
}

fn file(recorder: &Recorder, id: u32, inode: (u64, u64), kind: FileKind, path: &str) {
    recorder.record(Record::File(FileRecord {
        id: FileId(id),
        host: HostId(1),
        inode: Some(inode),
        kind,
        size_bytes: Some(u64::from(id) * 10),
        first_ns: 5,
        coverage: Coverage::Exact,
    }));
    if kind == FileKind::Directory {
        recorder.record(Record::DirectoryPath {
            directory: FileId(id),
            path: path.into(),
            from_ns: 5,
        });
    } else {
        recorder.record(Record::Name(Box::new(NameRecord {
            file: FileId(id),
            directory: None,
            name: path.into(),
            from_ns: 5,
        })));
    }
}

fn call(recorder: &Recorder, start_ns: u64, upid: u32, file: u32, op: Op) {
    recorder.call(&Call {
        start_ns,
        duration_ns: 2,
        upid: Some(Upid(upid)),
        tid: None,
        op,
        file: Some(FileId(file)),
        offset: Some(0),
        length: Some(7),
        flags: None,
        result: 7,
        fidelity: Fidelity::Exact,
    });
}

/// One process that makes `count` calls on one file, the first at `from`, one every 10 ns.
fn simple(path: &Path, made: &Made<'_>, (from, count): (u64, u64)) {
    make(path, made, |recorder| {
        process(recorder, 1, None, 1);
        process(recorder, 2, Some(1), 2);
        file(recorder, 1, (1, 7), FileKind::File, "/w/data");
        for i in 0..count {
            call(recorder, from + 10 * i, 2, 1, Op::Read);
        }
        recorder.lost(Loss::UnknownCaller, 2);
    });
}

fn options(directory: &Path, inputs: &[&str]) -> MergeOptions {
    MergeOptions {
        inputs: inputs.iter().map(|name| directory.join(name)).collect(),
        output: directory.join("all.db"),
        ..MergeOptions::default()
    }
}

fn merged(options: &MergeOptions) -> (MergeReport, Connection) {
    let report = merge(options, &mut |_, _| {}).unwrap();
    drop(Trace::open(&options.output).unwrap());
    (report, Connection::open(&options.output).unwrap())
}

fn refused(options: &MergeOptions) -> String {
    merge(options, &mut |_, _| {}).unwrap_err().to_string()
}

/// The rows of a query, each as one text.
fn rows(db: &Connection, sql: &str) -> Vec<String> {
    let mut statement = db.prepare(sql).unwrap();
    let width = statement.column_count();
    let row = |row: &rusqlite::Row<'_>| {
        let value = |i| row.get::<_, rusqlite::types::Value>(i).unwrap();
        let shown = (0..width).map(|i| match value(i) {
            rusqlite::types::Value::Null => "-".into(),
            rusqlite::types::Value::Integer(n) => n.to_string(),
            rusqlite::types::Value::Text(text) => text,
            other => format!("{other:?}"),
        });
        Ok(shown.collect::<Vec<String>>().join(" "))
    };
    let rows = statement.query_map([], row).unwrap();
    rows.collect::<rusqlite::Result<_>>().unwrap()
}

#[test]
fn totals_are_the_sums_of_the_parts_and_calls_stay_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name| directory.path().join(name);
    simple(&at("a.db"), &NODE, (100, 25));
    let other = Made {
        host: "n2",
        boot: "boot-2",
        epoch: 1_000_003,
        ..NODE
    };
    simple(&at("b.db"), &other, (100, 30));
    let (report, db) = merged(&options(directory.path(), &["a.db", "b.db"]));
    assert_eq!((report.runs, report.calls, report.hosts.len()), (2, 55, 2));
    assert_eq!(report.joined_files, 0);
    assert_eq!(
        rows(
            &db,
            "SELECT upid, host, prev_upid, start_ns, run_id FROM processes"
        ),
        ["1 n1 - 1 1", "2 n1 1 2 1", "3 n2 - 4 2", "4 n2 3 5 2"]
    );
    assert_eq!(
        rows(
            &db,
            "SELECT start_ns, upid, path, result FROM calls LIMIT 4"
        ),
        [
            "100 2 /w/data 7",
            "103 4 /w/data 7",
            "110 2 /w/data 7",
            "113 4 /w/data 7"
        ]
    );
    assert_eq!(
        rows(&db, "SELECT run_id, host, start_ns, end_ns FROM runs"),
        ["1 n1 0 1000", "2 n2 3 1003"]
    );
    assert_eq!(
        rows(&db, "SELECT counter, value FROM losses ORDER BY 1"),
        ["clocks_not_related 1", "unknown_caller 4"]
    );
    assert_eq!(
        rows(
            &db,
            "SELECT name FROM sqlite_schema WHERE name LIKE 'merge%'"
        ),
        Vec::<String>::new()
    );
    assert!(!at("all.db.part").exists() && !at("all.db-wal").exists());
}

/// The table, the column, a value that is none of a recording, and what merging says.
#[test]
fn a_value_that_has_no_place_is_reported_with_its_file() {
    let damaged = [
        (
            "run",
            "cwd",
            "CAST(X'2FFF' AS TEXT)",
            "a text of cwd is not UTF-8",
        ),
        (
            "loss",
            "meaning",
            "CAST(X'FF' AS TEXT)",
            "a text of meaning is not UTF-8",
        ),
        (
            "process",
            "exe",
            "X'2F'",
            "a row does not fit into its table: cannot store BLOB value in TEXT column process.exe",
        ),
        (
            "call",
            "what",
            "NULL",
            "a row does not fit into its table: NOT NULL constraint failed: call.what",
        ),
    ];
    for (table, column, value, said) in damaged {
        let directory = tempfile::tempdir().unwrap();
        let at = |name| directory.path().join(name);
        simple(&at("a.db"), &NODE, (100, 3));
        simple(&at("b.db"), &Made { boot: "b2", ..NODE }, (100, 3));
        let change = |sql: &str| {
            Connection::open(at("b.db"))
                .unwrap()
                .execute_batch(sql)
                .unwrap();
        };
        change(
            "PRAGMA writable_schema = ON;
             UPDATE sqlite_schema SET sql = replace(replace(replace(sql, ', STRICT', ''), 'STRICT', ''),
               'what INTEGER NOT NULL', 'what INTEGER') WHERE type = 'table'",
        );
        change(&format!("UPDATE {table} SET {column} = {value}"));
        let file = at("b.db").display().to_string();
        let refused = refused(&options(directory.path(), &["a.db", "b.db"]));
        assert_eq!(refused, format!("{file} is damaged: {said}"));
    }
}

#[test]
fn calls_of_one_time_are_put_one_after_the_other() {
    let directory = tempfile::tempdir().unwrap();
    simple(&directory.path().join("a.db"), &NODE, (100, 3));
    let other = Made {
        host: "n2",
        boot: "b2",
        ..NODE
    };
    simple(&directory.path().join("b.db"), &other, (100, 3));
    let (_, db) = merged(&options(directory.path(), &["a.db", "b.db"]));
    assert_eq!(
        rows(&db, "SELECT start_ns FROM calls"),
        ["100", "101", "110", "111", "120", "121"]
    );
}

#[test]
fn counters_keep_their_names() {
    let directory = tempfile::tempdir().unwrap();
    let other = Made {
        host: "n2",
        boot: "b2",
        ..NODE
    };
    let sample = |recorder: &Recorder, names: &[&str]| {
        for (id, name) in (1u32..).zip(names) {
            recorder.record(Record::Counter(Box::new(CounterRecord {
                id,
                name: (*name).into(),
                unit: "ns",
                meaning: "m",
            })));
            recorder.record(Record::HostSample(HostSample {
                t_ns: u64::from(id),
                host: HostId(1),
                counter: id,
                value: name.len() as u64,
            }));
        }
    };
    make(&directory.path().join("a.db"), &NODE, |r| {
        sample(r, &["cpu.user", "net"]);
    });
    make(&directory.path().join("b.db"), &other, |r| {
        sample(r, &["disk.sda", "net"]);
    });
    let (_, db) = merged(&options(directory.path(), &["a.db", "b.db"]));
    assert_eq!(
        rows(&db, "SELECT t_ns, host, counter, value FROM host_samples"),
        [
            "1 n1 cpu.user 8",
            "1 n2 disk.sda 8",
            "2 n1 net 3",
            "2 n2 net 3"
        ]
    );
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name| directory.path().join(name);
    simple(
        &at("a.db"),
        &Made {
            job: Some("7.0"),
            ..NODE
        },
        (100, 1),
    );
    std::fs::copy(at("a.db"), at("copy.db")).unwrap();
    let other = Made {
        epoch: 5,
        job: Some("8.1"),
        ..NODE
    };
    simple(&at("b.db"), &other, (100, 1));
    std::fs::write(at("text.db"), "hello").unwrap();
    let refused = |inputs: &[&str]| {
        let message = refused(&options(directory.path(), inputs));
        message.replace(directory.path().to_str().unwrap(), "")
    };
    assert_eq!(
        refused(&["a.db", "a.db"]),
        "/a.db and /a.db are the same file"
    );
    assert_eq!(
        refused(&["a.db", "copy.db"]),
        "/a.db and /copy.db contain the same recording"
    );
    assert_eq!(
        refused(&["a.db", "b.db"]),
        "/a.db is of slurm job 7, /b.db of job 8"
    );
    assert!(refused(&["a.db", "text.db"]).contains("not a flowtrace database"));
    assert!(refused(&["a.db", "none.db"]).contains("cannot open"));
    assert_eq!(refused(&[]), "there is nothing to merge");
    let into_itself = MergeOptions {
        output: at("a.db"),
        replace: true,
        ..options(directory.path(), &["a.db", "b.db"])
    };
    let message = merge(&into_itself, &mut |_, _| {}).unwrap_err().to_string();
    assert!(message.ends_with("into itself"), "{message}");
    std::fs::write(at("b.db-wal"), "rest").unwrap();
    assert!(refused(&["b.db"]).contains("was not closed"));
    assert!(!at("all.db").exists() && !at("all.db.part").exists());
}

#[test]
fn what_is_being_recorded_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let (writer, _recorder) = Writer::create(&path, false).unwrap();
    let message = refused(&options(directory.path(), &["a.db"]));
    assert!(message.ends_with("is still being recorded"), "{message}");
    writer.discard();
}

#[test]
fn an_interrupted_merge_goes_on_where_it_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..5).map(|i| format!("{i}.db")).collect();
    for (i, name) in names.iter().enumerate() {
        let host = format!("n{i}");
        let made = Made {
            host: &host,
            boot: &host,
            ..NODE
        };
        simple(&directory.path().join(name), &made, (100 + i as u64, 20));
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let whole = MergeOptions {
        output: directory.path().join("whole.db"),
        ..options(directory.path(), &names)
    };
    let (report, expected) = merged(&whole);
    assert!(!report.is_resumed);
    // Stopped at every place where rows are committed, one after the other.
    let options = options(directory.path(), &names);
    for stop in [1, 7, 15, 40] {
        let mut steps = 0;
        let stopped = catch_unwind(AssertUnwindSafe(|| {
            let _ = merge(&options, &mut |_, _| {
                steps += 1;
                assert!(steps < stop, "stopped on purpose");
            });
        }));
        assert!(stopped.is_err(), "it was not stopped");
        assert!(!options.output.exists());
    }
    let (report, db) = merged(&options);
    assert!(report.is_resumed);
    let all = "SELECT * FROM calls";
    assert_eq!(rows(&db, all), rows(&expected, all));
    let processes = "SELECT upid, host, start_ns, run_id FROM processes";
    assert_eq!(rows(&db, processes), rows(&expected, processes));
    let losses = "SELECT counter, value FROM losses";
    assert_eq!(rows(&db, losses), rows(&expected, losses));
}

#[test]
fn merging_what_was_merged_is_merging_all_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name| directory.path().join(name);
    for (name, epoch) in [("a.db", 1_000_000), ("b.db", 1_000_050), ("c.db", 999_900)] {
        let made = Made {
            host: name,
            boot: name,
            epoch,
            ..NODE
        };
        simple(&at(name), &made, (100, 4));
    }
    let (_, at_once) = merged(&options(directory.path(), &["a.db", "b.db", "c.db"]));
    let pair = MergeOptions {
        output: at("ab.db"),
        ..options(directory.path(), &["a.db", "b.db"])
    };
    drop(merged(&pair));
    let stepwise = MergeOptions {
        output: at("abc.db"),
        ..options(directory.path(), &["ab.db", "c.db"])
    };
    let (_, stepwise) = merged(&stepwise);
    for sql in [
        "SELECT start_ns, duration_ns, upid, op, path, result FROM calls",
        "SELECT upid, host, start_ns, run_id FROM processes",
        "SELECT run_id, host, start_ns, end_ns, started_unix_ns, source FROM runs",
    ] {
        assert_eq!(rows(&stepwise, sql), rows(&at_once, sql), "{sql}");
    }
    let again = MergeOptions {
        output: at("x.db"),
        ..options(directory.path(), &["ab.db", "b.db"])
    };
    assert!(refused(&again).contains("contain the same recording"));
}
