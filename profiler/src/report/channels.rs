//! Pipes, sockets and conversations on the network.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use flowtrace_render::units::plain;
use flowtrace_schema::{FlowRow, Result, Trace};
use serde::Serialize;

use super::processes::Kept;
use crate::model::{ProcessId, Workflow};

#[derive(Debug, Default, Serialize)]
pub(super) struct Channels {
    channels: Vec<Channel>,
    left_out: usize,
}

/// A pipe, FIFO or socket that may have carried data.
#[derive(Debug, Serialize)]
struct Channel {
    channel_id: i64,
    kind: String,
    name: Option<String>,
    capacity_bytes: Option<i64>,
    /// No more bytes than these: the least that all its writers, or all its readers, allow.
    at_most_bytes: Option<i64>,
    /// Places of processes that wrote into it, or may have.
    writers: Vec<u32>,
    /// Greatest number of bytes of each writer; for sockets the bytes that it sent; `None`: not known.
    written_bytes: Vec<Option<i64>>,
    /// Places of those that read from it, or may have.
    readers: Vec<u32>,
}

pub(super) fn of(workflow: &Workflow, trace: &Trace, kept: &Kept, most: usize) -> Result<Channels> {
    let places = places(workflow, kept);
    let ends = &workflow.ends.active;
    let images = workflow.process_of_images();
    let mut channels = Vec::new();
    for row in trace.channels()? {
        let from = ends.partition_point(|end| end.channel_id < row.channel_id);
        let mine = ends[from..]
            .iter()
            .take_while(|end| end.channel_id == row.channel_id);
        let (mut writers, mut readers) = (BTreeMap::new(), Vec::new());
        let (mut written, mut read) = (Some(0i64), Some(0i64));
        let mut is_used = false;
        for end in mine {
            is_used = true;
            let bytes = end.bytes.or(end.at_most_bytes);
            let add = |sum: Option<i64>, bytes: Option<i64>| Some(sum?.saturating_add(bytes?));
            let place = places.get(&end.upid).copied();
            // For a socket with data in both directions the bytes of an end are those of both.
            let process = images.get(&end.upid);
            let moved =
                process.and_then(|&id| workflow.ends.moved.get(&(row.channel_id, id)).copied());
            let is_socket = !matches!(&*row.kind, "pipe" | "fifo");
            let of = |own: Option<i64>| if is_socket { own } else { bytes };
            let moves = process.and_then(|&id| workflow.ends.moves.get(&(row.channel_id, id)));
            let (writes, reads) = match moves {
                Some(&moves) => moves,
                None => (end.direction != "read", end.direction != "write"),
            };
            if writes {
                let sent = of(moved.map(|(sent, _)| sent));
                written = add(written, sent);
                writers.extend(place.map(|place| (place, sent)));
            }
            if reads {
                read = add(read, of(moved.map(|(_, received)| received)));
                readers.extend(place);
            }
        }
        if !is_used {
            continue;
        }
        readers.sort_unstable();
        readers.dedup();
        let at_most_bytes = match (
            written.filter(|_| !writers.is_empty()),
            read.filter(|_| !readers.is_empty()),
        ) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        channels.push(Channel {
            channel_id: row.channel_id,
            kind: row.kind,
            name: row.name.as_deref().map(plain),
            capacity_bytes: row.capacity_bytes,
            at_most_bytes,
            written_bytes: writers.values().copied().collect(),
            writers: writers.into_keys().collect(),
            readers,
        });
    }
    let left_out = channels.len().saturating_sub(most);
    channels.sort_by_key(|channel| (Reverse(channel.at_most_bytes), channel.channel_id));
    channels.truncate(most);
    Ok(Channels { channels, left_out })
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Flows {
    flows: Vec<Flow>,
    left_out: usize,
}

#[derive(Debug, Serialize)]
struct Flow {
    flow_id: i64,
    src: String,
    sport: Option<i64>,
    dst: String,
    dport: Option<i64>,
    proto: String,
    src_process: Option<u32>,
    dst_process: Option<u32>,
    first_ns: i64,
    last_ns: Option<i64>,
    packets: Option<i64>,
    bytes: Option<i64>,
}

pub(super) fn flows(workflow: &Workflow, trace: &Trace, kept: &Kept, most: usize) -> Result<Flows> {
    let places = places(workflow, kept);
    let place = |upid: Option<i64>| places.get(&upid?).copied();
    let flow = |row: FlowRow| Flow {
        flow_id: row.flow_id,
        src: plain(&row.src),
        sport: row.sport,
        dst: plain(&row.dst),
        dport: row.dport,
        proto: plain(&row.proto),
        src_process: place(row.src_upid),
        dst_process: place(row.dst_upid),
        first_ns: row.first_ns,
        last_ns: row.last_ns,
        packets: row.packets,
        bytes: row.bytes,
    };
    let most = u32::try_from(most).unwrap_or(u32::MAX);
    let flows: Vec<Flow> = trace.largest_flows(most)?.into_iter().map(flow).collect();
    let all = usize::try_from(trace.flow_count()?).unwrap_or(flows.len());
    Ok(Flows {
        left_out: all.saturating_sub(flows.len()),
        flows,
    })
}

/// The places of the processes by the ids of their images.
fn places(workflow: &Workflow, kept: &Kept) -> HashMap<i64, u32> {
    let image = |id: ProcessId| {
        let place = kept.place(id)?;
        Some(workflow.images(id).iter().map(move |i| (i.upid, place)))
    };
    workflow.process_ids().filter_map(image).flatten().collect()
}
