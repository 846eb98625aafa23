//! Pipes and sockets as streams from process to process.

use std::collections::{BTreeMap, HashMap, HashSet};

use flowtrace_schema::{ChannelEndRow, FlowBetween};

use super::bounds::Bounds;
use super::end_use::{EndUse, both_ways};
use super::ends::Ends;
use super::other_reads::OtherReads;
use super::readers::leave_out_bystanders;
use super::ways::{Evidence, Role, Roles};
use crate::load::end_use::both;
use crate::model::{ChannelEnds, ProcessId, Side, Stream, Way, Workflow};

/// A channel with more pairs of writer and reader than these is a hub, whose streams mean nothing.
const PAIRS: usize = 1000;

/// Processes that had a side of a pipe (its id in the database) open and moved nothing there, as far as bytes
/// show.
type Bystanders = HashSet<(i64, ProcessId, Side)>;

/// Adds the processes at each end of a channel, and the streams between them. `tokens`: channels that carry
/// tokens for free places to run, in order. `evidence` decides the direction of data through sockets.
pub(super) fn add_channels(
    workflow: &mut Workflow,
    rows: Vec<ChannelEndRow>,
    tokens: Vec<i64>,
    evidence: &Evidence,
) {
    let own = of_one(workflow, &rows);
    let of_data = |row: &ChannelEndRow| tokens.binary_search(&row.channel_id).is_err();
    let (active, idle): (Vec<_>, Vec<_>) = rows
        .into_iter()
        .filter(of_data)
        .partition(|row| row.used != Some(0));
    let idle: Vec<_> = idle.into_iter().filter(|row| !is_socket(row)).collect();
    let roles = roles(workflow, &active, evidence);
    let (active, unused) = by_role(workflow, active, &roles);
    let idle = idle.into_iter().chain(unused).collect();
    let bystanders = add_streams(workflow, &active, &roles);
    let (mut moved, mut moves) = (HashMap::new(), HashMap::new());
    for (&channel, roles) in &roles {
        for (&id, role) in roles {
            moved.extend(role.bytes.map(|bytes| ((channel, id), bytes)));
            moves.extend(role.moves.map(|one| ((channel, id), one)));
        }
    }
    workflow.ends = ChannelEnds {
        active,
        idle,
        tokens,
        own,
        moved,
        moves,
    };
    move_to_idle(workflow, &bystanders);
}

/// Roles of the processes that had sockets open.
fn roles(workflow: &Workflow, open: &[ChannelEndRow], evidence: &Evidence) -> Roles {
    let places = workflow.image_places();
    let mut sockets: BTreeMap<i64, Vec<&ChannelEndRow>> = BTreeMap::new();
    for end in open.iter().filter(|end| is_socket(end)) {
        let place = places.get(&end.upid);
        if place.is_some_and(|&place| !is_passing(workflow, place, end)) {
            sockets.entry(end.channel_id).or_default().push(end);
        }
    }
    evidence.roles(&sockets, &workflow.process_of_images())
}

/// Splits ends of sockets whose bytes are known: the direction in which data went, and the other as an end
/// without data. A process that reads there until the end waits for the process that has the latter open.
/// Ends that were only sampled show nothing about the rest and stay as they are.
fn by_role(
    workflow: &Workflow,
    open: Vec<ChannelEndRow>,
    roles: &Roles,
) -> (Vec<ChannelEndRow>, Vec<ChannelEndRow>) {
    let images = workflow.process_of_images();
    let mut unused = Vec::new();
    let mut used = Vec::with_capacity(open.len());
    for row in open {
        let role = images
            .get(&row.upid)
            .and_then(|id| roles.get(&row.channel_id)?.get(id));
        let known = role.filter(|role| role.bytes.is_some());
        let Some((sends, receives)) = known.and_then(|role| role.moves) else {
            used.push(row);
            continue;
        };
        let part = |direction: &str| ChannelEndRow {
            direction: direction.into(),
            ..row.clone()
        };
        let idle = |direction: &str| ChannelEndRow {
            used: Some(0),
            at_most_bytes: Some(0),
            ..part(direction)
        };
        match (sends, receives) {
            (true, true) => used.push(row),
            (true, false) => {
                used.push(part("write"));
                unused.push(idle("read"));
            }
            (false, true) => {
                used.push(part("read"));
                unused.push(idle("write"));
            }
            (false, false) => unused.push(idle("both")),
        }
    }
    (used, unused)
}

