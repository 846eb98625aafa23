//! Capture files and frames of any bytes: reading them does not panic, and the result keeps the invariants.
//! `fuzz/` calls these functions by libFuzzer, the tests here with inputs that proptest makes.

use std::io::Cursor;

use flowtrace_schema::{CaptureId, CaptureRecord, CaptureSource, HostId, Recorder, Way};

use super::files::{Capture, Event};
use super::packet::{self, Link};
use super::sink::{Incoming, Place, Sink};

/// Link layers of fuzzed interfaces.
const LINKS: [u16; 9] = [0, 1, 12, 101, 108, 113, 228, 276, 147];

/// The classic format: any bytes as they are, and behind a valid header.
pub fn pcap(bytes: &[u8]) {
    file(bytes);
    let [variant, records @ ..] = bytes else {
        return;
    };
    let magic = [0xa1b2_c3d4_u32, 0xa1b2_3c4d][usize::from(variant & 1)];
    let is_big = variant & 2 != 0;
    let link = LINKS[usize::from(variant >> 2) % LINKS.len()];
    let mut whole = Vec::new();
    for number in [magic, 0x0004_0002, 0, 0, 0, link.into()] {
        whole.extend(if is_big {
            number.to_be_bytes()
        } else {
            number.to_le_bytes()
        });
    }
    whole.extend(records);
    let frames = file(&whole);
    assert!(frames <= records.len() / 16);
}

/// The format of Wireshark: any bytes as they are, and behind a valid section and interface.
pub fn pcapng(bytes: &[u8]) {
    file(bytes);
    let [variant, blocks @ ..] = bytes else {
        return;
    };
    let is_big = variant & 1 != 0;
    let link = LINKS[usize::from(variant >> 1) % LINKS.len()];
    let section = [0x0a0d_0d0a_u32, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28];
    let mut whole = Vec::new();
    let mut number = |number: u32| {
        whole.extend(if is_big {
            number.to_be_bytes()
        } else {
            number.to_le_bytes()
        });
    };
    section.into_iter().for_each(&mut number);
    let link = u32::from(link);
    let link = if is_big { link << 16 } else { link };
    [1, 20, link, 0, 20].into_iter().for_each(&mut number);
    whole.extend(blocks);
    let frames = file(&whole);
    assert!(frames <= blocks.len() / 12);
}

/// A frame of each kind of link, as it is captured and as a part of a larger one.
pub fn packets(bytes: &[u8]) {
    for link in LINKS.into_iter().filter_map(Link::of) {
        let whole = bytes.len() as u32;
        for wire_bytes in [whole, whole.saturating_mul(3), u32::MAX] {
            if let Ok(parsed) = packet::parse(link, bytes, wire_bytes) {
                assert!(parsed.payload_bytes <= wire_bytes);
                assert!(parsed.tcp.is_none() || parsed.protocol == 6);
            }
        }
    }
}

/// Reads a file to its end; returns the number of its frames.
fn file(bytes: &[u8]) -> usize {
    let Ok(mut capture) = Capture::read(Box::new(Cursor::new(bytes.to_vec()))) else {
        return 0;
    };
    // Rows of the frames take memory: the sink is made when there is a frame.
    let mut links = Vec::new();
    let mut sinks: Option<Sinks> = None;
    let (mut frames, mut events) = (0, 0);
    loop {
        events += 1;
        // Each event takes bytes of the file, except the header's interface and the end.
        assert!(events <= bytes.len() / 4 + 2);
        match capture.next() {
            Ok(Event::Interface(interface)) => {
                assert!(interface.name.is_none_or(|name| name.len() <= 3 * 255));
                links.push(interface.link_type);
            }
            Ok(Event::Frame(frame)) => {
                frames += 1;
                let content = capture.bytes(&frame);
                assert!(content.len() <= frame.wire_bytes as usize);
                let sinks = sinks.get_or_insert_with(Sinks::new);
                for link in links.iter().skip(sinks.places.len()) {
                    sinks.place(*link);
                }
                sinks.frame(frame.interface, content, frame.wire_bytes, frame.way);
            }
            Ok(Event::Statistics(interface, _)) => assert!(interface < links.len()),
            Ok(Event::Broken) => {}
            Ok(Event::End) | Err(_) => break,
        }
    }
    if let Some(sinks) = sinks {
        sinks.finish();
    }
    frames
}

/// Reads a file to rows that are dropped.
struct Sinks {
    sink: Sink,
    places: Vec<Place>,
}

