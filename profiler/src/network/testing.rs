//! What the tests share: hand-made streams, and the reference captures with their truth.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::run::{ACK, CaptureInput, Node, PSH, Packet, Run};

/// A pushed data packet; sequence numbers are set by [`run_of`].
pub(crate) fn data(t_ns: i64, src: Node, dst: Node, payload: u32) -> Packet {
    Packet {
        t_ns,
        src,
        dst,
        payload,
        wire: payload + 66,
        flags: ACK | PSH,
        ..Packet::default()
    }
}

/// A run whose hosts each saw all packets of theirs at the same moment. One connection per pair.
pub(super) fn run_of(nodes: usize, packets: &[Packet]) -> Run {
    delayed_run_of(nodes, packets, 0)
}

/// The same with packets that reach the other host's capture after `delay_ns`.
pub(crate) fn delayed_run_of(nodes: usize, packets: &[Packet], delay_ns: i64) -> Run {
    let delayed: Vec<(Packet, i64)> = packets.iter().map(|packet| (*packet, delay_ns)).collect();
    run_with_delays(nodes, &delayed)
}

/// The same with a delay of each packet, ns; acknowledgements take the least of all.
fn run_with_delays(nodes: usize, packets: &[(Packet, i64)]) -> Run {
    let least_ns = packets.iter().map(|packet| packet.1).min().unwrap_or(0);
    let mut sent = vec![1u32; nodes * nodes];
    // Of each direction what has come in, and what is on its way: when it comes in, and up to which byte.
    let mut received = sent.clone();
    let mut on_way = vec![VecDeque::new(); nodes * nodes];
    let mut captures = vec![CaptureInput::default(); nodes];
    for (node, capture) in captures.iter_mut().enumerate() {
        capture.name = format!("h{node}");
        capture.node = Some(node as Node);
        capture.dropped = Some(0);
    }
    for &(mut packet, delay_ns) in packets {
        let (src, dst) = (usize::from(packet.src), usize::from(packet.dst));
        packet.flow = (src.min(dst) * nodes + src.max(dst)) as u32;
        packet.seq = sent[src * nodes + dst];
        let back = dst * nodes + src;
        while let Some((_, until)) = on_way[back].pop_front_if(|&mut (at, _)| at <= packet.t_ns) {
            received[back] = until;
        }
        packet.ack = received[back];
        sent[src * nodes + dst] += packet.payload;
        on_way[src * nodes + dst].push_back((packet.t_ns + delay_ns, sent[src * nodes + dst]));
        captures[src].packets.push(packet);
        packet.t_ns += delay_ns;
        captures[dst].packets.push(packet);
        // The kernel acknowledges at once.
        let mut answer = Packet {
            t_ns: packet.t_ns,
            src: packet.dst,
            dst: packet.src,
            seq: sent[dst * nodes + src],
            ack: packet.seq + packet.payload,
            payload: 0,
            wire: 66,
            flags: ACK,
            ..packet
        };
        captures[dst].packets.push(answer);
        answer.t_ns += least_ns;
        captures[src].packets.push(answer);
    }
    for capture in &mut captures {
        capture.packets.sort_by_key(|packet| packet.t_ns);
    }
    Run::new(
        (0..nodes).map(|node| format!("h{node}")).collect(),
        captures,
    )
}

/// A reference capture: the run of its four hosts; `None`, said aloud, when absent.
pub(crate) fn reference(name: &str) -> Option<Run> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/captures");
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
pub(crate) fn true_period(name: &str) -> f64 {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/captures");
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

/// Reads the one kind of file that the reference captures are: nanosecond pcap, little endian,
/// Ethernet, IPv4, TCP, gzip. The tool's own importer stands in another crate.
fn read(path: &PathBuf, node: Node) -> Option<CaptureInput> {
    let output = Command::new("gzip").arg("-dc").arg(path).output();
    let Ok(output) = output else {
        skip("no program gzip");
        return None;
    };
    let bytes = output.stdout;
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
        // The same in every file: ports and hosts.
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
        node: Some(node),
        dropped: Some(0),
        packets,
    })
}

mod captures;
mod costs;
mod programs;
mod survey;

pub(crate) use programs::{Bsp, Noise, Style, bsp};
