//! The state of a process, composed of the states of its threads.

use std::collections::{BTreeSet, HashMap};

use flowtrace_schema::{ActivityRow, ChannelEndRow, Result, Trace};

use super::grants::Grants;
use crate::model::{Activity, ChannelEnds, Doing, OpenEnd, ProcessId, Side, Span, Workflow};

/// Reads the samples and the ends of channels. Few analyses need them, and a trace may have many.
///
/// # Errors
/// When the file cannot be read.
pub fn load_activity(trace: &Trace, workflow: &Workflow) -> Result<Activity> {
    load_activity_with_grants(trace, workflow).map(|(activity, _)| activity)
}

/// The same, with what ended waits that began with a call of the waiter.
pub(crate) fn load_activity_with_grants(
    trace: &Trace,
    workflow: &Workflow,
) -> Result<(Activity, Grants)> {
    let samples = match trace.has_lock_waits()? {
        true => trace.samples()?,
        false => Vec::new(),
    };
    let grants = Grants::read(trace, workflow, &samples)?;
    Ok((activity(workflow, &trace.activity()?, &grants), grants))
}

/// Composes the states of processes from rows.
fn activity(workflow: &Workflow, rows: &[ActivityRow], grants: &Grants) -> Activity {
    let ends = &workflow.ends;
    let images = workflow.image_places();
    let process_of = |upid: i64| images.get(&upid).map(|&at| workflow.images[at].process);

    let mut found = Activity::default();
    // One entry for each interval of a thread; the rows of one interval name its channels.
    let mut intervals: Vec<Span> = Vec::with_capacity(rows.len());
    // End of each thread's last wait, by the event that ended it. It may be later than the sample that saw the
    // next state.
    let mut waited: HashMap<(ProcessId, i64), i64> = HashMap::new();
    for chunk in rows.chunk_by(|a, b| a.sample_id == b.sample_id) {
        if let Some(process) = process_of(chunk[0].upid) {
            let mut span = interval(process, chunk, ends, &mut found.channels);
            let thread = (process, chunk[0].tid);
            if let Some(&until) = waited.get(&thread) {
                span.from_ns = span.from_ns.max(until).min(span.to_ns);
            }
            let end_ns = span.to_ns;
            // The channel of an open, and of a connection that is accepted, is known when it has ended; and so
            // it is where the process only waits at channels to itself besides.
            let is_unknown = match span.doing {
                Doing::Channels(at, count) => {
                    let mut channels = found.channels(at, count).iter();
                    channels.all(|&(channel, _)| ends.is_own(channel))
                }
                Doing::Other => chunk[0].activity == flowtrace_schema::Activity::Channel as i64,
                _ => false,
            };
            let span = released(span, &chunk[0], is_unknown, grants, process_of);
            if span.to_ns > end_ns {
                waited.insert(thread, span.to_ns);
            }
            intervals.extend(polled(span, &chunk[0], grants, process_of));
        }
    }
    // Images of a process follow each other in time, but rows come by image.
    intervals.sort_by_key(|span| (span.process, span.from_ns, span.to_ns));
    found.turns = intervals
        .iter()
        .flat_map(|span| [(span.process, span.from_ns), (span.process, span.to_ns)])
        .collect();
    found.turns.sort_unstable();
    found.turns.dedup();
    for spans in intervals.chunk_by(|a, b| a.process == b.process) {
        put_together(spans, &mut found.spans);
    }
    let is_at_channel = |span: &Span| matches!(span.doing, Doing::Channels(..));
    intervals.retain(|span| span.waker.is_some() || is_at_channel(span));
    found.thread_waits = intervals;
    found.of_process = vec![0..0; workflow.processes.len()];
    let mut at = 0;
    for spans in found.spans.chunk_by(|a, b| a.process == b.process) {
        let next = at + spans.len() as u32;
        found.of_process[spans[0].process.0 as usize] = at..next;
        at = next;
    }
    let ends_of = |ends: &[ChannelEndRow]| -> Vec<OpenEnd> {
        let open = |end: &ChannelEndRow| {
            let image = &workflow.images[*images.get(&end.upid)?];
            let to_ns = end.to_ns.or(image.end_ns).unwrap_or(workflow.last_ns);
            Some(OpenEnd {
                channel: end.channel_id,
                process: image.process,
                reads: end.direction != "write",
                writes: end.direction != "read",
                from_ns: end.from_ns,
                to_ns,
                is_used: end.used == Some(1),
                is_doubtful: end.used == Some(0) && end.at_most_bytes.is_some_and(|most| most > 0),
            })
        };
        let mut open: Vec<OpenEnd> = ends.iter().filter_map(open).collect();
        open.sort_by_key(|end| (end.channel, end.process, end.from_ns));
        open
    };
    found.ends = ends_of(&ends.active);
    found.idle_ends = ends_of(&ends.idle);
    found
}

/// Adds the process that ended the wait: as the scheduler reported it, or by a call, which is exact.
fn released(
    mut span: Span,
    row: &ActivityRow,
    is_unknown: bool,
    grants: &Grants,
    process_of: impl Fn(i64) -> Option<ProcessId>,
) -> Span {
    let grant = match span.doing {
        Doing::Lock => grants.lock_within(row.upid, span.from_ns, span.to_ns),
        _ if is_unknown && row.waker_upid.is_none() => {
            grants.open_after(row.upid, span.from_ns, span.to_ns)
        }
        _ => None,
    };
    if let Some(grant) = grant {
        (span.from_ns, span.to_ns, span.error_ns) = (grant.from_ns, grant.to_ns, 0);
    }
    // The lock holder of a traced file, as the scheduler sees it, is no process of the run.
    let waker = grant.map_or(row.waker_upid, |grant| Some(grant.by_upid));
    let inferred = || grants.freed_by(row.sample_id);
    let waker = waker.or_else(|| inferred().filter(|_| span.doing == Doing::Lock));
    let waker = waker.and_then(process_of);
    span.waker = waker.filter(|&waker| waker != span.process);
    span
}

