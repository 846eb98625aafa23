//! Messages that anybody may send: parsing any bytes does not panic, and its result keeps the invariants.
//! `fuzz/` calls these functions by libFuzzer, the tests here with inputs that proptest makes.

use crate::Key;
use crate::agent::session_key;
use crate::collector::{Collector, Rates};
use crate::wire;

/// Messages between agents and the collector: other bytes are refused, a message is parsed as it was built,
/// and nobody without the key changes anything.
pub fn messages(bytes: &[u8]) {
    let key = Key::new(b"nobody knows it");
    if let Some(sealed) = wire::parse(bytes) {
        let message = sealed.message.clone();
        assert!(sealed.verified(&key).is_none());
        let again = message.sealed(&key);
        assert!(again.len() <= wire::LONGEST);
        let again = wire::parse(&again).and_then(|sealed| sealed.verified(&key));
        assert_eq!(again, Some(message));
    }
    let mut collector = Collector::new(key, b"secret", Rates::default());
    assert_eq!(collector.receive(1, bytes), None);
    collector.tick(2);
    assert!(collector.is_empty() && collector.rows().is_empty());
}

/// Signed messages of any content: the collector's totals stay consistent.
pub fn signed_messages(bytes: &[u8]) {
    let key = Key::new(b"everybody has it");
    let mut collector = Collector::new(key.clone(), b"secret", Rates::default());
    let who = wire::Who {
        name: "n".into(),
        boot: "b".into(),
        incarnation: 1,
        nonce: [7; 16],
    };
    let hello = wire::Message::Hello { who: who.clone() }.sealed(&key);
    let welcome = collector.receive(1, &hello).unwrap_or_default();
    let welcome = wire::parse(&welcome).and_then(|sealed| sealed.verified(&key));
    let Some(wire::Message::Welcome { answer, .. }) = welcome else {
        panic!("no welcome for an agent with the key");
    };
    let session = session_key(&key, &who, &answer);
    let (t1, sent) = (2, 0);
    let ask = wire::Message::Ask {
        who: who.clone(),
        t1,
        sent,
    };
    assert!(collector.receive(2, &ask.sealed(&session)).is_some());
    let mut rest = bytes;
    let mut now = 3_u64;
    while !rest.is_empty() {
        let mut number = || {
            let (taken, left) = rest.split_at(rest.len().min(8));
            rest = left;
            taken
                .iter()
                .fold(0, |sum, &byte| sum << 8 | u64::from(byte))
        };
        let kind = number();
        now = now.saturating_add(number() >> 8);
        let sample = wire::Sample {
            session: who.session(),
            number: number(),
            t_ns: number(),
            offset_ns: number() as i64,
            error_ns: number(),
            drift_ppb: number() as i32,
            period_ms: number() as u32,
            totals: vec![(kind as u8 % 8, number())],
        };
        let asks = wire::Message::Ask {
            who: who.clone(),
            t1: number(),
            sent: number(),
        };
        let message = match kind % 8 {
            0 => asks,
            1 => wire::Message::Final(sample),
            _ => wire::Message::Sample(sample),
        };
        let _ = collector.receive(now, &message.sealed(&session));
        collector.tick(now);
    }
    collector.finish();
    let mut last = vec![0; collector.len()];
    for row in collector.rows() {
        assert!(
            row.t_ns > last[row.node],
            "rows of a machine are in the order of time"
        );
        last[row.node] = row.t_ns;
    }
    for node in 0..collector.len() {
        let status = collector.status(node).unwrap_or_default();
        assert!((0.0..=1.0).contains(&status.confidence()), "{status:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        // Each case signs some dozen messages.
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn signed_messages_of_any_content(bytes in prop::collection::vec(
            prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(0x7f)], 0..600)) {
            signed_messages(&bytes);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn messages_of_any_bytes(kind in 0u8..9, mut bytes in prop::collection::vec(any::<u8>(), 0..530)) {
            messages(&bytes);
            // The begin of a valid message.
            let start = b"FTM1".iter().chain([&kind]);
            for (place, byte) in bytes.iter_mut().zip(start) {
                *place = *byte;
            }
            messages(&bytes);
        }
    }
}
