//! The headers of a packet, made again from its row.

use std::net::IpAddr;

use flowtrace_schema::{FlowRow, PacketRow, marks};

const SYN: u8 = 2;

/// Appends the headers of a packet to `out`. The payload was never stored.
pub(super) fn make(out: &mut Vec<u8>, is_ethernet: bool, flow: &FlowRow, packet: &PacketRow) {
    let parse = |address: &str| address.parse::<IpAddr>().ok();
    let (Some(mut src), Some(mut dst)) = (parse(&flow.src), parse(&flow.dst)) else {
        return;
    };
    let (mut sport, mut dport) = (flow.sport, flow.dport);
    if packet.dir == 1 {
        std::mem::swap(&mut src, &mut dst);
        std::mem::swap(&mut sport, &mut dport);
    }
    if is_ethernet {
        // Made-up hardware addresses, which no device has.
        out.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        if packet.marks & marks::VLAN != 0 {
            out.extend([0x81, 0, 0, 0]);
        }
        let kind: u16 = if src.is_ipv4() { 0x0800 } else { 0x86dd };
        out.extend(kind.to_be_bytes());
    }
    let is_later = packet.marks & marks::LATER != 0;
    let ports = sport.zip(dport).filter(|_| !is_later);
    let ports = ports.map(|(s, d)| (s as u16, d as u16));
    let mut transport = Vec::with_capacity(60);
    let protocol = protocol(&flow.proto);
    if let Some(ports) = ports {
        transport.extend(ports.0.to_be_bytes());
        transport.extend(ports.1.to_be_bytes());
    }
    match (protocol, ports) {
        (6, Some(_)) => tcp(&mut transport, flow, packet),
        (17, Some(_)) => {
            let length = u16::try_from(packet.payload_bytes + 8).unwrap_or(0);
            transport.extend(length.to_be_bytes());
            transport.extend([0; 2]);
        }
        (132, Some(_)) => transport.extend([0; 8]),
        (1 | 58, _) if !is_later => transport.extend([0; 8]),
        _ => {}
    }
    let length = transport.len() + packet.payload_bytes as usize;
    let fragment = (packet.marks & marks::FRAGMENT != 0).then_some(!is_later);
    ip(out, (src, dst), protocol, length, fragment);
    out.extend(transport);
}

fn ip(
    out: &mut Vec<u8>,
    (src, dst): (IpAddr, IpAddr),
    protocol: u8,
    length: usize,
    fragment: Option<bool>,
) {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            // Longer packets have length 0, as in the kernel.
            let total = u16::try_from(length + 20).unwrap_or(0);
            out.extend([0x45, 0]);
            out.extend(total.to_be_bytes());
            let offset: u16 = match fragment {
                None => 0x4000,
                Some(true) => 0x2000,
                Some(false) => 1,
            };
            out.extend([0, 0]);
            out.extend(offset.to_be_bytes());
            out.extend([64, protocol, 0, 0]);
            out.extend(src.octets());
            out.extend(dst.octets());
        }
        (src, dst) => {
            let octets = |address| match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            };
            let extension = if fragment.is_some() { 8 } else { 0 };
            let payload = u16::try_from(length + extension).unwrap_or(0);
            out.extend([0x60, 0, 0, 0]);
            out.extend(payload.to_be_bytes());
            out.extend([if fragment.is_some() { 44 } else { protocol }, 64]);
            out.extend(octets(src));
            out.extend(octets(dst));
            if let Some(is_first) = fragment {
                let offset: u16 = if is_first { 1 } else { 8 };
                out.extend([protocol, 0]);
                out.extend(offset.to_be_bytes());
                out.extend([0; 4]);
            }
        }
    }
}

fn tcp(out: &mut Vec<u8>, flow: &FlowRow, packet: &PacketRow) {
    let flags = packet.flags.unwrap_or(0);
    let is_syn = flags & SYN != 0;
    let (scale, mss, sack) = match packet.dir {
        0 => (flow.src_wscale, flow.src_mss, flow.src_sack),
        _ => (flow.dst_wscale, flow.dst_mss, flow.dst_sack),
    };
    let mut options: Vec<u8> = Vec::new();
    if is_syn {
        if let Some(mss) = mss {
            options.extend([2, 4]);
            options.extend((mss as u16).to_be_bytes());
        }
        if sack == Some(1) {
            // With timestamps Linux puts this option in place of their padding.
            let padding: &[u8] = if packet.tsval.is_some() { &[] } else { &[1, 1] };
            options.extend(padding);
            options.extend([4, 2]);
        }
    }
    if let (Some(value), Some(echo)) = (packet.tsval, packet.tsecr) {
        if options.len().is_multiple_of(4) {
            options.extend([1, 1]);
        }
        options.extend([8, 10]);
        options.extend(value.to_be_bytes());
        options.extend(echo.to_be_bytes());
    }
    if let Some(scale) = scale.filter(|_| is_syn) {
        options.extend([1, 3, 3, scale as u8]);
    }
    let both_scale = flow.src_wscale.is_some() && flow.dst_wscale.is_some();
    let shift = match scale {
        Some(shift) if both_scale && !is_syn => shift.clamp(0, 14),
        _ => 0,
    };
    let window = u16::try_from(packet.window.unwrap_or(0) >> shift).unwrap_or(u16::MAX);
    out.extend(packet.seq.unwrap_or(0).to_be_bytes());
    out.extend(packet.ack.unwrap_or(0).to_be_bytes());
    out.push((((20 + options.len()) / 4) << 4) as u8);
    out.push(flags);
    out.extend(window.to_be_bytes());
    out.extend([0; 4]);
    out.extend(options);
}

/// The number of a protocol by its name in flows.
fn protocol(name: &str) -> u8 {
    match name {
        "icmp" => 1,
        "tcp" => 6,
        "udp" => 17,
        "icmpv6" => 58,
        "sctp" => 132,
        name => name
            .strip_prefix("ip-")
            .and_then(|number| number.parse().ok())
            .unwrap_or(255),
    }
}
