//! Packets on the command line: `flowtrace import` and what it leaves in the trace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[path = "support/frames.rs"]
mod frames;
mod support;

use frames::{Segment, ipv4, pcap};
use support::{FLOWTRACE, Scratch, flowtrace, shared};

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];

fn succeeds(directory: &Path, arguments: &[&str]) -> String {
    let output = flowtrace(directory, arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

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
    let said = succeeds(&scratch, &["import", "eth0.pcap"]);
    let dataset = ["export", "trace.db", "parquet", "-o", "dataset"];
    succeeds(&scratch, &dataset);
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
    // A trace is never replaced unasked, and neither is anything else.
    let refused = flowtrace(&scratch, &["import", "eth0.pcap"]);
    assert_eq!(refused.status.code(), Some(2));
    let refused = flowtrace(
        &scratch,
        &["import", "eth0.pcap", "-o", "eth0.pcap", "--force"],
    );
    assert_eq!(refused.status.code(), Some(2));
    succeeds(&scratch, &["import", "eth0.pcap", "--force", "-q"]);
}

#[test]
fn two_captures_of_a_flow_are_one_flow() {
    let scratch = Scratch::new();
    let t_ns = 1_700_000_000_000_000_000;
    fs::write(scratch.join("a.pcap"), pcap(&connection(t_ns, 4000, 100))).unwrap();
    let mut later = connection(t_ns + 300, 4000, 100);
    later.pop();
    fs::write(scratch.join("b.pcap"), pcap(&later)).unwrap();
    succeeds(
        &scratch,
        &["import", "--host", "one=a.pcap", "--host", "two=b.pcap"],
    );
    let trace = scratch.join("trace.db");
    assert_eq!(number(&trace, "SELECT COUNT(*) FROM flows"), 1);
    assert_eq!(number(&trace, "SELECT packets FROM flows"), 25);
    assert_eq!(number(&trace, "SELECT captures FROM flows"), 2);
    assert_eq!(number(&trace, "SELECT COUNT(*) FROM packets"), 49);
    assert_eq!(
        number(
            &trace,
            "SELECT COUNT(*) FROM hosts WHERE host IN ('one', 'two')"
        ),
        2
    );
    // Without the sums, as a killed recording leaves it, the view counts the packets.
    let db = rusqlite::Connection::open(&trace).unwrap();
    db.execute("DELETE FROM flow_capture", []).unwrap();
    assert_eq!(number(&trace, "SELECT packets FROM flows"), 25);
    assert_eq!(number(&trace, "SELECT bytes FROM flows"), 10_000);
}

/// Two machines whose clocks are seven seconds and 37 ppm apart, each with a trace of its own.
#[test]
fn a_merge_relates_clocks_by_packets() {
    const OFFSET_NS: i64 = -7_300_000_000;
    const DRIFT_PPM: i64 = 37;
    let scratch = Scratch::new();
    let t0 = 1_700_000_000_000_000_000;
    let sent: Vec<_> = (0..60u16)
        .flat_map(|n| {
            connection(
                t0 + 300_000_000 * u64::from(n),
                4000 + n,
                100 * u32::from(n),
            )
        })
        .collect();
    let arrived = sent.iter().enumerate().map(|(n, (t_ns, frame))| {
        let delay = 400 + (n as i64 * 7919) % 5000;
        let is_from_a = frame[26..30] == A;
        let elapsed = (t_ns - t0) as i64 + if is_from_a { delay } else { -delay };
        let shown = elapsed + OFFSET_NS + elapsed * DRIFT_PPM / 1_000_000;
        (t0.strict_add_signed(shown), frame.clone())
    });
    fs::write(scratch.join("b.pcap"), pcap(&arrived.collect::<Vec<_>>())).unwrap();
    fs::write(scratch.join("a.pcap"), pcap(&sent)).unwrap();
    succeeds(
        &scratch,
        &["import", "--host", "one=a.pcap", "-o", "one.db"],
    );
    succeeds(
        &scratch,
        &["import", "--host", "two=b.pcap", "-o", "two.db"],
    );
    let merged = flowtrace(&scratch, &["merge", "-o", "all.db", "one.db", "two.db"]);
    let said = String::from_utf8(merged.stderr).unwrap();
    assert!(
        said.contains("1 host by packets that both captured, off by at most"),
        "{said}"
    );
    assert!(said.contains("joined  60 flows"), "{said}");
    assert!(!scratch.join("all.db.clocks").exists());
    let trace = scratch.join("all.db");
    let error = number(
        &trace,
        "SELECT clock_error_ns FROM hosts WHERE clock_method = 'packets'",
    );
    assert!((1..2000).contains(&error), "{error}");
    // Nothing arrives before it was sent, as far as the clocks can tell.
    let delays = "FROM (SELECT MAX(t_ns) - MIN(t_ns) AS ns, COUNT(*) AS seen, COUNT(DISTINCT capture_id) AS hosts
                        FROM packets GROUP BY flow_id, dir, seq, ack, flags)";
    let apart = number(
        &trace,
        &format!("SELECT MAX(ns) {delays} WHERE seen = 2 AND hosts = 2"),
    );
    assert!(apart <= 5400 + error, "{apart} ns");
    assert_eq!(
        number(
            &trace,
            &format!("SELECT COUNT(*) {delays} WHERE seen = 2 AND hosts = 2")
        ),
        1500
    );
    let first = number(&trace, "SELECT MIN(t_ns) FROM packets");
    assert!(first <= error, "{first}");
}

