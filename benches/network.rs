//! Cost of network inference: ten million packets of sixteen hosts, made up, all questions.
//! `cargo bench --bench network`, or `-- PACKETS` for another number.

use std::time::Instant;

use flowtrace_profiler::network::pages;
use flowtrace_profiler::network::run::{ACK, CaptureInput, PSH, Packet, Run};

const HOSTS: u16 = 16;

/// A ring: in each round every host sends a message of ten segments to the next; each packet is in
/// the captures of both its ends.
fn captures(packets: usize) -> Vec<CaptureInput> {
    let mut captures = vec![CaptureInput::default(); usize::from(HOSTS)];
    for (host, capture) in captures.iter_mut().enumerate() {
        capture.name = format!("h{host}");
        capture.node = Some(host as u16);
        capture.packets.reserve(packets / usize::from(HOSTS) + 64);
    }
    let per_round = 2 * usize::from(HOSTS) * 11;
    let mut seq = 1u32;
    for round in 0..packets.div_ceil(per_round) {
        let begin = round as i64 * 2_000_000;
        for src in 0..HOSTS {
            let dst = (src + 1) % HOSTS;
            for part in 0..11u32 {
                // Ten segments, and an acknowledgement back.
                let is_data = part < 10;
                let (a, b) = if is_data { (src, dst) } else { (dst, src) };
                let packet = Packet {
                    t_ns: begin + i64::from(part) * 12_000 + i64::from(src) * 700,
                    seq: if is_data { seq + part * 1448 } else { 1 },
                    ack: if is_data { 1 } else { seq + 14_480 },
                    payload: if is_data { 1448 } else { 0 },
                    wire: if is_data { 1514 } else { 66 },
                    window: 65_535,
                    flow: u32::from(src),
                    src: a,
                    dst: b,
                    flags: if part == 9 { ACK | PSH } else { ACK },
                    is_again: false,
                };
                captures[usize::from(a)].packets.push(packet);
                let there = Packet {
                    t_ns: packet.t_ns + 40_000,
                    ..packet
                };
                captures[usize::from(b)].packets.push(there);
            }
        }
        seq = seq.wrapping_add(14_480);
    }
    captures
}

/// Largest memory of this process so far, bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

fn main() {
    let asked = std::env::args()
        .skip(1)
        .find_map(|argument| argument.parse().ok());
    let packets: usize = asked.unwrap_or(10_000_000);
    let captures = captures(packets);
    let count: usize = captures.iter().map(|capture| capture.packets.len()).sum();
    let started = Instant::now();
    let names = (0..HOSTS).map(|host| format!("h{host}")).collect();
    let run = Run::new(names, captures);
    println!(
        "{count} packets; put together in {:.2} s, {} MB",
        started.elapsed().as_secs_f64(),
        peak() >> 20
    );
    let mut whole = started.elapsed().as_secs_f64();
    for (name, question) in [
        ("matrix", pages::matrix as fn(&Run) -> pages::Page),
        ("topology", pages::topology),
        ("changes", pages::changes),
        ("iterations", pages::iterations),
        ("spectrum", pages::spectrum),
        ("period", pages::period),
        ("balance", pages::balance),
        ("messages", pages::messages),
        ("decomposition", pages::decomposition),
        ("slowdown", pages::slowdown),
        ("pop", pages::pop),
        ("critical-path", pages::critical_path),
        ("state", pages::state),
    ] {
        let started = Instant::now();
        let page = question(&run);
        let seconds = started.elapsed().as_secs_f64();
        whole += seconds;
        println!(
            "{name:14} {seconds:7.2} s  {}",
            page.lines.first().map_or("", String::as_str)
        );
    }
    println!("all            {whole:7.2} s, at most {} MB", peak() >> 20);
}
