//! Segments that the sender's kernel held back until the one before was acknowledged.
//!
//! By Nagle's algorithm (RFC 896) a small segment waits while another one is not acknowledged. The receiver, which
//! waits for that segment before it answers, delays its acknowledgement in the hope of sending it with the answer
//! (RFC 1122, 4.2.3.2), on Linux by 40 ms and more. The packets show it plainly: a segment, an acknowledgement
//! alone a delay later, and right behind it the next segment.

use ahash::AHashMap;

use super::run::{Node, Run};

/// Least and largest delay of an acknowledgement, ns.
const DELAYED: std::ops::RangeInclusive<i64> = 38_000_000..=250_000_000;
/// Longest time from the acknowledgement to a segment that waited for it, ns. The kernel sends it at once.
const AT_ONCE_NS: i64 = 200_000;
/// Least number of such segments between two processes, so that no chance makes them.
const LEAST: u64 = 8;

/// Segments from one process to another that were held back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// Sender.
    pub src: Node,
    /// Receiver.
    pub dst: Node,
    /// Number of segments.
    pub segments: u64,
    /// Sum of the times until their acknowledgements, s.
    pub seconds: f64,
}

/// The two processes with the longest such times; `None` if there are no such segments.
pub fn longest(run: &Run) -> Option<Held> {
    let of = |me| of_sender(run, me).into_iter();
    let all = run.all().flat_map(of);
    all.max_by(|a, b| a.seconds.total_cmp(&b.seconds))
}

fn of_sender(run: &Run, me: Node) -> Vec<Held> {
    // By connection the newest own segment (time and end), and its acknowledgement.
    let mut newest: AHashMap<u32, (i64, u32, Option<i64>)> = AHashMap::new();
    let mut sums: AHashMap<Node, (u64, i64)> = AHashMap::new();
    for packet in run.stream(me).filter(|packet| packet.src != packet.dst) {
        let is_data = packet.payload > 0;
        if packet.src == me && is_data {
            let end = packet.end_seq();
            let before = newest.insert(packet.flow, (packet.t_ns, end, None));
            if let Some((sent_ns, _, Some(acked_ns))) = before
                && packet.t_ns - acked_ns <= AT_ONCE_NS
                && DELAYED.contains(&(acked_ns - sent_ns))
            {
                let sum = sums.entry(packet.dst).or_default();
                *sum = (sum.0 + 1, sum.1 + acked_ns - sent_ns);
            }
        } else if packet.src != me && is_data {
            newest.remove(&packet.flow);
        } else if packet.src != me
            && let Some((_, end, acked)) = newest.get_mut(&packet.flow)
            && packet.ack == *end
        {
            acked.get_or_insert(packet.t_ns);
        }
    }
    let held = |(dst, (segments, ns)): (Node, (u64, i64))| Held {
        src: me,
        dst,
        segments,
        seconds: ns as f64 / 1e9,
    };
    let mut held: Vec<Held> = sums.into_iter().map(held).collect();
    held.retain(|held| held.segments >= LEAST);
    held.sort_by_key(|held| held.dst);
    held
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{ACK, CaptureInput, Packet};

    /// A client asks, a server answers after 20 ms in two segments. The second one waits for the delayed
    /// acknowledgement of the first, or not.
    fn answers(is_held: bool) -> Run {
        let mut packets = Vec::new();
        let (mut t_ns, mut asked, mut answered) = (0, 1, 1);
        let mut put = |t_ns, src: Node, payload, asked, answered| {
            let (seq, ack) = if src == 0 {
                (asked, answered)
            } else {
                (answered, asked)
            };
            packets.push(Packet {
                t_ns,
                seq,
                ack,
                payload,
                src,
                dst: 1 - src,
                flags: ACK,
                ..Packet::default()
            });
        };
        for _ in 0..60 {
            put(t_ns, 0, 67, asked, answered);
            asked += 67;
            t_ns += 20_000_000;
            put(t_ns, 1, 114, asked, answered);
            answered += 114;
            if is_held {
                t_ns += 43_000_000;
                put(t_ns, 0, 0, asked, answered);
            }
            t_ns += 15_000;
            put(t_ns, 1, 1000, asked, answered);
            answered += 1000;
            t_ns += 200_000;
        }
        let capture = CaptureInput {
            packets,
            ..CaptureInput::default()
        };
        Run::new(vec!["client".into(), "server".into()], vec![capture])
    }

    #[test]
    fn a_second_write_that_waits_for_an_acknowledgement_is_found() {
        let run = answers(true);
        let held = longest(&run).unwrap();
        assert_eq!((held.src, held.dst, held.segments), (1, 0, 60));
        assert!((held.seconds - 60.0 * 0.043).abs() < 1e-6, "{held:?}");
        let said = crate::pages::component(&run).lines.remove(0);
        assert!(
            said.starts_with("most out of balance: 60 segments of server"),
            "{said}"
        );
        assert_eq!(longest(&answers(false)), None);
    }
}