/// The channels without an end elsewhere that only one process had open, in order.
fn of_one(workflow: &Workflow, rows: &[ChannelEndRow]) -> Vec<i64> {
    let images = workflow.image_places();
    let mut holders: BTreeMap<i64, HashSet<Option<ProcessId>>> = BTreeMap::new();
    let has_both = |row: &&ChannelEndRow| matches!(&*row.kind, "pipe" | "fifo" | "socketpair");
    for row in rows.iter().filter(has_both) {
        let process = images.get(&row.upid).map(|&at| workflow.images[at].process);
        holders.entry(row.channel_id).or_default().insert(process);
    }
    let own = holders
        .into_iter()
        .filter(|(_, holders)| holders.len() == 1);
    own.map(|(channel, _)| channel).collect()
}

/// Pairs the processes that may have written into a channel with those that may have read from it. Returns
/// those that did neither.
fn add_streams(workflow: &mut Workflow, rows: &[ChannelEndRow], roles: &Roles) -> Bystanders {
    let images = workflow.image_places();
    let bounds = Bounds::of(rows);
    let mut channels: Vec<Ends> = rows
        .chunk_by(|a, b| a.channel_id == b.channel_id)
        .map(|of_channel| ends_of(workflow, &images, (of_channel, &bounds)))
        .collect();
    let before = users(&channels);
    leave_out_bystanders(&mut channels, &OtherReads::of(workflow));
    let bystanders = &before - &users(&channels);
    for ends in &channels {
        if ends.writers.len().saturating_mul(ends.readers.len()) <= PAIRS {
            match roles.get(&ends.channel_id) {
                Some(roles) => pair_sockets(workflow, ends, roles),
                None => pair(workflow, ends),
            }
        }
    }
    join_ways(workflow);
    workflow.streams.dedup_by(|next, kept| {
        let is_same = (next.from, next.to, next.is_socket) == (kept.from, kept.to, kept.is_socket);
        if is_same {
            kept.at_most_bytes = both(kept.at_most_bytes, next.at_most_bytes);
            kept.is_exact &= next.is_exact;
            kept.way = kept.way.and(next.way);
            kept.moved = both_ways(kept.moved, next.moved);
            kept.first_ns = kept.first_ns.min(next.first_ns);
            kept.last_ns = kept.last_ns.max(next.last_ns);
        }
        is_same
    });
    let totals = bounds.of_processes(workflow, &images, rows);
    for stream in workflow.streams.iter_mut().filter(|s| !s.is_socket) {
        let sides = [(stream.from, Side::Write), (stream.to, Side::Read)];
        let bounds = sides.iter().filter_map(|side| totals.get(side).copied());
        stream.at_most_bytes = stream.at_most_bytes.into_iter().chain(bounds).min();
    }
    bystanders
}

/// Processes that may have moved data through a side of each channel.
fn users(channels: &[Ends]) -> Bystanders {
    let mut users = HashSet::new();
    for ends in channels {
        users.extend(
            ends.writers
                .keys()
                .map(|&id| (ends.channel_id, id, Side::Write)),
        );
        users.extend(
            ends.readers
                .keys()
                .map(|&id| (ends.channel_id, id, Side::Read)),
        );
    }
    users
}

/// Moves ends through which nothing went, as the bytes show ([`super::readers`]), to the idle ends.
fn move_to_idle(workflow: &mut Workflow, bystanders: &Bystanders) {
    let ChannelEnds {
        mut active,
        mut idle,
        tokens,
        own,
        moved,
        moves,
    } = std::mem::take(&mut workflow.ends);
    let images = workflow.image_places();
    active.retain_mut(|row| {
        let Some(&place) = images.get(&row.upid) else {
            return true;
        };
        let process = workflow.images[place].process;
        if is_passing(workflow, place, row) {
            return false;
        }
        let mut stays = |side, name: &str, other: &str| {
            let end = (row.channel_id, process, side);
            if row.direction == other || !bystanders.contains(&end) {
                return row.direction != other;
            }
            if !is_socket(row) {
                idle.push(ChannelEndRow {
                    direction: name.into(),
                    used: Some(0),
                    at_most_bytes: Some(0),
                    ..row.clone()
                });
            }
            false
        };
        let reads = stays(Side::Read, "read", "write");
        let writes = stays(Side::Write, "write", "read");
        row.direction = match (reads, writes) {
            (true, true) => "both",
            (true, false) => "read",
            _ => "write",
        }
        .into();
        reads || writes
    });
    idle.sort_by_key(|row| row.channel_id);
    workflow.ends = ChannelEnds {
        active,
        idle,
        tokens,
        own,
        moved,
        moves,
    };
}

