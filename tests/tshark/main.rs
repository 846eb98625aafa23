//! Every stored field of a packet equals that of tshark, on captures of many kinds.

use std::fs;
use std::path::Path;
use std::process::Command;

mod analysis;
mod fields;
mod files;
mod frames;
#[path = "../support/lab.rs"]
mod lab_of_hosts;
mod live;
#[path = "../support/mod.rs"]
mod support;

use fields::{assert_same, of_trace, of_tshark};
use files::{Pcap, Pcapng, time};
use frames::{Traffic, ether_type, ethernet, icmp, ipv4, ipv4_with, ipv6, ipv6_with, tcp, udp};
use support::{FLOWTRACE, Scratch, need_program, shared};

/// Imports a capture and compares its packets with tshark's; returns their number.
fn compare(name: &str, directory: &Path, capture: &Path) -> usize {
    let trace = directory.join(format!("{name}.db"));
    let output = Command::new(FLOWTRACE)
        .args(["import", "-q", "-o"])
        .args([&trace, capture])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {error}");
    let (ours, mut theirs) = (of_trace(&trace), of_tshark(capture));
    theirs.sort_by_key(|fields| fields.t_ns);
    assert_same(name, &ours, &theirs);
    ours.len()
}

fn agrees(name: &str, packets: usize, file: &[u8]) {
    if !need_program("tshark") {
        return;
    }
    let scratch = Scratch::new();
    let capture = scratch.join(name);
    fs::write(&capture, file).unwrap();
    assert_eq!(compare(name, &scratch, &capture), packets, "{name}");
}

fn both_versions() -> Traffic {
    Traffic::default()
        .connection(4001, ipv4)
        .connection(4002, ipv6)
        .add(ipv4(false, 17, &udp((5000, 53), 40)))
        .add(ipv6(true, 17, &udp((53, 5001), 300)))
}

fn framed(traffic: Traffic, frame: impl Fn(&[u8]) -> Vec<u8>) -> Vec<Vec<u8>> {
    traffic
        .packets()
        .iter()
        .map(|packet| frame(packet))
        .collect()
}

fn plain(traffic: Traffic) -> Vec<Vec<u8>> {
    framed(traffic, |packet| ethernet(packet, &[]))
}

