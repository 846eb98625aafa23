//! The state of an image, composed of the states of its threads.

use std::collections::HashMap;

use flowtrace_schema::{Activity, PolledRow, SampleRow};

use super::State;
use super::channels::Kept;
use crate::load::{Grants, is_single};
use crate::model::ChannelEnds;

/// An interval in which an image was seen in one state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Seen {
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) state: State,
    /// True if it waits for a lock in the memory of the process, or at a channel to itself.
    pub(super) is_own: bool,
    pub(super) channel_id: Option<i64>,
    pub(super) child_pid: Option<i64>,
    pub(super) waker: Option<i64>,
    pub(super) samples: u32,
    /// True if another thread slept while this one waited for a channel or child.
    pub(super) sleeps: bool,
    /// True if it waited for channels until a time limit, although other processes could have written.
    pub(super) is_in_vain: bool,
}

/// The state that a sample stands for. `has_child`: true if a child lived meanwhile; waiting for a signal is
/// then how some programs wait for it.
pub(super) fn state(
    row: &SampleRow,
    side: Option<&str>,
    has_child: impl FnOnce() -> bool,
) -> State {
    match Activity::of_number(row.activity) {
        Some(Activity::Running) => State::Cpu,
        Some(Activity::Runnable) => State::Queue,
        // A person who types at a terminal is the writer of a channel, too.
        Some(Activity::Channel | Activity::Terminal) => match side {
            Some("write") => State::Out,
            _ => State::In,
        },
        Some(Activity::File) => State::File,
        Some(Activity::Fault) => State::Fault,
        Some(Activity::Child) => State::Child,
        Some(Activity::Lock) => State::Lock,
        Some(Activity::Sleep) => State::Sleep,
        Some(Activity::Signal) if has_child() => State::Child,
        Some(Activity::Tracer) => State::Tracer,
        Some(Activity::Stopped) => State::Stopped,
        Some(Activity::Signal | Activity::Event | Activity::Other) => State::Other,
        None => State::Unknown,
    }
}

/// Rank of a state as that of an image of several threads, the strongest first. A thread that waits for a
/// lock in the memory of the process waits for another of its threads (`join`, a condition, an idle pool),
/// whose state is the reason; so may one that waits at a channel to itself, which else sleeps. Of waits, one
/// for something known says more.
fn strength(one: &Seen) -> (bool, bool, State, bool) {
    let is_known = one.channel_id.is_some() || one.waker.is_some();
    (
        one.is_own && one.state == State::Lock,
        one.is_own,
        one.state,
        !is_known,
    )
}

/// Merges the intervals of the threads of one image: at any time the strongest state counts. `seen` has the
/// intervals of all threads; those of one thread do not overlap.
pub(super) fn together(mut seen: Vec<Seen>, is_single: bool) -> Vec<Seen> {
    seen.retain(|one| one.to > one.from);
    seen.sort_by_key(|one| (one.from, one.to));
    if is_single {
        for i in 1..seen.len() {
            seen[i].from = seen[i].from.max(seen[i - 1].to);
        }
        seen.retain(|one| one.to > one.from);
        return seen;
    }
    let mut bounds: Vec<i64> = seen.iter().flat_map(|one| [one.from, one.to]).collect();
    bounds.sort_unstable();
    bounds.dedup();
    let mut alive: Vec<usize> = Vec::new();
    let mut next = 0;
    let mut merged: Vec<Seen> = Vec::new();
    for pair in bounds.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        while seen.get(next).is_some_and(|one| one.from <= from) {
            alive.push(next);
            next += 1;
        }
        alive.retain(|&at| seen[at].to > from);
        let Some(&strongest) = alive.iter().min_by_key(|&&at| (strength(&seen[at]), at)) else {
            continue;
        };
        let sleeps = |&at: &usize| seen[at].state == State::Sleep && !seen[at].is_own;
        let one = Seen {
            sleeps: seen[strongest].state.is_waiting() && alive.iter().any(sleeps),
            ..seen[strongest]
        };
        // Samples count once, in proportion to the part of their interval.
        let part = (to - from) as f64 / (one.to - one.from) as f64;
        let samples = (f64::from(one.samples) * part).round() as u32;
        match merged.last_mut() {
            Some(last)
                if last.to == from
                    && (last.state, last.channel_id, last.child_pid, last.waker)
                        == (one.state, one.channel_id, one.child_pid, one.waker)
                    && (last.sleeps, last.is_in_vain) == (one.sleeps, one.is_in_vain) =>
            {
                last.to = to;
                last.samples += samples;
            }
            _ => merged.push(Seen {
                from,
                to,
                samples,
                ..one
            }),
        }
    }
    merged
}

