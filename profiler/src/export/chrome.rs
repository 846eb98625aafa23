//! Chrome's JSON trace format, for ui.perfetto.dev and chrome://tracing.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::timeline::Timeline;

/// Writes the timeline. Every process has a track of its own (`tid`), on which its programs are nested.
///
/// # Errors
/// When `out` fails.
pub fn write(timeline: &Timeline, out: &mut impl Write) -> io::Result<()> {
    write!(
        out,
        "{{\"displayTimeUnit\":\"ms\",\"otherData\":{},\"traceEvents\":[",
        json!({
            "command": timeline.title,
            "started_unix_ns": timeline.started_unix_ns.map(|ns| ns.to_string()),
            "arrows_left_out": timeline.arrows_cut,
            "processes_without_end": timeline.open_ends,
        })
    )?;
    let mut separator = "\n";
    let mut event = |event: Value| -> io::Result<()> {
        write!(out, "{separator}{event}")?;
        separator = ",\n";
        Ok(())
    };
    event(json!({"ph": "M", "pid": 1, "name": "process_name", "args": {"name": timeline.title}}))?;
    for (place, track) in timeline.tracks.iter().enumerate() {
        let tid = place + 1;
        event(
            json!({"ph": "M", "pid": 1, "tid": tid, "name": "thread_name",
            "args": {"name": format!("{} {}", track.rule, track.pid)}}),
        )?;
        event(
            json!({"ph": "M", "pid": 1, "tid": tid, "name": "thread_sort_index",
            "args": {"sort_index": place}}),
        )?;
        event(
            json!({"ph": "X", "pid": 1, "tid": tid, "cat": "process", "name": track.rule,
            "ts": micros(track.start_ns), "dur": micros(track.end_ns - track.start_ns),
            "args": {"upid": track.upid, "pid": track.pid, "cpu_ns": track.cpu_ns,
                "read_bytes": track.moved[0], "write_bytes": track.moved[1],
                "exit_code": track.exit_code}}),
        )?;
        for (rule, command, start, end) in &track.images {
            event(
                json!({"ph": "X", "pid": 1, "tid": tid, "cat": "program", "name": rule,
                "ts": micros(*start), "dur": micros(end - start), "args": {"command": command}}),
            )?;
        }
    }
    for (id, arrow) in timeline.arrows.iter().enumerate() {
        let common = |ph: &str, tid: usize, ns: i64| {
            let mut event = json!({"ph": ph, "pid": 1, "tid": tid, "cat": "data", "name": "data",
                "id": id, "ts": micros(ns), "args": {"bytes": arrow.bytes}});
            if ph == "f" {
                event["bp"] = json!("e");
            }
            event
        };
        event(common("s", arrow.from + 1, arrow.from_ns))?;
        event(common("f", arrow.to + 1, arrow.to_ns))?;
    }
    writeln!(out, "\n]}}")
}

/// Microseconds, with the nanoseconds as decimals. A double is exact for 100 days.
fn micros(ns: i64) -> Value {
    json!(ns as f64 / 1e3)
}
