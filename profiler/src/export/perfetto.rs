//! Perfetto's protobuf format: exact nanoseconds, for ui.perfetto.dev and Perfetto's `trace_processor`.
//!
//! Only the few messages needed are written, field by field; numbers are those of
//! `protos/perfetto/trace/trace.proto`.

use std::io::{self, Write};

use super::protobuf::Message;
use super::timeline::{Timeline, Track};

/// Id of the only writer of packets.
const SEQUENCE: u64 = 1;
const BEGIN: u64 = 1;
const END: u64 = 2;

/// Writes the timeline: a track for each process, its programs as nested slices, data as flows.
///
/// # Errors
/// When `out` fails.
pub fn write(timeline: &Timeline, out: &mut impl Write) -> io::Result<()> {
    let mut is_first = true;
    let mut packet = |at_ns: Option<i64>, field: u32, content: &Message| -> io::Result<()> {
        let mut packet = Message::default();
        if let Some(at) = at_ns {
            packet = packet.number(8, at.max(0) as u64);
        }
        packet = packet.number(10, SEQUENCE).message(field, content);
        if std::mem::take(&mut is_first) {
            // SEQ_INCREMENTAL_STATE_CLEARED
            packet = packet.number(13, 1);
        }
        out.write_all(&Message::default().message(1, &packet).0)
    };
    let root = Message::default().number(1, 1).text(2, &timeline.title);
    packet(Some(0), 60, &root)?;
    for track in &timeline.tracks {
        packet(Some(track.start_ns), 60, &descriptor(track))?;
    }
    let mut leaving = vec![Vec::new(); timeline.tracks.len()];
    let mut coming = leaving.clone();
    for (id, arrow) in (1_u64..).zip(&timeline.arrows) {
        leaving[arrow.from].push(id);
        coming[arrow.to].push(id);
    }
    for (place, track) in timeline.tracks.iter().enumerate() {
        let uuid = uuid(track);
        let slice = |kind: u64| Message::default().number(9, kind).number(11, uuid);
        let mut begin = slice(BEGIN).text(22, "process").text(23, &track.rule);
        for (name, value) in numbers(track) {
            begin = begin.message(
                4,
                &Message::default().text(10, name).number(4, value as u64),
            );
        }
        for &id in &leaving[place] {
            begin = begin.fixed(47, id);
        }
        for &id in &coming[place] {
            begin = begin.fixed(48, id);
        }
        packet(Some(track.start_ns), 11, &begin)?;
        for (rule, command, start, end) in &track.images {
            let argument = Message::default().text(10, "command").text(6, command);
            let inner = slice(BEGIN)
                .text(22, "program")
                .text(23, rule)
                .message(4, &argument);
            packet(Some(*start), 11, &inner)?;
            packet(Some(*end), 11, &slice(END))?;
        }
        packet(Some(track.end_ns), 11, &slice(END))?;
    }
    Ok(())
}

fn descriptor(track: &Track) -> Message {
    Message::default()
        .number(1, uuid(track))
        .text(2, &format!("{} {}", track.rule, track.pid))
        .number(5, 1)
}

/// Id of a process's track, from its upid, since pids are used again. 1 is the run itself.
fn uuid(track: &Track) -> u64 {
    track.upid.unsigned_abs() + 1
}

fn numbers(track: &Track) -> impl Iterator<Item = (&'static str, i64)> {
    [
        ("upid", Some(track.upid)),
        ("pid", Some(track.pid)),
        ("cpu_ns", track.cpu_ns),
        ("read_bytes", track.moved[0]),
        ("write_bytes", track.moved[1]),
        ("exit_code", track.exit_code),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
}