/// The states of an image. A thread that waits for several channels at once waits for the first of them that
/// another process has open, else for one that leads out of the run: an event loop also waits for itself.
/// `kept` returns the processes that have the other side open, for a channel, true for reading, and an interval.
pub(super) fn seen(
    rows: &[SampleRow],
    polled: &HashMap<i64, &[PolledRow]>,
    grants: &Grants,
    ends: &ChannelEnds,
    children: &[(i64, i64)],
    kept: impl Fn(i64, bool, i64, i64) -> Kept,
) -> Vec<Seen> {
    let is_single = is_single(rows);
    let is_token = |channel: &Option<i64>| channel.is_some_and(|c| ends.is_token(c));
    let of = |row: &SampleRow| {
        let lives = |&(from, to): &(i64, i64)| from < row.end_ns && row.t_ns < to;
        // Another thread, or a signal, wakes the process by a pipe to itself. An unseen child may have that
        // pipe, too: not if other processes are known to have had it for a short time, as children do until
        // they run another program.
        let is_own = |channel| match ends.is_own(channel) {
            true => !children.iter().any(lives),
            false => {
                let kept = kept(channel, true, row.t_ns, row.end_ns);
                kept.by_itself && kept.by_others < 0.1
            }
        };
        let several = polled.get(&row.sample_id).and_then(|rows| {
            let is_kept = |one: &PolledRow| {
                let by_others =
                    |channel| kept(channel, one.side != "write", row.t_ns, row.end_ns).by_others;
                one.channel_id
                    .is_some_and(|channel| by_others(channel) > 0.5)
            };
            // A thread that could also write does not wait for a writer alone.
            let key = |one: &&PolledRow| {
                let is_token = is_token(&one.channel_id);
                (
                    is_token,
                    !is_token && !is_kept(one),
                    one.channel_id.is_some_and(is_own),
                    one.channel_id.is_none(),
                    one.side != "write",
                )
            };
            rows.iter().min_by_key(key)
        });
        let side = several.map_or(row.side.as_deref(), |one| Some(one.side.as_str()));
        let channel_id = several.and_then(|one| one.channel_id).or(row.channel_id);
        let state = match state(row, side, || children.iter().any(lives)) {
            // A manager that has no token left waits for one of the processes that it starts. A pipe that no
            // other process has only looks like one of a jobserver, unless a child lives that may have it.
            State::In
                if is_token(&channel_id)
                    && children.iter().any(|child| {
                        lives(child) || !channel_id.is_some_and(|c| ends.is_own(c))
                    }) =>
            {
                State::Child
            }
            state => state,
        };
        let granted = match state {
            State::Lock => grants.lock_within(row.upid, row.t_ns, row.end_ns),
            State::In | State::Out if channel_id.is_none() && row.waker_upid.is_none() => {
                grants.open_after(row.upid, row.t_ns, row.end_ns)
            }
            _ => None,
        };
        let by_itself = state == State::In && channel_id.is_some_and(is_own);
        let is_in_vain = state == State::Sleep && side.is_some() && !channel_id.is_some_and(is_own);
        // Another thread wakes it, or its time limit.
        let (state, channel_id) = match by_itself {
            true if row.waker_upid == Some(row.upid) => (State::Lock, None),
            true => (State::Sleep, None),
            false => (state, channel_id),
        };
        let waker = granted.map_or(row.waker_upid, |grant| Some(grant.by_upid));
        let inferred = || grants.freed_by(row.sample_id);
        Seen {
            from: row.t_ns,
            to: row.end_ns,
            state,
            is_own: row.is_futex && state == State::Lock || by_itself,
            channel_id,
            child_pid: row.child_pid,
            waker: waker.or_else(|| inferred().filter(|_| state == State::Lock && !by_itself)),
            samples: u32::try_from(row.samples).unwrap_or(u32::MAX),
            sleeps: false,
            is_in_vain,
        }
    };
    // A process that sleeps until its next lookup of a file waits for the process that makes it.
    let parts = |row: &SampleRow| {
        let one = of(row);
        let sleep = match one.state {
            State::Sleep => grants.sleep_within(row.upid, row.t_ns, row.end_ns),
            _ => None,
        };
        let Some(sleep) = sleep else {
            return vec![one];
        };
        let part = |((from, to), waits): ((i64, i64), bool)| {
            let share = (to - from) as f64 / (one.to - one.from) as f64;
            let samples = (f64::from(one.samples) * share).round() as u32;
            let (state, waker) = match waits {
                true if sleep.is_for_lock => (State::Lock, Some(sleep.wait.by_upid)),
                true => (State::In, Some(sleep.wait.by_upid)),
                false => (one.state, one.waker),
            };
            Seen {
                from,
                to,
                state,
                waker,
                samples,
                ..one
            }
        };
        sleep.wait.cut(one.from, one.to).map(part).collect()
    };
    together(rows.iter().flat_map(parts).collect(), is_single)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(from: i64, to: i64, state: State) -> Seen {
        Seen {
            from,
            to,
            state,
            is_own: false,
            channel_id: None,
            child_pid: None,
            waker: None,
            samples: ((to - from) / 10) as u32,
            sleeps: false,
            is_in_vain: false,
        }
    }

    #[test]
    fn the_strongest_state_of_the_threads_counts() {
        let merged = together(
            vec![
                seen(0, 100, State::In),
                seen(20, 50, State::Cpu),
                seen(0, 120, State::Lock),
            ],
            false,
        );
        let found: Vec<_> = merged.iter().map(|s| (s.from, s.to, s.state)).collect();
        assert_eq!(
            found,
            [
                (0, 20, State::In),
                (20, 50, State::Cpu),
                (50, 100, State::In),
                (100, 120, State::Lock)
            ]
        );
    }

    #[test]
    fn who_joins_a_thread_that_sleeps_waits_for_no_lock() {
        let joins = Seen {
            is_own: true,
            ..seen(0, 120, State::Lock)
        };
        let merged = together(vec![joins, seen(20, 80, State::Sleep)], false);
        let found: Vec<_> = merged.iter().map(|s| (s.from, s.to, s.state)).collect();
        assert_eq!(
            found,
            [
                (0, 20, State::Lock),
                (20, 80, State::Sleep),
                (80, 120, State::Lock)
            ]
        );
        // The lock of a file is freed by another process.
        let locked = together(
            vec![seen(0, 10, State::Lock), seen(0, 10, State::Sleep)],
            false,
        );
        assert_eq!(locked[0].state, State::Lock);
    }

    #[test]
    fn intervals_of_one_thread_never_overlap() {
        let merged = together(vec![seen(0, 60, State::Cpu), seen(50, 90, State::In)], true);
        assert_eq!((merged[1].from, merged[1].to), (60, 90));
    }
}
