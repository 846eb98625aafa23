//! The thread of one ring, which copies headers out of it. It never waits for the thread that makes rows of
//! them: packets that this cannot take are counted.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, Instant};

use flowtrace_schema::{CaptureId, CaptureRecord, CaptureSource, HostId};
use nix::poll::PollTimeout;

use super::batch::{Batch, Copied, Spares};
use super::message::Message;
use crate::clock::{Clock, WallOffset};
use crate::net::interfaces::Interface;
use crate::net::interfaces::deleted::Deleted;
use crate::net::ring::{self, Ring, RingFrame};
use crate::net::senders::Senders;

/// A batch is passed on when it has so many bytes, or when its block has been read.
const BATCH_BYTES: usize = 1 << 20;
/// Longest time until the ring is read again.
const READ_MS: u8 = 50;

/// Settings that all captures of a trace share.
#[derive(Clone, Debug)]
pub(super) struct Common {
    pub(super) host: HostId,
    pub(super) clock: Clock,
    pub(super) snap_length: u32,
    pub(super) sender: SyncSender<Message>,
    pub(super) spares: Spares,
    /// Captures so far.
    pub(super) captures: Arc<AtomicU32>,
    /// Sockets whose owners only the process tracer knows, where there is one.
    pub(super) senders: Option<Arc<Senders>>,
}

/// Takes packets out of a ring.
pub(super) struct Reader {
    pub(super) common: Common,
    ring: Ring,
    stop: Arc<AtomicBool>,
    /// Inode of the network namespace, and the number that distinguishes its addresses.
    namespace: (Option<u64>, u32),
    /// The captures of its interfaces, by their index.
    known: HashMap<u32, CaptureId>,
    /// The last capture of these: packets come in groups.
    last: Option<(u32, CaptureId)>,
    /// The first capture of these, which has the counters of the ring.
    first: Option<CaptureId>,
    /// Interfaces that are gone, if the ring is not that of one alone.
    deleted: Option<Deleted>,
    batch: Batch,
    /// The last reading of the wall clock, by which the kernel stamps packets.
    wall: Option<WallOffset>,
}

impl Reader {
    pub(super) fn new(
        common: Common,
        ring: Ring,
        stop: Arc<AtomicBool>,
        namespace: (Option<u64>, u32),
    ) -> Self {
        let deleted = ring.is_of_all().then(Deleted::open);
        Reader {
            common,
            ring,
            deleted: deleted.and_then(Result::ok),
            stop,
            namespace,
            known: HashMap::new(),
            last: None,
            first: None,
            batch: Batch::default(),
            wall: None,
        }
    }

    /// Records an interface before its first packet.
    pub(super) fn begin(&mut self, interface: &Interface) -> CaptureId {
        let id = CaptureId(self.common.captures.fetch_add(1, Ordering::Relaxed) + 1);
        let record = CaptureRecord {
            id,
            host: self.common.host,
            interface: interface.name.clone(),
            source: CaptureSource::Ring,
            file: None,
            link_type: Some(interface.link().1),
            namespace: self.namespace.0,
            snap_length: Some(self.common.snap_length),
            from_ns: Some(self.common.clock.now() as i64),
        };
        // Waits, for without this message the packets behind it would belong to no capture.
        let begin = Message::Begin(Box::new(record), self.namespace.1);
        let _ = self.common.sender.send(begin);
        self.known.insert(interface.index, id);
        self.first.get_or_insert(id);
        id
    }

