//! Packets on the command line: `flowtrace import` and the trace that it writes.

use std::fs;
use std::path::Path;

#[path = "../support/frames.rs"]
mod frames;
#[path = "../support/mod.rs"]
mod support;

mod counts;
mod hostile;
mod hosts;
mod sparse;

use frames::{Segment, pcap};
use support::{FLOWTRACE, Scratch, flowtrace, prints};

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];

fn rows(trace: &Path, sql: &str) -> Vec<Vec<rusqlite::types::Value>> {
    let db = rusqlite::Connection::open(trace).unwrap();
    let mut statement = db.prepare(sql).unwrap();
    let columns = statement.column_count();
    let rows = statement.query_map([], |row| (0..columns).map(|i| row.get(i)).collect());
    rows.unwrap().map(Result::unwrap).collect()
}

fn number(trace: &Path, sql: &str) -> i64 {
    match rows(trace, sql)[0][0] {
        rusqlite::types::Value::Integer(number) => number,
        ref other => panic!("{sql}: {other:?}"),
    }
}

/// A connection with ten packets of a thousand bytes from A to B.
fn connection(t_ns: u64, sport: u16, seq: u32) -> Vec<(u64, Vec<u8>)> {
    let there = |t: u64, seq, ack, flags, payload| {
        let ports = (sport, 80);
        let segment = Segment {
            ports,
            seq,
            ack,
            flags,
            payload,
        };
        (t, segment.frame(A, B))
    };
    let back = |t: u64, seq, ack, flags| {
        let ports = (80, sport);
        let segment = Segment {
            ports,
            seq,
            ack,
            flags,
            payload: 0,
        };
        (t, segment.frame(B, A))
    };
    let mut frames = vec![
        there(t_ns, seq, 0, 2, 0),
        back(t_ns + 100, 5000, seq + 1, 18),
        there(t_ns + 200, seq + 1, 5001, 16, 0),
    ];
    for i in 0..10 {
        let t = t_ns + 1000 * u64::from(i + 1);
        frames.push(there(t, seq + 1 + 1000 * i, 5001, 24, 1000));
        frames.push(back(t + 500, 5001, seq + 1001 + 1000 * i, 16));
    }
    frames.push(there(t_ns + 20_000, seq + 10_001, 5001, 17, 0));
    frames.push(back(t_ns + 20_500, 5001, seq + 10_002, 17));
    frames
}

#[test]
fn a_capture_becomes_flows_and_packets() {
    let scratch = Scratch::new();
    let mut frames = connection(1_700_000_000_000_000_000, 4000, 100);
    // The same ports again: another connection, so another flow.
    frames.extend(connection(1_700_000_001_000_000_000, 4000, 900_000));
    fs::write(scratch.join("eth0.pcap"), pcap(&frames)).unwrap();
    let said = prints(&scratch, &["import", "eth0.pcap"]);
    let dataset = ["export", "trace.db", "parquet", "-o", "dataset"];
    prints(&scratch, &dataset);
    assert!(scratch.join("dataset/packets").is_dir());
    assert!(
        said.contains("50 packets in 2 flows, captured on 1 host"),
        "{said}"
    );
    let trace = scratch.join("trace.db");
    let flows = rows(
        &trace,
        "SELECT src, sport, dst, dport, packets, bytes, out_bytes, back_packets, last_ns - first_ns
         FROM flows",
    );
    use rusqlite::types::Value::{Integer, Text};
    let flow = vec![
        Text("10.0.0.1".into()),
        Integer(4000),
        Text("10.0.0.2".into()),
        Integer(80),
        Integer(25),
        Integer(10_000),
        Integer(10_000),
        Integer(12),
        Integer(20_500),
    ];
    assert_eq!(flows, [flow.clone(), flow]);
    let syns = "SELECT COUNT(*) FROM packets WHERE flags & 2 AND seq IN (100, 900000)";
    assert_eq!(number(&trace, syns), 2);
    assert_eq!(
        number(&trace, "SELECT SUM(wire_bytes) FROM packets"),
        50 * 54 + 20_000
    );
    // Without the option an older trace is kept. Any other file is never replaced.
    let again = flowtrace(&scratch, &["import", "eth0.pcap"]);
    assert_eq!(again.status.code(), Some(0));
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(
        said.contains("the older trace is now trace.db.old"),
        "{said}"
    );
    let older = scratch.join("trace.db.old");
    assert_eq!(number(&older, "SELECT COUNT(*) FROM packets"), 50);
    let refused = flowtrace(
        &scratch,
        &["import", "eth0.pcap", "-o", "eth0.pcap", "--force"],
    );
    assert_eq!(refused.status.code(), Some(2));
    prints(&scratch, &["import", "eth0.pcap", "--force", "-q"]);
}

