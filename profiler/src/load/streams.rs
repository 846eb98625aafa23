//! Pipes and sockets as streams from process to process.

use std::collections::{BTreeMap, HashMap, HashSet};

use flowtrace_schema::{ChannelEndRow, FlowBetween};

use crate::model::{ProcessId, Stream, Workflow};

/// A channel with more pairs of writer and reader than these is a hub that tells nothing.
const PAIRS: usize = 1000;

/// What one process had to do with one direction of a channel.
#[derive(Clone, Copy)]
struct Side {
    at_most_bytes: Option<i64>,
    first_ns: i64,
    last_ns: i64,
    /// Data is known to have moved.
    is_used: bool,
}

/// Pairs those who may have written into a channel with those who may have read from it.
pub(super) fn add_streams(workflow: &mut Workflow, rows: &[ChannelEndRow]) {
    let images: HashMap<i64, usize> = workflow
        .images
        .iter()
        .enumerate()
        .map(|(place, image)| (image.upid, place))
        .collect();
    for ends in rows.chunk_by(|a, b| a.channel_id == b.channel_id) {
        let (mut writers, mut readers) = (BTreeMap::new(), BTreeMap::new());
        for end in ends {
            let Some(&place) = images.get(&end.upid) else {
                continue;
            };
            let image = &workflow.images[place];
            let last = end.to_ns.or(image.end_ns).unwrap_or(end.from_ns);
            let side = Side {
                at_most_bytes: end.at_most_bytes,
                first_ns: end.from_ns,
                last_ns: last.max(end.from_ns),
                is_used: end.used == Some(1),
            };
            if end.direction != "read" {
                add(&mut writers, image.process, side);
            }
            if end.direction != "write" {
                add(&mut readers, image.process, side);
            }
        }
        let is_socket = !matches!(ends[0].kind.as_str(), "pipe" | "fifo");
        if !is_socket {
            leave_out_bystanders(&writers, &mut readers);
        }
        if writers.len().saturating_mul(readers.len()) <= PAIRS {
            pair(workflow, &writers, &readers, is_socket);
        }
    }
    workflow
        .streams
        .sort_by_key(|stream| (stream.from, stream.to, stream.is_socket));
    workflow.streams.dedup_by(|next, kept| {
        let is_same = (next.from, next.to, next.is_socket) == (kept.from, kept.to, kept.is_socket);
        if is_same {
            kept.at_most_bytes = both(kept.at_most_bytes, next.at_most_bytes);
            kept.first_ns = kept.first_ns.min(next.first_ns);
            kept.last_ns = kept.last_ns.max(next.last_ns);
        }
        is_same
    });
    leave_out_requests(workflow);
}

/// Brings in what captured packets tell: between which processes, how much each way, and when. A
/// stream through sockets between the same two is that of the flow.
pub(super) fn add_flows(workflow: &mut Workflow, flows: &[FlowBetween]) {
    let images: HashMap<i64, ProcessId> = workflow
        .images
        .iter()
        .map(|image| (image.upid, image.process))
        .collect();
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
    for ((from, to), carried) in carried {
        let stream = Stream {
            from,
            to,
            is_socket: true,
            at_most_bytes: Some(carried.bytes.0.saturating_add(carried.bytes.1)),
            captured: Some(carried.bytes),
            first_ns: carried.first_ns,
            last_ns: carried.last_ns.max(carried.first_ns),
        };
        let is_same = |other: &&mut Stream| other.is_socket && (other.from, other.to) == (from, to);
        match workflow.streams.iter_mut().find(is_same) {
            Some(known) => *known = stream,
            None => workflow.streams.push(stream),
        }
    }
    workflow
        .streams
        .sort_by_key(|stream| (stream.from, stream.to, stream.is_socket));
}

/// What flows between two processes carried: forth, and back.
#[derive(Clone, Copy)]
struct Carried {
    bytes: (i64, i64),
    first_ns: i64,
    last_ns: i64,
}