#[test]
fn what_is_damaged_is_read_as_far_as_possible() {
    let scratch = Scratch::new();
    let whole = pcap(&connection(1_700_000_000_000_000_000, 4000, 100));
    fs::write(scratch.join("cut.pcap"), &whole[..whole.len() - 1]).unwrap();
    let output = flowtrace(&scratch, &["import", "cut.pcap"]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("cut.pcap is read only in part: the file ends amid a record"),
        "{error}"
    );
    let trace = scratch.join("trace.db");
    assert_eq!(number(&trace, "SELECT COUNT(*) FROM packets"), 24);
    let loss = "SELECT value FROM losses WHERE counter = 'damaged_files'";
    assert_eq!(number(&trace, loss), 1);
    fs::write(scratch.join("text"), "hello, world").unwrap();
    let output = flowtrace(&scratch, &["import", "text", "-o", "other.db"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.starts_with("flowtrace: cannot import text: it is no pcap or pcapng file"),
        "{error}"
    );
    assert!(!scratch.join("other.db").exists());
    // Beside others it is told, and these are read.
    fs::write(scratch.join("whole.pcap"), &whole).unwrap();
    let output = flowtrace(
        &scratch,
        &["import", "text", "whole.pcap", "-o", "other.db"],
    );
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("text is not read: it is no pcap or pcapng file"),
        "{error}"
    );
    let trace = scratch.join("other.db");
    assert_eq!(number(&trace, "SELECT COUNT(*) FROM packets"), 25);
    assert_eq!(number(&trace, loss), 1);
}

