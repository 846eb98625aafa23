//! The thread that makes rows of packets and sockets that the other threads read.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use flowtrace_schema::{CaptureId, End, FlowSample, Loss, Record, Recorder};

use super::batch::{Batch, Spares};
use super::message::{LiveReport, Message};
use super::owners::Owners;
use crate::clock::Clock;
use crate::net::senders::Senders;
use crate::net::sockets::Observed;
use flowtrace_net::flows::{Met, TCP, UDP};
use flowtrace_net::sink::{Incoming, Place, Sink};

/// Largest time by which packets come later than the report of their socket.
const LATE_NS: i64 = 200_000_000;
/// Most sockets that wait for packets.
const MOST_WAITING: usize = 1 << 16;

/// Makes rows until all senders are gone.
pub(super) struct Rows {
    pub(super) sink: Sink,
    pub(super) clock: Clock,
    pub(super) recorder: Recorder,
    /// Set if the owner of a flow is to be looked up.
    pub(super) wanted: Arc<AtomicBool>,
    /// Sockets whose owners the process tracer knows.
    senders: Option<Arc<Senders>>,
    spares: Spares,
    places: BTreeMap<CaptureId, Place>,
    interfaces: HashMap<CaptureId, String>,
    /// Interfaces that are gone, with the time of that.
    gone: BTreeMap<CaptureId, i64>,
    /// The same for interfaces whose end did not end the capture of others.
    ended: BTreeMap<CaptureId, i64>,
    /// Sockets with the number of their namespace.
    waiting: VecDeque<(Observed, u32)>,
    owners: Owners,
}

impl Rows {
    pub(super) fn new(
        sink: Sink,
        clock: Clock,
        recorder: &Recorder,
        (wanted, senders): (Arc<AtomicBool>, Option<Arc<Senders>>),
        spares: Spares,
    ) -> Self {
        Rows {
            sink,
            clock,
            recorder: recorder.clone(),
            wanted,
            senders,
            spares,
            places: BTreeMap::new(),
            interfaces: HashMap::new(),
            gone: BTreeMap::new(),
            ended: BTreeMap::new(),
            waiting: VecDeque::new(),
            owners: Owners::new(recorder),
        }
    }

