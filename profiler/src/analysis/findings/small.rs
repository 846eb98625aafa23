//! Steps that move their data in many calls of few bytes each. The kernel takes nearly as long for a call
//! of two bytes as for one of a thousand, and a reader on the other side of a pipe is woken for each.

use std::collections::{BTreeMap, HashMap, HashSet};

use flowtrace_render::units;

use super::Finding;
use crate::analysis::bottlenecks::Confidence;
use crate::analysis::bound::Bound;
use crate::model::{Access, Image, Moved, ProcessId};
use crate::timeline::{State, sum_of};

/// Least number of calls that are many.
const MANY: i64 = 1000;
/// Mean number of bytes per call below which calls are small: the buffers of C and Python have 4096 or
/// more.
const FEW: i64 = 512;

/// Direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Direction {
    Write,
    Read,
}

impl Direction {
    fn of(self, image: &Image) -> Moved {
        match self {
            Direction::Write => image.writes,
            Direction::Read => image.reads,
        }
    }
}

/// Small calls of the programs of one rule.
#[derive(Default)]
struct Small {
    calls: i64,
    bytes: i64,
    /// Time in the calls, ns.
    calls_ns: f64,
    cpu_ns: i64,
    /// Share of the work of each program that larger calls would save, by its place.
    share: HashMap<usize, f64>,
}

/// The steps with small calls, each with the gain of larger calls.
pub(super) fn small_calls(bound: &Bound<'_>) -> Vec<Finding> {
    let workflow = bound.workflow;
    let (both, streams) = partners(bound);
    // The programs of processes that read in small calls because others write so.
    let mut readers: HashMap<ProcessId, (usize, f64)> = HashMap::new();
    let mut found: BTreeMap<(Direction, &str), Small> = BTreeMap::new();
    let mut writers: HashSet<ProcessId> = HashSet::new();
    let stints = &bound.timeline.programs.stints;
    for direction in [Direction::Write, Direction::Read] {
        for (place, stint) in stints.iter().enumerate() {
            let image = workflow.program(stint);
            let moved = direction.of(image);
            // A process that asks and answers in turn cannot wait until there is more data.
            if !is_small(moved) || both.contains(&stint.process) {
                continue;
            }
            let Some((share, calls_ns)) = share(bound, place, direction) else {
                continue;
            };
            let fed = streams.get(&stint.process);
            if direction == Direction::Read && fed.is_some_and(|by| !by.is_disjoint(&writers)) {
                readers.insert(stint.process, (place, share));
                continue;
            }
            if direction == Direction::Write {
                writers.insert(stint.process);
            }
            let one = found.entry((direction, &image.rule)).or_default();
            let cpu_ns = image.cpu_ns.unwrap_or(0);
            one.calls += moved.calls;
            one.bytes += moved.bytes;
            one.cpu_ns += cpu_ns;
            one.calls_ns += calls_ns;
            one.share.insert(place, share);
        }
    }
    for ((direction, _), one) in &mut found {
        if *direction == Direction::Write {
            let own: HashSet<ProcessId> = one.share.keys().map(|&at| stints[at].process).collect();
            let woken = readers.iter().filter(|(reader, _)| {
                let by = streams.get(reader);
                by.is_some_and(|by| !by.is_disjoint(&own))
            });
            let woken: Vec<(usize, f64)> = woken.map(|(_, &reader)| reader).collect();
            one.share.extend(woken);
        }
    }
    let found = found.into_iter();
    found
        .map(|((direction, rule), one)| finding(bound, direction, rule, &one))
        .collect()
}

fn is_small(moved: Moved) -> bool {
    moved.calls >= MANY && moved.bytes > 0 && moved.bytes / moved.calls < FEW
}

/// The processes that talk with another one both ways, and for every process, those that it reads from.
fn partners(bound: &Bound<'_>) -> (HashSet<ProcessId>, HashMap<ProcessId, HashSet<ProcessId>>) {
    let mut both = HashSet::new();
    let mut streams: HashMap<ProcessId, HashSet<ProcessId>> = HashMap::new();
    for stream in &bound.workflow.streams {
        if bound.workflow.is_answered(stream) {
            both.extend([stream.from, stream.to]);
        }
        streams.entry(stream.to).or_default().insert(stream.from);
    }
    (both, streams)
}