    /// Reads until it is asked to stop and has read all packets of that time; or until `is_over` says that no
    /// process is in the namespace any more, or until the interface is gone.
    pub(super) fn run(mut self, is_over: impl Fn() -> bool) {
        // The kernel passes a block when it is full, or at most so long after its first packet.
        let last = Duration::from_millis(3 * u64::from(ring::RETIRE_MS));
        let mut stop_at = None;
        let mut gone_ns = None;
        loop {
            let stopping = self.stop.load(Ordering::Acquire);
            if gone_ns.is_none() && self.ring.is_orphan() {
                gone_ns = Some(self.common.clock.now() as i64);
            }
            if let Some(deleted) = &mut self.deleted {
                deleted.read(self.common.clock.now() as i64);
            }
            if stop_at.is_none() && (stopping || gone_ns.is_some() || is_over()) {
                stop_at = Some(Instant::now() + last);
            }
            while self.block() {}
            if stop_at.is_some_and(|at| Instant::now() >= at) {
                break;
            }
            let read_ms = if stopping { 5 } else { READ_MS };
            self.ring.wait(PollTimeout::from(read_ms));
        }
        while self.block() {}
        let batch = Batch {
            gone_ns,
            ended: self.ended(),
            ..self.full()
        };
        let _ = self.common.sender.send(Message::Batch(batch));
    }

    /// The captures of interfaces that are gone. Their last packets came after the report.
    fn ended(&self) -> Vec<(CaptureId, i64)> {
        let deleted = self.deleted.iter().flat_map(Deleted::all);
        let ended = deleted.filter_map(|(index, deletion)| {
            let capture = self.known.get(index)?;
            Some((*capture, deletion.t_ns))
        });
        ended.collect()
    }

    /// Takes one block out of the ring.
    fn block(&mut self) -> bool {
        self.meet();
        // Steps of the wall clock do not reach the trace: it has the offset of this instant.
        let now = self.common.clock.wall_offset();
        let to_trace = self.wall.map_or(now, |before| before.or_moved(now));
        self.wall = Some(to_trace);
        let (known, last, batch) = (&self.known, &mut self.last, &mut self.batch);
        let is_block = self.ring.block(|frame: RingFrame<'_>| {
            let capture = match *last {
                Some((index, capture)) if index == frame.interface => capture,
                _ => {
                    let Some(&capture) = known.get(&frame.interface) else {
                        return;
                    };
                    *last = Some((frame.interface, capture));
                    capture
                }
            };
            batch.bytes.extend_from_slice(frame.bytes);
            batch.frames.push(Copied {
                capture,
                t_ns: frame.unix_ns.saturating_sub(to_trace.ns),
                length: frame.bytes.len() as u32,
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

    /// Makes captures of the interfaces in the next block that are not known yet.
    fn meet(&mut self) {
        if !self.ring.is_of_all() {
            return;
        }
        for (index, kind) in self
            .ring
            .interfaces(|index| self.known.contains_key(&index))
        {
            let deleted = self.deleted.as_ref().and_then(|all| all.all().get(&index));
            let before = deleted.and_then(|deletion| deletion.name.as_deref());
            self.begin(&Interface::of_packet(index, kind, before));
        }
    }

    fn hand_on(&mut self) {
        if self.batch.frames.is_empty() {
            return;
        }
        let batch = self.full();
        if let Err(TrySendError::Full(Message::Batch(batch))) =
            self.common.sender.try_send(Message::Batch(batch))
        {
            // Rather these than packets for which the ring has no space meanwhile.
            self.batch.unstored = batch.unstored + batch.frames.len() as u64;
            self.batch.counts = batch.counts;
        }
    }

    /// Returns the batch as it is, with the kernel's counters, and begins a new one.
    fn full(&mut self) -> Batch {
        let counts = self.ring.counts();
        let (bytes, frames) = self.common.spares.take().unwrap_or_else(|| {
            let like = &self.batch;
            let frames = Vec::with_capacity(like.frames.len());
            (Vec::with_capacity(like.bytes.len()), frames)
        });
        let next = Batch {
            bytes,
            frames,
            ..Batch::default()
        };
        let mut batch = std::mem::replace(&mut self.batch, next);
        batch.capture = self.first;
        batch.counts.packets += counts.packets;
        batch.counts.drops += counts.drops;
        batch
    }
}
