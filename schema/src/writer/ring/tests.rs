use std::sync::atomic::AtomicUsize;

use proptest::prelude::*;

use super::*;
use crate::{CaptureId, FlowId};

fn packet(t_ns: i64) -> Packet {
    Packet {
        t_ns,
        capture: CaptureId(1),
        flow: FlowId(2),
        payload_bytes: t_ns as u32,
        ..Packet::default()
    }
}

/// Takes what is there; the records, and the times of packets.
fn take(receiver: &mut Receiver) -> (Vec<Vec<u8>>, Vec<i64>) {
    let (mut records, mut times) = (Vec::new(), Vec::new());
    receiver.take(|message| match message {
        Message::Record(record) => records.push(record.to_vec()),
        Message::Packet(packet) => {
            assert_eq!(packet.payload_bytes, packet.t_ns as u32);
            times.push(packet.t_ns);
        }
        _ => {}
    });
    (records, times)
}

#[test]
fn threads_send_and_everything_arrives_whole_and_in_the_order_of_each() {
    const EACH: i64 = 50_000;
    let (ring, mut receiver) = Ring::new().unwrap();
    let running = AtomicUsize::new(3);
    let mut last = [-1; 3];
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (ring, running) = (&ring, &running);
            scope.spawn(move || {
                for i in 0..EACH {
                    ring.send_row(&packet(3 * i + thread), || {
                        std::thread::yield_now();
                        true
                    });
                }
                running.fetch_sub(1, Ordering::Release);
            });
        }
        loop {
            let is_last = running.load(Ordering::Acquire) == 0;
            for t_ns in take(&mut receiver).1 {
                let (thread, i) = ((t_ns % 3) as usize, t_ns / 3);
                assert_eq!(i, last[thread] + 1);
                last[thread] = i;
            }
            if is_last {
                break;
            }
        }
    });
    assert_eq!(last, [EACH - 1; 3]);
}

#[test]
fn a_message_longer_than_the_ring_arrives_in_parts() {
    let (ring, mut receiver) = Ring::new().unwrap();
    let long: Vec<u8> = (0..3 * CAPACITY).map(|i| (i % 251) as u8).collect();
    let mut came = Vec::new();
    ring.send_record(&long, || {
        came.extend(take(&mut receiver).0);
        true
    });
    came.extend(take(&mut receiver).0);
    assert!(came == [long], "{} messages", came.len());
}

#[test]
fn who_gives_up_waits_no_more() {
    let (ring, _receiver) = Ring::new().unwrap();
    let mut tries = 0;
    ring.send_record(&vec![1; 2 * CAPACITY], || {
        tries += 1;
        tries < 3
    });
    assert_eq!(tries, 3);
}

proptest! {
    /// Wherever the ends of the memory fall.
    #[test]
    fn messages_arrive_as_they_were_sent(
        lengths in prop::collection::vec(0_usize..200_000, 1..40)
    ) {
        let (ring, mut receiver) = Ring::new().unwrap();
        for (i, length) in lengths.into_iter().enumerate() {
            let record = vec![i as u8; length];
            ring.send_record(&record, || unreachable!("there is space"));
            ring.send_row(&packet(i as i64), || unreachable!("there is space"));
            prop_assert_eq!(take(&mut receiver), (vec![record], vec![i as i64]));
        }
    }
}
