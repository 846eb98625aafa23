//! Direction of data through a socket: only this module decides it.
//!
//! A descriptor of a socket allows both directions, so that an open one shows nothing. The best available
//! evidence decides for each socket, and lesser evidence is ignored:
//!
//! 1. bytes that were counted call by call, on each side (`--layer kernel`);
//! 2. payload of captured packets (`--net`);
//! 3. waits that cannot have been without data: in a call that writes, for what was written before filled the buffer; in
//!    a call that reads, if the same process waited there again, for the first wait then brought data;
//! 4. a wait in a call that reads, which may have been for the end of the data; a wait until one socket can be read, or
//!    one can be written;
//! 5. a wait until any of several sockets can be read, as an event loop waits also for those to which it only writes.
//!
//! If two processes have a socket open, one sends what the other receives: so evidence about either holds for
//! both. Without any of these the direction is unknown, and so is that of every other process that has a
//! socket open and shows none.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use flowtrace_schema::{
    ChannelEndRow, FlowBetween, Result, SocketPortsRow, SocketTrafficRow, SocketWaitsRow, Trace,
};

use super::end_use::both_ways;
use crate::model::ProcessId;

/// Recorded evidence for the direction of data through sockets.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    pub(super) traffic: Vec<SocketTrafficRow>,
    pub(super) waits: Vec<SocketWaitsRow>,
    pub(super) ports: Vec<SocketPortsRow>,
    pub(super) flows: Vec<FlowBetween>,
}

impl Evidence {
    pub(super) fn read(trace: &Trace, flows: &[FlowBetween]) -> Result<Evidence> {
        Ok(Evidence {
            traffic: trace.socket_traffic(),
            waits: trace.socket_waits()?,
            ports: match flows.is_empty() {
                true => Vec::new(),
                false => trace.socket_ports()?,
            },
            flows: flows.to_vec(),
        })
    }

    /// The role of every holder of every socket. `sockets`: the ends through which data may have gone, by
    /// socket; `images`: the processes of images.
    pub(super) fn roles(
        &self,
        sockets: &BTreeMap<i64, Vec<&ChannelEndRow>>,
        images: &HashMap<i64, ProcessId>,
    ) -> Roles {
        let mut signs: BTreeMap<i64, BTreeMap<ProcessId, Signs>> = BTreeMap::new();
        // By image first: the bytes of a process are known only where those of all its images are.
        let mut counted: HashMap<(i64, i64), Option<(i64, i64)>> = HashMap::new();
        for row in &self.traffic {
            let sum = counted
                .entry((row.channel_id, row.upid))
                .or_insert(Some((0, 0)));
            *sum = match (*sum, row.bytes.filter(|_| row.exact != 0)) {
                (Some((sent, received)), Some(bytes)) if row.side == "write" => {
                    Some((sent.saturating_add(bytes), received))
                }
                (Some((sent, received)), Some(bytes)) => {
                    Some((sent, received.saturating_add(bytes)))
                }
                _ => None,
            };
        }
        for (&channel, ends) in sockets {
            let holders = signs.entry(channel).or_default();
            let mut upids: Vec<i64> = ends.iter().map(|end| end.upid).collect();
            upids.sort_unstable();
            upids.dedup();
            for upid in upids {
                let Some(&process) = images.get(&upid) else {
                    continue;
                };
                let moved = counted.get(&(channel, upid)).copied().flatten();
                holders
                    .entry(process)
                    .and_modify(|one| one.counted = both_ways(one.counted, moved))
                    .or_insert(Signs {
                        counted: moved,
                        ..Signs::default()
                    });
            }
        }
        for row in &self.waits {
            let process = images.get(&row.upid);
            let holder = process.and_then(|id| signs.get_mut(&row.channel_id)?.get_mut(id));
            if let Some(signs) = holder {
                signs.saw(row);
            }
        }
        self.add_flows(&mut signs, images);
        signs
            .into_iter()
            .map(|(channel, holders)| (channel, decide(&holders)))
            .collect()
    }

