//! A live capture: a thread for each interface, which copies headers out of its ring, and one that
//! makes rows of them. The first never wait for the second: what it cannot take is counted.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flowtrace_schema::{CaptureId, CaptureRecord, CaptureSource, HostId, Recorder, Way};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::filter::Filter;
use super::interfaces::Interface;
use super::ring::{self, Ring, RingFrame};
use super::sink::{Incoming, Place, Sink};
use crate::clock::Clock;

/// Batches that wait for their rows: at 1 MiB each, what capturing may take of memory.
const BATCHES: usize = 48;
/// A batch is handed on when it has so many bytes, or when its block has been read.
const BATCH_BYTES: usize = 1 << 20;
/// How long to look at the ring again, at the latest.
const LOOK_MS: u8 = 50;

/// What to capture.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// The interfaces.
    pub interfaces: Vec<Interface>,
    /// Bytes of each packet that are looked at.
    pub snap_length: u32,
    /// Which packets.
    pub filter: Filter,
}

impl Default for LiveOptions {
    fn default() -> Self {
        LiveOptions {
            interfaces: Vec::new(),
            // Ethernet, a tag, IPv6 and TCP with all options: 118.
            snap_length: 128,
            filter: Filter::default(),
        }
    }
}

/// An interface that is not captured.
#[derive(Clone, Debug)]
pub struct Refused {
    /// Its name.
    pub interface: String,
    /// Why.
    pub reason: String,
}

/// What a capture has come to.
#[derive(Clone, Copy, Debug, Default)]
pub struct LiveReport {
    /// Packets in the trace.
    pub packets: u64,
    /// Flows.
    pub flows: u32,
    /// Packets that the kernel dropped.
    pub dropped: u64,
    /// Packets that were lost because the trace could not be written as fast.
    pub unstored: u64,
}

/// A capture that goes on.
#[derive(Debug)]
pub struct Live {
    stop: Arc<AtomicBool>,
    readers: Vec<JoinHandle<()>>,
    rows: Option<JoinHandle<LiveReport>>,
}

/// Headers of packets on their way from a ring.
#[derive(Debug, Default)]
struct Batch {
    /// Number of the capture, from 0.
    capture: usize,
    bytes: Vec<u8>,
    frames: Vec<Copied>,
    /// Packets that earlier batches should have had.
    unstored: u64,
    counts: ring::Counts,
}

#[derive(Clone, Copy, Debug)]
struct Copied {
    t_ns: i64,
    length: usize,
    wire_bytes: u32,
    way: Way,
    marks: u8,
}

impl Live {
    /// Captures from now on: when this returns, packets are being taken.
    pub fn start(
        options: &LiveOptions,
        host: HostId,
        clock: Clock,
        recorder: &Recorder,
    ) -> (Live, Vec<Refused>) {
        let mut refused = Vec::new();
        let sink = Sink::filtered(recorder, options.filter.clone());
        let (sender, batches) = sync_channel(BATCHES);
        let stop = Arc::new(AtomicBool::new(false));
        let (mut readers, mut places) = (Vec::new(), Vec::new());
        for interface in &options.interfaces {
            let reader = Ring::open(interface, options.snap_length, &options.filter);
            let started = reader.and_then(|ring| {
                let reader = Reader {
                    ring,
                    clock,
                    sender: sender.clone(),
                    stop: Arc::clone(&stop),
                    batch: Batch {
                        capture: places.len(),
                        ..Batch::default()
                    },
                };
                thread::Builder::new()
                    .name(format!("capture-{}", interface.name))
                    .spawn(move || reader.run())
            });
            match started {
                Ok(thread) => {
                    let number = places.len() as u32 + 1;
                    readers.push(thread);
                    places
                        .push(sink.begin(capture(options, interface, number, host, clock), host.0));
                }
                Err(error) => refused.push(Refused {
                    interface: interface.name.clone(),
                    reason: ring::reason(&error),
                }),
            }
        }
        let rows = thread::Builder::new()
            .name("packets".into())
            .spawn(move || rows(sink, places, clock, &batches));
        let live = Live {
            stop,
            readers,
            rows: rows.ok(),
        };
        (live, refused)
    }

    /// Whether anything is captured.
    pub fn is_capturing(&self) -> bool {
        !self.readers.is_empty()
    }

    /// Ends the capture, with every packet that was there when it was called.
    pub fn stop(self) -> LiveReport {
        self.stop.store(true, Ordering::Release);
        for reader in self.readers {
            let _ = reader.join();
        }
        let report = self.rows.map(|rows| rows.join().unwrap_or_default());
        report.unwrap_or_default()
    }
}

