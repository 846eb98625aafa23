//! Passive round-trip times: an own segment to the first acknowledgement that covers it.

use std::collections::VecDeque;

use ahash::AHashMap;

use super::run::{ACK, FIN, Node, PSH, Packet, RST, Run, SYN};

/// A segment on its way: end of its payload, time, whether it was pushed, whether it is counted.
struct Sent {
    end: u32,
    t_ns: i64,
    is_pushed: bool,
    is_clean: bool,
}

/// Least round-trip time by ordered pair, ns: `[me][peer]`.
pub(super) type Table = Vec<Vec<Option<i64>>>;

/// All clean samples of a process in the order of time: peer, time of the acknowledgement, ns.
///
/// Clean: not of a repeated segment (Karn), and the acknowledgement was not held back: it covers
/// two segments or a pushed one, carries data, or answers a SYN.
pub fn samples(run: &Run, me: Node) -> Vec<(Node, i64, i64)> {
    let mut on_way: AHashMap<u32, VecDeque<Sent>> = AHashMap::new();
    let mut samples = Vec::new();
    for packet in run.stream(me) {
        if packet.src == packet.dst {
            continue;
        }
        if packet.src == me {
            if packet.payload > 0 || packet.flags & SYN != 0 {
                push(on_way.entry(packet.flow).or_default(), packet);
            }
        } else if packet.flags & ACK != 0
            && let Some(queue) = on_way.get_mut(&packet.flow)
        {
            let mut covered = 0;
            let mut newest: Option<Sent> = None;
            while let Some(sent) = queue.front() {
                if packet.ack.wrapping_sub(sent.end) as i32 >= 0 {
                    covered += 1;
                    newest = queue.pop_front();
                } else {
                    break;
                }
            }
            if let Some(sent) = newest
                && sent.is_clean
                && (covered >= 2 || sent.is_pushed || packet.payload > 0)
            {
                samples.push((packet.src, packet.t_ns, packet.t_ns - sent.t_ns));
            }
            // There may be a million connections, one after the other.
            if queue.is_empty() && packet.flags & (FIN | RST) != 0 {
                on_way.remove(&packet.flow);
            }
        }
    }
    samples
}

/// Adds an own segment that has sequence numbers.
fn push(queue: &mut VecDeque<Sent>, packet: &Packet) {
    if packet.is_again {
        for sent in queue.iter_mut() {
            if sent.end.wrapping_sub(packet.seq) as i32 > 0 {
                sent.is_clean = false;
            }
        }
        return;
    }
    if queue.len() < 4096 {
        queue.push_back(Sent {
            end: packet.end_seq(),
            t_ns: packet.t_ns,
            is_pushed: packet.flags & (PSH | SYN) != 0,
            is_clean: true,
        });
    }
}

/// Least clean round-trip time from `me` to `peer` over the whole run, ns. A minimum, for delayed
/// acknowledgements and busy hosts only ever add.
pub fn least_ns(run: &Run, me: Node, peer: Node) -> Option<i64> {
    let table = run.data.rtt.get_or_init(|| {
        let whole = run.whole();
        let nodes = run.nodes().len();
        let row = |node: Node| {
            let mut least = vec![None; nodes];
            for (peer, _, rtt) in samples(&whole, node) {
                let best: &mut Option<i64> = &mut least[usize::from(peer)];
                *best = Some(best.map_or(rtt, |b| b.min(rtt)));
            }
            least
        };
        run.all().map(row).collect()
    });
    table[usize::from(me)][usize::from(peer)]
}
