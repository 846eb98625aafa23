use super::*;
use crate::{
    FileId, FileKind, FileLayer, FileRecord, HostId, HostRecord, MOST_ARGUMENTS, NameRecord, Op,
    Origin, ProcessLayer, ProcessStart, RunId, RunRecord, Trace, Upid,
};

fn call(start_ns: u64) -> Call {
    Call {
        start_ns,
        duration_ns: 1500,
        upid: Some(Upid(3)),
        tid: None,
        op: Op::Read,
        file: Some(FileId(7)),
        offset: Some(start_ns * 4096),
        length: Some(4096),
        flags: None,
        result: 4096,
        fidelity: crate::Fidelity::Exact,
    }
}

fn begin(recorder: &Recorder) {
    recorder.record(Record::Host(Box::new(HostRecord {
        id: HostId(1),
        name: "here".into(),
        boot_id: None,
        system: "Linux".into(),
        cpus: Some(2),
        memory_bytes: None,
        epoch_unix_ns: 1_700_000_000_000_000_000,
    })));
    recorder.record(Record::Run(Box::new(RunRecord {
        id: RunId(1),
        host: HostId(1),
        command: Some("true".into()),
        cwd: "/tmp".into(),
        version: "0",
        file_layer: FileLayer::DirectMmap,
        process_layer: ProcessLayer::Ptrace,
    })));
}

const END: RunEnd = RunEnd {
    id: RunId(1),
    end_ns: 5,
    exit_code: Some(0),
    exit_signal: None,
};

struct One(Vec<crate::Value>);

impl crate::trace::Table for One {
    fn columns(&mut self, _: &[String]) -> std::io::Result<()> {
        Ok(())
    }
    fn row(&mut self, values: Vec<crate::Value>) -> std::io::Result<()> {
        self.0 = values;
        Ok(())
    }
}

fn one(trace: &Trace, sql: &str) -> Vec<crate::Value> {
    let mut one = One(Vec::new());
    trace.query(sql, &mut one).unwrap();
    one.0
}

#[test]
fn calls_of_several_threads_all_arrive_and_one_file_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let (writer, recorder) = Writer::create(&path, false).unwrap();
    begin(&recorder);
    const CALLS: u64 = 60_000;
    thread::scope(|scope| {
        for thread in 0..3 {
            let recorder = &recorder;
            scope.spawn(move || {
                (0..CALLS).for_each(|i| recorder.call(&call(3 * i + thread)));
            });
        }
    });
    let summary = writer.finish(&recorder, END);
    assert_eq!((summary.calls, summary.dropped), (3 * CALLS, 0));
    assert_eq!(summary.not_folded, None);
    let names: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "no -wal, -shm or other file is left");
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.call_count().unwrap(), 3 * CALLS);
    let sums = one(
        &trace,
        "SELECT SUM(start_ns), SUM(result), COUNT(DISTINCT result) FROM calls",
    );
    let total = |n: u64| crate::Value::Integer(n as i64);
    assert_eq!(
        sums,
        [
            total(3 * CALLS * (3 * CALLS - 1) / 2),
            total(3 * CALLS * 4096),
            total(1)
        ]
    );
}

#[test]
fn calls_of_one_time_are_all_kept_in_their_order() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let (writer, recorder) = Writer::create(&path, false).unwrap();
    begin(&recorder);
    let push = |start_ns, offset| {
        let offset = Some(offset);
        recorder.call(&Call {
            offset,
            ..call(start_ns)
        });
    };
    // Times 100 to 169 and 200, in statements of many rows and of one.
    (0..70).for_each(|i| push(100, i));
    push(200, 70);
    recorder.settle();
    // Calls before, among and between those that are stored.
    push(99, 80);
    (0..70).for_each(|i| push(168, 90 + i));
    recorder.settle();
    push(50, 170);
    let summary = writer.finish(&recorder, END);
    assert_eq!((summary.calls, summary.dropped), (143, 0));
    let trace = Trace::open(&path).unwrap();
    let sums = one(
        &trace,
        "SELECT COUNT(*), SUM(call_id = start_ns), SUM(duration_ns = 1500),
           GROUP_CONCAT(start_ns || ':' || \"offset\", ' ') FILTER (
             WHERE \"offset\" IN (0, 1, 69, 70, 80, 90, 119, 120, 121, 159, 170))
         FROM (SELECT * FROM calls ORDER BY start_ns)",
    );
    let number = crate::Value::Integer;
    assert_eq!(sums[..3], [number(143), number(143), number(143)]);
    assert_eq!(
        sums[3],
        crate::Value::Text(
            "50:170 99:80 100:0 101:1 169:69 170:90 199:119 200:70 201:120 202:121 240:159".into()
        )
    );
    assert_eq!(trace.last_call_ns().unwrap(), Some(240 + 1500));
}

