//! Connections between processes by pipes, FIFOs, sockets and files outside the traced directories, compared
//! with the connections that each workload prints.

mod jobserver;
mod names;
mod outside;
mod pipes;
mod sockets;

use std::collections::BTreeSet;
use std::ffi::OsStr;

use crate::support::process::{Finished, finish};
use crate::support::trace::Trace;
use crate::support::{Scratch, need_fuse, run_in};

/// A command that was traced, with its output and trace.
struct Traced {
    scratch: Scratch,
    finished: Finished,
    trace: Trace,
}

/// Traces a command in a new directory named `job`; `None` if that is not possible here.
fn traced<A: AsRef<OsStr>>(options: &[&str], command: &[A]) -> Option<Traced> {
    if !need_fuse() {
        return None;
    }
    let scratch = Scratch::new();
    let mut run = run_in(&scratch.dir("job"), &scratch.join("trace.db"));
    run.args(options).arg("--").args(command);
    let finished = finish(&mut run).expect(0);
    let trace = Trace::open_complete(&scratch.join("trace.db"));
    Some(Traced {
        scratch,
        finished,
        trace,
    })
}

/// Pairs of sender and receiver through a channel: programs by their name, parts of a shell that run no
/// program as `(name)`. A channel that leads out of the trace, such as the run's output, has no reader and is
/// left out.
fn wires(trace: &Trace) -> BTreeSet<String> {
    let name = |image: &str| {
        format!("CASE {image}.origin WHEN 'fork' THEN '(' ELSE '' END || {image}.command")
    };
    let sql = format!(
        "SELECT DISTINCT {}, {} FROM edges AS sent
         JOIN edges AS received ON received.src_kind = 'channel' AND received.src_id = sent.dst_id
         JOIN processes AS writer ON writer.upid = sent.src_id
         JOIN processes AS reader ON reader.upid = received.dst_id
         WHERE sent.dst_kind = 'channel' AND writer.upid <> reader.upid",
        name("writer"),
        name("reader")
    );
    let program = |command: &str| {
        let first = command.split(' ').next().unwrap_or_default();
        let is_fork = first.starts_with('(');
        let base = first.trim_start_matches('(');
        let base = base.rsplit('/').next().unwrap_or(base);
        if is_fork {
            format!("({base})")
        } else {
            base.to_owned()
        }
    };
    trace
        .rows(&sql)
        .iter()
        .map(|row| format!("{} > {}", program(&row[0]), program(&row[1])))
        .collect()
}

#[track_caller]
fn assert_wires(trace: &Trace, expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(|&wire| wire.to_owned()).collect();
    let found = wires(trace);
    let ends = trace.rows(
        "SELECT c.kind, e.channel_id, e.upid, p.origin, substr(p.command, 1, 20), fd, direction,
           e.from_ns, e.to_ns, used, at_most_bytes
         FROM channel_ends AS e JOIN channels AS c USING (channel_id)
         JOIN processes AS p USING (upid) ORDER BY e.channel_id, e.upid",
    );
    let ends: Vec<String> = ends.iter().map(|row| row.join(" | ")).collect();
    assert_eq!(found, expected, "{ends:#?}");
}