/// The share of a program's work that larger calls would save, and its time in the calls, ns; `None`: not known.
///
/// Saved are the time in the calls and the program's own part: the functions of a library and of an interpreter that
/// lead to each call. Where the calls were recorded, their times are known. Else they have a share, by their number, of
/// the time that the program was blocked in files or on a CPU in the kernel. The own part is not recorded. It is taken
/// to be as long as the kernel's, and at most half of the program's user time: of programs in C, Python, Perl, awk and
/// bash that were run with and without a buffer, it was 0.4 to 0.9 of the user time, less only where the program
/// computed much between its calls.
fn share(bound: &Bound<'_>, place: usize, direction: Direction) -> Option<(f64, f64)> {
    let stint = &bound.timeline.programs.stints[place];
    let image = bound.workflow.program(stint);
    let calls = direction.of(image).calls as f64;
    let of_calls = calls / (image.reads.calls + image.writes.calls).max(1) as f64;
    let totals = bound
        .timeline
        .within(stint.process, stint.from_ns, stint.to_ns);
    let no_work = [State::In, State::Out, State::Child, State::Stopped];
    let work = sum_of(&totals, |state| !no_work.contains(&state));
    let busy = totals[State::Cpu as usize] + totals[State::Queue as usize];
    let kernel = image.kernel_share?;
    let blocked = of_calls * totals[State::File as usize];
    let in_kernel = of_calls * kernel * busy;
    let recorded = recorded_ns(bound, stint.process, direction, calls);
    let calls_ns = (in_kernel + blocked).min(recorded.unwrap_or(f64::INFINITY));
    let own = of_calls * ((1.0 - kernel) / 2.0) * busy;
    let saved = calls_ns + own.min(in_kernel).min(calls_ns);
    (work > 0.0).then_some((saved / work, calls_ns))
}

/// The time of `calls` calls of a process, ns, by those on files that were recorded; `None`: most were not.
fn recorded_ns(bound: &Bound<'_>, id: ProcessId, direction: Direction, calls: f64) -> Option<f64> {
    let of = |access: &Access| match direction {
        Direction::Read => (access.reads, access.read_time_ns),
        Direction::Write => (access.writes, access.write_time_ns),
    };
    let all = bound.workflow.accesses_of(id).iter().map(of);
    let (count, ns) = all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (count as f64 >= 0.5 * calls).then(|| ns as f64 / count as f64 * calls)
}

fn finding(bound: &Bound<'_>, direction: Direction, rule: &str, one: &Small) -> Finding {
    // To the nearest byte.
    let each = units::bytes((one.bytes + one.calls / 2) / one.calls.max(1));
    let times = units::short_count(one.calls);
    let name = units::shorten(&units::plain(rule), 40);
    let (title, action, causes) = match direction {
        Direction::Write => (
            format!("{name} makes {times} tiny writes, {each} each: let it buffer what it writes"),
            format!("let {name} buffer what it writes"),
            "PYTHONUNBUFFERED, python -u, stdbuf, or a flush after each line",
        ),
        Direction::Read => (
            format!("{name} makes {times} tiny reads, {each} each: let it read more at a time"),
            format!("let {name} read more at a time"),
            "input without a buffer, dd with a small bs, or read in a loop of a shell",
        ),
    };
    Finding {
        kind: "small calls",
        step: Some(rule.to_owned()),
        title,
        saving_ns: bound.without_programs(&one.share),
        evidence: format!(
            "{} in all; the calls took {}, the step {} of CPU time; usual causes are {causes}",
            units::bytes(one.bytes),
            units::duration(one.calls_ns as i64),
            units::duration(one.cpu_ns)
        ),
        confidence: Confidence::Medium.name(),
        command: "stats",
        action,
        why: None,
    }
}
