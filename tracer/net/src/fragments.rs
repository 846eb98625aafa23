//! The ports of later fragments of a packet: only its first fragment has them.
//!
//! A later fragment stays without ports if it comes before the first one, or if the first was not captured.

use std::collections::{HashMap, VecDeque};
use std::net::Ipv6Addr;

use flowtrace_schema::CaptureId;

use super::packet::Parsed;

/// Packets whose ports are kept at once.
const MOST: usize = 4096;
/// Time after its first fragment in which a packet can be put together, as in Linux (`ipfrag_time`). Later
/// its number is used again.
const KEPT_NS: i64 = 30_000_000_000;

/// A packet in fragments, as one capture sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    capture: CaptureId,
    src: Ipv6Addr,
    dst: Ipv6Addr,
    protocol: u8,
    number: u32,
}

/// The ports of the packets whose first fragments came last.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    /// With the time of the first fragment. The hash has a random key, for captures may be made to collide.
    ports: HashMap<Key, (i64, (u16, u16)), ahash::RandomState>,
    /// Keys of `ports`, the oldest first.
    order: VecDeque<Key>,
}

impl Fragments {
    /// Keeps the ports of a first fragment, and gives a later one those of its packet.
    pub(super) fn complete(&mut self, parsed: &mut Parsed, capture: CaptureId, t_ns: i64) {
        let Some(number) = parsed.packet_number else {
            return;
        };
        let key = Key {
            capture,
            src: parsed.src,
            dst: parsed.dst,
            protocol: parsed.protocol,
            number,
        };
        if parsed.is_later() {
            let first = self.ports.get(&key);
            let first = first.filter(|(at, _)| t_ns.abs_diff(*at) <= KEPT_NS.unsigned_abs());
            parsed.ports = first.map(|&(_, ports)| ports);
        } else if let Some(ports) = parsed.ports
            && self.ports.insert(key, (t_ns, ports)).is_none()
        {
            self.order.push_back(key);
            if self.order.len() > MOST
                && let Some(oldest) = self.order.pop_front()
            {
                self.ports.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{self, Link};

    const CAPTURE: CaptureId = CaptureId(1);

    /// A fragment of packet `number` from 10.0.0.1 to 10.0.0.2, `offset` in units of 8 bytes; the first has ports `port` and 53.
    fn fragment(number: u16, offset: u16, port: u16) -> Parsed {
        let mut bytes = vec![0x45, 0, 0, 28];
        bytes.extend(number.to_be_bytes());
        bytes.extend((offset | 0x2000).to_be_bytes());
        bytes.extend([64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend(port.to_be_bytes());
        bytes.extend([0, 53, 0, 8, 0, 0]);
        packet::parse(Link::of(101).unwrap(), &bytes, 28).unwrap()
    }

    fn ports(
        fragments: &mut Fragments,
        mut parsed: Parsed,
        capture: CaptureId,
        t_ns: i64,
    ) -> Option<u16> {
        fragments.complete(&mut parsed, capture, t_ns);
        parsed.ports.map(|(src, _)| src)
    }

    #[test]
    fn later_fragments_have_the_ports_of_the_first() {
        let mut all = Fragments::default();
        let mut of = |number, offset, port, t_ns| {
            ports(&mut all, fragment(number, offset, port), CAPTURE, t_ns)
        };
        assert_eq!(of(7, 185, 0, 0), None, "before the first one");
        assert_eq!(of(7, 0, 5000, 1), Some(5000));
        assert_eq!(of(8, 0, 5001, 2), Some(5001));
        assert_eq!(of(7, 185, 0, 3), Some(5000));
        assert_eq!(of(8, 185, 0, 4), Some(5001));
        assert_eq!(of(9, 185, 0, 5), None, "of another packet");
        assert_eq!(of(7, 0, 6000, 6), Some(6000), "the number is used again");
        assert_eq!(of(7, 370, 0, 7), Some(6000));
        assert_eq!(of(7, 370, 0, 8 + KEPT_NS), None, "much later");
        let other = fragment(8, 185, 0);
        assert_eq!(ports(&mut all, other, CaptureId(2), 5), None, "elsewhere");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut all = Fragments::default();
        for number in 0..=MOST as u16 {
            ports(&mut all, fragment(number, 0, 5000), CAPTURE, 0);
        }
        assert_eq!((all.ports.len(), all.order.len()), (MOST, MOST));
        assert_eq!(ports(&mut all, fragment(0, 185, 0), CAPTURE, 0), None);
        assert_eq!(ports(&mut all, fragment(1, 185, 0), CAPTURE, 0), Some(5000));
    }
}
