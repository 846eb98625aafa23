use super::*;

fn full() -> Sample {
    Sample {
        session: [7; 8],
        number: MOST,
        t_ns: MOST,
        offset_ns: -(MOST as i64),
        error_ns: MOST,
        drift_ppb: i32::MIN,
        period_ms: u32::MAX,
        totals: (0..HostCounter::ALL.len() as u8)
            .map(|counter| (counter, u64::from(counter) << 40))
            .collect(),
    }
}

#[test]
fn all_counters_of_a_machine_fit_into_a_datagram() {
    let key = Key::new(b"key");
    let message = Message::Sample(full());
    let bytes = message.sealed(&key);
    assert!(bytes.len() <= LONGEST, "{}", bytes.len());
    assert_eq!(parse(&bytes).unwrap().verified(&key), Some(message));
}

/// An agent with the key cannot make the time accounting inconsistent.
#[test]
fn impossible_times_and_counts_are_no_message() {
    let key = Key::new(b"key");
    type Change = fn(&mut Sample);
    let changes: [Change; 4] = [
        |sample| sample.number = u64::MAX,
        |sample| sample.t_ns = MOST + 1,
        |sample| sample.offset_ns = i64::MIN,
        |sample| sample.error_ns = 1 << 63,
    ];
    for change in changes {
        let mut sample = full();
        change(&mut sample);
        assert!(parse(&Message::Final(sample).sealed(&key)).is_none());
    }
}

#[test]
fn every_kind_of_message_comes_back_and_no_changed_one_does() {
    let key = Key::new(b"key");
    let who = Who {
        name: "nöde".into(),
        boot: "b".into(),
        incarnation: 3,
        nonce: [9; 16],
    };
    let messages = [
        Message::Hello { who: who.clone() },
        Message::Welcome {
            nonce: [1; 16],
            answer: [2; 16],
        },
        Message::Ask {
            who,
            t1: 4,
            sent: 5,
        },
        Message::Answer {
            session: [3; 8],
            t1: 1,
            t2: 2,
            t3: 3,
            period_ms: 4,
            received: 5,
            counters: Counters::named(["cpu"]).unwrap(),
            stop: true,
        },
        Message::Final(full()),
        Message::Done {
            session: [3; 8],
            number: 8,
        },
    ];
    for message in messages {
        let bytes = message.sealed(&key);
        assert_eq!(parse(&bytes).unwrap().verified(&key), Some(message));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(
                parse(&changed)
                    .and_then(|sealed| sealed.verified(&key))
                    .is_none()
            );
            let cut = parse(&bytes[..at]).and_then(|sealed| sealed.verified(&key));
            assert!(cut.is_none());
        }
        assert!(
            parse(&bytes)
                .unwrap()
                .verified(&Key::new(b"other"))
                .is_none()
        );
    }
}

#[test]
fn what_is_too_long_is_no_message() {
    let mut bytes = Message::Sample(full()).sealed(&Key::new(b"key"));
    bytes.resize(600, 0);
    assert!(parse(&bytes).is_none());
}
