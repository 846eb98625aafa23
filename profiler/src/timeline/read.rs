//! From the rows of a trace to the timeline.

use std::collections::HashMap;

use flowtrace_schema::{
    Activity, ChannelRow, CounterRow, HostRow, PolledRow, Result, SampleRow, SettingRow, TimesRow,
    Trace,
};

use super::accounting::{Threads, mixes};
use super::channels::{Kept, add_channels, add_under_way, open_sides};
use super::limit::confined;
use super::machine::Counters;
use super::sleeps::{hide_in_vain, reveal_sleeps};
use super::threads::{Seen, seen};
use super::{Instance, LockWait, Piece, Place, STATES, Shares, State, TimeAccounting, Timeline};
use crate::load::{Grants, is_single};
use crate::managers::{Runner, runner_of};
use crate::model::{FileIndex, Image, ProcessId, Programs, Workflow};

/// A hole between samples up to this long belongs to the sample before it, ns.
const HOLE: i64 = 100_000_000;

/// The rows that a timeline is made of.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// By thread and time.
    pub samples: Vec<SampleRow>,
    /// By sample.
    pub polled: Vec<PolledRow>,
    /// By image.
    pub times: Vec<TimesRow>,
    /// By id.
    pub channels: Vec<ChannelRow>,
    /// By machine, counter and time.
    pub counters: Vec<CounterRow>,
    /// By id.
    pub hosts: Vec<HostRow>,
    /// By image.
    pub settings: Vec<SettingRow>,
    /// The first image of each run.
    pub first_of_runs: Vec<i64>,
    /// The processes that ended waits for locks and FIFOs.
    pub grants: Grants,
    /// True if the scheduler reported the samples: they have all states of every thread.
    pub exact: bool,
}

/// Reads the timeline of a trace.
///
/// # Errors
/// When the file cannot be read.
pub fn read(trace: &Trace, workflow: &Workflow) -> Result<Timeline> {
    let samples = trace.samples()?;
    let mut timeline = from_parts(
        workflow,
        Parts {
            grants: Grants::read(trace, workflow, &samples)?,
            samples,
            polled: trace.polled()?,
            times: trace.process_times()?,
            channels: trace.channels()?,
            counters: trace.host_counters()?,
            hosts: trace.machines()?,
            settings: trace.settings()?,
            first_of_runs: trace.first_of_runs()?,
            exact: trace.is_exact(),
        },
    );
    timeline.storage = trace.storage();
    Ok(timeline)
}

