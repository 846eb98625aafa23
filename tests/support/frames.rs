//! Packets and captures made by hand.

/// An Ethernet frame around an IP packet.
pub(crate) fn ethernet(packet: &[u8]) -> Vec<u8> {
    let kind: [u8; 2] = match packet[0] >> 4 {
        4 => [8, 0],
        _ => [0x86, 0xdd],
    };
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &kind[..], packet].concat()
}

/// An IPv4 packet.
pub(crate) fn ipv4(src: [u8; 4], dst: [u8; 4], protocol: u8, body: &[u8]) -> Vec<u8> {
    let length = (20 + body.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    packet.extend(src);
    packet.extend(dst);
    packet.extend(body);
    packet
}

/// A TCP segment without options.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Segment {
    pub(crate) ports: (u16, u16),
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) payload: usize,
}

impl Segment {
    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.ports.0.to_be_bytes());
        bytes.extend(self.ports.1.to_be_bytes());
        bytes.extend(self.seq.to_be_bytes());
        bytes.extend(self.ack.to_be_bytes());
        bytes.extend([0x50, self.flags, 0x10, 0, 0, 0, 0, 0]);
        bytes.resize(20 + self.payload, 0);
        bytes
    }

    /// The Ethernet frame that contains the segment, from one address to another.
    pub(crate) fn frame(self, src: [u8; 4], dst: [u8; 4]) -> Vec<u8> {
        ethernet(&ipv4(src, dst, 6, &self.bytes()))
    }
}

/// An Ethernet capture in the classic format; each frame has its time in ns since 1970 and its bytes.
pub(crate) fn pcap(frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    for number in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 65535, 1] {
        file.extend(number.to_le_bytes());
    }
    for (t_ns, frame) in frames {
        let length = frame.len() as u32;
        let (seconds, ns) = (t_ns / 1_000_000_000, t_ns % 1_000_000_000);
        for number in [seconds as u32, ns as u32, length, length] {
            file.extend(number.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

/// A capture of two machines that send each other a message every 20 ms, `rounds` times.
#[allow(dead_code)] // Not every test that makes frames uses this.
pub(crate) fn talk(rounds: u32) -> Vec<u8> {
    let mut captured = Vec::new();
    for i in 0..rounds {
        let at = 1_700_000_000_000_000_000 + u64::from(i) * 20_000_000;
        let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let segment = |ports, payload, seq, ack| Segment {
            ports,
            seq,
            ack,
            flags: 24,
            payload,
        };
        let (sent, got) = (1 + 1000 * i, 1 + 100 * i);
        captured.push((at, segment((4000, 80), 1000, sent, got).frame(a, b)));
        captured.push((
            at + 300_000,
            segment((80, 4000), 100, got, sent + 1000).frame(b, a),
        ));
    }
    pcap(&captured)
}

/// A capture of four machines, each of which sends to the next, `rounds` times; one answers late.
#[allow(dead_code)] // Not every test that makes frames uses this.
pub(crate) fn ring(rounds: u32) -> Vec<u8> {
    let mut captured = Vec::new();
    let mut at = 1_700_000_000_000_000_000;
    for i in 0..rounds {
        let payload = if i % 10 == 0 { 1400 } else { 1000 };
        for host in 1..=4 {
            let (a, b) = ([10, 0, 0, host], [10, 0, 0, host % 4 + 1]);
            let (sent, got) = (1 + 1400 * i, 1 + 20 * i);
            let segment = Segment {
                ports: (4000, 80),
                seq: sent,
                ack: got,
                flags: 24,
                payload,
            };
            captured.push((at, segment.frame(a, b)));
            let answer = Segment {
                ports: (80, 4000),
                seq: got,
                ack: sent + payload as u32,
                flags: 24,
                payload: 20,
            };
            let late = if host == 3 { 900_000 } else { 0 };
            captured.push((at + 150_000 + late, answer.frame(b, a)));
            at += 2_500_000;
        }
    }
    pcap(&captured)
}
