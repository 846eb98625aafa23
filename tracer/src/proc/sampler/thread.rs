//! One sampled thread: its files of /proc, kept open, and the interval that is going on.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use flowtrace_schema::{Activity, SampleRecord, Tid, Upid};

use super::super::observer::ChannelLookup;
use super::calls::Abi;
use super::doing::{self, Doing};
use super::objects::Holder;
use super::text::{Position, Scheduled};

/// Descriptors that are used for a thread.
pub(super) const DESCRIPTORS: usize = 2;

/// Samples of one wait after which a thread that has not run since is only checked for having run: it must be
/// in the same call. Before that, its wakeup would count as waiting until it gets a CPU, which is too much of
/// a short wait. A thread that has run then waits for the next event, though the call is the same;
/// distinguishing these would make an interval of each sample of shorter waits.
const SETTLED: u32 = 6;
/// A thread that has not moved for some rounds is skipped for this fraction of as many, but for no more than
/// [`Round::left_alone`]. If it still has not run then, it was in the same call all the time.
const LEFT_ALONE_PART: u32 = 16;
/// Most threads that are all sampled in every round; of twice as many, a thread that does not move is skipped
/// every other time.
const ALL_SAMPLED: usize = 8;
const LEFT_ALONE: u32 = 8;
/// A sample that comes so many rounds late shows that the sampler itself was stopped (Ctrl-Z stops it with
/// the job): the state of a thread that has run meanwhile is unknown.
const MISSED: u64 = 50;
/// Time for which a descriptor is taken to stay the same while the same call is made again and again.
const TRUSTED_NS: u64 = 250_000_000;
/// Age at which an interval is recorded though it goes on: the most that a killed tracer loses.
const RECORDED_NS: u64 = 5_000_000_000;
/// Enough for the longest text: nine numbers of 18 characters.
const TEXT: usize = 192;

/// Files of a thread in /proc. An open file belongs to that thread: reading it fails after its end, even if
/// the id is used again.
struct Files {
    syscall: File,
    schedstat: File,
    abi: Abi,
}

/// One round of samples.
#[derive(Clone, Copy)]
pub(super) struct Round {
    /// Time between two rounds, ns.
    period_ns: u64,
    /// Rounds for which a thread that does not move may be skipped: a sample costs little, a late one makes
    /// the end of the wait inexact.
    left_alone: u32,
}

impl Round {
    pub(super) fn new(period_ns: u64, threads: usize) -> Round {
        let left_alone = u32::try_from(threads / ALL_SAMPLED).unwrap_or(LEFT_ALONE);
        Round {
            period_ns,
            left_alone: left_alone.clamp(1, LEFT_ALONE),
        }
    }
}

/// A thread of the tree.
pub(super) struct Thread {
    pub(super) holder: Holder,
    pub(super) upid: Upid,
    began_ns: u64,
    files: Option<Files>,
    /// True if nothing more can be read about it.
    closed: bool,
    /// True if there were no descriptors left for its files.
    refused: bool,
    /// Job control stopped it.
    stopped: bool,
    /// Rounds from one sample to the next, and the number of them that are left.
    stride: u32,
    rests: u32,
    last: Last,
    interval: Option<Interval>,
    /// End of the interval before, ns.
    ended_ns: u64,
}

/// The last sample.
struct Last {
    scheduled: Option<Scheduled>,
    text: [u8; TEXT],
    length: usize,
    resolved_ns: u64,
}

/// Consecutive equal samples; of a wait, until its object came.
struct Interval {
    id: u64,
    start_ns: u64,
    /// When it was first seen, and last.
    seen_ns: u64,
    last_ns: u64,
    samples: u32,
    doing: Doing,
    recorded_ns: u64,
}

/// Result of a sample.
pub(super) enum Sampled {
    /// It continues the interval that is going on.
    Same,
    /// A new interval began; the one before may be recorded.
    Changed(Option<SampleRecord>),
    /// The thread is over.
    Gone,
    /// The thread may not be read.
    Refused,
}

enum Reading {
    /// It has not run since the last sample.
    Unmoved,
    Same,
    At(Doing),
    Gone,
    Refused,
}