/// Makes the timeline of a workflow from its rows.
pub fn from_parts(workflow: &Workflow, parts: Parts) -> Timeline {
    // Processes that the command left behind made no other wait.
    let end = match workflow.runs.len() {
        1 => workflow.begins_ns() + workflow.duration_ns(),
        _ => workflow.last_ns,
    };
    let is_partial = workflow.is_live || workflow.is_cut_short();
    let end = match is_partial {
        true => end.min(workflow.complete_ns),
        false => end,
    };
    let begin = workflow.images.iter().map(|image| image.start_ns).min();
    let traced = workflow.directories.iter().filter(|one| one.is_seen());
    let mut timeline = Timeline {
        begins_ns: workflow.begins_ns(),
        programs: Programs::of(workflow),
        span: (begin.unwrap_or(0).min(end), end),
        way_ns: workflow.mount.way_ns,
        place: Place::of(traced.map(|directory| directory.filesystem.as_deref())),
        file_calls: workflow.file_calls(),
        exact: parts.exact,
        is_partial,
        is_live: workflow.is_live,
        ..Timeline::default()
    };
    add_channels(&mut timeline, workflow, &parts.channels, &parts.samples);
    timeline.counters = Counters::new(parts.counters);
    timeline.hosts = parts.hosts;
    let channel_at: HashMap<i64, u32> = timeline
        .channels
        .iter()
        .enumerate()
        .map(|(at, channel)| (channel.channel_id, at as u32))
        .collect();
    let times: HashMap<i64, &TimesRow> = parts.times.iter().map(|row| (row.upid, row)).collect();
    let mut samples: HashMap<i64, &[SampleRow]> = HashMap::new();
    for rows in parts.samples.chunk_by(|a, b| a.upid == b.upid) {
        samples.insert(rows[0].upid, rows);
    }
    let polled = by_sample(&parts.polled);
    let process_of = workflow.process_of_images();
    timeline.lock_waits = lock_waits(workflow, &parts.grants, &process_of);
    let children = workflow.children();
    let holds = open_sides(&timeline);
    let confined = confined(workflow, &parts.settings, &parts.first_of_runs);
    timeline.mixes = State::ALL.map(pure).to_vec();
    for id in workflow.process_ids() {
        let process = workflow.process(id);
        let life = |&child: &ProcessId| {
            let child = workflow.process(child);
            (child.start_ns, child.end_ns.unwrap_or(i64::MAX))
        };
        let lives: Vec<(i64, i64)> = children[id.0 as usize].iter().map(life).collect();
        let has_children = !lives.is_empty();
        let guess = match holds.get(&id) {
            _ if has_children => State::Child,
            Some(&(true, _)) => State::In,
            Some(&(false, true)) => State::Out,
            _ => State::Other,
        };
        let mount = workflow.mount.of.get(id.0 as usize);
        let mut instance = Instance {
            process: id,
            from: process.start_ns,
            to: process.end_ns.unwrap_or(end).max(process.start_ns),
            pieces: Vec::new(),
            totals: [0.0; STATES],
            is_orchestrator: false,
            samples: 0,
            host: None,
            cwd: None,
            accounting: TimeAccounting {
                is_complete: true,
                mount: mount.copied().unwrap_or_default(),
                ..TimeAccounting::default()
            },
            confined: confined.get(id.0 as usize).cloned().flatten(),
        };
        let images = workflow.images(id);
        for (i, image) in images.iter().enumerate() {
            let until = match images.get(i + 1) {
                Some(next) => next.start_ns,
                None => instance.to,
            };
            let nothing = TimesRow::default();
            let row = times.get(&image.upid).copied().unwrap_or(&nothing);
            let rows = samples.get(&image.upid).copied().unwrap_or(&[]);
            add_accounting(&mut instance.accounting, row, rows, until - image.start_ns);
            instance.host = row.host.clone().or(instance.host);
            instance.cwd = row.cwd.clone().or(instance.cwd);
            let kept = |channel: i64, is_read: bool, from: i64, to: i64| {
                let channel = channel_at
                    .get(&channel)
                    .map(|&at| &timeline.channels[at as usize]);
                channel.map_or_else(Kept::default, |channel| channel.kept(id, is_read, from, to))
            };
            let seen = seen(rows, &polled, &parts.grants, &workflow.ends, &lives, kept);
            let of_threads = match parts.exact {
                true => None,
                false => Threads::of(rows),
            };
            add_image(
                &mut timeline,
                &mut instance,
                image,
                until,
                row,
                seen,
                of_threads,
                guess,
                &channel_at,
                &process_of,
            );
        }
        timeline.instances.push(instance);
    }
    hide_in_vain(&mut timeline);
    reveal_sleeps(&mut timeline, workflow, &children);
    for instance in &mut timeline.instances {
        for piece in &instance.pieces {
            let length = (piece.to - piece.from) as f64;
            let shares = timeline.mixes[piece.mix as usize];
            for (sum, share) in instance.totals.iter_mut().zip(shares) {
                *sum += share * length;
            }
        }
    }
    add_under_way(&mut timeline);
    for program in 0..timeline.programs.stints.len() {
        let of_program = orchestrates(workflow, &timeline, program, &children);
        timeline.only_runs.push(of_program);
    }
    for id in workflow.process_ids() {
        let longest = timeline.programs.longest(workflow, id);
        timeline.instances[id.0 as usize].is_orchestrator = timeline.only_runs[longest];
    }
    let is_step = |one: &&Instance| !one.is_orchestrator;
    let steps = timeline.instances.iter().filter(is_step);
    timeline.limit = timeline.limit_of(steps.map(|one| one.process));
    timeline
}

fn lock_waits(
    workflow: &Workflow,
    grants: &Grants,
    process_of: &HashMap<i64, ProcessId>,
) -> Vec<LockWait> {
    let wait = |(upid, grant): (i64, crate::load::Grant)| {
        let file_id = grant.file_id?;
        let files = &workflow.files;
        let file = files.binary_search_by_key(&file_id, |file| file.file_id);
        Some(LockWait {
            process: *process_of.get(&upid)?,
            from: grant.from_ns,
            to: grant.to_ns,
            by: *process_of.get(&grant.by_upid)?,
            file: FileIndex(u32::try_from(file.ok()?).ok()?),
        })
    };
    let waits = grants.lock_waits().into_iter().filter_map(wait);
    let mut waits: Vec<LockWait> = waits.filter(|wait| wait.by != wait.process).collect();
    waits.sort_unstable_by_key(|wait| (wait.process, wait.from));
    waits
}

fn pure(state: State) -> Shares {
    let mut shares = [0.0; STATES];
    shares[state as usize] = 1.0;
    shares
}