impl Sinks {
    fn new() -> Self {
        Sinks {
            sink: Sink::new(&Recorder::nowhere()),
            places: Vec::new(),
        }
    }

    fn place(&mut self, link_type: u16) {
        let number = self.places.len();
        let record = CaptureRecord {
            id: CaptureId(number as u32 + 1),
            host: HostId(1),
            interface: String::new(),
            source: CaptureSource::File,
            file: None,
            link_type: Some(link_type),
            namespace: None,
            snap_length: None,
            from_ns: None,
        };
        self.places.push(self.sink.begin(record, 1));
    }

    fn frame(&mut self, place: usize, bytes: &[u8], wire_bytes: u32, way: Way) {
        let incoming = Incoming {
            t_ns: 0,
            bytes,
            wire_bytes,
            way,
            marks: 0,
        };
        self.sink.frame(&mut self.places[place], incoming);
    }

    fn finish(self) {
        let packets = self.sink.packets();
        let read: u64 = self.places.iter().map(|p| p.frames - p.ignored).sum();
        assert_eq!(packets, read);
        assert!(u64::from(self.sink.flows.count()) <= packets);
        self.sink.finish(self.places.iter());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Records of a pcap file behind its header, nearly valid.
    fn records() -> impl Strategy<Value = Vec<u8>> {
        let record = (0u32..80, -2i32..3, prop::sample::select(FRAMES));
        (any::<u8>(), prop::collection::vec(record, 0..5)).prop_map(|(variant, records)| {
            let mut bytes = vec![variant];
            for (length, more, frame) in records {
                let claimed = length.saturating_add_signed(more);
                for number in [0, 0, claimed, claimed.wrapping_mul(2)] {
                    bytes.extend(match variant & 2 {
                        0 => number.to_le_bytes(),
                        _ => number.to_be_bytes(),
                    });
                }
                bytes.extend(frame.iter().cycle().take(length as usize));
            }
            bytes
        })
    }

    /// Blocks of a pcapng file behind its first interface, nearly valid.
    fn blocks() -> impl Strategy<Value = Vec<u8>> {
        let block = (0u32..8, 0u32..24, -1i32..2, prop::sample::select(FRAMES));
        (any::<u8>(), prop::collection::vec(block, 0..6)).prop_map(|(variant, blocks)| {
            let mut bytes = vec![variant];
            for (kind, words, more, frame) in blocks {
                let length = 12 + words * 4;
                let mut number = |number: u32| {
                    bytes.extend(match variant & 1 {
                        0 => number.to_le_bytes(),
                        _ => number.to_be_bytes(),
                    });
                };
                number(kind);
                number(length);
                let mut body: Vec<u32> = vec![0, 0, 7, words * 4, words * 4, 2 << 16 | 4, 1];
                body.extend(
                    frame
                        .chunks_exact(4)
                        .map(|b| u32::from_be_bytes(b.try_into().unwrap())),
                );
                body.resize(words as usize, 0);
                body.into_iter().for_each(&mut number);
                number(length.saturating_add_signed(more));
            }
            bytes
        })
    }

    /// Frames from which the damaged ones are made: TCP behind a tag, UDP behind headers of IPv6.
    const FRAMES: &[&[u8]] = &[
        &[
            2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0, 7, 8, 0, 0x45, 0, 0, 64, 0, 0, 0x40, 0,
            64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 80, 0, 81, 0, 0, 0, 1, 0, 0, 0, 0, 0xb0, 2,
            0xff, 0xff, 0, 0, 0, 0, 2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 7,
            0, 0, 0, 0,
        ],
        &[
            2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 36, 0, 64, 0xfe,
            0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            0, 0, 0, 0, 2, 44, 0, 1, 4, 0, 0, 0, 0, 60, 0, 0, 1, 0, 0, 0, 9, 17, 0, 1, 4, 0, 0, 0,
            0, 0, 53, 0, 54, 0, 12, 0, 0, 1, 2, 3, 4,
        ],
        &[
            0x45, 0, 0, 28, 0, 0, 0x20, 0, 64, 1, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1, 8, 0, 0, 0, 0,
            1, 0, 2,
        ],
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn any_bytes_as_captures(bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..500),
            records(),
            blocks(),
        ]) {
            pcap(&bytes);
            pcapng(&bytes);
        }

        #[test]
        fn spoilt_frames(mut bytes in prop::sample::select(FRAMES).prop_map(<[u8]>::to_vec),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
            end in any::<prop::sample::Index>(),
        ) {
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            packets(&bytes);
            packets(&bytes[..end.index(bytes.len() + 1)]);
        }
    }
}