impl Thread {
    pub(super) fn new(holder: Holder, upid: Upid, began_ns: u64) -> Thread {
        Thread {
            holder,
            upid,
            began_ns,
            files: None,
            closed: false,
            refused: false,
            stopped: false,
            stride: 1,
            rests: 0,
            last: Last {
                scheduled: None,
                text: [0; TEXT],
                length: 0,
                resolved_ns: 0,
            },
            interval: None,
            ended_ns: 0,
        }
    }

    /// True if [`Thread::open`] would be of use.
    pub(super) fn wants_files(&self) -> bool {
        self.files.is_none() && !self.closed
    }

    /// True if this is the first time that there are no descriptors for its files.
    pub(super) fn is_first_refusal(&mut self) -> bool {
        !std::mem::replace(&mut self.refused, true)
    }

    pub(super) fn has_files(&self) -> bool {
        self.files.is_some()
    }

    /// Opens its files.
    pub(super) fn open(&mut self) -> io::Result<()> {
        let open = |name: &str| File::open(self.holder.path(name));
        let auxv = std::fs::read(self.holder.path("auxv")).unwrap_or_default();
        self.files = Some(Files {
            syscall: open("syscall")?,
            schedstat: open("schedstat")?,
            abi: Abi::of_auxv(&auxv),
        });
        Ok(())
    }

    /// Closes its files for good.
    pub(super) fn give_up(&mut self) {
        self.files = None;
        self.closed = true;
    }

    /// Job control stopped it at time `at`: possibly with flowtrace, so that the next sample comes when both
    /// go on, or came before this report. Returns the interval before, or that of the stop.
    pub(super) fn stops(&mut self, at: u64, ids: &mut u64) -> Option<SampleRecord> {
        self.goes_on();
        self.stopped = true;
        self.last.length = 0;
        if self.interval.as_ref().is_some_and(Interval::is_stop) {
            return None;
        }
        let seen = self.interval.as_ref().map(|interval| interval.seen_ns);
        let goes_on_ns = self
            .interval
            .as_ref()
            .map_or(0, |interval| interval.start_ns);
        let from_ns = at.max(self.ended_ns);
        if from_ns < goes_on_ns {
            let now = self.interval.take();
            self.begin(Activity::Stopped.into(), from_ns, from_ns, ids);
            let halted = self.close(goes_on_ns);
            self.interval = now;
            return halted;
        }
        let start_ns = at.max(self.began_ns).max(seen.unwrap_or(0));
        let before = self.close(start_ns);
        self.begin(Activity::Stopped.into(), start_ns, start_ns, ids);
        before
    }

    /// Job control continues it.
    pub(super) fn goes_on(&mut self) {
        self.stopped = false;
        (self.stride, self.rests) = (1, 0);
    }

    /// True if it is skipped in this round.
    pub(super) fn rests(&mut self) -> bool {
        let rests = self.rests > 0;
        self.rests = self.rests.saturating_sub(1);
        rests
    }