#[test]
fn packets_left_out_are_reported_by_reason() {
    let scratch = Scratch::new();
    // The clock was set after the first packet, and one packet in the middle has no time: the times of the
    // others count.
    let mut frames = connection(1_700_000_000_000_000_000, 4000, 100);
    frames[0].0 = 5_000_000_000;
    frames[12].0 = 0;
    fs::write(scratch.join("clock.pcap"), pcap(&frames)).unwrap();
    let from_a_pipe = "cat clock.pcap | \"$0\" import - -o clock.db --force";
    for how in [
        vec!["-c", "\"$0\" import clock.pcap -o clock.db", FLOWTRACE],
        vec!["-c", from_a_pipe, FLOWTRACE],
    ] {
        let mut command = std::process::Command::new("sh");
        let output = command.args(how).current_dir(&*scratch).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1));
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(
            error.contains("2 frames left out: their time is more than a year"),
            "{error}"
        );
        let trace = scratch.join("clock.db");
        let loss = "SELECT value FROM losses WHERE counter = 'implausible_times'";
        assert_eq!(number(&trace, loss), 2);
        assert_eq!(number(&trace, "SELECT COUNT(*) FROM packets"), 23);
        // The trace begins with the first of the packets that are kept.
        let begin = "SELECT started_unix_ns FROM runs";
        assert_eq!(number(&trace, begin), 1_700_000_000_000_000_100);
        assert_eq!(number(&trace, "SELECT MIN(t_ns) FROM packets"), 0);
    }
    // A capture of a link layer that flowtrace does not read has no packets left.
    let mut radio = pcap(&connection(1_700_000_000_000_000_000, 4000, 100));
    radio[20] = 105;
    fs::write(scratch.join("radio\u{1b}[31m.pcap"), radio).unwrap();
    let output = flowtrace(
        &scratch,
        &["import", "radio\u{1b}[31m.pcap", "-o", "radio.db"],
    );
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("25 frames left out: frames of link layer 105 are not read"),
        "{error}"
    );
    assert!(
        !error.contains('\u{1b}') && !output.stdout.contains(&0x1b),
        "{error}"
    );
    // The same file given twice would count every packet twice.
    let output = flowtrace(
        &scratch,
        &["import", "clock.pcap", "clock.pcap", "-o", "two.db"],
    );
    assert_eq!(output.status.code(), Some(2));
    // Options for graphs do not select packets.
    let output = flowtrace(
        &scratch,
        &["export", "clock.db", "pcapng", "--rule", "x", "-o", "x"],
    );
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn an_import_whose_report_nobody_reads_is_complete() {
    let scratch = Scratch::new();
    let t_ns = 1_700_000_000_000_000_000;
    fs::write(scratch.join("a.pcap"), pcap(&connection(t_ns, 4000, 100))).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut import = std::process::Command::new(env!("CARGO_BIN_EXE_flowtrace"));
    import.args(["import", "a.pcap"]).stdout(writer);
    let output = import.current_dir(scratch.join(".")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    // A reader of standard error may have ended as well.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut merge = std::process::Command::new(env!("CARGO_BIN_EXE_flowtrace"));
    merge
        .args(["merge", "-o", "all.db", "trace.db"])
        .stderr(writer);
    let status = merge.current_dir(scratch.join(".")).status().unwrap();
    assert_eq!(status.code(), Some(0));
}
