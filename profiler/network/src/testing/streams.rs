//! Runs from packets made by hand.

use std::collections::VecDeque;

use crate::run::{ACK, CaptureInput, Node, PSH, Packet, Run};

/// A pushed data packet; sequence numbers are set by [`run_of`].
pub fn data(t_ns: i64, src: Node, dst: Node, payload: u32) -> Packet {
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

/// A run whose hosts each saw all of their packets at the same instant. There is one connection per
/// pair.
pub fn run_of(nodes: usize, packets: &[Packet]) -> Run {
    delayed_run_of(nodes, packets, 0)
}

/// As [`run_of`], with packets that reach the other host's capture after `delay_ns`.
pub fn delayed_run_of(nodes: usize, packets: &[Packet], delay_ns: i64) -> Run {
    let delayed: Vec<(Packet, i64)> = packets.iter().map(|packet| (*packet, delay_ns)).collect();
    run_with_delays(nodes, &delayed)
}

/// As [`run_of`], with a delay of each packet, ns. Acknowledgements have the least of all.
pub(super) fn run_with_delays(nodes: usize, packets: &[(Packet, i64)]) -> Run {
    let least_ns = packets.iter().map(|packet| packet.1).min().unwrap_or(0);
    let mut sent = vec![1u32; nodes * nodes];
    // For each direction the bytes that have come in, and those under way: time of arrival, and end.
    let mut received = sent.clone();
    let mut on_way = vec![VecDeque::new(); nodes * nodes];
    let mut captures = vec![CaptureInput::default(); nodes];
    for (node, capture) in captures.iter_mut().enumerate() {
        capture.name = format!("h{node}");
        capture.nodes = vec![node as Node];
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
