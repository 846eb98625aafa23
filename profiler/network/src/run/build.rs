//! Builds one stream per process from captures in any order.

use std::sync::OnceLock;

use ahash::AHashMap;

use super::data::{Capture, Data, Stream};
use super::nearest::nearest;
use super::packet::{Node, Packet, SYN};

/// A packet from a reader.
pub type PacketInput = Packet;

/// A capture from a reader.
#[derive(Clone, Debug, Default)]
pub struct CaptureInput {
    /// Machine and interface or file.
    pub name: String,
    /// The processes next to the capture, if the trace has them; else their packets show it.
    pub nodes: Vec<Node>,
    /// Packets that the kernel dropped; `None` if not known.
    pub dropped: Option<i64>,
    /// Packets, nearly in the order of time.
    pub packets: Vec<Packet>,
}

pub(super) fn data(nodes: Vec<String>, mut captures: Vec<CaptureInput>) -> Data {
    let given = captures
        .iter_mut()
        .map(|capture| std::mem::take(&mut capture.nodes));
    let given: Vec<Vec<Node>> = given.collect();
    let mut captures: Vec<Capture> = captures
        .into_iter()
        .map(|capture| Capture {
            name: capture.name,
            packets: capture.packets,
            dropped: capture.dropped,
        })
        .collect();
    for capture in &mut captures {
        // A file is only nearly sorted, since two CPUs filled one ring.
        capture.packets.sort_by_key(|packet| packet.t_ns);
        mark_repetitions(&mut capture.packets);
    }
    let nearest = nearest(nodes.len(), &captures, &given);
    let is_own = nearest.iter().map(|(_, is_own)| *is_own).collect();
    let mut streams: Vec<Stream> = nearest
        .iter()
        .map(|&(capture, _)| Stream {
            capture,
            packets: Vec::new(),
        })
        .collect();
    for (at, capture) in captures.iter().enumerate() {
        for (index, packet) in capture.packets.iter().enumerate() {
            for node in [packet.src, packet.dst] {
                if let Some(stream) = streams.get_mut(usize::from(node))
                    && stream.capture == at
                    && stream.packets.last() != Some(&(index as u32))
                {
                    stream.packets.push(index as u32);
                }
            }
        }
    }
    let used = |at: usize| {
        streams
            .iter()
            .any(|s| s.capture == at && !s.packets.is_empty())
    };
    let times = captures.iter().enumerate().filter(|(at, _)| used(*at));
    let spans = times.filter_map(|(_, capture)| {
        let first = capture.packets.first()?.t_ns;
        Some((first, capture.packets.last()?.t_ns))
    });
    let (first_ns, last_ns) = spans
        .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
        .unwrap_or((0, -1));
    Data {
        nodes,
        captures,
        streams,
        is_own,
        first_ns,
        last_ns,
        clock_error_ns: None,
        left_out: Vec::new(),
        other_flows: Vec::new(),
        without_header: 0,
        accounting: Vec::new(),
        rtt: OnceLock::new(),
    }
}

/// Bytes of a direction that were seen: all before `next` except the holes.
struct Seen {
    next: u32,
    holes: Vec<(u32, u32)>,
}

/// Most holes; older ones are given up. They come from packets that the capture lost, and the list must
/// not grow.
const MOST_HOLES: usize = 64;

impl Seen {
    /// True if all of `[seq, end)` was seen before. The arithmetic is modulo 2^32.
    fn repeats(&mut self, seq: u32, end: u32) -> bool {
        let ahead = |a: u32, b: u32| a.wrapping_sub(b) as i32;
        if ahead(end, self.next) > 0 {
            if ahead(seq, self.next) > 0 {
                if self.holes.len() == MOST_HOLES {
                    self.holes.remove(0);
                }
                self.holes.push((self.next, seq));
            }
            self.next = end;
            return false;
        }
        let hit = |&(from, to): &(u32, u32)| ahead(end, from) > 0 && ahead(to, seq) > 0;
        let Some(at) = self.holes.iter().position(hit) else {
            return true;
        };
        let (from, to) = self.holes.swap_remove(at);
        if ahead(seq, from) > 0 {
            self.holes.push((from, seq));
        }
        if ahead(to, end) > 0 {
            self.holes.push((end, to));
        }
        false
    }
}

fn mark_repetitions(packets: &mut [Packet]) {
    let mut seen: AHashMap<(u32, Node, Node), Seen> = AHashMap::new();
    for packet in packets {
        let key = (packet.flow, packet.src, packet.dst);
        let end = packet.end_seq();
        if packet.flags & SYN != 0 {
            // A new connection on old ports has new sequence numbers.
            let holes = Vec::new();
            seen.insert(key, Seen { next: end, holes });
            continue;
        }
        if packet.payload == 0 {
            continue;
        }
        let before = seen.entry(key).or_insert_with(|| Seen {
            next: packet.seq,
            holes: Vec::new(),
        });
        packet.is_again = before.repeats(packet.seq, packet.seq.wrapping_add(packet.payload));
    }
}