/// Of two streams between a process and one that it talks to, as through `popen2`, the answer tells
/// what depends on what: that the older process asked shows in the fork.
fn leave_out_requests(workflow: &mut Workflow) {
    let start = |id: ProcessId| (workflow.process(id).start_ns, id);
    let answers: HashSet<_> = workflow
        .streams
        .iter()
        .filter(|stream| start(stream.from) > start(stream.to))
        .map(|stream| (stream.to, stream.from))
        .collect();
    workflow
        .streams
        .retain(|stream| !answers.contains(&(stream.from, stream.to)));
}

fn add(sides: &mut BTreeMap<ProcessId, Side>, process: ProcessId, side: Side) {
    sides
        .entry(process)
        .and_modify(|kept| {
            kept.at_most_bytes = both(kept.at_most_bytes, side.at_most_bytes);
            kept.first_ns = kept.first_ns.min(side.first_ns);
            kept.last_ns = kept.last_ns.max(side.last_ns);
            kept.is_used |= side.is_used;
        })
        .or_insert(side);
}

fn both(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    Some(a?.saturating_add(b?))
}

/// Where somebody read as much as was written, whoever read less than half of that merely had
/// the pipe as its standard input.
fn leave_out_bystanders(
    writers: &BTreeMap<ProcessId, Side>,
    readers: &mut BTreeMap<ProcessId, Side>,
) {
    let mut sides = writers.values();
    let written = sides.try_fold(0, |sum: i64, side| {
        Some(sum.saturating_add(side.at_most_bytes?))
    });
    let Some(written) = written else { return };
    let read = |side: &Side| side.at_most_bytes.unwrap_or(i64::MAX);
    if readers.values().any(|side| read(side) >= written) {
        readers.retain(|_, side| read(side) >= written / 2);
    }
}

fn are_siblings(workflow: &Workflow, a: ProcessId, b: ProcessId) -> bool {
    let parent = workflow.process(a).parent;
    parent.is_some() && parent == workflow.process(b).parent
}

/// Whether a process has an end only because it is a copy of its parent, as far as is known, which keeps the
/// end as long: workers of a pool have ends of all pipes between their parent and the workers before them.
fn inherited(workflow: &Workflow, sides: &BTreeMap<ProcessId, Side>, process: ProcessId) -> bool {
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

fn pair(
    workflow: &mut Workflow,
    writers: &BTreeMap<ProcessId, Side>,
    readers: &BTreeMap<ProcessId, Side>,
    is_socket: bool,
) {
    for (&from, writer) in writers {
        for (&to, reader) in readers {
            let start = |id| (workflow.process(id).start_ns, id);
            // Of a socket it is not known who sent: it leads from the older process to the other.
            if from == to || is_socket && start(from) > start(to) {
                continue;
            }
            let is_inherited =
                || inherited(workflow, writers, from) || inherited(workflow, readers, to);
            if !is_socket && are_siblings(workflow, from, to) && is_inherited() {
                continue;
            }
            workflow.streams.push(Stream {
                from,
                to,
                is_socket,
                captured: None,
                at_most_bytes: match (writer.at_most_bytes, reader.at_most_bytes) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                },
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

    fn side(at_most_bytes: Option<i64>) -> Side {
        Side {
            at_most_bytes,
            first_ns: 0,
            last_ns: 1,
            is_used: false,
        }
    }

    #[test]
    fn who_read_too_little_only_inherited_the_pipe() {
        let writers = BTreeMap::from([(ProcessId(0), side(Some(1_000_000)))]);
        let of = |sizes: [Option<i64>; 3]| {
            let mut readers: BTreeMap<_, _> = (1..).map(ProcessId).zip(sizes.map(side)).collect();
            leave_out_bystanders(&writers, &mut readers);
            readers.into_keys().map(|id| id.0).collect::<Vec<_>>()
        };
        assert_eq!(of([Some(5400), Some(1_005_400), None]), [2, 3]);
        // Two that shared the pipe: neither read it all.
        assert_eq!(of([Some(700_000), Some(300_000), Some(5400)]), [1, 2, 3]);
    }
}
