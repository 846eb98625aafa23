//! Samples the state of every live thread some fifty times a second: running, runnable, or blocked on a
//! channel, file, child, lock or time.
//!
//! A sample is two reads of files in /proc that are kept open, about 2 µs. Consecutive equal samples are one
//! row. A thread that lives shorter than one round is never sampled.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use flowtrace_schema::{Loss, Record, Recorder, SampleRecord, SampledTotals, Upid};
use nix::sys::resource::{Resource, getrlimit};

use super::observer::{ChannelLookup, Tracee};
use crate::clock::Clock;

pub(crate) mod calls;
pub(crate) mod doing;
mod feed;
pub(crate) mod objects;
mod pace;
pub(crate) mod text;
mod thread;

pub(crate) use feed::Feed;

use feed::{Change, Inbox};
use objects::Holder;
use pace::Pace;
use thread::{DESCRIPTORS, Round, Sampled, Thread};

/// The fraction of this process's descriptors that sampling may use; the mounts need the others.
const SHARE: u64 = 8;

/// A running sampler.
pub(crate) struct Sampler {
    inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
    used_ns: Arc<AtomicU64>,
}

impl Sampler {
    /// Begins to take `hertz` samples a second of every thread that its [`Feed`] reports.
    ///
    /// # Errors
    /// When no thread can be started for it.
    pub(crate) fn start(
        hertz: u32,
        clock: Clock,
        recorder: Recorder,
        channels: Arc<dyn ChannelLookup>,
    ) -> io::Result<Sampler> {
        let inbox = Arc::<Inbox>::default();
        let used_ns = Arc::<AtomicU64>::default();
        let work = {
            let (inbox, used_ns) = (Arc::clone(&inbox), Arc::clone(&used_ns));
            move || Rounds::new(clock, recorder, channels, used_ns).run(&inbox, Pace::new(hertz))
        };
        let thread = std::thread::Builder::new().name("sampler".into());
        Ok(Sampler {
            inbox,
            thread: Some(thread.spawn(work)?),
            used_ns,
        })
    }

    /// The receiver of the events of the tree.
    pub(crate) fn feed(&self) -> Feed {
        Feed(Arc::clone(&self.inbox))
    }

    /// CPU time that sampling has taken so far, ns.
    pub(crate) fn used_ns(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.used_ns)
    }
}