    /// Takes a sample.
    pub(super) fn sample(
        &mut self,
        now: u64,
        round: Round,
        ids: &mut u64,
        channels: &dyn ChannelLookup,
    ) -> Sampled {
        let before = self.last.scheduled;
        let reading = self.read_state(now, channels);
        let has_run = before != self.last.scheduled;
        let rounds = std::mem::replace(&mut self.stride, 1);
        let doing = match reading {
            Reading::Unmoved => {
                if let Some(interval) = &mut self.interval {
                    interval.last_ns = now;
                    interval.samples += rounds;
                    self.stride = (interval.samples / LEFT_ALONE_PART).clamp(1, round.left_alone);
                    self.rests = self.stride - 1;
                }
                return Sampled::Same;
            }
            Reading::Same => None,
            Reading::At(doing) => Some(doing),
            Reading::Gone => return Sampled::Gone,
            Reading::Refused => return Sampled::Refused,
        };
        let due_ns = round.period_ns * u64::from(rounds);
        let missed = self.interval.as_ref().filter(|interval| {
            has_run && now.saturating_sub(interval.last_ns) > due_ns.saturating_mul(MISSED)
        });
        // Except one that was stopped with the sampler: both went on just now.
        let goes_on = missed.is_some_and(Interval::is_stop);
        let missed = missed.filter(|_| !goes_on);
        let missed_ns = missed.map(|interval| interval.last_ns + due_ns / 2);
        if let Some(interval) = &mut self.interval
            && missed_ns.is_none()
            && doing.as_ref().is_none_or(|doing| *doing == interval.doing)
            && !(has_run && interval.is_settled() && !interval.doing.activity.is_storage())
        {
            interval.last_ns = now;
            interval.samples += 1;
            return Sampled::Same;
        }
        // A wait begins anew if the thread has run in between: its object came.
        let again = || self.interval.as_ref().map(|i| i.doing.clone());
        let Some(doing) = doing.or_else(again) else {
            return Sampled::Same;
        };
        // A running thread has run for as long as its clocks advanced. Otherwise the time between two samples
        // is unknown: half of it counts for each.
        let ran_ns =
            had(before, self.last.scheduled).filter(|_| doing.activity == Activity::Running);
        let start_ns = match (&self.interval, ran_ns) {
            (Some(before), Some(ran_ns)) => now.saturating_sub(ran_ns).max(before.last_ns),
            (Some(before), None) if goes_on => {
                now.saturating_sub(round.period_ns / 2).max(before.last_ns)
            }
            (Some(before), None) if missed_ns.is_none() => before.last_ns.midpoint(now),
            _ => now.saturating_sub(round.period_ns / 2).max(self.began_ns),
        };
        let before = self.close(missed_ns.map_or(start_ns, |missed_ns| missed_ns.min(start_ns)));
        self.begin(doing, start_ns, now, ids);
        Sampled::Changed(before)
    }

    /// An interval begins, and is seen at `now`.
    fn begin(&mut self, doing: Doing, start_ns: u64, now: u64, ids: &mut u64) {
        *ids += 1;
        self.interval = Some(Interval {
            id: *ids,
            start_ns,
            seen_ns: now,
            last_ns: now,
            samples: 1,
            doing,
            recorded_ns: start_ns,
        });
    }

    /// The interval that is going on, if it is old enough to be recorded before its end.
    pub(super) fn overdue(&mut self) -> Option<SampleRecord> {
        let interval = self.interval.as_mut()?;
        let age = interval.last_ns.saturating_sub(interval.recorded_ns);
        if age < RECORDED_NS {
            return None;
        }
        interval.recorded_ns = interval.last_ns;
        Some(interval.record(self.upid, self.holder.tid, interval.last_ns))
    }

    /// Ends the interval that is going on, with the thread or with its image. The end may be reported late:
    /// an interval that was seen after it stays.
    pub(super) fn end(&mut self, now: u64, period_ns: u64) -> Option<SampleRecord> {
        let interval = self.interval.as_ref()?;
        if interval.seen_ns > now {
            return None;
        }
        let last_ns = interval.last_ns.min(now);
        // A thread that has waited for long mostly ends after it has run for a short time.
        let known_ns = match self.stride {
            // A thread that ends went on just before.
            _ if interval.is_stop() => u64::MAX,
            1 => period_ns / 2,
            rounds => period_ns * u64::from(rounds),
        };
        let end_ns = now.min(last_ns.saturating_add(known_ns)).max(last_ns);
        self.close(end_ns)
    }

    /// The thread runs another program from now on.
    pub(super) fn becomes(&mut self, upid: Upid, now: u64) {
        self.upid = upid;
        self.began_ns = now;
        if let Some(interval) = &mut self.interval {
            interval.start_ns = interval.start_ns.max(now);
            interval.recorded_ns = interval.recorded_ns.max(now);
        }
        self.last.length = 0;
        self.goes_on();
        if let Some(files) = &mut self.files {
            let auxv = std::fs::read(self.holder.path("auxv")).unwrap_or_default();
            files.abi = Abi::of_auxv(&auxv);
        }
    }

    fn close(&mut self, end_ns: u64) -> Option<SampleRecord> {
        let interval = self.interval.take()?;
        self.ended_ns = end_ns;
        Some(interval.record(self.upid, self.holder.tid, end_ns))
    }