    /// Adds the payload of flows over the ports of a socket between two processes that have it open.
    fn add_flows(
        &self,
        signs: &mut BTreeMap<i64, BTreeMap<ProcessId, Signs>>,
        images: &HashMap<i64, ProcessId>,
    ) {
        // By a holder, too: many machines have sockets with the same ports.
        let mut of_ports: HashMap<((i64, i64), ProcessId), BTreeSet<i64>> = HashMap::new();
        for row in &self.ports {
            let ports = (row.port.min(row.peer_port), row.port.max(row.peer_port));
            for &holder in signs
                .get(&row.channel_id)
                .into_iter()
                .flat_map(BTreeMap::keys)
            {
                let channels = of_ports.entry((ports, holder)).or_default();
                channels.insert(row.channel_id);
            }
        }
        for flow in &self.flows {
            let ends = images.get(&flow.src_upid).zip(images.get(&flow.dst_upid));
            let ports = flow.sport.zip(flow.dport);
            let (Some((&src, &dst)), Some((a, b))) = (ends, ports) else {
                continue;
            };
            let ports = (a.min(b), a.max(b));
            for channel in of_ports.get(&(ports, src)).into_iter().flatten() {
                let Some(holders) = signs.get_mut(channel) else {
                    continue;
                };
                if src == dst || !holders.contains_key(&src) || !holders.contains_key(&dst) {
                    continue;
                }
                for (id, moved) in [
                    (src, (flow.out_bytes, flow.back_bytes)),
                    (dst, (flow.back_bytes, flow.out_bytes)),
                ] {
                    if let Some(one) = holders.get_mut(&id) {
                        one.captured = both_ways(one.captured.or(Some((0, 0))), Some(moved));
                    }
                }
            }
        }
    }
}

/// The roles of the holders of sockets, by channel.
pub(super) type Roles = HashMap<i64, BTreeMap<ProcessId, Role>>;

/// Role of a holder of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Role {
    /// True if it sent, and true if it received; `None`: no evidence, either is possible.
    pub(super) moves: Option<(bool, bool)>,
    /// Bytes that it sent, and that it received; `None`: not known.
    pub(super) bytes: Option<(i64, i64)>,
}

impl Role {
    /// Returns true if it may have sent.
    pub(super) fn may_send(&self) -> bool {
        self.moves.is_none_or(|(sends, _)| sends)
    }

    /// Returns true if it may have received.
    pub(super) fn may_receive(&self) -> bool {
        self.moves.is_none_or(|(_, receives)| receives)
    }
}

/// Evidence about one holder of a socket.
#[derive(Clone, Copy, Debug, Default)]
struct Signs {
    /// Bytes sent and received, where all calls were counted.
    counted: Option<(i64, i64)>,
    /// Bytes of captured packets, sent and received.
    captured: Option<(i64, i64)>,
    /// Quality of the evidence of its waits that it sent; 0: none.
    sends: u8,
    /// Quality of the evidence that it received.
    receives: u8,
}

/// Qualities: waits that cannot have been without data, that may have been, and that mostly are.
const SURE: u8 = 3;
const LIKELY: u8 = 2;
const POSSIBLE: u8 = 1;

impl Signs {
    fn saw(&mut self, row: &SocketWaitsRow) {
        let sends = match row {
            row if row.writes > 0 => SURE,
            row if row.write_polls > 0 => LIKELY,
            _ => 0,
        };
        let receives = match row {
            row if row.reads > 0 && row.went_on != 0 => SURE,
            row if row.reads > 0 || row.read_polls > 0 => LIKELY,
            row if row.interests > 0 => POSSIBLE,
            _ => 0,
        };
        self.sends = self.sends.max(sends);
        self.receives = self.receives.max(receives);
    }
}

/// The roles of the holders of one socket.
fn decide(holders: &BTreeMap<ProcessId, Signs>) -> BTreeMap<ProcessId, Role> {
    for bytes in [
        |signs: &Signs| signs.counted,
        |signs: &Signs| signs.captured,
    ] {
        if let Some(roles) = by_bytes(holders, bytes) {
            return roles;
        }
    }
    let sends = |signs: &Signs| match signs.counted.or(signs.captured) {
        Some((sent, _)) if sent > 0 => SURE,
        _ => signs.sends,
    };
    let receives = |signs: &Signs| match signs.counted.or(signs.captured) {
        Some((_, received)) if received > 0 => SURE,
        _ => signs.receives,
    };
    let best = holders.values().flat_map(|one| [sends(one), receives(one)]);
    let best = best.max().unwrap_or(0);
    let role = |(&id, signs): (&ProcessId, &Signs)| {
        let mut moves = (sends(signs) == best, receives(signs) == best);
        if let Some(other) = other_of(holders, id) {
            moves = (
                moves.0 || receives(other) == best,
                moves.1 || sends(other) == best,
            );
        }
        let moves = Some(moves).filter(|moves| best > 0 && *moves != (false, false));
        (id, Role { moves, bytes: None })
    };
    holders.iter().map(role).collect()
}

