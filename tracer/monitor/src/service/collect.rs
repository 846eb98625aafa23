//! The collector: one thread for datagrams, one for each agent that sends its last totals, one trace.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use flowtrace_schema::{
    CounterRecord, FileLayer, HostClock, HostCounter, HostId, HostRecord, HostSample, NodeRecord,
    ProcessLayer, Record, Recorder, RunRecord, Summary, Text,
};

use nix::poll::{PollFd, PollFlags, poll};

use super::connections::Connections;
use super::{asked_to_end, frame};
use crate::collector::{Collector, Rates, Row, Status};
use crate::key::{Key, random};
use crate::wire::LONGEST;
use flowtrace_tracer::clock::Clock;
use flowtrace_tracer::session::{HOST, RUN, Recording};

/// Longest sleep of the thread for datagrams and new connections, ms.
const TICK: u16 = 50;
/// Time between two checks for missing samples, and between two entries about the machines.
const ROUND: Duration = Duration::from_secs(1);
/// Most messages over one connection.
const MESSAGES: usize = 8;

/// Settings of a collector.
#[derive(Clone, Debug)]
pub struct CollectOptions {
    /// The trace to write.
    pub output: PathBuf,
    /// True if an older trace there is removed; otherwise it is kept beside the new one.
    pub replace: bool,
    /// Address for datagrams and for connections.
    pub listen: SocketAddr,
    /// The shared key.
    pub key: Key,
    /// Rates at the begin.
    pub rates: Rates,
    /// Time to listen; `None`: until a signal.
    pub length: Option<Duration>,
    /// Number of machines with last totals after which to end; 0: do not.
    pub until_final: usize,
}

/// A change while the collector runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Time between samples: of one machine or all, ms.
    Period(Option<String>, u32),
    /// The agent of one machine or of all sends its last totals and ends.
    Stop(Option<String>),
}

/// State of a machine at one instant.
#[derive(Clone, Debug)]
pub struct NodeState {
    /// State of its samples.
    pub status: Status,
    /// Its last totals, by counter.
    pub totals: Vec<(u8, u64)>,
    /// The totals before the last ones, and the time between both, ns.
    pub before: Option<(Vec<(u8, u64)>, u64)>,
    /// Time since its last message, ns.
    pub silent_ns: u64,
}

/// Result of a collection.
#[derive(Clone, Debug)]
pub struct CollectReport {
    /// The machines.
    pub nodes: Vec<Status>,
    /// Messages that were refused.
    pub refused: u64,
    /// Summary of the trace.
    pub summary: Summary,
}