#[test]
fn what_a_call_was_comes_back_from_its_one_number() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let (writer, recorder) = Writer::create(&path, false).unwrap();
    begin(&recorder);
    let mut expected = Vec::new();
    for (i, (&op, flags)) in Op::ALL
        .iter()
        .flat_map(|op| [None, Some(0), Some(0o101_102), Some(u32::MAX)].map(|flags| (op, flags)))
        .enumerate()
    {
        let fidelity = crate::Fidelity::ALL[i / 3 % 5];
        recorder.call(&Call {
            op,
            flags,
            fidelity,
            ..call(1000 * i as u64)
        });
        let flags = flags.map_or("-".to_owned(), |flags| flags.to_string());
        expected.push(format!("{} {} {flags}", op.name(), fidelity.name()));
    }
    writer.finish(&recorder, END);
    let found = one(
        &Trace::open(&path).unwrap(),
        "SELECT GROUP_CONCAT(op || ' ' || fidelity || ' ' || COALESCE(flags, '-'), ', ')
         FROM (SELECT * FROM calls ORDER BY start_ns)",
    );
    assert_eq!(found, [crate::Value::Text(expected.join(", "))]);
}

#[test]
fn files_end_with_the_last_call_on_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let (writer, recorder) = Writer::create(&path, false).unwrap();
    begin(&recorder);
    for id in [7, 8] {
        recorder.record(Record::File(FileRecord {
            id: FileId(id),
            host: HostId(1),
            inode: Some((1, 2)),
            kind: FileKind::Fifo,
            size_bytes: None,
            first_ns: 10,
            coverage: crate::Coverage::Open,
        }));
    }
    recorder.settle();
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.files().unwrap()[0].last_ns, None, "not known yet");
    [500, 20, 300]
        .into_iter()
        .for_each(|start| recorder.call(&call(start)));
    writer.finish(&recorder, END);
    let files = trace.files().unwrap();
    assert_eq!(files[0].last_ns, Some(2000));
    assert_eq!(files[1].last_ns, None, "there was no call");
    assert_eq!((&*files[0].kind, &*files[0].coverage), ("fifo", "open"));
}

fn empty_file(id: FileId) -> Record {
    Record::File(FileRecord {
        id,
        host: HostId(1),
        inode: Some((1, 2)),
        kind: FileKind::File,
        size_bytes: Some(0),
        first_ns: 10,
        coverage: crate::Coverage::Exact,
    })
}

#[test]
fn names_follow_the_renaming_of_their_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let (writer, recorder) = Writer::create(&path, false).unwrap();
    begin(&recorder);
    let (dir, file) = (FileId(1), FileId(2));
    let name = Record::Name(Box::new(NameRecord {
        file,
        directory: Some(dir),
        name: (&b"a\xff"[..]).into(),
        from_ns: 10,
    }));
    for record in [
        empty_file(file),
        Record::DirectoryPath {
            directory: dir,
            path: "/old".into(),
            from_ns: 0,
        },
        name,
        Record::DirectoryPathEnd {
            directory: dir,
            at_ns: 20,
        },
        Record::DirectoryPath {
            directory: dir,
            path: "/new".into(),
            from_ns: 20,
        },
        Record::NameEnd {
            file,
            directory: dir,
            name: (&b"a\xff"[..]).into(),
            at_ns: 30,
        },
    ] {
        recorder.record(record);
    }
    writer.finish(&recorder, END);
    let trace = Trace::open(&path).unwrap();
    let names: Vec<_> = trace.file_names().unwrap();
    let names: Vec<_> = names
        .iter()
        .filter(|n| n.file_id == 2)
        .map(|n| (n.path.as_str(), n.from_ns, n.to_ns))
        .collect();
    assert_eq!(
        names,
        [
            ("/old/a\u{fffd}", 10, Some(20)),
            ("/new/a\u{fffd}", 20, Some(30))
        ]
    );
    assert_eq!(
        trace.files().unwrap()[0].path.as_deref(),
        Some("/new/a\u{fffd}")
    );
    let raw = one(
        &trace,
        "SELECT path_raw FROM file_names WHERE from_ns = 20 AND file_id = 2",
    );
    assert_eq!(raw, [crate::Value::Blob(b"/new/a\xff".to_vec())]);
}