impl Drop for Sampler {
    /// Records the intervals that are going on.
    fn drop(&mut self) {
        self.inbox.finish();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// State of the sampler's thread.
struct Rounds {
    clock: Clock,
    recorder: Recorder,
    channels: Arc<dyn ChannelLookup>,
    used_ns: Arc<AtomicU64>,
    threads: Vec<Thread>,
    /// Index of each thread in the list.
    places: HashMap<u32, usize>,
    processes: HashMap<u32, Process>,
    /// Number of threads whose files may still be opened.
    free: usize,
    ids: u64,
    not_sampled: u64,
}

/// State of a process.
struct Process {
    tids: Vec<u32>,
    totals: SampledTotals,
}

impl Process {
    fn new(upid: Upid) -> Process {
        Process {
            tids: Vec::new(),
            totals: SampledTotals {
                upid,
                ..SampledTotals::default()
            },
        }
    }
}

impl Rounds {
    fn new(
        clock: Clock,
        recorder: Recorder,
        channels: Arc<dyn ChannelLookup>,
        used_ns: Arc<AtomicU64>,
    ) -> Rounds {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
        let free = usize::try_from(limit / SHARE).unwrap_or(usize::MAX) / DESCRIPTORS;
        Rounds {
            clock,
            recorder,
            channels,
            used_ns,
            threads: Vec::new(),
            places: HashMap::new(),
            processes: HashMap::new(),
            free,
            ids: 0,
            not_sampled: 0,
        }
    }

    fn run(mut self, inbox: &Inbox, mut pace: Pace) {
        loop {
            let news = inbox.wait(pace.next(self.threads.len()));
            let period_ns = pace.interval().as_nanos() as u64;
            for change in news.changes {
                self.change(change, period_ns);
            }
            if news.finished {
                break;
            }
            self.round(period_ns);
            let used = pace::thread_time().as_nanos() as u64;
            self.used_ns.store(used, Ordering::Relaxed);
        }
        let now = self.clock.now();
        let period_ns = pace.interval().as_nanos() as u64;
        while let Some(tid) = self.threads.last().map(|thread| thread.holder.tid) {
            self.ended(tid, now, period_ns);
        }
        self.recorder.lost(Loss::SamplesSkipped, pace.skipped());
        self.recorder
            .lost(Loss::ThreadsNotSampled, self.not_sampled);
    }

    fn change(&mut self, change: Change, period_ns: u64) {
        match change {
            Change::Began(tracee, now) => self.began(tracee, now),
            Change::Executed(tracee, prev, now) => self.executed(tracee, prev, now, period_ns),
            Change::Ended(tid, now) => self.ended(tid, now, period_ns),
            Change::Stopped(tid, Some(now)) => {
                let Some(&at) = self.places.get(&tid) else {
                    return;
                };
                let pid = self.threads[at].holder.pid;
                if let Some(before) = self.threads[at].stops(now, &mut self.ids) {
                    self.record(pid, before);
                }
            }
            Change::Stopped(tid, None) => {
                if let Some(&at) = self.places.get(&tid) {
                    self.threads[at].goes_on();
                }
            }
        }
    }

    fn began(&mut self, tracee: Tracee, now: u64) {
        let Tracee { tid, pid, upid } = tracee;
        let process = self
            .processes
            .entry(pid)
            .or_insert_with(|| Process::new(upid));
        process.tids.push(tid);
        self.places.insert(tid, self.threads.len());
        let holder = Holder { pid, tid };
        self.threads.push(Thread::new(holder, upid, now));
    }

    fn executed(&mut self, tracee: Tracee, prev: Option<Upid>, now: u64, period_ns: u64) {
        let process = self.processes.get(&tracee.pid);
        let others = process.into_iter().flat_map(|process| &process.tids);
        let others: Vec<u32> = others.copied().filter(|&tid| tid != tracee.tid).collect();
        for tid in others {
            self.ended(tid, now, period_ns);
        }
        let Some(&at) = self.places.get(&tracee.tid) else {
            return self.began(tracee, now);
        };
        // The files stay open: they belong to the thread id, which lives on.
        if let Some(record) = self.threads[at].end(now, period_ns) {
            self.record(tracee.pid, record);
        }
        self.threads[at].becomes(tracee.upid, now);
        if prev.is_some()
            && let Some(process) = self.processes.get_mut(&tracee.pid)
        {
            let totals = std::mem::take(&mut process.totals);
            process.totals.upid = tracee.upid;
            self.total(totals);
        }
    }

    fn ended(&mut self, tid: u32, now: u64, period_ns: u64) {
        let Some(at) = self.places.remove(&tid) else {
            return;
        };
        let mut thread = self.threads.swap_remove(at);
        if let Some(moved) = self.threads.get(at) {
            self.places.insert(moved.holder.tid, at);
        }
        let pid = thread.holder.pid;
        if let Some(record) = thread.end(now, period_ns) {
            self.record(pid, record);
        }
        self.free += usize::from(thread.has_files());
        if let Some(process) = self.processes.get_mut(&pid) {
            process.tids.retain(|&other| other != tid);
            if process.tids.is_empty()
                && let Some(process) = self.processes.remove(&pid)
            {
                self.total(process.totals);
            }
        }
    }

    /// Samples every thread once.
    fn round(&mut self, period_ns: u64) {
        let round = Round::new(period_ns, self.threads.len());
        for at in 0..self.threads.len() {
            let thread = &mut self.threads[at];
            if !thread.has_files() {
                // The first sample is in the next round: until then it is known if the files are those of
                // this thread, or if it had ended before and its id is another one's.
                self.open(at);
                continue;
            }
            if thread.rests() {
                continue;
            }
            let now = self.clock.now();
            let record = match thread.sample(now, round, &mut self.ids, &*self.channels) {
                Sampled::Same => thread.overdue(),
                Sampled::Changed(before) => {
                    let pid = thread.holder.pid;
                    if let Some(before) = before {
                        self.record(pid, before);
                    }
                    continue;
                }
                Sampled::Gone => {
                    thread.give_up();
                    self.free += 1;
                    continue;
                }
                Sampled::Refused => {
                    thread.give_up();
                    self.free += 1;
                    self.not_sampled += 1;
                    continue;
                }
            };
            if let Some(record) = record {
                self.recorder.record(Record::Sample(Box::new(record)));
            }
        }
    }

    fn open(&mut self, at: usize) {
        let thread = &mut self.threads[at];
        if !thread.wants_files() {
            return;
        }
        if self.free == 0 {
            self.not_sampled += u64::from(thread.is_first_refusal());
            return;
        }
        match thread.open() {
            Ok(()) => self.free -= 1,
            Err(error) => {
                thread.give_up();
                // A thread that is about to end is no loss.
                let vanished = [Some(libc::ENOENT), Some(libc::ESRCH)];
                self.not_sampled += u64::from(!vanished.contains(&error.raw_os_error()));
            }
        }
    }

    /// Records an interval that is over, and adds it to the sums of its image.
    fn record(&mut self, pid: u32, record: SampleRecord) {
        if let Some(process) = self.processes.get_mut(&pid) {
            let totals = &mut process.totals;
            let duration = record.end_ns.saturating_sub(record.start_ns);
            totals.samples += u64::from(record.samples);
            totals.sampled_ns += duration;
            if record.activity.is_waiting() {
                totals.waiting_ns += duration;
            }
            if record.activity.is_storage() {
                totals.storage_ns += duration;
            }
        }
        self.recorder.record(Record::Sample(Box::new(record)));
    }

    fn total(&self, totals: SampledTotals) {
        if totals.samples > 0 {
            self.recorder.record(Record::Sampled(totals));
        }
    }
}
