//! The thread that empties the rings, and the one that makes rows of their records.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use flowtrace_schema::{Loss, Recorder};

use super::calls::Calls;
use super::channel_rows::Sink;
use super::feed::{Change, Feed, FoundFiles, Inbox};
use super::priority_boost::PriorityBoost;
use super::programs::{CallSource, Scheduler};
use super::sample::Sample;
use super::sizes::Sizes;
use super::waits::Waits;
use crate::bpf;
use crate::clock::Clock;
use crate::memory;
use crate::merge::Merge;
use crate::priority::Ahead;
use crate::proc::observer::ChannelLookup;

/// Time between two reads: at full speed one CPU fills a ring of the usual size in some 18 ms.
const PERIOD: Duration = Duration::from_millis(5);
/// Most samples in memory, some 100 MB, that wait to be joined: fewer where that is more than an eighth of
/// the memory that we may use.
const BACKLOG: usize = 1 << 20;

/// A record may enter its ring this long after the time that it carries: the kernel cannot be preempted in
/// between, but interrupted.
const LATE_NS: u64 = 1_000_000;

fn most_backlog() -> usize {
    let share = usize::try_from(memory::limit() / 8).unwrap_or(usize::MAX);
    (share / size_of::<Sample>()).min(BACKLOG)
}

/// Selection of what is recorded.
pub(crate) struct Selection {
    /// Pipes and sockets.
    pub(crate) channels: Arc<dyn ChannelLookup>,
    /// `Some`: also waits of threads.
    pub(crate) scheduler: Option<Scheduler>,
    /// True to record calls on pipes and sockets one by one, not only in sum.
    pub(crate) channel_calls: bool,
}

/// A running kernel layer.
pub(crate) struct KernelLayer {
    inbox: Arc<Inbox>,
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    recorder: Recorder,
    reports_waits: bool,
}

impl KernelLayer {
    /// Begins to record calls. The calling thread is the one that follows the tree.
    ///
    /// # Errors
    /// When no more threads or descriptors can be had.
    pub(crate) fn start(
        calls: CallSource,
        clock: Clock,
        recorder: Recorder,
        selection: Selection,
    ) -> io::Result<KernelLayer> {
        let Selection {
            channels,
            scheduler,
            channel_calls,
        } = selection;
        let scheduler = scheduler.map(|scheduler| {
            let tracer = nix::unistd::gettid().as_raw().unsigned_abs();
            let waits = Waits::new(Arc::clone(&channels), tracer);
            (scheduler, waits)
        });
        let (scheduler, waits) = scheduler.unzip();
        let reports_waits = waits.is_some();
        let inbox = Arc::<Inbox>::default();
        let ends = Arc::<AtomicBool>::default();
        let backlog = Arc::<AtomicUsize>::default();
        let (batches, waiting) = channel();
        let reader = Reader {
            calls,
            scheduler,
            clock,
            batches,
            expected: 0,
            calls_read_ns: 0,
            backlog: Arc::clone(&backlog),
            most_backlog: most_backlog(),
        };
        let mut layer = KernelLayer {
            inbox: Arc::clone(&inbox),
            ends: Arc::clone(&ends),
            threads: Vec::new(),
            recorder: recorder.clone(),
            reports_waits,
        };
        let thread = std::thread::Builder::new().name("kernel-calls".into());
        let join = move || {
            let sink = channel_calls.then(|| -> Sink {
                let recorder = recorder.clone();
                Box::new(move |call| recorder.channel_call(&call))
            });
            let joined = Calls::new(channels, sink);
            Joiner::new(recorder, inbox, joined, waits).run(&waiting, &backlog);
        };
        layer.threads.push(thread.spawn(join)?);
        let thread = std::thread::Builder::new().name("kernel-layer".into());
        layer.threads.push(thread.spawn(move || reader.run(&ends))?);
        Ok(layer)
    }

    /// The receiver of the events of the tree.
    pub(crate) fn feed(&self) -> Feed {
        Feed::new(Arc::clone(&self.inbox), self.recorder.clone())
    }

    /// The receiver of files other than those on a mount.
    pub(crate) fn found_files(&self) -> FoundFiles {
        FoundFiles {
            inbox: Arc::clone(&self.inbox),
        }
    }

    /// True if it records the waits of threads, so that they need not be sampled.
    pub(crate) fn reports_waits(&self) -> bool {
        self.reports_waits
    }
}

impl Drop for KernelLayer {
    /// Records the rest.
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// The records of one read of the rings.
struct Batch {
    samples: Vec<Sample>,
    /// Time before that read.
    read_ns: u64,
    /// Number of records of calls that were dropped in between.
    lost: u64,
    /// Time at which that number was read.
    lost_ns: u64,
    /// Number of records of the scheduler that were dropped in between.
    lost_switches: u64,
    /// In the last batch: total number of entries of calls that were dropped.
    end: Option<u64>,
}

/// Empties the rings.
struct Reader {
    calls: CallSource,
    scheduler: Option<Scheduler>,
    clock: Clock,
    batches: Sender<Batch>,
    /// Number of samples in the last read.
    expected: usize,
    /// Time before the rings of calls were last emptied.
    calls_read_ns: u64,
    /// Samples that are still to be joined.
    backlog: Arc<AtomicUsize>,
    most_backlog: usize,
}

impl Reader {
    fn run(mut self, ends: &AtomicBool) {
        // Records that are not read in time are lost.
        let _ahead = Ahead::of_the_command();
        let mut boost = PriorityBoost::new();
        loop {
            let last = ends.load(Ordering::Acquire);
            // If there is no space here, records stay in the rings.
            let has_room = self.backlog.load(Ordering::Relaxed) < self.most_backlog;
            let batch = self.read(last || has_room, last);
            self.backlog
                .fetch_add(batch.samples.len(), Ordering::Relaxed);
            if self.batches.send(batch).is_err() || last {
                break;
            }
            boost.rings_read(self.calls.fill_fast());
            std::thread::park_timeout(PERIOD);
        }
        bpf::close_aside((self.calls, self.scheduler));
    }

