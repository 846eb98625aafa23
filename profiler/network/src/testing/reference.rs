//! Reference captures and the truth about them.

use std::path::Path;
use std::process::Command;

use crate::run::{CaptureInput, Node, Packet, Run};

/// The run of a reference capture of four hosts; `None` if the capture is missing, which skips the
/// test.
pub fn reference(name: &str) -> Option<Run> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    let folder = root.join(name);
    if !folder.is_dir() {
        skip(&format!("no ../shared/captures/{name} beside the checkout"));
        return None;
    }
    let captures = (1..=4).map(|host| read(&folder.join(format!("ns{host}.pcap.gz")), host - 1));
    let captures: Option<Vec<CaptureInput>> = captures.collect();
    let nodes = (1..=4).map(|host| format!("10.77.0.{host}")).collect();
    Some(Run::new(nodes, captures?))
}

/// Contents of a gzip file; `None` if the program is missing, which skips the test.
pub fn unpacked(path: &Path) -> Option<Vec<u8>> {
    let output = Command::new("gzip").arg("-dc").arg(path).output();
    if output.is_err() {
        skip("no program gzip");
    }
    Some(output.ok()?.stdout)
}

fn skip(reason: &str) {
    let thread = std::thread::current();
    let line = format!(
        "skipped: {}: {reason}\n",
        thread.name().unwrap_or("unnamed")
    );
    eprint!("{line}");
    if let Some(log) = std::env::var_os("FLOWTRACE_SKIP_LOG") {
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(log)
            .unwrap();
        std::io::Write::write_all(&mut file, line.as_bytes()).unwrap();
    }
}

/// True period of the timed iterations at rank 0, s.
pub fn true_period(name: &str) -> f64 {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    let text = std::fs::read_to_string(root.join("iterations.csv")).unwrap();
    let mut lengths = Vec::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split(',').collect();
        if cells[0] == name && cells[1] == "0" {
            let (begin, end): (f64, f64) = (cells[3].parse().unwrap(), cells[4].parse().unwrap());
            lengths.push(end - begin);
        }
    }
    lengths.iter().sum::<f64>() / lengths.len() as f64
}

/// Reads the only file format of the reference captures: nanosecond pcap, little endian, Ethernet,
/// IPv4, TCP, gzip. The tool's own importer is in another crate.
fn read(path: &Path, node: Node) -> Option<CaptureInput> {
    let bytes = unpacked(path)?;
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!(u32_at(0), 0xa1b2_3c4d);
    let mut packets = Vec::new();
    let mut flows = std::collections::HashMap::new();
    let mut at = 24;
    while at + 16 <= bytes.len() {
        let t_ns = i64::from(u32_at(at)) * 1_000_000_000 + i64::from(u32_at(at + 4));
        let kept = u32_at(at + 8) as usize;
        let wire = u32_at(at + 12);
        let frame = &bytes[at + 16..at + 16 + kept];
        at += 16 + kept;
        let ip = &frame[14..];
        let header = usize::from(ip[0] & 15) * 4;
        let total = u32::from(u16::from_be_bytes([ip[2], ip[3]]));
        let tcp = &ip[header..];
        let word = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap());
        let (src, dst) = (ip[15], ip[19]);
        if !(1..=4).contains(&src) || !(1..=4).contains(&dst) {
            continue;
        }
        let ports = (word(0) >> 16, word(0) & 0xffff);
        let mut ends = [(src, ports.0), (dst, ports.1)];
        ends.sort_unstable();
        // Equal in every file for the same ports and hosts.
        let flow =
            (ends[0].1 << 16 ^ ends[1].1) ^ u32::from(ends[0].0) << 14 ^ u32::from(ends[1].0);
        flows.insert(flow, ends);
        packets.push(Packet {
            t_ns,
            seq: word(4),
            ack: word(8),
            payload: total - header as u32 - u32::from(tcp[12] >> 4) * 4,
            wire,
            window: u32::from(u16::from_be_bytes([tcp[14], tcp[15]])),
            flow,
            src: Node::from(src - 1),
            dst: Node::from(dst - 1),
            flags: tcp[13],
            is_again: false,
        });
    }
    Some(CaptureInput {
        name: path.display().to_string(),
        nodes: vec![node],
        dropped: Some(0),
        packets,
    })
}
