//! Made-up programs: what their hosts' captures would show.

use std::net::{IpAddr, Ipv4Addr};

/// Bytes of a full segment.
const SEGMENT: u32 = 1448;
/// Time on the wire, ns.
const LATENCY_NS: i64 = 40_000;

const FIN: u8 = 1;
const SYN: u8 = 2;
const PSH: u8 = 8;
const ACK: u8 = 16;

/// What a program does over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// Sixteen hosts, each sends a message of ten segments to the next.
    Ring,
    /// Sixteen hosts in a torus, each sends small messages of five sizes in turn to its four neighbours.
    Torus,
    /// Five hundred clients ask one server, each time over a new connection; the server alone is captured.
    Server,
}

impl Program {
    pub(crate) const ALL: [Program; 3] = [Program::Ring, Program::Torus, Program::Server];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Program::Ring => "ring",
            Program::Torus => "torus",
            Program::Server => "server",
        }
    }

    /// Places of capture.
    pub(crate) fn captures(self) -> u16 {
        match self {
            Program::Ring | Program::Torus => 16,
            Program::Server => 1,
        }
    }

    /// The time of a round at so many packets a second, ns.
    pub(crate) fn round_ns(self, packets_per_second: f64) -> i64 {
        let mut traffic = Traffic::new(self, 10_000_000);
        // All sizes of messages occur in so many rounds.
        let rounds = 20;
        let packets: usize = (0..rounds).map(|_| traffic.round().packets.len()).sum();
        (packets as f64 / f64::from(rounds) / packets_per_second * 1e9) as i64
    }
}

/// A connection that begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
}

/// A segment at a place of capture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) t_ns: i64,
    /// Place of capture, from 0.
    pub(crate) capture: u16,
    /// Connection, from 0 in the order of their beginning.
    pub(crate) flow: u32,
    pub(crate) back: bool,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) payload: u32,
    pub(crate) flags: u8,
}

/// What happens in a round, packets in the order of time.
#[derive(Debug, Default)]
pub(crate) struct Round {
    pub(crate) connections: Vec<Connection>,
    pub(crate) packets: Vec<Seen>,
}

/// The traffic of a program, round after round.
#[derive(Debug)]
pub(crate) struct Traffic {
    program: Program,
    round_ns: i64,
    round: u32,
    flows: u32,
    /// Next sequence number of each lasting connection, by direction.
    next: Vec<[u32; 2]>,
    random: u64,
}

impl Traffic {
    pub(crate) fn new(program: Program, round_ns: i64) -> Traffic {
        Traffic {
            program,
            round_ns,
            round: 0,
            flows: 0,
            next: Vec::new(),
            random: 7,
        }
    }

    /// Next round.
    pub(crate) fn round(&mut self) -> Round {
        let mut round = Round::default();
        match self.program {
            Program::Ring => self.neighbours(&mut round, &[1], 10 * SEGMENT),
            Program::Torus => {
                let size = [90, 700, 1448, 2500, 4000][self.round as usize % 5];
                self.neighbours(&mut round, &[1, 3, 4, 12], size);
            }
            Program::Server => self.requests(&mut round),
        }
        round.packets.sort_by_key(|packet| packet.t_ns);
        self.round += 1;
        round
    }

    /// Every host sends so many bytes to those so far behind it; connections last.
    fn neighbours(&mut self, round: &mut Round, steps: &[u16], bytes: u32) {
        let hosts = self.program.captures();
        let begin = i64::from(self.round) * self.round_ns;
        for host in 0..hosts {
            // Some compute longer than others, and not always equally long.
            let mut t_ns = begin + self.up_to(self.round_ns as u64 / 20);
            for (number, step) in steps.iter().enumerate() {
                let peer = (host + step) % hosts;
                let flow = u32::from(host) * steps.len() as u32 + number as u32;
                if self.round == 0 {
                    round.connections.push(Connection {
                        src: address(host),
                        dst: address(peer),
                        sport: 40_000 + number as u16,
                        dport: 5000,
                    });
                    self.next.push([1, 1]);
                }
                t_ns = self.message(round, (host, peer), flow, bytes, t_ns);
            }
        }
    }

    /// A message in segments and an acknowledgement for it, in the captures of both ends; the moment after it.
    fn message(
        &mut self,
        round: &mut Round,
        (host, peer): (u16, u16),
        flow: u32,
        bytes: u32,
        mut t_ns: i64,
    ) -> i64 {
        let mut left = bytes;
        let ends = &mut self.next[flow as usize];
        while left > 0 {
            let payload = left.min(SEGMENT);
            left -= payload;
            let packet = Seen {
                t_ns,
                capture: host,
                flow,
                back: false,
                seq: ends[0],
                ack: ends[1],
                payload,
                flags: if left == 0 { ACK | PSH } else { ACK },
            };
            both_ends(round, packet, peer);
            ends[0] = ends[0].wrapping_add(payload);
            t_ns += 12_000;
        }
        let answer = Seen {
            t_ns: t_ns + LATENCY_NS + 5_000,
            capture: peer,
            flow,
            back: true,
            seq: ends[1],
            ack: ends[0],
            payload: 0,
            flags: ACK,
        };
        both_ends(round, answer, host);
        t_ns
    }

    /// Ten clients ask once each.
    fn requests(&mut self, round: &mut Round) {
        let begin = i64::from(self.round) * self.round_ns;
        for asked in 0..10 {
            let client = (self.up_to(500) + 1) as u16;
            round.connections.push(Connection {
                src: address(client),
                dst: address(0),
                sport: 1024 + (self.flows % 60_000) as u16,
                dport: 80,
            });
            let mut t_ns = begin + self.round_ns / 10 * asked + self.up_to(100_000);
            let mut ends = [1_u32, 1_u32];
            let steps = [
                (false, 0, SYN),
                (true, 0, SYN | ACK),
                (false, 0, ACK),
                (false, 300, ACK | PSH),
                (true, SEGMENT, ACK),
                (true, 600, ACK | PSH),
                (false, 0, ACK | FIN),
                (true, 0, ACK | FIN),
            ];
            for (back, payload, flags) in steps {
                let (own, other) = (usize::from(back), usize::from(!back));
                round.packets.push(Seen {
                    t_ns,
                    capture: 0,
                    flow: self.flows,
                    back,
                    seq: ends[own],
                    ack: ends[other],
                    payload,
                    flags,
                });
                let control = u32::from(flags & (SYN | FIN) != 0);
                ends[own] = ends[own].wrapping_add(payload + control);
                t_ns += LATENCY_NS + self.up_to(20_000);
            }
            self.flows += 1;
        }
    }

    /// A number below `bound`, always the same ones.
    fn up_to(&mut self, bound: u64) -> i64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.random >> 33) % bound.max(1)) as i64
    }
}

fn both_ends(round: &mut Round, packet: Seen, there: u16) {
    round.packets.push(packet);
    round.packets.push(Seen {
        t_ns: packet.t_ns + LATENCY_NS,
        capture: there,
        ..packet
    });
}

fn address(host: u16) -> IpAddr {
    let [high, low] = (host + 1).to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(10, 0, high, low))
}
