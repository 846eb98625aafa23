//! The thread that empties the rings.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use flowtrace_schema::{CallRing, Loss, Recorder};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::feed::{Feed, Inbox};
use super::follow::Follower;
use super::merge::Merge;
use super::opens::Opens;
use super::perf::{self, Rings};
use super::sample::Sample;
use crate::clock::Clock;

/// Longest time between two looks. The kernel wakes the reader when a ring is a quarter full.
const PERIOD_MS: u16 = 25;

/// A kernel layer at work.
pub(crate) struct KernelLayer {
    inbox: Arc<Inbox>,
    opens: Arc<Opens>,
    end: Arc<End>,
    recorder: Recorder,
    thread: Option<JoinHandle<()>>,
}

struct End {
    is_near: AtomicBool,
    wake: EventFd,
}

impl KernelLayer {
    /// Begins to record the calls of process `pid`, which has not run its program yet, and of all
    /// that it will fork.
    ///
    /// # Errors
    /// When tracepoints are not to be had.
    pub(crate) fn start(
        pid: u32,
        clock: Clock,
        recorder: Recorder,
        opens: Arc<Opens>,
    ) -> io::Result<KernelLayer> {
        let rings = Rings::open(pid, perf::USUAL)?;
        let inbox = Arc::<Inbox>::default();
        let end = Arc::new(End {
            is_near: AtomicBool::new(false),
            wake: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
        });
        let ours = recorder.clone();
        let reader = {
            let (inbox, opens, end) = (Arc::clone(&inbox), Arc::clone(&opens), Arc::clone(&end));
            move || Reader::new(rings, clock, recorder, inbox, opens).run(&end)
        };
        let thread = std::thread::Builder::new().name("kernel-layer".into());
        Ok(KernelLayer {
            inbox,
            opens,
            end,
            recorder: ours,
            thread: Some(thread.spawn(reader)?),
        })
    }

    /// What it wants to be told of.
    pub(crate) fn feed(&self) -> Feed {
        Feed {
            inbox: Arc::clone(&self.inbox),
            opens: Arc::clone(&self.opens),
            recorder: self.recorder.clone(),
        }
    }
}

impl Drop for KernelLayer {
    /// Records what is left.
    fn drop(&mut self) {
        self.end.is_near.store(true, Ordering::Release);
        let _ = self.end.wake.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Reader {
    rings: Rings,
    clock: Clock,
    recorder: Recorder,
    calls: CallRing,
    inbox: Arc<Inbox>,
    opens: Arc<Opens>,
    merge: Merge,
    follower: Follower,
}

impl Reader {
    fn new(
        rings: Rings,
        clock: Clock,
        recorder: Recorder,
        inbox: Arc<Inbox>,
        opens: Arc<Opens>,
    ) -> Reader {
        Reader {
            rings,
            clock,
            calls: recorder.call_ring(),
            recorder,
            inbox,
            follower: Follower::new(),
            opens,
            merge: Merge::default(),
        }
    }

    fn run(mut self, end: &End) {
        let mut ends = vec![false; self.rings.rings.len()];
        loop {
            let last = end.is_near.load(Ordering::Acquire);
            self.round(last);
            if last {
                break;
            }
            self.wait(&end.wake, &mut ends);
        }
        for (loss, count) in self.follower.losses() {
            self.recorder.lost(loss, count);
        }
    }

    /// Sleeps until there is something to do. `ended`: rings that tell no more when they fill, since
    /// the first process is over.
    fn wait(&self, wake: &EventFd, ended: &mut [bool]) {
        let rings = self.rings.rings.iter().zip(&*ended);
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

    /// Takes what there is, and joins what is complete.
    fn round(&mut self, last: bool) {
        let read_ns = self.clock.now();
        let mut lost = 0;
        let Rings { rings, decoder, .. } = &mut self.rings;
        let waiting = self.merge.waiting();
        for ring in rings {
            let take = |body: &[u8]| {
                let sample = decoder.decode(body).map(|sample| Sample {
                    at: self.clock.at(sample.at),
                    ..sample
                });
                waiting.extend(sample);
            };
            ring.drain(take, &mut lost);
        }
        if lost > 0 {
            self.follower.lost(lost);
        }
        // Whatever a sample depends on was told before it was made, so it is there by now.
        self.follower.opened(self.opens.take());
        self.follower.announce(self.inbox.take());
        let calls = &mut self.calls;
        for sample in self.merge.ready((!last).then_some(read_ns)) {
            self.follower.sample(&sample, &mut |call| calls.push(call));
        }
    }
}

/// A counter and what it counted.
pub(super) type Counted = (Loss, u64);