/// Reason why nothing is collected.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// The trace cannot be made.
    #[error(transparent)]
    Store(#[from] flowtrace_tracer::session::Error),
    /// There is no socket.
    #[error("cannot listen at {at}: {source}")]
    Socket {
        /// Address that was asked for.
        at: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
}

/// Listens until a signal. Calls `begun` with the address, `show` with the state of all machines every second, and
/// `controls` for changes.
///
/// # Errors
/// When there is no socket, or the trace cannot be made.
pub fn run(
    options: &CollectOptions,
    begun: &mut dyn FnMut(SocketAddr),
    show: &mut dyn FnMut(&[NodeState]),
    controls: &mut dyn FnMut() -> Vec<Control>,
) -> Result<CollectReport, CollectError> {
    let socket = |source| CollectError::Socket {
        at: options.listen,
        source,
    };
    let end = asked_to_end().map_err(socket)?;
    let listening = Listening::at(options.listen).map_err(socket)?;
    begun(listening.address().map_err(socket)?);
    gather(options, &listening, &end, show, controls)
}

/// The two sockets of one port.
pub(super) struct Listening {
    datagrams: UdpSocket,
    connections: TcpListener,
}

impl Listening {
    pub(super) fn at(address: SocketAddr) -> io::Result<Listening> {
        let both = || -> io::Result<_> {
            let datagrams = UdpSocket::bind(address)?;
            let connections = TcpListener::bind(datagrams.local_addr()?)?;
            Ok((datagrams, connections))
        };
        // Port 0 is any port that is free for datagrams; it need not be free for connections.
        let mut tries = if address.port() == 0 { 16 } else { 1 };
        let (datagrams, connections) = loop {
            tries -= 1;
            match both() {
                Err(error) if tries > 0 && error.kind() == io::ErrorKind::AddrInUse => {}
                found => break found?,
            }
        };
        connections.set_nonblocking(true)?;
        datagrams.set_nonblocking(true)?;
        Ok(Listening {
            datagrams,
            connections,
        })
    }

    /// Waits until a datagram or connection came, for a while.
    fn wait(&self) {
        let came = |socket| PollFd::new(socket, PollFlags::POLLIN);
        let (datagrams, connections) = (self.datagrams.as_fd(), self.connections.as_fd());
        // A signal ends the wait early, which does no harm.
        let _ = poll(&mut [came(datagrams), came(connections)], TICK);
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.datagrams.local_addr()
    }
}

pub(super) fn gather(
    options: &CollectOptions,
    listening: &Listening,
    end: &AtomicBool,
    show: &mut dyn FnMut(&[NodeState]),
    controls: &mut dyn FnMut() -> Vec<Control>,
) -> Result<CollectReport, CollectError> {
    let recording = Recording::start(&options.output, options.replace, false)?;
    recording.recorder.record(Record::Run(Box::new(RunRecord {
        id: RUN,
        host: HOST,
        command: None,
        cwd: std::env::current_dir().map_or_else(|_| "/".into(), |cwd| Text::from(cwd.as_path())),
        version: env!("CARGO_PKG_VERSION"),
        file_layer: FileLayer::None,
        process_layer: ProcessLayer::None,
    })));
    let secret: [u8; 32] = random().map_err(|source| CollectError::Socket {
        at: options.listen,
        source,
    })?;
    let collector = Collector::new(options.key.clone(), &secret, options.rates.clone());
    let store = Store::new(recording.recorder.clone(), recording.epoch_unix_ns);
    let desk = Arc::new(Mutex::new(Desk { collector, store }));
    let connections = Connections::default();
    let clock = recording.clock;
    let started = Instant::now();
    let mut next_round = Instant::now();
    let mut buffer = [0; LONGEST + 1];
    let mut is_last = false;
    loop {
        listening.wait();
        if let Ok((length, from)) = listening.datagrams.recv_from(&mut buffer) {
            let answer = answer(&desk, clock.now(), &buffer[..length], || {});
            if let Some(answer) = answer {
                // An agent that does not get the answer asks again.
                let _ = listening.datagrams.send_to(&answer, from);
            }
        }
        if let Ok((stream, _)) = listening.connections.accept() {
            serve(stream, &desk, &connections, clock);
        }
        if Instant::now() < next_round && !is_last {
            continue;
        }
        next_round = Instant::now() + ROUND;
        let mut desk = lock(&desk);
        let Desk {
            collector: state,
            store,
        } = &mut *desk;
        for control in controls() {
            match control {
                Control::Period(node, period_ms) => state.set_period(node.as_deref(), period_ms),
                Control::Stop(node) => {
                    state.stop(node.as_deref());
                }
            }
        }
        state.tick(clock.now());
        if is_last {
            state.finish();
        }
        store.store(state);
        let finals = (0..state.len()).filter_map(|at| state.status(at));
        let finals = finals.filter(|status| status.is_final).count();
        let shown = store.states(state, clock.now());
        drop(desk);
        show(&shown);
        if is_last {
            break;
        }
        is_last = end.load(Ordering::Acquire)
            || options
                .length
                .is_some_and(|length| started.elapsed() >= length)
            || options.until_final > 0 && finals >= options.until_final;
    }
    let state = &lock(&desk).collector;
    let report = CollectReport {
        nodes: (0..state.len()).filter_map(|at| state.status(at)).collect(),
        refused: state.refused(),
        summary: recording.finish(None, None),
    };
    Ok(report)
}

/// State of the collector, and of the trace.
struct Desk {
    collector: Collector,
    store: Store,
}

fn lock(desk: &Mutex<Desk>) -> MutexGuard<'_, Desk> {
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a message, and returns the answer to it. Last totals are stored before they are acknowledged, for
/// the agent ends then: a collector that is killed has them in its trace. `proven` is called as soon as the
/// signature is verified.
fn answer(desk: &Mutex<Desk>, now: u64, message: &[u8], proven: impl FnOnce()) -> Option<Vec<u8>> {
    let mut state = lock(desk);
    let answer = state.collector.receive(now, message)?;
    proven();
    let Some(node) = state.collector.ended_by(message) else {
        return Some(answer);
    };
    let Desk { collector, store } = &mut *state;
    store.rows(collector);
    store.node(collector, node);
    let recorder = store.recorder.clone();
    // Other messages are taken meanwhile.
    drop(state);
    recorder.settle().then_some(answer)
}

/// Answers messages of a connection, in a thread of its own.
fn serve(stream: TcpStream, desk: &Arc<Mutex<Desk>>, connections: &Connections, clock: Clock) {
    // The peer may be gone already.
    let Ok(mut connection) = connections.add(stream) else {
        return;
    };
    let desk = Arc::clone(desk);
    let work = move || -> io::Result<()> {
        for _ in 0..MESSAGES {
            let message = frame::read(&mut connection)?;
            let answer = answer(&desk, clock.now(), &message, || connection.proven());
            frame::write(&mut connection.writer(), &answer.unwrap_or_default())?;
        }
        Ok(())
    };
    // An agent that ends has sent everything. Without a thread the connection is closed, and the agent
    // reports that.
    let _ = std::thread::Builder::new()
        .name("last-totals".into())
        .spawn(work);
}

/// Stored values of one machine.
#[derive(Default)]
struct Stored {
    host: Option<HostId>,
    last: HashMap<u8, u64>,
    latest: Option<Row>,
    before: Option<Row>,
}

/// Writes rows and statuses into the trace.
struct Store {
    recorder: Recorder,
    epoch_unix_ns: i64,
    nodes: Vec<Stored>,
    counters: HashMap<u8, u32>,
}

impl Store {
    fn new(recorder: Recorder, epoch_unix_ns: i64) -> Store {
        Store {
            recorder,
            epoch_unix_ns,
            nodes: Vec::new(),
            counters: HashMap::new(),
        }
    }

    fn store(&mut self, collector: &mut Collector) {
        self.rows(collector);
        for at in 0..self.nodes.len() {
            self.node(collector, at);
        }
    }

    fn rows(&mut self, collector: &mut Collector) {
        for row in collector.rows() {
            self.row(collector, row);
        }
    }

    /// Records the status of a machine that has rows.
    fn node(&self, collector: &Collector, at: usize) {
        let host = self.nodes.get(at).and_then(|stored| stored.host);
        let (Some(host), Some(status)) = (host, collector.status(at)) else {
            return;
        };
        if let Some(monotonic_ns) = status.zero_ns {
            self.recorder.record(Record::HostClock(HostClock {
                host,
                monotonic_ns,
                wall_error_ns: None,
            }));
        }
        self.recorder.record(Record::Node(NodeRecord {
            host,
            received: status.received,
            expected: status.expected,
            ignored: status.ignored,
            sessions: status.sessions,
            period_ms: status.period_ms,
            is_final: status.is_final,
            error_ns: status.error_ns,
            drift_ppb: status.drift_ppb,
        }));
    }

    fn row(&mut self, collector: &Collector, row: Row) {
        while self.nodes.len() <= row.node {
            self.nodes.push(Stored::default());
        }
        let host = match self.nodes[row.node].host {
            Some(host) => host,
            None => {
                let host = self.host(collector, row.node);
                self.nodes[row.node].host = Some(host);
                host
            }
        };
        for &(counter, value) in &row.totals {
            let node = &mut self.nodes[row.node];
            if node.last.insert(counter, value) == Some(value) {
                continue;
            }
            let Some(counter) = self.counter(counter) else {
                continue;
            };
            let sample = HostSample {
                t_ns: row.t_ns,
                host,
                counter,
                value,
            };
            self.recorder.record(if row.is_interpolated {
                Record::Interpolated(sample)
            } else {
                Record::HostSample(sample)
            });
        }
        if !row.is_interpolated {
            let node = &mut self.nodes[row.node];
            node.before = node.latest.replace(row);
        }
    }

    /// Records a machine at its first message. The collector's own machine has number 1.
    fn host(&self, collector: &Collector, at: usize) -> HostId {
        let host = HostId(HOST.0 + 1 + u32::try_from(at).unwrap_or(u32::MAX - 2));
        let status = collector.status(at).unwrap_or_default();
        self.recorder.record(Record::Host(Box::new(HostRecord {
            id: host,
            name: status.name,
            boot_id: Some(status.boot).filter(|boot| !boot.is_empty()),
            system: "unknown".into(),
            cpus: None,
            memory_bytes: None,
            // Its times are put on the collector's clock.
            epoch_unix_ns: self.epoch_unix_ns,
        })));
        host
    }

    fn counter(&mut self, counter: u8) -> Option<u32> {
        if let Some(&id) = self.counters.get(&counter) {
            return Some(id);
        }
        let kind = *HostCounter::ALL.get(usize::from(counter))?;
        let id = u32::try_from(self.counters.len()).ok()? + 1;
        let (_, unit, meaning) = kind.describe();
        self.recorder
            .record(Record::Counter(Box::new(CounterRecord {
                id,
                // The devices of a machine are one.
                name: kind.name(Some("all")),
                unit,
                meaning,
            })));
        self.counters.insert(counter, id);
        Some(id)
    }

    fn states(&self, collector: &Collector, now: u64) -> Vec<NodeState> {
        let state = |at: usize| {
            let status = collector.status(at)?;
            let stored = self.nodes.get(at);
            let latest = stored.and_then(|stored| stored.latest.as_ref());
            let before = stored.and_then(|stored| stored.before.as_ref());
            Some(NodeState {
                silent_ns: now.saturating_sub(status.heard_ns),
                status,
                totals: latest.map(|row| row.totals.clone()).unwrap_or_default(),
                before: before.zip(latest).map(|(before, latest)| {
                    (
                        before.totals.clone(),
                        latest.t_ns.saturating_sub(before.t_ns),
                    )
                }),
            })
        };
        (0..collector.len()).filter_map(state).collect()
    }
}
