//! The thread that empties the rings, and the one that makes rows of what was in them.

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use flowtrace_schema::{CallRing, Loss, Recorder};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::feed::{Feed, Inbox};
use super::follow::Follower;
use super::merge::Merge;
use super::opens::Opens;
use super::perf::{self, Ring, Rings};
use super::sample::{Sample, What};
use super::waits::Waits;
use crate::clock::Clock;
use crate::proc::observer::ChannelLookup;

/// Longest time between two looks. The kernel wakes the reader when a ring is a quarter full.
const PERIOD_MS: u16 = 25;
/// Samples that may wait in memory, some 200 MB, while the writer is busy.
const BACKLOG: usize = 2 << 20;

/// A kernel layer at work.
pub(crate) struct KernelLayer {
    inbox: Arc<Inbox>,
    opens: Arc<Opens>,
    end: Arc<End>,
    recorder: Recorder,
    threads: Vec<JoinHandle<()>>,
    tells_waits: bool,
}

struct End {
    is_near: AtomicBool,
    wake: EventFd,
}

impl KernelLayer {
    /// Begins to record the calls of process `pid`, which has not run its program yet, and of all
    /// that it will fork, on files below `views`; with `channels`, and where the scheduler can be
    /// followed, also what their threads wait for. The calling thread is the one that follows the tree.
    ///
    /// # Errors
    /// When tracepoints are not to be had.
    pub(crate) fn start(
        pid: u32,
        clock: Clock,
        recorder: Recorder,
        opens: Arc<Opens>,
        views: Vec<PathBuf>,
        channels: Option<Arc<dyn ChannelLookup>>,
    ) -> io::Result<KernelLayer> {
        let scheduler = channels.and_then(|channels| {
            let rings = Rings::open_scheduler().ok()?;
            let tracer = nix::unistd::gettid().as_raw().unsigned_abs();
            Some((rings, Waits::new(channels, tracer)))
        });
        let (scheduler, waits) = scheduler.unzip();
        let tells_waits = waits.is_some();
        let rings = Rings::open(pid, perf::USUAL, tells_waits)?;
        let inbox = Arc::<Inbox>::default();
        let end = Arc::new(End {
            is_near: AtomicBool::new(false),
            wake: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
        });
        let backlog = Arc::<AtomicUsize>::default();
        let (batches, waiting) = channel();
        let reader = Reader {
            rings,
            scheduler,
            clock,
            batches,
            backlog: Arc::clone(&backlog),
        };
        let mut layer = KernelLayer {
            inbox: Arc::clone(&inbox),
            opens: Arc::clone(&opens),
            end: Arc::clone(&end),
            recorder: recorder.clone(),
            threads: Vec::new(),
            tells_waits,
        };
        let thread = std::thread::Builder::new().name("kernel-calls".into());
        let join = move || {
            Joiner::new(recorder, inbox, opens, views, waits, clock).run(&waiting, &backlog);
        };
        layer.threads.push(thread.spawn(join)?);
        let thread = std::thread::Builder::new().name("kernel-layer".into());
        layer.threads.push(thread.spawn(move || reader.run(&end))?);
        Ok(layer)
    }

    /// What it wants to be told of.
    pub(crate) fn feed(&self) -> Feed {
        Feed {
            inbox: Arc::clone(&self.inbox),
            opens: Arc::clone(&self.opens),
            recorder: self.recorder.clone(),
            waits: self.tells_waits,
        }
    }

    /// Whether it tells what threads wait for, so that nobody has to look.
    pub(crate) fn tells_waits(&self) -> bool {
        self.tells_waits
    }
}