/// The other one of two holders.
fn other_of(holders: &BTreeMap<ProcessId, Signs>, id: ProcessId) -> Option<&Signs> {
    let mut others = holders.iter().filter(|(other, _)| **other != id);
    let other = others.next()?.1;
    others.next().is_none().then_some(other)
}

/// The roles where the bytes of all holders are known, or of two holders at least those of one.
fn by_bytes(
    holders: &BTreeMap<ProcessId, Signs>,
    of: fn(&Signs) -> Option<(i64, i64)>,
) -> Option<BTreeMap<ProcessId, Role>> {
    let role = |(&id, signs): (&ProcessId, &Signs)| {
        let turned = || other_of(holders, id).and_then(of).map(|(a, b)| (b, a));
        let bytes = of(signs).or_else(turned)?;
        let moves = Some((bytes.0 > 0, bytes.1 > 0));
        let bytes = Some(bytes);
        Some((id, Role { moves, bytes }))
    };
    holders.iter().map(role).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Option<(bool, bool)> = None;
    const SENDS: Option<(bool, bool)> = Some((true, false));
    const RECEIVES: Option<(bool, bool)> = Some((false, true));
    const BOTH: Option<(bool, bool)> = Some((true, true));

    fn waits(writes: i64, reads: i64, went_on: i64) -> Signs {
        let mut signs = Signs::default();
        signs.saw(&SocketWaitsRow {
            writes,
            reads,
            went_on,
            ..SocketWaitsRow::default()
        });
        signs
    }

    fn moves(holders: &[Signs]) -> Vec<Option<(bool, bool)>> {
        let holders = (0..).map(ProcessId).zip(holders.iter().copied()).collect();
        decide(&holders).values().map(|role| role.moves).collect()
    }

    #[test]
    fn who_waits_to_write_sends_and_a_last_wait_for_the_end_brings_nothing() {
        assert_eq!(moves(&[waits(3, 0, 0), waits(0, 0, 0)]), [SENDS, RECEIVES]);
        assert_eq!(moves(&[waits(0, 0, 0), waits(0, 5, 1)]), [SENDS, RECEIVES]);
        assert_eq!(moves(&[waits(0, 0, 0), waits(0, 1, 0)]), [SENDS, RECEIVES]);
        // It waits once more until the other has closed.
        assert_eq!(moves(&[waits(3, 1, 0), waits(0, 4, 1)]), [SENDS, RECEIVES]);
        assert_eq!(moves(&[waits(0, 0, 0); 2]), [NONE, NONE]);
    }

    #[test]
    fn who_ask_and_answer_send_both() {
        assert_eq!(moves(&[waits(0, 7, 1), waits(0, 7, 1)]), [BOTH, BOTH]);
        assert_eq!(moves(&[waits(0, 1, 0), waits(0, 1, 0)]), [BOTH, BOTH]);
        // The answers are so large that they fill the buffer.
        assert_eq!(moves(&[waits(0, 7, 1), waits(2, 7, 1)]), [BOTH, BOTH]);
    }

    #[test]
    fn what_an_event_loop_would_like_to_read_is_the_least() {
        let mut server = waits(0, 0, 0);
        server.receives = POSSIBLE;
        assert_eq!(moves(&[server, waits(0, 7, 1)]), [SENDS, RECEIVES]);
        assert_eq!(moves(&[server, waits(0, 0, 0)]), [RECEIVES, SENDS]);
    }

    #[test]
    fn bytes_decide_before_packets_and_packets_before_waits() {
        let bytes = |counted, captured| Signs {
            counted,
            captured,
            ..waits(3, 3, 1)
        };
        let none = bytes(None, None);
        assert_eq!(
            moves(&[bytes(Some((90, 0)), Some((0, 9))), none]),
            [SENDS, RECEIVES]
        );
        assert_eq!(
            moves(&[bytes(None, Some((0, 9))), bytes(None, Some((9, 0)))]),
            [RECEIVES, SENDS]
        );
        assert_eq!(
            moves(&[none, bytes(Some((90, 7)), None)]),
            [BOTH, BOTH],
            "the other one's bytes"
        );
        assert_eq!(
            moves(&[bytes(Some((0, 0)), None), none]),
            [Some((false, false)); 2]
        );
    }

    #[test]
    fn of_several_only_those_have_a_role_that_show_it() {
        let (sends, receives, none) = (waits(3, 0, 0), waits(0, 5, 1), waits(0, 0, 0));
        assert_eq!(moves(&[none, sends, receives]), [NONE, SENDS, RECEIVES]);
        assert_eq!(moves(&[none, none, receives]), [NONE, NONE, RECEIVES]);
    }
}