    fn read_state(&mut self, now: u64, channels: &dyn ChannelLookup) -> Reading {
        // Its continuation is not always reported.
        if self.stopped {
            if doing::is_halted(self.holder) {
                self.last.length = 0;
                self.last.scheduled = None;
                return Reading::At(Activity::Stopped.into());
            }
            // Its next stop may be by its tracer.
            self.stopped = false;
        }
        let Some(files) = &self.files else {
            return Reading::Gone;
        };
        let mut text = [0; TEXT];
        let scheduled = match files.schedstat.read_at(&mut text, 0) {
            Ok(length) => Scheduled::parse(&text[..length]),
            Err(error) => return Reading::failed(&error),
        };
        let before = std::mem::replace(&mut self.last.scheduled, scheduled);
        let has_run = before.is_none() || before != scheduled;
        if let Some(interval) = &self.interval
            && !has_run
            && interval.is_settled()
        {
            return Reading::Unmoved;
        }
        let length = match files.syscall.read_at(&mut text, 0) {
            Ok(length) => length,
            Err(error) => return Reading::failed(&error),
        };
        let position = Position::parse(&text[..length]);
        let Some(position) = position else {
            return Reading::At(Activity::Other.into());
        };
        if position == Position::Running {
            self.last.length = 0;
            return Reading::At(running(before, scheduled).into());
        }
        let same = self.last.length == length && self.last.text[..length] == text[..length];
        let trusted = !has_run || now.saturating_sub(self.last.resolved_ns) < TRUSTED_NS;
        if same && trusted && position != Position::Outside {
            return Reading::Same;
        }
        let Some(doing) = doing::blocked(self.holder, files.abi, position, channels) else {
            return Reading::Gone;
        };
        self.last.text = text;
        // A call in which the tracer stops the thread, or that is over by now, is read again.
        self.last.length = if doing.activity.is_waiting() {
            length
        } else {
            0
        };
        self.last.resolved_ns = now;
        Reading::At(doing)
    }
}

impl Reading {
    fn failed(error: &io::Error) -> Reading {
        match error.raw_os_error() {
            Some(libc::ESRCH) => Reading::Gone,
            _ => Reading::Refused,
        }
    }
}

impl Interval {
    /// True if job control stopped it, or its tracer.
    fn is_stop(&self) -> bool {
        self.doing.activity == Activity::Stopped
    }

    /// True if it is a wait of some length.
    fn is_settled(&self) -> bool {
        self.samples >= SETTLED && self.doing.activity.is_waiting()
    }

    fn record(&self, upid: Upid, tid: u32, end_ns: u64) -> SampleRecord {
        SampleRecord {
            id: self.id,
            start_ns: self.start_ns,
            end_ns: end_ns.max(self.start_ns),
            upid,
            tid: Tid(tid),
            activity: self.doing.activity,
            op: self.doing.op,
            objects: self.doing.objects.clone(),
            file: None,
            samples: self.samples,
            exact: false,
            waker: None,
        }
    }
}

/// Time on a CPU and waiting for one between two samples, ns.
fn had(before: Option<Scheduled>, now: Option<Scheduled>) -> Option<u64> {
    let (before, now) = (before?, now?);
    let ran = now.on_cpu_ns.saturating_sub(before.on_cpu_ns);
    Some(ran + now.run_queue_ns.saturating_sub(before.run_queue_ns))
}

/// The kernel shows only by its clocks if a thread is on a CPU or waits for one: the CPU time advances with
/// every tick, the wait is counted when it ends.
fn running(before: Option<Scheduled>, now: Option<Scheduled>) -> Activity {
    let (Some(before), Some(now)) = (before, now) else {
        return Activity::Running;
    };
    let ran = now.on_cpu_ns.saturating_sub(before.on_cpu_ns);
    let waited = now.run_queue_ns.saturating_sub(before.run_queue_ns);
    if ran == 0 || waited > ran {
        Activity::Runnable
    } else {
        Activity::Running
    }
}

#[cfg(test)]
mod tests;