#[test]
fn what_is_left_out_is_told_by_its_reason() {
    let scratch = Scratch::new();
    // The clock was set after the first packet.
    let mut frames = connection(1_700_000_000_000_000_000, 4000, 100);
    frames[0].0 = 5_000_000_000;
    fs::write(scratch.join("clock.pcap"), pcap(&frames)).unwrap();
    let output = flowtrace(&scratch, &["import", "clock.pcap", "-o", "clock.db"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("24 frames left out: the time is more than a year"),
        "{error}"
    );
    let loss = "SELECT value FROM losses WHERE counter = 'implausible_times'";
    assert_eq!(number(&scratch.join("clock.db"), loss), 24);
    // Of a link layer that is not read: nothing is left.
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
    // The same file twice would count all twice.
    let output = flowtrace(
        &scratch,
        &["import", "clock.pcap", "clock.pcap", "-o", "two.db"],
    );
    assert_eq!(output.status.code(), Some(2));
    // Packets cannot be picked by options for graphs.
    let output = flowtrace(
        &scratch,
        &["export", "clock.db", "pcapng", "--rule", "x", "-o", "x"],
    );
    assert_eq!(output.status.code(), Some(2));
}

/// Payload between hosts 1 to 4 as the README of the captures lists it, row = sender.
const MATRICES: &[(&str, [[i64; 4]; 4])] = &[
    (
        "is.S",
        [
            [0, 201184, 204186, 180836],
            [210314, 0, 177282, 202974],
            [206110, 179940, 0, 199348],
            [182472, 201710, 203174, 0],
        ],
    ),
    (
        "lu.S",
        [
            [0, 426476, 426476, 68],
            [426244, 0, 0, 426210],
            [426212, 0, 0, 425932],
            [68, 426168, 426200, 0],
        ],
    ),
    (
        "mg.W-quota-full",
        [
            [0, 3227632, 3375414, 156],
            [3228516, 0, 0, 3374230],
            [3372086, 0, 0, 3227758],
            [156, 3371976, 3229558, 0],
        ],
    ),
];

#[test]
fn captures_of_mpi_programs_agree_with_what_is_known_of_them() {
    let packets = [
        ("is.S", 1272 + 1283 + 1276 + 1315),
        ("lu.S", 3839 + 3835 + 3765 + 3791),
        ("mg.W-quota-full", 11850 + 12041 + 12013 + 12260),
    ];
    for ((name, matrix), (_, packets)) in MATRICES.iter().zip(packets) {
        let Some(directory) = shared(&format!("captures/{name}")) else {
            return;
        };
        let scratch = Scratch::new();
        let trace = scratch.join("trace.db");
        let files: Vec<PathBuf> = (1..=4)
            .map(|i| directory.join(format!("ns{i}.pcap.gz")))
            .collect();
        let mut arguments = vec!["import", "-o", trace.to_str().unwrap()];
        arguments.extend(files.iter().map(|file| file.to_str().unwrap()));
        succeeds(&scratch, &arguments);
        // Those of the launcher are not counted there.
        let sql = "SELECT COUNT(*) FROM packets JOIN flows USING (flow_id)
                   WHERE '10.77.0.254' NOT IN (src, dst)";
        assert_eq!(number(&trace, sql), packets, "{name}");
        // At the sender's capture, and at the receiver's.
        for at in ["src", "dst"] {
            for (i, row) in (1..).zip(matrix) {
                for (j, &bytes) in (1..).zip(row) {
                    let host = if at == "src" { i } else { j };
                    let sql = format!(
                        "SELECT COALESCE(SUM(CASE WHEN src = '10.77.0.{i}' THEN out_bytes ELSE back_bytes END), 0)
                         FROM flow_captures JOIN captures USING (capture_id)
                           JOIN (SELECT flow_id, src, dst FROM flows) USING (flow_id)
                         WHERE host = 'ns{host}' AND (src, dst) IN
                           (VALUES ('10.77.0.{i}', '10.77.0.{j}'), ('10.77.0.{j}', '10.77.0.{i}'))"
                    );
                    assert_eq!(number(&trace, &sql), bytes, "{name}: {i} to {j} at {at}");
                }
            }
        }
    }
}

/// Imports under a limit of the address space; how it went.
fn imports_within(megabytes: u32, directory: &Path, file: &str) -> Output {
    let script = format!("ulimit -v {} && exec \"$0\" \"$@\"", megabytes * 1024);
    Command::new("bash")
        .args([
            "-c",
            &script,
            FLOWTRACE,
            "import",
            "-o",
            "hostile.db",
            "--force",
            file,
        ])
        .current_dir(directory)
        .output()
        .unwrap()
}

#[test]
fn hostile_captures_take_bounded_memory() {
    let scratch = Scratch::new();
    // Records that claim gigabytes, and are not there.
    let mut claims = pcap(&connection(1_700_000_000_000_000_000, 4000, 100));
    for number in [1_700_000_000, 0, u32::MAX, u32::MAX] {
        claims.extend(u32::to_le_bytes(number));
    }
    // A block that claims them, behind a section; as many zeros follow as come out of little gzip.
    let words = [0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28];
    let mut block: Vec<u8> = words
        .iter()
        .flat_map(|word: &u32| word.to_le_bytes())
        .collect();
    block.extend(
        [6_u32, 0xffff_fff0]
            .iter()
            .flat_map(|word| word.to_le_bytes()),
    );
    block.resize(block.len() + (32 << 20), 0);
    // Interfaces without end, each of which sees the same flow.
    let mut interfaces: Vec<u8> = words
        .iter()
        .flat_map(|word: &u32| word.to_le_bytes())
        .collect();
    let segment = Segment {
        ports: (1, 2),
        flags: 16,
        ..Segment::default()
    };
    let packet = ipv4(A, B, 6, &segment.bytes());
    for number in 0..20_000_u32 {
        let interface = [1, 20, 101, 0, 20];
        interfaces.extend(interface.iter().flat_map(|word: &u32| word.to_le_bytes()));
        let head = [6, 72, number.min(4095), 0, number, 40, 40];
        interfaces.extend(head.iter().flat_map(|word: &u32| word.to_le_bytes()));
        interfaces.extend(&packet);
        interfaces.extend(72_u32.to_le_bytes());
    }
    for (name, content) in [
        ("claims", claims),
        ("block", block),
        ("interfaces", interfaces),
    ] {
        fs::write(scratch.join(name), content).unwrap();
        let output = imports_within(400, &scratch, name);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {error}");
        assert!(error.contains("is read only in part"), "{name}: {error}");
    }
}

/// Long: a minute or so without optimisation.
#[test]
#[ignore = "long: tests/long hostile"]
fn flows_without_end_take_bounded_memory() {
    let scratch = Scratch::new();
    let mut frames = Vec::new();
    for number in 0..2_000_000_u32 {
        let segment = Segment {
            ports: (number as u16, 80),
            seq: number,
            flags: 2,
            ..Segment::default()
        };
        let from = [10, 1 + (number >> 24) as u8, (number >> 16) as u8, 7];
        let t_ns = 1_700_000_000_000_000_000 + u64::from(number) * 1000;
        frames.push((t_ns, segment.frame(from, B)));
        // And again over the same pair, which is another connection.
        let again = Segment {
            seq: number ^ 0x8000_0000,
            ..segment
        };
        frames.push((t_ns + 1, again.frame(from, B)));
    }
    fs::write(scratch.join("flows"), pcap(&frames)).unwrap();
    drop(frames);
    let output = imports_within(600, &scratch, "flows");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    assert_eq!(
        number(&scratch.join("hostile.db"), "SELECT COUNT(*) FROM flow"),
        4_000_000
    );
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
    // A reader of standard error may be gone as well.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut merge = std::process::Command::new(env!("CARGO_BIN_EXE_flowtrace"));
    merge
        .args(["merge", "-o", "all.db", "trace.db"])
        .stderr(writer);
    let status = merge.current_dir(scratch.join(".")).status().unwrap();
    assert_eq!(status.code(), Some(0));
}