fn by_sample(rows: &[PolledRow]) -> HashMap<i64, &[PolledRow]> {
    rows.chunk_by(|a, b| a.sample_id == b.sample_id)
        .map(|rows| (rows[0].sample_id, rows))
        .collect()
}

/// Adds the time accounting of an image that lived for `life` ns.
fn add_accounting(sums: &mut TimeAccounting, row: &TimesRow, samples: &[SampleRow], life: i64) {
    let known = [
        row.on_cpu_ns,
        row.run_queue_ns,
        row.storage_ns,
        row.wait_ns,
        row.thread_ns,
    ];
    sums.is_complete &= known.iter().all(Option::is_some);
    sums.on_cpu_ns = sums.on_cpu_ns.saturating_add(row.on_cpu_ns.unwrap_or(0));
    sums.run_queue_ns = sums
        .run_queue_ns
        .saturating_add(row.run_queue_ns.unwrap_or(0));
    sums.storage_ns = sums.storage_ns.saturating_add(row.storage_ns.unwrap_or(0));
    sums.wait_ns = sums.wait_ns.saturating_add(row.wait_ns.unwrap_or(0));
    sums.tracer_ns = sums.tracer_ns.saturating_add(row.tracer_ns.unwrap_or(0));
    sums.thread_ns = sums.thread_ns.saturating_add(row.thread_ns.unwrap_or(0));
    sums.major_faults = sums
        .major_faults
        .saturating_add(row.major_faults.unwrap_or(0));
    sums.voluntary_switches = sums
        .voluntary_switches
        .saturating_add(row.voluntary_switches.unwrap_or(0));
    sums.involuntary_switches = sums
        .involuntary_switches
        .saturating_add(row.involuntary_switches.unwrap_or(0));
    sums.threads = sums.threads.max(row.threads.unwrap_or(1));
    sums.max_rss_bytes = sums.max_rss_bytes.max(row.max_rss_bytes.unwrap_or(0));
    let length = |sample: &SampleRow| sample.end_ns - sample.t_ns;
    let sum = |of: &dyn Fn(&SampleRow) -> bool, samples: &[SampleRow]| -> i64 {
        samples.iter().filter(|sample| of(sample)).map(length).sum()
    };
    let is_lock = |sample: &SampleRow| sample.activity == Activity::Lock as i64;
    let is_at_work =
        |sample: &SampleRow| Activity::of_number(sample.activity).is_some_and(Activity::is_at_work);
    sums.sampled_ns += sum(&|_| true, samples);
    sums.lock_ns += sum(&is_lock, samples);
    if is_single(samples) {
        return;
    }
    let threads = || samples.chunk_by(|a, b| a.tid == b.tid);
    let even_ns = sum(&is_at_work, samples) / threads().count().max(1) as i64;
    for thread in threads() {
        // A thread that does next to nothing compared with the others helps them, as the one that feeds a
        // queue of Python.
        let is_help = sum(&is_at_work, thread) < even_ns / 20;
        let waits = |sample: &SampleRow| is_lock(sample) && sample.is_futex;
        // A thread that mostly passes data on from a pipe or socket shares no work with the others, as those
        // that a pool of processes has for its workers.
        let is_channel = |sample: &SampleRow| sample.activity == Activity::Channel as i64;
        let channel_ns = sum(&is_channel, thread);
        if channel_ns > sum(&is_at_work, thread) && 2 * channel_ns > sum(&|_| true, thread) {
            sums.thread_lock_ns += sum(&waits, thread);
            sums.thread_help_ns += sum(&|_| true, thread);
            continue;
        }
        let is_idle = |sample: &SampleRow| waits(sample) && (is_help || length(sample) > life / 2);
        let (locks, idle) = (sum(&waits, thread), sum(&is_idle, thread));
        sums.thread_lock_ns += locks;
        sums.thread_idle_ns += idle;
        sums.thread_wait_ns += locks - idle;
    }
}

