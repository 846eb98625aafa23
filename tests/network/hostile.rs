//! Captures that are damaged, or made to do harm.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::frames::{Segment, ipv4, pcap};
use crate::support::{FLOWTRACE, Scratch, flowtrace};
use crate::{A, B, connection, number};

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
    // Together with other captures the damage is reported, and the others are read.
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

/// Versions of the formats that other programs refuse, too: 1.x of pcap, and any but 1.0 of pcapng.
#[test]
fn other_versions_of_the_formats_are_refused_by_name() {
    let scratch = Scratch::new();
    let mut old = pcap(&connection(1_700_000_000_000_000_000, 4000, 100));
    old[4..8].copy_from_slice(&[1, 0, 5, 0]);
    let section = [0x0a0d_0d0a_u32, 28, 0x1a2b_3c4d, 0x0001_0000, !0, !0, 28];
    let section: Vec<u8> = section.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (name, bytes, version) in [
        ("old.pcap", old, "a pcap file of version 1.5"),
        ("other.pcapng", section, "a file of version 0.1 of pcapng"),
    ] {
        fs::write(scratch.join(name), bytes).unwrap();
        let output = flowtrace(&scratch, &["import", name]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(version), "{error}");
        assert!(!scratch.join("trace.db").exists());
    }
}

/// Before version 2.3 of pcap the length on the wire came before the captured length.
#[test]
fn the_lengths_of_old_captures_stand_the_other_way_round() {
    let scratch = Scratch::new();
    let frame = ipv4(A, B, 17, &[1, 1, 2, 2, 0, 108, 0, 0]);
    let frame = crate::frames::ethernet(&frame);
    let mut bytes = pcap(&[(1_700_000_000_000_000_000, frame.clone())]);
    let lengths = [frame.len() as u32 + 100, frame.len() as u32];
    for (minor, order) in [(2_u8, [0, 1]), (3, [0, 1]), (3, [1, 0]), (4, [1, 0])] {
        bytes[6] = minor;
        for (place, which) in [32, 36].into_iter().zip(order) {
            bytes[place..place + 4].copy_from_slice(&lengths[which].to_le_bytes());
        }
        fs::write(scratch.join("old.pcap"), &bytes).unwrap();
        let output = flowtrace(&scratch, &["import", "-q", "--force", "old.pcap"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let wire = number(&scratch.join("trace.db"), "SELECT wire_bytes FROM packets");
        assert_eq!(wire, i64::from(lengths[0]), "2.{minor} {order:?}");
    }
}

/// Imports under a limit of the address space; returns the output and status.
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
    // Records that claim gigabytes of data that is not there.
    let mut claims = pcap(&connection(1_700_000_000_000_000_000, 4000, 100));
    for number in [1_700_000_000, 0, u32::MAX, u32::MAX] {
        claims.extend(u32::to_le_bytes(number));
    }
    // A block that claims gigabytes, after a section header; a small gzip file expands to as many zeros.
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
    // A very large number of interfaces, each of which sees the same flow.
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

/// Long: about a minute in a debug build.
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
        // The same pair of ports again, which is another connection.
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