#[test]
fn a_file_of_several_names_has_the_first_that_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let (writer, recorder) = Writer::create(&path, false).unwrap();
    begin(&recorder);
    let (dir, file) = (FileId(1), FileId(2));
    recorder.record(Record::DirectoryPath {
        directory: dir,
        path: "/w".into(),
        from_ns: 0,
    });
    recorder.record(empty_file(file));
    for (name, at_ns) in [("x.tmp", 10), ("x", 20), ("y", 30)] {
        recorder.record(Record::Name(Box::new(NameRecord {
            file,
            directory: Some(dir),
            name: name.as_bytes().into(),
            from_ns: at_ns,
        })));
    }
    recorder.record(Record::NameEnd {
        file,
        directory: dir,
        name: (&b"x.tmp"[..]).into(),
        at_ns: 20,
    });
    writer.finish(&recorder, END);
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.files().unwrap()[0].path.as_deref(), Some("/w/x"));
}

#[test]
fn a_run_that_was_cut_short_can_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let (writer, recorder) = Writer::create(&path, false).unwrap();
    begin(&recorder);
    recorder.record(Record::ProcessStart(Box::new(ProcessStart {
        upid: Upid(1),
        host: HostId(1),
        pid: 10,
        parent: None,
        prev: None,
        origin: Origin::Exec,
        exe: Some("/bin/true".into()),
        argv: Some(b"true\0a b\0".to_vec()),
        cwd: Some("/".into()),
        environment: None,
        start_ns: 1,
    })));
    // Longer than a row may stay uncommitted: from here on a reader sees it.
    let deadline = Instant::now() + Duration::from_secs(10);
    let trace = Trace::open(&path).unwrap();
    while trace.processes().unwrap().is_empty() {
        assert!(Instant::now() < deadline, "the row was not committed");
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(
        trace.processes().unwrap()[0].command.as_deref(),
        Some("true 'a b'")
    );
    assert_eq!(trace.runs().unwrap()[0].end_ns, None);
    drop(writer);
}

#[test]
fn writing_statements_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let (writer, recorder) = Writer::create(&path, false).unwrap();
    begin(&recorder);
    writer.finish(&recorder, END);
    let before = std::fs::read(&path).unwrap();
    let trace = Trace::open(&path).unwrap();
    for sql in [
        "DELETE FROM run",
        "DELETE FROM processes",
        "DROP VIEW runs",
        "UPDATE run SET cwd = '' RETURNING cwd",
        "PRAGMA user_version = 9",
        "SELECT 1; DELETE FROM run",
        "ATTACH '/tmp/flowtrace-must-not-exist.db' AS x",
        "",
    ] {
        assert!(trace.query(sql, &mut One(Vec::new())).is_err(), "{sql}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_trace_being_recorded_is_known_as_such_and_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let (writer, recorder) = Writer::create(&path, false).unwrap();
    begin(&recorder);
    recorder.settle();
    let live = Trace::open(&path).unwrap();
    assert!(live.is_being_recorded());
    assert_eq!(live.runs().unwrap()[0].command.as_deref(), Some("true"));
    let refused = Writer::create(&path, true).unwrap_err();
    assert!(matches!(refused, crate::Error::Recording(_)), "{refused}");
    drop(live);
    writer.finish(&recorder, END);
    assert!(!Trace::open(&path).unwrap().is_being_recorded());
    Writer::create(&path, true).unwrap();
}

#[test]
fn what_a_full_disk_left_in_the_log_is_no_truncation() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let (_writer, recorder) = Writer::create(&path, false).unwrap();
    begin(&recorder);
    recorder.settle();
    // A copy as a checkpoint that stopped halfway leaves it: the header promises pages that are only in the
    // log.
    let copy = directory.path().join("copy.db");
    std::fs::copy(
        crate::beside::beside(&path, "-wal"),
        crate::beside::beside(&copy, "-wal"),
    )
    .unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let pages = bytes.len() / 4096;
    bytes.truncate(4096 * (pages - 1));
    std::fs::write(&copy, &bytes).unwrap();
    assert!(!matches!(
        Trace::open(&copy),
        Err(crate::Error::Truncated { .. })
    ));
    std::fs::remove_file(crate::beside::beside(&copy, "-wal")).unwrap();
    assert!(matches!(
        Trace::open(&copy),
        Err(crate::Error::Truncated { .. })
    ));
}