#[expect(clippy::too_many_arguments, reason = "one call, in a loop over images")]
fn add_image(
    timeline: &mut Timeline,
    instance: &mut Instance,
    image: &Image,
    until: i64,
    row: &TimesRow,
    seen: Vec<Seen>,
    of_threads: Option<Threads>,
    guess: State,
    channel_at: &HashMap<i64, u32>,
    process_of: &HashMap<i64, ProcessId>,
) {
    let (from, to) = (image.start_ns.max(instance.from), until.max(image.start_ns));
    let mut pieces: Vec<Piece> = Vec::with_capacity(seen.len() + 2);
    // Pieces in which no thread was seen to do anything but wait for another one.
    let mut hidden: Vec<usize> = Vec::new();
    let piece = |from: i64, to: i64, state: State| Piece {
        from,
        to,
        state,
        channel: None,
        child_pid: None,
        waker: None,
        samples: 0,
        sleeps: false,
        is_in_vain: false,
        mix: state as u32,
    };
    let mut at = from;
    for one in seen {
        let (begin, end) = (one.from.clamp(at, to), one.to.clamp(at, to));
        if end <= begin {
            continue;
        }
        if begin > at {
            match pieces.last_mut() {
                Some(last) if begin - at <= HOLE => last.to = begin,
                // The first state may have begun before its sample, but no earlier than another sample would
                // have been taken.
                None if begin - at <= (one.to - one.from) / i64::from(one.samples.max(1)) => {}
                _ => pieces.push(piece(at, begin, State::Unknown)),
            }
        }
        let begin = if pieces.is_empty() { at } else { begin };
        instance.samples += u64::from(one.samples);
        if one.is_own {
            hidden.push(pieces.len());
        }
        pieces.push(Piece {
            channel: one.channel_id.and_then(|id| channel_at.get(&id).copied()),
            child_pid: one.child_pid,
            waker: one.waker.and_then(|upid| process_of.get(&upid).copied()),
            samples: one.samples,
            sleeps: one.sleeps,
            is_in_vain: one.is_in_vain,
            ..piece(begin, end, one.state)
        });
        at = end;
    }
    if at < to {
        match pieces.last_mut() {
            Some(last) if to - at <= HOLE => last.to = to,
            _ => pieces.push(piece(at, to, State::Unknown)),
        }
    }
    let mut sums = [0.0; STATES];
    for piece in &pieces {
        sums[piece.state as usize] += (piece.to - piece.from) as f64;
    }
    let mut mixes = mixes(row, &sums, guess);
    if let Some(threads) = of_threads {
        let for_threads = hidden.iter().map(|&at| pieces[at].to - pieces[at].from);
        let for_threads = for_threads.sum::<i64>() as f64;
        if let Some(hides) = threads.correct(&mut mixes, row, &sums, for_threads) {
            let first = timeline.mixes.len() as u32;
            timeline.mixes.extend(hides);
            for &at in &hidden {
                pieces[at].mix = first + u32::from(pieces[at].state == State::Sleep);
            }
        }
    }
    let mut own: [Option<u32>; STATES] = [None; STATES];
    // Only the pieces in `hidden` have a mix that is not that of their state by now.
    let by_state = |piece: &&mut Piece| piece.mix == piece.state as u32;
    for piece in pieces.iter_mut().filter(by_state) {
        let state = piece.state as usize;
        piece.mix = *own[state].get_or_insert_with(|| {
            timeline.mixes.push(mixes.of[state]);
            timeline.mixes.len() as u32 - 1
        });
    }
    instance.pieces.extend(pieces);
}

/// Returns true if a program only runs others. A manager always does; so does any other program that has
/// children and does next to nothing itself while they live, and a shell even if it is busy for a while.
fn orchestrates(
    workflow: &Workflow,
    timeline: &Timeline,
    program: usize,
    children: &[Vec<ProcessId>],
) -> bool {
    let part = timeline.part(program);
    let image = workflow.program(&timeline.programs.stints[program]);
    let runner = runner_of(image.exe.as_deref(), &image.rule);
    if runner == Some(Runner::Manager) {
        return true;
    }
    let started = |child: &&ProcessId| {
        let at = workflow.process(**child).start_ns;
        timeline.programs.at(part.process, at) == program
    };
    let mut children = children[part.process.0 as usize]
        .iter()
        .filter(started)
        .peekable();
    if children.peek().is_none() {
        return false;
    }
    let totals = timeline.within(part.process, part.from, part.to);
    let life: f64 = totals.iter().sum();
    let own = |states: &[State]| -> f64 {
        let sum: f64 = states.iter().map(|&state| totals[state as usize]).sum();
        sum / life.max(1.0)
    };
    let busy = own(&[State::Cpu, State::Queue, State::File, State::Fault]);
    match runner {
        Some(Runner::Launcher) => true,
        Some(Runner::Shell) => busy < 0.5,
        _ => {
            let waits = own(&[State::Child, State::In, State::Other, State::Unknown]);
            let mut covered = 0;
            let mut at = part.from;
            for &child in children {
                let process = workflow.process(child);
                let end = process.end_ns.unwrap_or(part.to).min(part.to);
                covered += (end - process.start_ns.max(at)).max(0);
                at = at.max(end);
            }
            busy < 0.1 && waits > 0.85 && covered as f64 > 0.8 * life && own(&[State::Child]) > 0.5
        }
    }
}