impl Drop for KernelLayer {
    /// Records what is left.
    fn drop(&mut self) {
        self.end.is_near.store(true, Ordering::Release);
        let _ = self.end.wake.write(1);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// What came out of the rings at one time.
struct Batch {
    samples: Vec<Sample>,
    /// Before that.
    read_ns: u64,
    /// Records of calls that were dropped in between.
    lost: u64,
    /// And those of the scheduler.
    lost_switches: u64,
    /// Of the last batch: entries of calls that were dropped in all.
    end: Option<u64>,
}

/// Empties the rings, whatever becomes of what was in them.
struct Reader {
    rings: Rings,
    scheduler: Option<Rings>,
    clock: Clock,
    batches: Sender<Batch>,
    /// Samples that are still to be joined.
    backlog: Arc<AtomicUsize>,
}

impl Reader {
    fn run(mut self, end: &End) {
        come_first();
        let mut ends = vec![false; self.all_rings().count()];
        loop {
            let last = end.is_near.load(Ordering::Acquire);
            // What finds no room here stays in the rings, and what finds none there is lost.
            if last || self.backlog.load(Ordering::Relaxed) < BACKLOG {
                let batch = self.read(last);
                self.backlog
                    .fetch_add(batch.samples.len(), Ordering::Relaxed);
                if self.batches.send(batch).is_err() {
                    break;
                }
            }
            if last {
                break;
            }
            self.wait(&end.wake, &mut ends);
        }
    }

    fn read(&mut self, last: bool) -> Batch {
        let (clock, read_ns) = (self.clock, self.clock.now());
        let (mut samples, mut lost) = (Vec::new(), [0; 2]);
        let all = [Some(&mut self.rings), self.scheduler.as_mut()];
        for (rings, lost) in all.into_iter().zip(&mut lost) {
            let Some(Rings { rings, decoder, .. }) = rings else {
                continue;
            };
            for ring in rings {
                let take = |body: &[u8]| {
                    samples.extend(decoder.decode(body).map(|sample| Sample {
                        at: clock.at(sample.at),
                        ..sample
                    }));
                };
                ring.drain(take, lost);
            }
        }
        let [lost, lost_switches] = lost;
        Batch {
            samples,
            read_ns,
            lost,
            lost_switches,
            end: last.then(|| self.rings.lost_entries()),
        }
    }

    fn all_rings(&self) -> impl Iterator<Item = &Ring> {
        let scheduler = self.scheduler.iter().flat_map(|rings| &rings.rings);
        self.rings.rings.iter().chain(scheduler)
    }

    /// Sleeps until there is something to do. `ended`: rings that tell no more when they fill, since
    /// the first process is over.
    fn wait(&self, wake: &EventFd, ended: &mut [bool]) {
        let rings = self.all_rings().zip(&*ended);
        let mut places: Vec<usize> = Vec::new();
        let mut sources = vec![PollFd::new(wake.as_fd(), PollFlags::POLLIN)];
        for (place, (ring, ended)) in rings.enumerate() {
            if !ended {
                places.push(place);
                sources.push(PollFd::new(ring.descriptor(), PollFlags::POLLIN));
            }
        }
        if poll(&mut sources, PollTimeout::from(PERIOD_MS)).is_err() {
            std::thread::sleep(Duration::from_millis(PERIOD_MS.into()));
            return;
        }
        for (source, place) in sources[1..].iter().zip(places) {
            let gone = PollFlags::POLLHUP | PollFlags::POLLERR;
            ended[place] = source
                .revents()
                .is_some_and(|events| events.intersects(gone));
        }
    }
}

/// Joins samples to files.
struct Joiner {
    recorder: Recorder,
    calls: CallRing,
    inbox: Arc<Inbox>,
    opens: Arc<Opens>,
    merge: Merge,
    follower: Follower,
    waits: Option<Waits>,
    lost_switches: u64,
}

impl Joiner {
    fn new(
        recorder: Recorder,
        inbox: Arc<Inbox>,
        opens: Arc<Opens>,
        views: Vec<PathBuf>,
        waits: Option<Waits>,
        clock: Clock,
    ) -> Joiner {
        Joiner {
            calls: recorder.call_ring(),
            recorder,
            inbox,
            opens,
            merge: Merge::default(),
            follower: Follower::new(clock, views),
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
                    waits.finish(read_ns, &self.follower);
                }
                self.record_waits();
                self.recorder
                    .lost(Loss::SwitchesDropped, self.lost_switches);
                for (loss, count) in self.follower.losses(lost_entries) {
                    self.recorder.lost(loss, count);
                }
            }
        }
    }

    /// Takes what there is, and joins what is complete.
    fn join(&mut self, batch: Batch) {
        if batch.lost > 0 {
            self.follower.lost(batch.lost);
        }
        if batch.lost_switches > 0 {
            self.lost_switches += batch.lost_switches;
            if let Some(waits) = &mut self.waits {
                waits.lost();
            }
        }
        self.merge.waiting().extend(batch.samples);
        // Whatever a sample depends on was told before it was made, so it is there by now.
        self.follower.noted(self.opens.take());
        self.follower.announce(self.inbox.take());
        let horizon = batch.end.is_none().then_some(batch.read_ns);
        let mut merge = std::mem::take(&mut self.merge);
        for sample in merge.ready(horizon) {
            self.until(sample.at);
            self.sample(&sample);
        }
        self.merge = merge;
        if let Some(waits) = &mut self.waits {
            waits.settle(batch.read_ns, &self.follower);
            self.record_waits();
        }
    }

    /// Takes in what became of the tree until a moment.
    fn until(&mut self, at: u64) {
        while let Some((at, change)) = self.follower.next_change(at) {
            if let Some(waits) = &mut self.waits {
                waits.change(at, change, &self.follower);
            }
        }
    }

    fn sample(&mut self, sample: &Sample) {
        let calls = &mut self.calls;
        match sample.what {
            What::Leaves { .. } | What::Woken { .. } => {
                if let Some(waits) = &mut self.waits {
                    waits.scheduled(sample, &self.follower);
                }
                return;
            }
            What::Enters(arguments) => {
                if let Some(waits) = &mut self.waits {
                    waits.enters(sample.tid, sample.number, arguments);
                }
            }
            What::Returns(_) => {
                if let Some(waits) = &mut self.waits {
                    waits.returns(sample.tid);
                }
            }
        }
        self.follower.sample(sample, &mut |call| calls.push(call));
    }

    fn record_waits(&mut self) {
        let records = self.waits.as_mut().map(Waits::take);
        for record in records.into_iter().flatten() {
            self.recorder.record(record);
        }
    }
}

/// Has this thread run before those of the command: what is not read in time is lost. Whoever may use
/// tracepoints may mostly do that; without it more is lost on a busy machine.
fn come_first() {
    const NICE: libc::c_int = -15;
    // SAFETY: takes numbers only; 0 is the calling thread.
    #[expect(unsafe_code)]
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, NICE)
    };
}

/// A counter and what it counted.
pub(super) type Counted = (Loss, u64);
