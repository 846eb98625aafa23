//! Importing a generated capture.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

use crate::process::{Process, Used};
use crate::{FLOWTRACE, bar, number};

/// Connections side by side.
const CONNECTIONS: u64 = 1000;
/// Bytes of a record: its header, Ethernet, IPv4, TCP with timestamps.
const RECORD: u64 = 16 + 14 + 20 + 32;

pub(crate) fn run(megabytes: u64) -> bool {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let measure = |bytes: u64| {
        let file = scratch.path().join("generated.pcap");
        let packets = bytes / RECORD;
        generate(&file, packets).expect("the capture can be written");
        let trace = scratch.path().join("trace.db");
        let used = Process::start(
            Command::new(FLOWTRACE)
                .args(["import", "-q", "--force", "-o"])
                .args([&trace, &file]),
        )
        .end();
        let found = number(&trace, "SELECT COUNT(*) FROM packets");
        assert!(
            used.succeeded && found == Some(packets),
            "{found:?} of {packets} packets"
        );
        let size = trace.metadata().map_or(0, |m| m.len());
        (packets, used, size)
    };
    let (_, small, _) = measure(megabytes * 100_000);
    let (packets, used, size) = measure(megabytes * 1_000_000);
    let rate = packets as f64 / used.wall_s;
    println!("import of {megabytes} MB, {packets} packets of {CONNECTIONS} connections:");
    shown(&used, packets);
    let rate_holds = bar(
        "import >= 1 000 000 packets/s",
        &format!("{rate:.0} packets/s"),
        rate >= 1e6,
    );
    let ratio = used.peak_bytes as f64 / small.peak_bytes.max(1) as f64;
    let peaks = format!(
        "{} MB, {} MB for a tenth, ratio {ratio:.2}",
        used.peak_bytes >> 20,
        small.peak_bytes >> 20
    );
    let flat = bar(
        "memory flat (<= 1.25 of that for a tenth)",
        &peaks,
        ratio <= 1.25,
    );
    let each = size as f64 / packets as f64;
    let small_rows = bar(
        "<= 60 bytes/packet",
        &format!("{each:.1} bytes"),
        each <= 60.0,
    );
    rate_holds && flat && small_rows
}

fn shown(used: &Used, packets: u64) {
    println!(
        "  {:.2} s, {:.2} s of CPU: {:.0} ns a packet",
        used.wall_s,
        used.cpu_s,
        used.cpu_s / packets as f64 * 1e9
    );
}

/// Data one way, an acknowledgement back for every second packet, 10 µs apart.
fn generate(path: &Path, packets: u64) -> std::io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 128, 1] {
        file.write_all(&word.to_le_bytes())?;
    }
    let mut record = [0_u8; RECORD as usize];
    record[16..30].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    record[30..50].copy_from_slice(&[
        0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    record[62] = 0x80;
    record[70..74].copy_from_slice(&[1, 1, 8, 10]);
    for number in 0..packets {
        let round = number / CONNECTIONS;
        let port = 10_000 + (number % CONNECTIONS) as u16;
        let is_back = round % 3 == 2;
        let payload: u16 = if is_back { 0 } else { 1448 };
        let t_ns = 1_700_000_000_000_000_000 + number * 10_000;
        let (ports, sent) = match is_back {
            true => ((80, port), 1),
            false => ((port, 80), (round / 3 * 2 + round % 3) as u32 * 1448),
        };
        let wire = 66 + u32::from(payload);
        record[0..4].copy_from_slice(&((t_ns / 1_000_000_000) as u32).to_le_bytes());
        record[4..8].copy_from_slice(&((t_ns % 1_000_000_000) as u32).to_le_bytes());
        record[8..12].copy_from_slice(&66_u32.to_le_bytes());
        record[12..16].copy_from_slice(&wire.to_le_bytes());
        record[32..34].copy_from_slice(&(52 + payload).to_be_bytes());
        record[45] = if is_back { 2 } else { 1 };
        record[49] = if is_back { 1 } else { 2 };
        record[50..52].copy_from_slice(&u16::to_be_bytes(ports.0));
        record[52..54].copy_from_slice(&u16::to_be_bytes(ports.1));
        record[54..58].copy_from_slice(&sent.to_be_bytes());
        record[58..62].copy_from_slice(&1_u32.to_be_bytes());
        record[63] = if is_back { 16 } else { 24 };
        record[64..66].copy_from_slice(&0xffff_u16.to_be_bytes());
        record[74..78].copy_from_slice(&(round as u32).to_be_bytes());
        file.write_all(&record)?;
    }
    file.flush()
}