    /// Empties the rings of the scheduler, and if `calls` those of calls.
    fn read(&mut self, calls: bool, last: bool) -> Batch {
        let clock = self.clock;
        let mut samples = Vec::with_capacity(self.expected);
        let mut lost = 0;
        if calls {
            self.calls_read_ns = clock.now();
            lost = self
                .calls
                .drain(|sample| samples.push(timed(sample, clock)));
        }
        let scheduler = self.scheduler.as_mut();
        let lost_switches = scheduler.map_or(0, |scheduler| {
            scheduler.drain(|sample| samples.push(timed(sample, clock)))
        });
        self.expected = samples.len();
        Batch {
            samples,
            read_ns: self.calls_read_ns,
            lost,
            lost_ns: clock.now(),
            lost_switches,
            end: last.then(|| self.calls.lost_entries()),
        }
    }
}

fn timed(sample: Sample, clock: Clock) -> Sample {
    Sample {
        at: clock.at(sample.at),
        ..sample
    }
}

/// Joins samples to files.
struct Joiner {
    recorder: Recorder,
    inbox: Arc<Inbox>,
    merge: Merge<Sample>,
    calls: Calls,
    sizes: Sizes,
    waits: Option<Waits>,
    lost_switches: u64,
}

impl Joiner {
    fn new(recorder: Recorder, inbox: Arc<Inbox>, calls: Calls, waits: Option<Waits>) -> Joiner {
        Joiner {
            recorder,
            inbox,
            merge: Merge::default(),
            calls,
            sizes: Sizes::default(),
            waits,
            lost_switches: 0,
        }
    }

    fn run(mut self, batches: &Receiver<Batch>, backlog: &AtomicUsize) {
        for batch in batches {
            let (end, read_ns) = (batch.end, batch.read_ns);
            let count = batch.samples.len();
            self.join(batch);
            backlog.fetch_sub(count, Ordering::Relaxed);
            if let Some(lost_entries) = end {
                self.until(u64::MAX);
                if let Some(waits) = &mut self.waits {
                    waits.finish(read_ns, &self.calls);
                }
                self.calls.finish();
                self.record_sums();
                for size in self.sizes.of_removed() {
                    self.recorder.record(size);
                }
                self.recorder
                    .lost(Loss::SwitchesDropped, self.lost_switches);
                for (loss, count) in self.calls.losses(lost_entries) {
                    self.recorder.lost(loss, count);
                }
            }
        }
    }

    /// Takes a batch, and joins what is complete.
    fn join(&mut self, batch: Batch) {
        if batch.lost > 0 {
            self.calls.lost(batch.lost, batch.lost_ns);
        }
        if batch.lost_switches > 0 {
            self.lost_switches += batch.lost_switches;
            if let Some(waits) = &mut self.waits {
                waits.lost();
            }
        }
        self.merge.waiting().extend(batch.samples);
        // The changes that a sample depends on were queued before it was made, or are queued up to this time.
        let complete = self.inbox.complete();
        self.calls.announce(self.inbox.take());
        let read_ns = batch.read_ns.min(complete);
        let horizon = match batch.end {
            None => read_ns.saturating_sub(LATE_NS) + 1,
            Some(_) => u64::MAX,
        };
        let mut merge = std::mem::take(&mut self.merge);
        for sample in merge.before(horizon) {
            self.until(sample.at);
            self.sample(&sample);
        }
        self.merge = merge;
        if let Some(waits) = &mut self.waits {
            waits.settle(read_ns, &self.calls);
        }
        self.record_sums();
    }

    /// Applies the changes of the tree until a time.
    fn until(&mut self, at: u64) {
        while let Some((at, change)) = self.calls.next_change(at) {
            if let Change::Removed(file) = change {
                self.sizes.removed(file);
            }
            if let Some(waits) = &mut self.waits {
                waits.change(at, change, &self.calls);
            }
        }
    }

    fn sample(&mut self, sample: &Sample) {
        if let Some(waits) = &mut self.waits {
            waits.sample(sample, &self.calls);
        }
        let (recorder, sizes) = (&self.recorder, &mut self.sizes);
        self.calls.sample(sample, &mut |call| {
            sizes.add(&call);
            recorder.call(&call);
        });
    }

    fn record_sums(&mut self) {
        let waits = self.waits.as_mut().map(Waits::take);
        let traffic = self.calls.traffic();
        for record in waits.into_iter().flatten().chain(traffic) {
            self.recorder.record(record);
        }
    }
}
