//! Frames of many kinds, put together byte by byte.

/// Packets of IPv4 and IPv6 between two hosts, of each transport, in their order.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    packets: Vec<Vec<u8>>,
}

pub(crate) const A4: [u8; 4] = [10, 1, 0, 1];
pub(crate) const B4: [u8; 4] = [10, 1, 0, 2];
pub(crate) const A6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
pub(crate) const B6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

impl Traffic {
    pub(crate) fn packets(self) -> Vec<Vec<u8>> {
        self.packets
    }

    pub(crate) fn add(mut self, packet: Vec<u8>) -> Self {
        self.packets.push(packet);
        self
    }

    /// A connection with options, scaled windows, data both ways, a gap and its repetition.
    pub(crate) fn connection(self, sport: u16, ip: impl Fn(bool, u8, &[u8]) -> Vec<u8>) -> Self {
        let syn = [
            2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7,
        ];
        let answer = [
            2, 4, 5, 0x78, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 1, 1, 3, 3, 9,
        ];
        let stamp = |value: u8, echo: u8| [1, 1, 8, 10, 0, 0, 0, value, 0, 0, 0, echo];
        let mut selective = stamp(12, 3).to_vec();
        selective.extend([1, 1, 5, 10, 0, 0, 8, 0, 0, 0, 16, 0]);
        let mut this = self;
        // Sequence numbers wrap at 2^32.
        let (near, far) = (0xffff_ff00_u32, 0x0001_0000_u32);
        for (is_back, seq, ack, flags, options, payload) in [
            (false, near, 0, 0x02, &syn[..], 0),
            (true, far, near.wrapping_add(1), 0x12, &answer, 0),
            (false, near.wrapping_add(1), far + 1, 0x10, &stamp(2, 9), 0),
            (
                false,
                near.wrapping_add(1),
                far + 1,
                0x18,
                &stamp(2, 9),
                700,
            ),
            (
                true,
                far + 1,
                near.wrapping_add(701),
                0x10,
                &stamp(10, 2),
                0,
            ),
            (
                false,
                near.wrapping_add(1401),
                far + 1,
                0x18,
                &stamp(3, 10),
                700,
            ),
            (true, far + 1, near.wrapping_add(701), 0x10, &selective, 0),
            (
                false,
                near.wrapping_add(701),
                far + 1,
                0x18,
                &stamp(4, 12),
                700,
            ),
            (
                true,
                far + 1,
                near.wrapping_add(2101),
                0x58,
                &stamp(13, 4),
                33,
            ),
            (
                false,
                near.wrapping_add(2101),
                far + 34,
                0xb0,
                &stamp(5, 13),
                1,
            ),
            (
                true,
                far + 34,
                near.wrapping_add(2102),
                0x11,
                &stamp(14, 5),
                0,
            ),
            (
                false,
                near.wrapping_add(2102),
                far + 35,
                0x11,
                &stamp(6, 14),
                0,
            ),
            (true, far + 35, near.wrapping_add(2103), 0x14, &[], 0),
        ] {
            let ports = if is_back { (80, sport) } else { (sport, 80) };
            let segment = tcp(ports, seq, ack, flags, options, payload);
            this = this.add(ip(is_back, 6, &segment));
        }
        this
    }
}

pub(crate) fn tcp(
    ports: (u16, u16),
    seq: u32,
    ack: u32,
    flags: u8,
    options: &[u8],
    payload: usize,
) -> Vec<u8> {
    let mut bytes = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    bytes.extend(seq.to_be_bytes());
    bytes.extend(ack.to_be_bytes());
    bytes.extend([
        ((20 + options.len()) / 4 * 16) as u8,
        flags,
        0x10,
        7,
        0,
        0,
        0,
        0,
    ]);
    bytes.extend(options);
    bytes.resize(bytes.len() + payload, b'x');
    bytes
}

pub(crate) fn udp(ports: (u16, u16), payload: usize) -> Vec<u8> {
    let mut bytes = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    bytes.extend(((8 + payload) as u16).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.resize(8 + payload, b'u');
    bytes
}

/// An echo request, or an error that carries `inner`.
pub(crate) fn icmp(kind: u8, inner: &[u8]) -> Vec<u8> {
    [&[kind, 0, 0, 0, 0, 1, 0, 2], inner].concat()
}

/// An IPv4 packet with options, and the flags and offset of a fragment.
pub(crate) fn ipv4_with(
    is_back: bool,
    protocol: u8,
    body: &[u8],
    fragment: u16,
    options: &[u8],
) -> Vec<u8> {
    let header = 20 + options.len();
    let mut packet = vec![0x40 | (header / 4) as u8, 0];
    packet.extend(((header + body.len()) as u16).to_be_bytes());
    packet.extend([0, 7]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    let (src, dst) = if is_back { (B4, A4) } else { (A4, B4) };
    packet.extend(src);
    packet.extend(dst);
    packet.extend(options);
    packet.extend(body);
    packet
}

pub(crate) fn ipv4(is_back: bool, protocol: u8, body: &[u8]) -> Vec<u8> {
    ipv4_with(is_back, protocol, body, 0x4000, &[])
}

/// An IPv6 packet after extension headers: each is its number and the bytes after its "next header" field.
pub(crate) fn ipv6_with(
    is_back: bool,
    protocol: u8,
    body: &[u8],
    headers: &[(u8, &[u8])],
) -> Vec<u8> {
    let length: usize = headers.iter().map(|(_, bytes)| bytes.len() + 1).sum();
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(((length + body.len()) as u16).to_be_bytes());
    packet.extend([headers.first().map_or(protocol, |header| header.0), 64]);
    let (src, dst) = if is_back { (B6, A6) } else { (A6, B6) };
    packet.extend(src);
    packet.extend(dst);
    for (at, (_, bytes)) in headers.iter().enumerate() {
        packet.push(headers.get(at + 1).map_or(protocol, |header| header.0));
        packet.extend(*bytes);
    }
    packet.extend(body);
    packet
}

pub(crate) fn ipv6(is_back: bool, protocol: u8, body: &[u8]) -> Vec<u8> {
    ipv6_with(is_back, protocol, body, &[])
}

/// An Ethernet frame around a packet, with tags.
pub(crate) fn ethernet(packet: &[u8], tags: &[[u8; 4]]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(tags.as_flattened());
    frame.extend(ether_type(packet));
    frame.extend(packet);
    // Shorter frames are padded on the wire.
    frame.resize(frame.len().max(60), 0);
    frame
}

pub(crate) fn ether_type(packet: &[u8]) -> [u8; 2] {
    match packet[0] >> 4 {
        4 => [0x08, 0x00],
        _ => [0x86, 0xdd],
    }
}