/// Returns true for an end of a socket that a process has from its parent on the way from fork to exec: no
/// data goes through it there. Otherwise a program that has one socket open would seem to talk to all that it
/// starts, and these to each other.
fn is_passing(workflow: &Workflow, place: usize, end: &ChannelEndRow) -> bool {
    let image = &workflow.images[place];
    is_socket(end)
        && end.used != Some(1)
        && image.is_fork
        && end.from_ns <= image.start_ns
        && place + 1 < workflow.process(image.process).images.end
}

fn is_socket(end: &ChannelEndRow) -> bool {
    !matches!(&*end.kind, "pipe" | "fifo")
}

fn ends_of(
    workflow: &Workflow,
    images: &HashMap<i64, usize>,
    (rows, bounds): (&[ChannelEndRow], &Bounds<'_>),
) -> Ends {
    let mut ends = Ends {
        channel_id: rows[0].channel_id,
        is_socket: is_socket(&rows[0]),
        is_fifo: &*rows[0].kind == "fifo",
        ..Ends::default()
    };
    for end in rows {
        let Some(&place) = images.get(&end.upid) else {
            continue;
        };
        let image = &workflow.images[place];
        if is_passing(workflow, place, end) {
            continue;
        }
        let last = end.to_ns.or(image.end_ns).unwrap_or(end.from_ns);
        let side = EndUse {
            at_most_bytes: bounds.of_end(end),
            first_ns: end.from_ns,
            last_ns: last.max(end.from_ns),
            is_used: end.used == Some(1),
            is_counted: end.bytes.is_some(),
        };
        if end.direction != "read" {
            add(&mut ends.writers, image.process, side);
        }
        if end.direction != "write" {
            add(&mut ends.readers, image.process, side);
        }
    }
    ends
}

/// Adds the data of captured packets: its processes, bytes in each direction, and times. A stream through
/// sockets between the same two processes is that of the flow.
pub(super) fn add_flows(workflow: &mut Workflow, flows: &[FlowBetween]) {
    let images = workflow.process_of_images();
    let mut carried: BTreeMap<(ProcessId, ProcessId), Carried> = BTreeMap::new();
    for flow in flows {
        let ends = images.get(&flow.src_upid).zip(images.get(&flow.dst_upid));
        let Some((&src, &dst)) = ends.filter(|(src, dst)| src != dst) else {
            continue;
        };
        let start = |id: ProcessId| (workflow.process(id).start_ns, id);
        let is_forth = start(src) <= start(dst);
        let (from, to) = if is_forth { (src, dst) } else { (dst, src) };
        let (forth, back) = match is_forth {
            true => (flow.out_bytes, flow.back_bytes),
            false => (flow.back_bytes, flow.out_bytes),
        };
        let sum = carried.entry((from, to)).or_insert(Carried {
            bytes: (0, 0),
            first_ns: flow.first_ns,
            last_ns: flow.last_ns,
        });
        sum.bytes.0 = sum.bytes.0.saturating_add(forth);
        sum.bytes.1 = sum.bytes.1.saturating_add(back);
        sum.first_ns = sum.first_ns.min(flow.first_ns);
        sum.last_ns = sum.last_ns.max(flow.last_ns);
    }
    let mut known: HashMap<(ProcessId, ProcessId), usize> = HashMap::new();
    for (at, stream) in workflow.streams.iter().enumerate() {
        if stream.is_socket {
            let ends = (stream.from.min(stream.to), stream.from.max(stream.to));
            known.entry(ends).or_insert(at);
        }
    }
    for ((from, to), carried) in carried {
        match known.get(&(from.min(to), from.max(to))) {
            Some(&at) => workflow.streams[at].carries(from, carried),
            None => {
                let mut stream = Stream {
                    from,
                    to,
                    is_socket: true,
                    way: Way::Unknown,
                    moved: None,
                    at_most_bytes: None,
                    captured: None,
                    is_exact: false,
                    first_ns: carried.first_ns,
                    last_ns: carried.last_ns,
                };
                stream.carries(from, carried);
                workflow.streams.push(stream);
            }
        }
    }
    workflow
        .streams
        .sort_by_key(|stream| (stream.from, stream.to, stream.is_socket));
}

impl Stream {
    /// Sets the data that the stream carried between its ends, forth from the process `from`.
    fn carries(&mut self, from: ProcessId, carried: Carried) {
        let (a, b) = carried.bytes;
        let bytes = if self.from == from { (a, b) } else { (b, a) };
        self.captured = Some(bytes);
        if self.moved.is_none() {
            self.moved = Some(bytes);
            match bytes {
                (0, 1..) => self.turn(),
                (_, 0) => self.way = Way::Forth,
                _ => self.way = Way::Both,
            }
        }
        let all = |(forth, back): (i64, i64)| forth.saturating_add(back);
        self.at_most_bytes = self.moved.map(all);
        self.first_ns = carried.first_ns;
        self.last_ns = carried.last_ns.max(carried.first_ns);
    }

    /// Reverses the direction: all data went the other way.
    fn turn(&mut self) {
        std::mem::swap(&mut self.from, &mut self.to);
        self.captured = self.captured.map(|(forth, back)| (back, forth));
        self.moved = self.moved.map(|(forth, back)| (back, forth));
        self.way = Way::Forth;
    }
}

/// Data that the flows between two processes carried: forth, and back.
#[derive(Clone, Copy)]
struct Carried {
    bytes: (i64, i64),
    first_ns: i64,
    last_ns: i64,
}

fn add(sides: &mut BTreeMap<ProcessId, EndUse>, process: ProcessId, side: EndUse) {
    sides
        .entry(process)
        .and_modify(|kept| {
            kept.at_most_bytes = both(kept.at_most_bytes, side.at_most_bytes);
            kept.first_ns = kept.first_ns.min(side.first_ns);
            kept.last_ns = kept.last_ns.max(side.last_ns);
            kept.is_used |= side.is_used;
            kept.is_counted &= side.is_counted;
        })
        .or_insert(side);
}

fn are_siblings(workflow: &Workflow, a: ProcessId, b: ProcessId) -> bool {
    let parent = workflow.process(a).parent;
    parent.is_some() && parent == workflow.process(b).parent
}

/// Returns true if a process has an end only because it is a copy of its parent, as far as is known, which
/// keeps the end as long: workers of a pool have ends of all pipes between their parent and the workers
/// before them.
fn inherited(workflow: &Workflow, sides: &BTreeMap<ProcessId, EndUse>, process: ProcessId) -> bool {
    let is_copy = workflow.images(process).iter().all(|image| image.is_fork);
    let parent = workflow.process(process).parent;
    let both = sides
        .get(&process)
        .zip(parent.and_then(|parent| sides.get(&parent)));
    is_copy
        && both.is_some_and(|(side, of_parent)| {
            !side.is_used
                && of_parent.first_ns <= side.first_ns
                && of_parent.last_ns >= side.first_ns.midpoint(side.last_ns)
        })
}

/// Returns true if the counts of both sides of a pipe determine the bytes of each pair: only one process
/// wrote, or only one read, and it read all.
fn determine_all(
    writers: &BTreeMap<ProcessId, EndUse>,
    readers: &BTreeMap<ProcessId, EndUse>,
) -> bool {
    let sum = |sides: &BTreeMap<ProcessId, EndUse>| {
        let bytes = sides.values().map(|side| side.at_most_bytes.unwrap_or(0));
        bytes.fold(0, i64::saturating_add)
    };
    let mut all = writers.values().chain(readers.values());
    all.all(|side| side.is_counted)
        && (writers.len() == 1 || readers.len() == 1 && sum(writers) == sum(readers))
}

/// Pairs the processes that had a socket open: the sender comes first; of two that both sent, or may have,
/// the older one.
fn pair_sockets(workflow: &mut Workflow, ends: &Ends, roles: &BTreeMap<ProcessId, Role>) {
    let mut holders: Vec<ProcessId> = ends
        .writers
        .keys()
        .chain(ends.readers.keys())
        .copied()
        .collect();
    holders.sort_unstable_by_key(|&id| (workflow.process(id).start_ns, id));
    holders.dedup();
    for (at, &a) in holders.iter().enumerate() {
        for &b in &holders[at + 1..] {
            let (Some(one), Some(other)) = (roles.get(&a), roles.get(&b)) else {
                continue;
            };
            let forth = one.may_send() && other.may_receive();
            let back = other.may_send() && one.may_receive();
            let is_known = one.moves.is_some() && other.moves.is_some();
            let (from, to, way) = match (forth, back) {
                (false, false) => continue,
                _ if !is_known => (a, b, Way::Unknown),
                (true, false) => (a, b, Way::Forth),
                (false, true) => (b, a, Way::Forth),
                (true, true) => (a, b, Way::Both),
            };
            let inherited = |id| {
                inherited(workflow, &ends.writers, id) || inherited(workflow, &ends.readers, id)
            };
            if are_siblings(workflow, a, b) && (inherited(a) || inherited(b)) {
                continue;
            }
            // With more than two processes the bytes of each pair are not known.
            let of_two = |id| {
                roles
                    .get(&id)
                    .and_then(|role| role.bytes)
                    .filter(|_| roles.len() == 2)
            };
            let moved = of_two(from)
                .zip(of_two(to))
                .map(|(from, to)| (from.0.min(to.1), from.1.min(to.0)));
            let side = |id| ends.writers.get(&id).or(ends.readers.get(&id));
            let Some((one, other)) = side(from).zip(side(to)) else {
                continue;
            };
            let first_ns = one.first_ns.max(other.first_ns);
            workflow.streams.push(Stream {
                from,
                to,
                is_socket: true,
                way,
                moved,
                captured: None,
                at_most_bytes: moved.map(|(forth, back)| forth.saturating_add(back)),
                is_exact: false,
                first_ns,
                last_ns: one.last_ns.min(other.last_ns).max(first_ns),
            });
        }
    }
}

/// Joins several sockets between the same two processes that carry data to and fro to one stream, and sorts
/// all streams.
fn join_ways(workflow: &mut Workflow) {
    let start = |id: ProcessId| (workflow.processes[id.0 as usize].start_ns, id);
    let mut ways: HashMap<(ProcessId, ProcessId), u8> = HashMap::new();
    let is_known = |stream: &&mut Stream| stream.is_socket && stream.way != Way::Unknown;
    let older_first = |stream: &Stream| {
        let is_forth = start(stream.from) <= start(stream.to);
        match is_forth {
            true => (stream.from, stream.to),
            false => (stream.to, stream.from),
        }
    };
    for stream in workflow.streams.iter_mut().filter(is_known) {
        let ends = older_first(stream);
        *ways.entry(ends).or_default() |= match stream.way {
            Way::Both => 3,
            _ if ends.0 == stream.from => 1,
            _ => 2,
        };
    }
    for stream in workflow
        .streams
        .iter_mut()
        .filter(|stream| stream.is_socket)
    {
        let ends = older_first(stream);
        match ways.get(&ends) {
            Some(3) => {
                if ends.0 != stream.from {
                    stream.turn();
                }
                stream.way = Way::Both;
            }
            Some(2) if ends.0 == stream.from => stream.turn(),
            _ => {}
        }
    }
    workflow
        .streams
        .sort_by_key(|stream| (stream.from, stream.to, stream.is_socket));
}

fn pair(workflow: &mut Workflow, ends: &Ends) {
    let Ends {
        writers, readers, ..
    } = ends;
    let is_exact = determine_all(writers, readers);
    for (&from, writer) in writers {
        for (&to, reader) in readers {
            if from == to {
                continue;
            }
            let is_inherited =
                || inherited(workflow, writers, from) || inherited(workflow, readers, to);
            if are_siblings(workflow, from, to) && is_inherited() {
                continue;
            }
            workflow.streams.push(Stream {
                from,
                to,
                is_socket: false,
                way: Way::Forth,
                moved: None,
                captured: None,
                at_most_bytes: match (writer.at_most_bytes, reader.at_most_bytes) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                },
                is_exact,
                first_ns: writer.first_ns.max(reader.first_ns),
                last_ns: writer
                    .last_ns
                    .min(reader.last_ns)
                    .max(writer.first_ns.max(reader.first_ns)),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_exact_where_it_can_have_gone_one_way() {
        let sides = |first: u32, counted: &[Option<i64>]| -> BTreeMap<ProcessId, EndUse> {
            let side = |bytes: &Option<i64>| EndUse {
                at_most_bytes: Some(bytes.unwrap_or(90)),
                first_ns: 0,
                last_ns: 1,
                is_used: true,
                is_counted: bytes.is_some(),
            };
            (first..)
                .map(ProcessId)
                .zip(counted.iter().map(side))
                .collect()
        };
        for (writers, readers, expected) in [
            (&[Some(90)][..], &[Some(90)][..], true),
            (&[Some(90)], &[Some(30)], true),
            (&[Some(90)], &[None], false),
            (&[None], &[Some(90)], false),
            (&[Some(60), Some(30)], &[Some(90)], true),
            (&[Some(60), Some(30)], &[Some(80)], false),
            (&[Some(90)], &[Some(60), Some(30)], true),
            (&[Some(60), Some(30)], &[Some(60), Some(30)], false),
        ] {
            let is_exact = determine_all(&sides(1, writers), &sides(10, readers));
            assert_eq!(is_exact, expected, "{writers:?} {readers:?}");
        }
    }
}
