//! The arrival of messages at the other end.

use std::collections::BTreeSet;

use ahash::AHashMap;

use super::Message;
use crate::run::{Node, Packet, Run};

/// Number of messages in each direction that are searched, from the one that was found last. Segments
/// come nearly in order.
const NEAR: usize = 64;

/// Finds the first and last segment of each message in the receiver's capture, by sequence number.
pub(super) fn add(run: &Run, messages: &mut [Message]) {
    // With the place of the message that was found last.
    let mut by_direction: AHashMap<(u32, Node, Node), (usize, Vec<&mut Message>)> = AHashMap::new();
    for message in messages.iter_mut() {
        if run.has_both_ends(message.src, message.dst) {
            let key = (message.flow, message.src, message.dst);
            by_direction.entry(key).or_default().1.push(message);
        }
    }
    // Only these receivers; the clients of a server have no capture.
    let receivers: BTreeSet<Node> = by_direction.keys().map(|&(.., to)| to).collect();
    for receiver in receivers {
        for packet in run.stream(receiver) {
            if packet.dst != receiver || !packet.is_data() {
                continue;
            }
            let key = (packet.flow, packet.src, packet.dst);
            if let Some((at, list)) = by_direction.get_mut(&key) {
                arrived(packet, at, list);
            }
        }
    }
    for message in messages {
        // Only a part was seen: the interval ends between the two captures.
        if message.received_ns.1 < message.received_ns.0 {
            message.received_ns.1 = message.received_ns.0;
        }
    }
}

fn arrived(packet: &Packet, at: &mut usize, list: &mut [&mut Message]) {
    let offset = |message: &Message| u64::from(packet.seq.wrapping_sub(message.seq));
    let holds = |i: &usize| offset(list[*i]) < list[*i].bytes;
    // The search begins at the message before.
    let near = (*at..list.len()).take(NEAR).find(holds);
    let Some(first) = near.or_else(|| (0..*at).rev().take(NEAR).find(holds)) else {
        return;
    };
    *at = first;
    if packet.seq == list[first].seq {
        list[first].received_ns.0 = packet.t_ns;
    }
    // A segment may contain several messages, and ends and begins of messages.
    let mut left = u64::from(packet.payload) + offset(list[first]);
    for i in first..list.len() {
        let message = &mut list[i];
        if i > first {
            message.received_ns.0 = packet.t_ns;
        }
        if left < message.bytes {
            return;
        }
        message.received_ns.1 = packet.t_ns;
        left -= message.bytes;
        let end = message.seq.wrapping_add(message.bytes as u32);
        if left == 0 || list.get(i + 1).is_none_or(|next| next.seq != end) {
            return;
        }
    }
}