#[test]
fn what_programs_could_use_of_the_machine_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let (writer, recorder) = Writer::create(&path, false).unwrap();
    begin(&recorder);
    recorder.record(Record::Setting {
        upid: Upid(1),
        umask: Some(0o22),
        environment: None,
        cpus: Some("0-1".into()),
        cpu_quota_ns: Some(300_000_000),
    });
    writer.finish(&recorder, END);
    let row = &Trace::open(&path).unwrap().settings().unwrap()[0];
    assert_eq!(
        (row.upid, row.cpus.as_deref(), row.cpu_quota_ns),
        (1, Some("0-1"), Some(300_000_000))
    );
    assert_eq!(row.umask, Some(0o22));
}

/// An image with these arguments, each ended by a NUL.
fn started(upid: u32, argv: &[u8]) -> Record {
    Record::ProcessStart(Box::new(ProcessStart {
        upid: Upid(upid),
        host: HostId(1),
        pid: upid,
        parent: None,
        prev: None,
        origin: Origin::Exec,
        exe: None,
        argv: Some(argv.to_vec()),
        cwd: None,
        environment: None,
        start_ns: u64::from(upid),
    }))
}

#[test]
fn a_command_line_is_stored_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let (writer, recorder) = Writer::create(&path, false).unwrap();
    begin(&recorder);
    let long = [&b"cc\0-c\0"[..], &[b'x'; 1000], b"\0"].concat();
    let raw = [&b"cc\0\xff"[..], &[b'x'; 1000], b"\0"].concat();
    // Its text is the same, its bytes are not.
    let other = [&b"cc\0\xfe"[..], &[b'x'; 1000], b"\0"].concat();
    let all = [&long, &raw, &other, &b"true\0".to_vec()];
    for (upid, argv) in (1..).zip(all.into_iter().cycle().take(12)) {
        recorder.record(started(upid, argv));
    }
    writer.finish(&recorder, END);
    let trace = Trace::open(&path).unwrap();
    let stored = "SELECT SUM(command IS NOT NULL), SUM(argv_raw IS NOT NULL), MAX(command_upid) FROM process";
    let integer = crate::Value::Integer;
    let counts = one(&trace, stored);
    assert_eq!(counts, [integer(3 + 3), integer(2), integer(3)]);
    let seen = "SELECT COUNT(*), COUNT(command), COUNT(DISTINCT command), MAX(LENGTH(command)) FROM processes";
    let counts = one(&trace, seen);
    assert_eq!(
        counts,
        [integer(12), integer(12), integer(3), integer(1006)]
    );
}

#[test]
fn arguments_have_a_bound() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let (writer, recorder) = Writer::create(&path, false).unwrap();
    begin(&recorder);
    let argv = |arguments: usize| b"0123456789abcde\0".repeat(arguments);
    recorder.record(started(1, &argv(MOST_ARGUMENTS / 16)));
    recorder.record(started(2, &argv(MOST_ARGUMENTS / 16 + 1)));
    // An argument that alone is above the limit.
    recorder.record(started(3, &vec![b'y'; 2 * MOST_ARGUMENTS]));
    writer.finish(&recorder, END);
    let trace = Trace::open(&path).unwrap();
    let cut =
        "SELECT group_concat(upid), (SELECT value FROM losses WHERE counter = 'arguments_cut')
               FROM processes WHERE command LIKE '% …'";
    let integer = crate::Value::Integer;
    assert_eq!(
        one(&trace, cut),
        [crate::Value::Text("2,3".into()), integer(2)]
    );
    let longest = one(
        &trace,
        "SELECT MAX(LENGTH(command)) <= 131072 + 2 FROM processes",
    );
    assert_eq!(longest, [integer(1)]);
}
