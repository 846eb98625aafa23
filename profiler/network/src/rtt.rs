//! Passive round-trip times, from a segment to the first acknowledgement that covers it.

use std::collections::VecDeque;

use ahash::AHashMap;

use super::run::{ACK, Data, FIN, Node, PSH, Packet, RST, RoundTrips, Run, SYN};

/// A segment under way: end of its payload, time, true if it was pushed, true if it counts.
struct Sent {
    end: u32,
    t_ns: i64,
    is_pushed: bool,
    is_clean: bool,
}

/// Segments under way in a capture, by connection and sender.
type OnWay = AHashMap<(u32, Node), VecDeque<Sent>>;

/// Adds a segment that has sequence numbers.
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

/// The round-trip sample of an acknowledgement, ns, if it is clean. It must not be of a retransmitted
/// segment (Karn) and must not be delayed: it covers two segments or a pushed one, carries data, or
/// answers a SYN.
fn acknowledged(on_way: &mut OnWay, packet: &Packet) -> Option<i64> {
    let key = (packet.flow, packet.dst);
    let queue = on_way.get_mut(&key)?;
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
    // Queues are removed at their end, for there may be a million connections, one after the other.
    if queue.is_empty() && packet.flags & (FIN | RST) != 0 {
        on_way.remove(&key);
    }
    let sent = newest.filter(|sent| sent.is_clean)?;
    let is_prompt = covered >= 2 || sent.is_pushed || packet.payload > 0;
    is_prompt.then_some(packet.t_ns - sent.t_ns)
}

/// The least sample of each pair of processes, from the capture nearest to the first.
fn table(data: &Data) -> RoundTrips {
    let nodes = data.nodes.len();
    let mut least: RoundTrips = vec![vec![None; nodes]; nodes];
    for (at, capture) in data.captures.iter().enumerate() {
        let is_nearest = |node: Node| data.streams[usize::from(node)].capture == at;
        let mut on_way = OnWay::new();
        for packet in capture.packets.iter().filter(|p| p.src != p.dst) {
            let (src, dst) = (packet.src, packet.dst);
            if (packet.payload > 0 || packet.flags & SYN != 0) && is_nearest(src) {
                push(on_way.entry((packet.flow, src)).or_default(), packet);
            }
            if packet.flags & ACK != 0
                && is_nearest(dst)
                && let Some(rtt) = acknowledged(&mut on_way, packet)
            {
                let best = &mut least[usize::from(dst)][usize::from(src)];
                *best = Some(best.map_or(rtt, |b| b.min(rtt)));
            }
        }
    }
    least
}

/// Least clean round-trip time from `me` to `peer` over the whole run, ns. The minimum is taken, since
/// delayed acknowledgements and busy hosts can only add time.
pub fn least_ns(run: &Run, me: Node, peer: Node) -> Option<i64> {
    let table = run.data.rtt.get_or_init(|| table(&run.data));
    table[usize::from(me)][usize::from(peer)]
}