    pub(super) fn run(mut self, messages: &Receiver<Message>) -> LiveReport {
        loop {
            match messages.recv_timeout(Duration::from_millis(500)) {
                Ok(Message::Batch(batch)) => {
                    self.batch(&batch);
                    self.spares.give(batch);
                }
                Ok(Message::Begin(record, scope)) => {
                    let id = record.id;
                    self.interfaces.insert(id, record.interface.clone());
                    let place = self.sink.begin(*record, scope);
                    self.places.insert(id, place);
                }
                Ok(Message::Sockets(observed, scope)) => {
                    self.waiting
                        .extend(observed.into_iter().map(|o| (o, scope)));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => break,
            }
            self.resolve(self.clock.now() as i64 - LATE_NS);
        }
        self.resolve(i64::MAX);
        self.finish()
    }

    fn batch(&mut self, batch: &Batch) {
        if let Some(place) = batch.capture.and_then(|id| self.places.get_mut(&id)) {
            place.unstored += batch.unstored;
            *place.received.get_or_insert(0) += batch.counts.packets;
            *place.dropped.get_or_insert(0) += batch.counts.drops;
        }
        self.gone.extend(batch.capture.zip(batch.gone_ns));
        self.ended.extend(batch.ended.iter().copied());
        let flows = self.sink.flows.count();
        let mut at = 0;
        let mut frames = batch.frames.as_slice();
        while let Some(first) = frames.first() {
            let same = |frame: &&super::batch::Copied| frame.capture == first.capture;
            let (these, others) = frames.split_at(frames.iter().take_while(same).count());
            frames = others;
            let mut place = self.places.get_mut(&first.capture);
            for frame in these {
                let end = at + frame.length as usize;
                let incoming = Incoming {
                    t_ns: frame.t_ns,
                    bytes: &batch.bytes[at..end],
                    wire_bytes: frame.wire_bytes,
                    way: frame.way,
                    marks: frame.marks,
                };
                at = end;
                if let Some(place) = &mut place {
                    self.sink.frame(place, incoming);
                }
            }
        }
        if self.sink.flows.count() != flows {
            self.wanted.store(true, Ordering::Relaxed);
        }
    }

    /// Finds the flows of sockets that were read before `until`.
    fn resolve(&mut self, until: i64) {
        while let Some((observed, _)) = self.waiting.front() {
            if observed.t_ns > until && self.waiting.len() < MOST_WAITING {
                break;
            }
            if let Some((observed, scope)) = self.waiting.pop_front() {
                self.socket(&observed, scope);
            }
        }
        let senders = self.senders.iter();
        for one in senders.flat_map(|senders| senders.unanswered(until)) {
            if let Some((flow, end)) = self.sink.flows.of_unanswered(&one) {
                self.owners.made(flow, end, one.upid, one.from_ns);
            }
        }
    }

    /// The flows of a datagram socket of which only the maker is known.
    fn datagrams(&mut self, observed: &Observed, scope: u32) {
        let socket = &observed.socket;
        let Some((senders, cookie)) = self.senders.as_ref().zip(socket.cookie) else {
            return;
        };
        if let Some(maker) = senders.maker(cookie) {
            let (flows, local) = (&self.sink.flows, socket.local);
            let found = flows.of_listener(socket.protocol, local, scope, maker.t_ns);
            // The socket has its port since its own first datagram.
            for (flow, end) in found.into_iter().filter(|(_, end)| *end == End::Src) {
                self.owners.made(flow, end, maker.upid, maker.t_ns);
            }
        }
        if observed.is_closed {
            senders.forget(cookie);
        }
    }

    fn socket(&mut self, observed: &Observed, scope: u32) {
        let socket = &observed.socket;
        let (protocol, local) = (socket.protocol, socket.local);
        if protocol == UDP {
            self.datagrams(observed, scope);
        }
        let Some(peer) = socket.peer else {
            if let Some(holders) = observed.holders.as_ref().filter(|all| !all.is_empty()) {
                let flows = &self.sink.flows;
                for (flow, end) in flows.of_listener(protocol, local, scope, i64::MIN) {
                    self.owners.hold(flow, end, holders, observed.t_ns);
                }
            }
            return;
        };
        let met = Met {
            protocol,
            local,
            peer,
            scope,
            t_ns: observed.t_ns,
            cookie: socket.cookie,
            closed: observed.is_closed.then(|| socket.info.unwrap_or_default()),
        };
        let Some((flow, end)) = self.sink.flows.of_socket(&met) else {
            return;
        };
        if let Some(holders) = &observed.holders {
            self.owners.hold(flow, end, holders, observed.t_ns);
        }
        if observed.is_closed && protocol == TCP {
            self.owners.closed(flow, end);
        }
        if let (TCP, Some(info)) = (protocol, socket.info) {
            self.recorder
                .record(Record::FlowSample(Box::new(FlowSample {
                    t_ns: observed.t_ns,
                    flow,
                    end,
                    rtt_ns: info.rtt_ns,
                    min_rtt_ns: info.min_rtt_ns,
                    retransmits: info.retransmits,
                    rwnd_limited_ns: info.rwnd_limited_ns,
                    sndbuf_limited_ns: info.sndbuf_limited_ns,
                    busy_ns: info.busy_ns,
                    delivery_rate: info.delivery_rate,
                    bytes_acked: info.bytes_acked,
                    bytes_received: info.bytes_received,
                    congestion: socket.congestion.clone(),
                })));
        }
    }

    fn finish(mut self) -> LiveReport {
        self.owners.finish();
        let end = self.clock.now() as i64;
        for (id, place) in &mut self.places {
            let gone = self.gone.get(id).or_else(|| self.ended.get(id));
            let end = gone.copied().unwrap_or(end);
            // The counters of the ring are those of the first of several interfaces.
            place.received.get_or_insert(0);
            place.dropped.get_or_insert(0);
            place.to_ns = Some(place.to_ns.map_or(end, |to| to.max(end)));
        }
        self.recorder
            .lost(Loss::InterfaceGone, self.gone.len() as u64);
        self.recorder
            .lost(Loss::InterfaceEnded, self.ended.len() as u64);
        let gone = self.gone.keys();
        let gone = gone.filter_map(|id| self.interfaces.remove(id)).collect();
        let places = || self.places.values();
        let report = LiveReport {
            packets: self.sink.packets(),
            flows: self.sink.flows.count(),
            dropped: places().filter_map(|place| place.dropped).sum(),
            unstored: places().map(|place| place.unstored).sum(),
            gone,
        };
        self.sink.finish(self.places.values());
        report
    }
}
