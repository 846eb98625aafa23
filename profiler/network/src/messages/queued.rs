//! Messages that followed another one without a pause of the link. The first segment arrived as soon as
//! the bytes sent before left the link. The time before it is therefore a part of the message's
//! transfer, and no work of the sender.

use ahash::AHashMap;

use super::Message;
use crate::quantile;
use crate::run::{Mode, Node};

/// Least number of messages of several segments that show a link's time for a byte.
const FEWEST: usize = 5;
/// Factor by which a segment may take longer than the mean time of its bytes, since links send in
/// portions.
const SLACK: f64 = 1.5;

/// Sets the begin of such messages to the end of the message before. The messages must be in the order
/// of sending.
pub(super) fn begin_earlier(messages: &mut [Message]) {
    let mut streams: AHashMap<(u32, Node, Node), Vec<usize>> = AHashMap::new();
    for (at, message) in messages.iter().enumerate() {
        let key = (message.flow, message.src, message.dst);
        streams.entry(key).or_default().push(at);
    }
    for stream in streams.into_values() {
        let rates = stream
            .iter()
            .filter_map(|&at| messages[at].bandwidth(Mode::Default))
            .filter(|rate| *rate > 0.0);
        let rates: Vec<f64> = rates.collect();
        let Some(rate) = quantile::median(rates.iter().copied()).filter(|_| rates.len() >= FEWEST)
        else {
            continue;
        };
        for pair in stream.windows(2) {
            let (before, message) = (messages[pair[0]], &mut messages[pair[1]]);
            let alone_ns = message.first_bytes as f64 / rate * 1e9;
            let gaps = [
                message.sent_ns.0 - before.sent_ns.1,
                message.received_ns.0 - before.received_ns.1,
            ];
            let is_busy = |gap: &i64| *gap > 0 && *gap as f64 <= SLACK * alone_ns;
            if gaps.iter().all(is_busy) {
                let gap = gaps[0].min(gaps[1]);
                message.sent_ns.0 -= gap;
                message.received_ns.0 -= gap;
                message.first_bytes = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: i64 = 1000;

    /// Ten messages of three segments, 300 µs apart, each message `gap` after the one before.
    fn messages(gap: i64) -> Vec<Message> {
        let times = (0..10).map(|i| i * (600 * US + gap));
        let message = |t: i64| Message {
            sent_ns: (t, t + 600 * US),
            received_ns: (t + 50, t + 600 * US + 50),
            bytes: 4344,
            first_bytes: 1448,
            segments: 3,
            ..Message::default()
        };
        times.map(message).collect()
    }

    fn transfer(mut messages: Vec<Message>) -> (i64, f64) {
        begin_earlier(&mut messages);
        let last = messages.last().unwrap();
        let sum = messages.iter().map(Message::transfer_ns).sum();
        (sum, last.bandwidth(Mode::Default).unwrap())
    }

    #[test]
    fn a_link_that_never_rests_has_all_of_the_time() {
        let (sum, rate) = transfer(messages(300 * US));
        assert_eq!(sum, 10 * 600 * US + 9 * 300 * US);
        assert!((rate - 1448.0 / 300e-6).abs() < 1.0, "{rate}");
    }

    #[test]
    fn a_pause_is_none_of_the_link() {
        let (sum, _) = transfer(messages(2000 * US));
        assert_eq!(sum, 10 * 600 * US);
    }
}