fn capture(
    options: &LiveOptions,
    interface: &Interface,
    number: u32,
    host: HostId,
    clock: Clock,
) -> CaptureRecord {
    CaptureRecord {
        id: CaptureId(number),
        host,
        interface: interface.name.clone(),
        source: CaptureSource::Ring,
        file: None,
        link_type: Some(interface.link().1),
        namespace: namespace(),
        snap_length: Some(options.snap_length),
        from_ns: Some(clock.now() as i64),
    }
}

/// Inode of the network namespace.
fn namespace() -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    Some(std::fs::metadata("/proc/self/ns/net").ok()?.ino())
}

/// The thread of one interface.
struct Reader {
    ring: Ring,
    clock: Clock,
    sender: SyncSender<Batch>,
    stop: Arc<AtomicBool>,
    batch: Batch,
}

impl Reader {
    fn run(mut self) {
        // The kernel hands over a block when it is full, or at most so long after its first packet.
        let last = Duration::from_millis(3 * u64::from(ring::RETIRE_MS));
        let mut stop_at = None;
        loop {
            let stopping = self.stop.load(Ordering::Acquire);
            if stopping && stop_at.is_none() {
                stop_at = Some(Instant::now() + last);
            }
            while self.block() {}
            if stop_at.is_some_and(|at| Instant::now() >= at) {
                break;
            }
            let mut waiting = [PollFd::new(self.ring.socket(), PollFlags::POLLIN)];
            let timeout = PollTimeout::from(if stopping { 5 } else { LOOK_MS });
            let _ = poll(&mut waiting, timeout);
        }
        while self.block() {}
        let batch = self.full();
        let _ = self.sender.send(batch);
    }

    /// Takes one block out of the ring.
    fn block(&mut self) -> bool {
        // Steps of the wall clock do not reach the trace: it has the offset of this moment.
        let to_trace = self.clock.wall_offset_ns();
        let batch = &mut self.batch;
        let is_block = self.ring.block(|frame: RingFrame<'_>| {
            batch.bytes.extend_from_slice(frame.bytes);
            batch.frames.push(Copied {
                t_ns: frame.unix_ns.saturating_sub(to_trace),
                length: frame.bytes.len(),
                wire_bytes: frame.wire_bytes,
                way: frame.way,
                marks: frame.marks,
            });
        });
        if is_block || self.batch.bytes.len() >= BATCH_BYTES {
            self.hand_on();
        }
        is_block
    }

    fn hand_on(&mut self) {
        if self.batch.frames.is_empty() {
            return;
        }
        let batch = self.full();
        if let Err(TrySendError::Full(batch)) = self.sender.try_send(batch) {
            // Rather these than those that the ring has no room for meanwhile.
            self.batch.unstored = batch.unstored + batch.frames.len() as u64;
            self.batch.counts = batch.counts;
        }
    }

    /// The batch as it is, with the kernel's counters; a new one is begun.
    fn full(&mut self) -> Batch {
        let counts = self.ring.counts();
        let next = Batch {
            capture: self.batch.capture,
            bytes: Vec::with_capacity(self.batch.bytes.len()),
            frames: Vec::with_capacity(self.batch.frames.len()),
            ..Batch::default()
        };
        let mut batch = std::mem::replace(&mut self.batch, next);
        batch.counts.packets += counts.packets;
        batch.counts.drops += counts.drops;
        batch
    }
}

/// The thread that makes rows.
fn rows(
    mut sink: Sink,
    mut places: Vec<Place>,
    clock: Clock,
    batches: &Receiver<Batch>,
) -> LiveReport {
    while let Ok(batch) = batches.recv() {
        let Some(place) = places.get_mut(batch.capture) else {
            continue;
        };
        place.unstored += batch.unstored;
        *place.received.get_or_insert(0) += batch.counts.packets;
        *place.dropped.get_or_insert(0) += batch.counts.drops;
        let mut at = 0;
        for frame in &batch.frames {
            let incoming = Incoming {
                t_ns: frame.t_ns,
                bytes: &batch.bytes[at..at + frame.length],
                wire_bytes: frame.wire_bytes,
                way: frame.way,
                marks: frame.marks,
            };
            at += frame.length;
            sink.frame(place, incoming);
        }
    }
    let end = clock.now() as i64;
    for place in &mut places {
        place.to_ns = Some(place.to_ns.map_or(end, |to| to.max(end)));
    }
    let report = LiveReport {
        packets: sink.packets(),
        flows: sink.flows.len(),
        dropped: places.iter().filter_map(|place| place.dropped).sum(),
        unstored: places.iter().map(|place| place.unstored).sum(),
    };
    sink.finish(places.iter());
    report
}

/// Whether packets can be captured here at all, and why not.
///
/// # Errors
/// What the system says.
pub fn check() -> io::Result<()> {
    let loopback = Interface::named("lo")?;
    Ring::open(&loopback, 128, &Filter::default()).map(drop)
}
