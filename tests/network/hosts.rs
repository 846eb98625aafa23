//! Captures of several hosts: one flow for what both saw, and one scale for their clocks.

use std::fs;
use std::path::PathBuf;

use crate::frames::{ethernet, ipv4, pcap};
use crate::support::{Scratch, flowtrace, prints, shared};
use crate::{A, B, connection, number};

#[test]
fn two_captures_of_a_flow_are_one_flow() {
    let scratch = Scratch::new();
    let t_ns = 1_700_000_000_000_000_000;
    fs::write(scratch.join("a.pcap"), pcap(&connection(t_ns, 4000, 100))).unwrap();
    let mut later = connection(t_ns + 300, 4000, 100);
    later.pop();
    fs::write(scratch.join("b.pcap"), pcap(&later)).unwrap();
    prints(
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
    // After an export and an import the hosts of the packets are still known.
    prints(
        &scratch,
        &["export", "trace.db", "pcapng", "-o", "out.pcapng"],
    );
    let said = prints(&scratch, &["import", "out.pcapng", "-o", "again.db"]);
    assert!(
        said.contains("out.pcapng: hosts one, two, 49 frames"),
        "{said}"
    );
    // Without the sums, as a killed recording leaves the trace, the view counts the packets.
    let db = rusqlite::Connection::open(&trace).unwrap();
    db.execute("DELETE FROM flow_capture", []).unwrap();
    assert_eq!(number(&trace, "SELECT packets FROM flows"), 25);
    assert_eq!(number(&trace, "SELECT bytes FROM flows"), 10_000);
}

/// Later fragments belong to the flow of the first fragment, though they have no ports themselves.
#[test]
fn fragments_of_a_packet_are_one_flow() {
    let scratch = Scratch::new();
    let fragment = |number: u16, offset: u16, body: &[u8]| {
        let mut packet = ipv4(A, B, 17, body);
        packet[4..6].copy_from_slice(&number.to_be_bytes());
        let more = if offset < 370 { 0x2000 } else { 0 };
        packet[6..8].copy_from_slice(&(offset | more).to_be_bytes());
        ethernet(&packet)
    };
    let mut first = vec![0; 1480];
    first[..6].copy_from_slice(&[0x13, 0x88, 0x13, 0x89, 0x0b, 0xb8]);
    let frames = [
        fragment(7, 0, &first),
        fragment(7, 185, &[1; 1480]),
        fragment(7, 370, &[1; 40]),
        fragment(8, 185, &[1; 1480]),
    ];
    let t_ns = 1_700_000_000_000_000_000;
    let frames: Vec<_> = (t_ns..).zip(frames).collect();
    fs::write(scratch.join("a.pcap"), pcap(&frames)).unwrap();
    prints(&scratch, &["import", "a.pcap"]);
    let packets = |trace: &str, of: &str| {
        let sql = format!("SELECT COALESCE(SUM(packets), 0) FROM flows WHERE {of}");
        number(&scratch.join(trace), &sql)
    };
    assert_eq!(packets("trace.db", "sport = 5000 AND dport = 5001"), 3);
    assert_eq!(
        packets("trace.db", "sport IS NULL"),
        1,
        "its first one is not there"
    );
    let later = "SELECT COUNT(*) FROM packets WHERE marks & 16";
    assert_eq!(number(&scratch.join("trace.db"), later), 3);
    // Headers that the export generates again have the fields of the original packets.
    prints(
        &scratch,
        &["export", "trace.db", "pcapng", "-o", "out.pcapng"],
    );
    prints(&scratch, &["import", "out.pcapng", "-o", "again.db"]);
    assert_eq!(number(&scratch.join("again.db"), later), 3);
    let bytes = "SELECT SUM(payload_bytes) FROM packets";
    assert_eq!(
        number(&scratch.join("again.db"), bytes),
        number(&scratch.join("trace.db"), bytes)
    );
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
    prints(
        &scratch,
        &["import", "--host", "one=a.pcap", "-o", "one.db"],
    );
    prints(
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
    // No packet arrives before it was sent, within the error of the clocks.
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

/// Payload in bytes between hosts 1 to 4 as the README of the captures lists it; each row is a sender.
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
        prints(&scratch, &arguments);
        // The README does not count the packets of the launcher.
        let sql = "SELECT COUNT(*) FROM packets JOIN flows USING (flow_id)
                   WHERE '10.77.0.254' NOT IN (src, dst)";
        assert_eq!(number(&trace, sql), packets, "{name}");
        // By the sender's capture, and by the receiver's.
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