#[test]
fn version_6_with_extension_headers() {
    let options: &[u8] = &[0, 1, 4, 0, 0, 0, 0];
    let long_options: &[u8] = &[1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let routing: &[u8] = &[
        2, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    let authentication: &[u8] = &[
        4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9,
    ];
    let first: &[u8] = &[0, 0, 1, 0, 0, 0, 9];
    let later: &[u8] = &[0, 0x03, 0x18, 0, 0, 0, 9];
    let traffic = Traffic::default()
        .connection(4003, |back, protocol, body| {
            ipv6_with(back, protocol, body, &[(0, options)])
        })
        .connection(4004, |back, protocol, body| {
            let headers = [
                (0, options),
                (60, long_options),
                (43, routing),
                (60, options),
            ];
            ipv6_with(back, protocol, body, &headers)
        })
        .connection(4005, |back, protocol, body| {
            ipv6_with(back, protocol, body, &[(51, authentication)])
        })
        .add(ipv6_with(
            false,
            17,
            &udp((5002, 5003), 777),
            &[(60, options)],
        ))
        .add(ipv6_with(
            false,
            17,
            &udp((5002, 5003), 784)[..],
            &[(44, first)],
        ))
        .add(ipv6_with(false, 17, &[7; 200], &[(44, later)]))
        .add(ipv6(false, 58, &icmp(128, &[1; 56])))
        .add(ipv6_with(true, 58, &icmp(129, &[1; 56]), &[(60, options)]))
        .add(ipv6(
            true,
            58,
            &icmp(3, &ipv6(false, 17, &udp((5002, 5003), 9))),
        ));
    let frames = plain(traffic);
    agrees("extension-headers", 45, &Pcap::of(1).bytes(&frames));
}

#[test]
fn tags_one_and_two() {
    let one = framed(both_versions(), |p| ethernet(p, &[[0x81, 0, 0x20, 7]]));
    agrees("vlan", 28, &Pcap::of(1).bytes(&one));
    let two = framed(both_versions(), |p| {
        ethernet(p, &[[0x88, 0xa8, 0, 5], [0x81, 0, 0, 6]])
    });
    agrees("qinq", 28, &Pcap::of(1).bytes(&two));
    let session = framed(both_versions(), |p| {
        let protocol = if p[0] >> 4 == 4 { [0, 0x21] } else { [0, 0x57] };
        let length = (p.len() as u16 + 2).to_be_bytes();
        let head = [
            2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0x64, 0x11, 0, 0, 3,
        ];
        [&head[..], &length, &protocol, p].concat()
    });
    agrees("pppoe", 28, &Pcap::of(1).bytes(&session));
}

#[test]
fn loopback_of_either_byte_order() {
    for (name, is_little) in [("null-little", true), ("null-big", false)] {
        let frames = framed(both_versions(), |p| {
            let family = if p[0] >> 4 == 4 { 2_u32 } else { 30 };
            let family = if is_little {
                family.to_le_bytes()
            } else {
                family.to_be_bytes()
            };
            [&family[..], p].concat()
        });
        let link_type = if is_little { 0 } else { 108 };
        agrees(name, 28, &Pcap::of(link_type).bytes(&frames));
    }
}

#[test]
fn cooked_captures_of_both_versions() {
    let first = framed(both_versions(), |p| {
        // Any choice of direction will do: here the last byte of the packet modulo 5.
        let way = p[p.len() - 1] % 5;
        let head = [0, way, 0, 1, 0, 6, 2, 0, 0, 0, 0, 9, 0, 0];
        [&head[..], &ether_type(p), p].concat()
    });
    agrees("cooked-1", 28, &Pcap::of(113).bytes(&first));
    let second = framed(both_versions(), |p| {
        let way = p[p.len() - 1] % 5;
        let head = [0, 0, 0, 0, 0, 3, 0, 1, way, 6, 2, 0, 0, 0, 0, 9, 0, 0];
        [&ether_type(p)[..], &head, p].concat()
    });
    agrees("cooked-2", 28, &Pcap::of(276).bytes(&second));
}

#[test]
fn serial_lines() {
    let protocol = |p: &[u8]| if p[0] >> 4 == 4 { [0, 0x21] } else { [0, 0x57] };
    let short = framed(both_versions(), |p| [&protocol(p)[..], p].concat());
    agrees("ppp-short", 28, &Pcap::of(9).bytes(&short));
    let long = framed(both_versions(), |p| {
        [&[0xff, 3], &protocol(p)[..], p].concat()
    });
    agrees("ppp", 28, &Pcap::of(9).bytes(&long));
    agrees("ppp-serial", 28, &Pcap::of(50).bytes(&long));
    let cisco = framed(both_versions(), |p| {
        [&[0x0f, 0], &ether_type(p)[..], p].concat()
    });
    agrees("cisco", 28, &Pcap::of(104).bytes(&cisco));
}

#[test]
fn bare_packets() {
    agrees("raw", 28, &Pcap::of(101).bytes(&both_versions().packets()));
    let only_4 = Traffic::default().connection(4006, ipv4).packets();
    agrees("raw-4", 13, &Pcap::of(228).bytes(&only_4));
    let only_6 = Traffic::default().connection(4006, ipv6).packets();
    agrees("raw-6", 13, &Pcap::of(229).bytes(&only_6));
}

#[test]
fn segments_that_the_device_will_cut() {
    let large = |seq: u32, payload| tcp((4007, 80), seq, 1, 0x18, &[], payload);
    let mut too_long = ipv4(false, 6, &large(100_000, 70_000));
    too_long[2..4].copy_from_slice(&[0, 0]);
    let traffic = Traffic::default()
        .connection(4007, ipv4)
        .add(ipv4(false, 6, &large(20_000, 65_000)))
        .add(ipv6(false, 6, &large(90_000, 65_480)))
        .add(too_long);
    agrees("offload", 16, &Pcap::of(1).bytes(&plain(traffic)));
}

#[test]
fn a_file_of_several_interfaces_and_sections() {
    for (name, is_big) in [("several.pcapng", false), ("several-big.pcapng", true)] {
        let mut file = Pcapng::new(is_big);
        file.interface("eth0", 1, 6);
        file.interface("tun0", 101, 9);
        file.unknown();
        let packets = both_versions().packets();
        for (number, packet) in packets.iter().enumerate() {
            let t_ns = time(number);
            match number % 2 {
                0 => file.packet(0, t_ns / 1000, 1, &ethernet(packet, &[])),
                _ => file.packet(1, t_ns, 2, packet),
            }
        }
        // Interface numbers begin anew in each section; the resolution is 2^-20 s.
        file.section();
        file.interface("any", 113, 0x80 | 20);
        let head = [0, 4, 0, 1, 0, 6, 2, 0, 0, 0, 0, 9, 0, 0, 8, 0];
        let frame = [&head[..], &ipv4(true, 17, &udp((53, 5000), 4))].concat();
        let units = (u128::from(time(100)) << 20) / 1_000_000_000;
        file.packet(0, units as u64, 0, &frame);
        agrees(name, 29, &file.bytes());
    }
}

#[test]
fn nanoseconds_of_either_byte_order() {
    for (name, is_big, is_nano) in [
        ("nano-big", true, true),
        ("micro-big", true, false),
        ("nano-little", false, true),
    ] {
        let format = Pcap {
            is_big,
            is_nano,
            ..Pcap::of(1)
        };
        agrees(name, 28, &format.bytes(&plain(both_versions())));
    }
}

#[test]
fn datagrams_errors_fragments_and_other_protocols() {
    let datagram = udp((5004, 5005), 2000);
    let traffic = Traffic::default()
        .add(ipv4(false, 17, &udp((5006, 5007), 0)))
        .add(ipv4_with(false, 17, &datagram[..1480], 0x2000, &[]))
        .add(ipv4_with(false, 17, &datagram[1480..], 185, &[]))
        .add(ipv4(false, 1, &icmp(8, &[2; 56])))
        .add(ipv4(true, 1, &icmp(0, &[2; 56])))
        .add(ipv4(
            true,
            1,
            &icmp(3, &ipv4(false, 17, &udp((5006, 5007), 5))),
        ))
        .add(ipv4(
            true,
            1,
            &icmp(11, &ipv4(false, 6, &tcp((1, 2), 3, 4, 2, &[], 0))),
        ))
        .add(ipv4_with(
            false,
            6,
            &tcp((4008, 80), 1, 0, 2, &[2, 4, 5, 0xb4], 0),
            0x4000,
            &[7, 7, 4, 0, 0, 0, 0, 0],
        ))
        .add(ipv4(
            false,
            132,
            &[0x10, 0, 0x20, 0, 0, 0, 0, 1, 0, 0, 0, 0, 6, 0, 0, 4],
        ))
        .add(ipv4(
            false,
            89,
            &[
                2, 1, 0, 24, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            ],
        ))
        .add(ipv4(false, 47, &[0, 0, 0x88, 0xbe, 0, 0, 0, 0]));
    agrees("datagrams", 11, &Pcap::of(1).bytes(&plain(traffic)));
}

#[test]
fn truncated_packets() {
    // Cut in the middle of the options of TCP, and after its fixed part.
    for (name, snap) in [("snap-128", 128), ("snap-96", 96), ("snap-78", 78)] {
        let format = Pcap {
            snap,
            ..Pcap::of(1)
        };
        agrees(name, 28, &format.bytes(&plain(both_versions())));
    }
}

#[test]
fn captures_of_parallel_programs() {
    if !need_program("tshark") {
        return;
    }
    for name in ["is.S/ns1", "lu.S/ns2", "mg.S/ns3", "mg.W-quota-full/ns4"] {
        let Some(capture) = shared(&format!("captures/{name}.pcap.gz")) else {
            return;
        };
        let scratch = Scratch::new();
        assert!(compare(&name.replace('/', "-"), &scratch, &capture) > 500);
    }
}