/// Cuts a sleep into the parts before the first lookup of a file, until the file was there, and until the
/// next lookup.
fn polled(
    span: Span,
    row: &ActivityRow,
    grants: &Grants,
    process_of: impl Fn(i64) -> Option<ProcessId>,
) -> Vec<Span> {
    let sleep = match row.activity == flowtrace_schema::Activity::Sleep as i64 {
        true => grants.sleep_within(row.upid, span.from_ns, span.to_ns),
        false => None,
    };
    let sleep = sleep.map(|sleep| sleep.wait);
    let Some((sleep, by)) = sleep.and_then(|sleep| Some((sleep, process_of(sleep.by_upid)?)))
    else {
        return vec![span];
    };
    let part = |((from_ns, to_ns), waits)| Span {
        from_ns,
        to_ns,
        doing: match waits {
            true => Doing::Poll(by, sleep.to_ns),
            false => span.doing,
        },
        ..span
    };
    sleep.cut(span.from_ns, span.to_ns).map(part).collect()
}

fn interval(
    process: ProcessId,
    rows: &[ActivityRow],
    ends: &ChannelEnds,
    channels: &mut Vec<(i64, Side)>,
) -> Span {
    use flowtrace_schema::Activity as A;
    let row = &rows[0];
    let is_own = |row: &ActivityRow| row.channel_id.is_some_and(|channel| ends.is_own(channel));
    let is = |activity: A| row.activity == activity as i64;
    let doing = if is(A::Channel) {
        let at = channels.len();
        // A pipe that no other process has is none of a jobserver, though it looks like one.
        let is_token = |channel: &i64| ends.is_token(*channel) && !ends.is_own(*channel);
        channels.extend(rows.iter().filter_map(|row| {
            let side = match row.side.as_deref() {
                Some("write") => Side::Write,
                _ => Side::Read,
            };
            let channel = row.channel_id.filter(|channel| !is_token(channel))?;
            Some((channel, side))
        }));
        match channels.len() - at {
            0 if rows
                .iter()
                .filter_map(|row| row.channel_id)
                .any(|c| is_token(&c)) =>
            {
                Doing::Place
            }
            0 => Doing::Other,
            count => Doing::Channels(at as u32, count as u32),
        }
    } else if is(A::Child) {
        Doing::Child(row.object)
    } else if [A::Running, A::Runnable, A::File, A::Fault, A::Tracer]
        .into_iter()
        .any(is)
    {
        Doing::Busy
    } else if is(A::Lock) {
        Doing::Lock
    } else if is(A::Sleep) && rows.iter().any(|row| row.side.is_some() && !is_own(row)) {
        Doing::InVain
    } else if is(A::Sleep) {
        Doing::Sleep
    } else if is(A::Stopped) {
        Doing::Stopped
    } else {
        Doing::Other
    };
    let length = row.end_ns.saturating_sub(row.t_ns).max(0);
    Span {
        process,
        from_ns: row.t_ns,
        to_ns: row.t_ns + length,
        doing,
        error_ns: length / row.samples.max(1) / 2,
        waker: None,
        sleeps: false,
    }
}

/// Merges the intervals of the threads of one process, given in the order of time.
fn put_together(threads: &[Span], spans: &mut Vec<Span>) {
    let mut edges: Vec<(i64, bool, usize)> = Vec::with_capacity(threads.len() * 2);
    for (i, span) in threads
        .iter()
        .enumerate()
        .filter(|(_, s)| s.from_ns < s.to_ns)
    {
        edges.push((span.from_ns, true, i));
        edges.push((span.to_ns, false, i));
    }
    edges.sort_unstable();
    // The busiest first; of equals the thread that began first. A thread that waits for a lock that no other
    // process frees waits for another thread of its process, whose state says more.
    let rank = |i: usize| match threads[i].doing {
        Doing::Busy => 0,
        Doing::Channels(..) | Doing::Child(_) | Doing::Place | Doing::Poll(..) => 1,
        Doing::Lock if threads[i].waker.is_some() => 1,
        Doing::Sleep | Doing::InVain | Doing::Stopped | Doing::Other => 2,
        Doing::Lock => 3,
    };
    let mut live: BTreeSet<(u8, usize)> = BTreeSet::new();
    let first = spans.len();
    for (k, &(at, begins, i)) in edges.iter().enumerate() {
        if begins {
            live.insert((rank(i), i));
        } else {
            live.remove(&(rank(i), i));
        }
        let Some(&(until, ..)) = edges.get(k + 1) else {
            break;
        };
        let Some(&(_, busiest)) = live.first().filter(|_| at < until) else {
            continue;
        };
        let whole = threads[busiest];
        let mut all = live.iter().map(|&(_, i)| threads[i].doing);
        let next = Span {
            from_ns: at,
            to_ns: until,
            // An interval that is cut short ends because another thread works.
            waker: whole.waker.filter(|_| until == whole.to_ns),
            sleeps: whole.doing != Doing::Busy && all.any(|doing| doing == Doing::Sleep),
            ..whole
        };
        let goes_on =
            |last: &Span| (last.to_ns, last.doing, last.sleeps) == (at, next.doing, next.sleeps);
        match spans[first..].last_mut() {
            Some(last) if goes_on(last) && last.waker.is_none() => {
                last.waker = next.waker;
                last.to_ns = until;
                last.error_ns = last.error_ns.max(next.error_ns);
            }
            _ => spans.push(next),
        }
    }
}

#[cfg(test)]
mod tests;
