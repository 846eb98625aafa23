//! The packets of a run and the questions' frame: which processes, which interval, which mode.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::decomposition::Averaging;
use super::{page, rtt, steps};

mod books;
mod build;
mod coverage;
mod memo;
mod nearest;

pub use books::Books;
pub use build::{CaptureInput, PacketInput};
pub use coverage::{Aside, Coverage};
use memo::Memo;

/// TCP flag FIN.
pub const FIN: u8 = 0x01;
/// TCP flag SYN.
pub const SYN: u8 = 0x02;
/// TCP flag RST.
pub const RST: u8 = 0x04;
/// TCP flag PSH.
pub const PSH: u8 = 0x08;
/// TCP flag ACK.
pub const ACK: u8 = 0x10;

/// Index of a process (host, process or endpoint, as the run was loaded).
pub type Node = u16;

/// One segment as one capture saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// Time on the common scale, ns.
    pub t_ns: i64,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Payload, bytes.
    pub payload: u32,
    /// Bytes on the wire.
    pub wire: u32,
    /// Receive window, bytes as far as the scale is known.
    pub window: u32,
    /// Connection.
    pub flow: u32,
    /// Sender.
    pub src: Node,
    /// Receiver.
    pub dst: Node,
    /// TCP flags.
    pub flags: u8,
    /// Its payload was on the wire before.
    pub is_again: bool,
}

impl Packet {
    /// Carries payload for the first time: what all methods call a data packet.
    pub fn is_data(&self) -> bool {
        self.payload > 0 && !self.is_again && self.flags & (SYN | RST) == 0
    }

    /// Sequence number after its payload.
    pub fn end_seq(&self) -> u32 {
        let control = u32::from(self.flags & SYN != 0) + u32::from(self.flags & FIN != 0);
        self.seq.wrapping_add(self.payload).wrapping_add(control)
    }
}

/// What a capture says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    /// Machine and interface or file.
    pub name: String,
    /// Packets in the order of time.
    pub packets: Vec<Packet>,
    /// Packets that the kernel dropped; `None`: not known.
    pub dropped: Option<i64>,
}

/// The packets of one process: indices into its own capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) capture: usize,
    pub(super) packets: Vec<u32>,
}

/// Everything loaded. Shared by all [`Run`]s cut from it.
#[derive(Debug, Default)]
pub struct Data {
    pub(super) nodes: Vec<String>,
    pub(super) captures: Vec<Capture>,
    pub(super) streams: Vec<Stream>,
    /// Whether the node has a capture of its own, not only its partner's.
    pub(super) is_own: Vec<bool>,
    pub(super) first_ns: i64,
    pub(super) last_ns: i64,
    /// Bound of the error between the clocks of two captures, ns; `None`: not aligned.
    pub(super) clock_error_ns: Option<i64>,
    pub(super) left_out: Vec<String>,
    pub(super) aside: Vec<Aside>,
    pub(super) without_header: u64,
    /// What the process tracer knows of each node; empty or `None`: nothing.
    pub(super) books: Vec<Option<Books>>,
    pub(super) rtt: OnceLock<rtt::Table>,
}

/// Which text the numbers follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// What the tool reports.
    #[default]
    Default,
    /// The thesis to the digit.
    Thesis,
}

/// What counts as traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Payload, repetitions left out (offline VTTIF).
    #[default]
    Payload,
    /// Whole frames, everything that was on the wire (online VTTIF, 2.4.5).
    Frame,
}

/// The options of the "Set" calls and of the methods' gaps; stored with every result.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Which text the numbers follow.
    pub mode: Mode,
    /// What a traffic matrix counts.
    pub unit: Unit,
    /// Edges below this share of the heaviest are pruned (2.1).
    pub b_min: f64,
    /// Time between two updates of the smoothed topology, s.
    pub period_s: f64,
    /// Smoothing interval, s (2.5).
    pub window_s: f64,
    /// Relative change of the matrix that makes a new topology (2.5).
    pub detection: f64,
    /// Share of the spectrum that may be lost when the interval is shortened, percent (3.7.1).
    pub cutoff_percent: f64,
    /// Gap between two sends that makes an iteration, ns; `None`: from the round-trip time.
    pub rtt_threshold_ns: Option<i64>,
    /// Window of the iteration rate, s (3.4.2); `None`: 1 s in thesis mode, by default a fiftieth of the run, 1 ms to 1 s; more where a long run has few packets.
    pub rate_window_s: Option<f64>,
    /// Step of that window, s; `None`: 20 ms in thesis mode, by default the window, so that none overlap.
    pub rate_step_s: Option<f64>,
    /// Series of average latencies and bandwidths (5.5).
    pub averaging: Averaging,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            mode: Mode::Default,
            unit: Unit::Payload,
            b_min: 0.1,
            period_s: 1.0,
            window_s: 60.0,
            detection: 0.2,
            cutoff_percent: 5.0,
            rtt_threshold_ns: None,
            rate_window_s: None,
            rate_step_s: None,
            averaging: Averaging::default(),
        }
    }
}

impl Settings {
    /// Window of the iteration rate and its step, s, for a run of so many seconds with so many packets, for so many series.
    fn rate_window(&self, run_s: f64, packets: usize, series: usize) -> (f64, f64) {
        let window = self.rate_window_s;
        match self.mode {
            Mode::Thesis => (window.unwrap_or(1.0), self.rate_step_s.unwrap_or(0.02)),
            // Windows that do not overlap: the others say the same fifty times.
            Mode::Default => {
                let least = steps::least_ns((0, (run_s * 1e9) as i64), packets) as f64 / 1e9;
                let least = least.max(run_s * series as f64 / steps::MOST_ASKED as f64);
                let window = window.unwrap_or((run_s / 50.0).clamp(1e-3, 1.0).max(least));
                (window, self.rate_step_s.unwrap_or(window))
            }
        }
    }
}

/// A run, or an interval of one: what every call is asked of. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Run {
    pub(super) data: Arc<Data>,
    t0_ns: i64,
    t1_ns: i64,
    memo: Arc<Memo>,
    /// The options.
    pub settings: Settings,
}

/// Why a call has no answer: an interval that is empty or too short, a capture that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The reason, for people.
    pub reason: String,
}

impl Unknown {
    /// No answer, because of `reason`.
    pub fn new(reason: impl Into<String>) -> Self {
        Unknown {
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown: {}", self.reason)
    }
}

/// An answer with the interval that it is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Known<T> {
    /// The answer.
    pub value: T,
    /// Begin of the interval, ns.
    pub t0_ns: i64,
    /// End of the interval, ns.
    pub t1_ns: i64,
    /// What was seen and what was missed.
    pub coverage: Coverage,
}

/// What a call returns: never 0 for "do not know".
pub type Answer<T> = Result<Known<T>, Unknown>;

impl Run {
    /// Puts captures together: sorts them, marks what was sent again, and finds for each process
    /// the capture nearest to it.
    pub fn new(nodes: Vec<String>, captures: Vec<CaptureInput>) -> Run {
        Run::from_data(build::data(nodes, captures))
    }

    /// The same with what its origin says: the bound of the error between the captures' clocks,
    /// and addresses that are no part of the program.
    #[must_use]
    pub fn with_origin(self, clock_error_ns: Option<i64>, left_out: Vec<String>) -> Run {
        let mut data = Arc::try_unwrap(self.data).unwrap_or_else(|data| data.copied());
        data.clock_error_ns = clock_error_ns;
        data.left_out = left_out;
        Run {
            data: Arc::new(data),
            memo: Arc::default(),
            ..self
        }
    }

    /// The same with what was recorded beside: flows that the methods are not for, and packets of
    /// the program's connections without a whole header.
    #[must_use]
    pub fn with_aside(self, aside: Vec<Aside>, without_header: u64) -> Run {
        let mut data = Arc::try_unwrap(self.data).unwrap_or_else(|data| data.copied());
        data.aside = aside;
        data.without_header = without_header;
        Run {
            data: Arc::new(data),
            memo: Arc::default(),
            ..self
        }
    }

    fn from_data(data: Data) -> Run {
        Run {
            t0_ns: data.first_ns,
            t1_ns: data.last_ns,
            data: Arc::new(data),
            memo: Arc::default(),
            settings: Settings::default(),
        }
    }

    /// The same run with other options.
    #[must_use]
    pub fn with(&self, change: impl FnOnce(&mut Settings)) -> Run {
        let mut run = self.clone();
        change(&mut run.settings);
        run
    }

    /// The last `seconds` before the newest packet; `None`: all of it.
    #[must_use]
    pub fn last(&self, seconds: Option<f64>) -> Run {
        let Some(seconds) = seconds else {
            return self.clone();
        };
        let ns = (seconds.max(0.0) * 1e9).min(9e18) as i64;
        self.within(self.t1_ns.saturating_sub(ns), self.t1_ns)
    }

    /// The part between two moments, both included, ns.
    #[must_use]
    pub fn within(&self, t0_ns: i64, t1_ns: i64) -> Run {
        let mut run = self.clone();
        run.t0_ns = t0_ns.max(self.t0_ns);
        run.t1_ns = t1_ns.min(self.t1_ns);
        if run.span_ns() != self.span_ns() {
            run.memo = Arc::default();
        }
        run
    }

    /// Whether this is all that was loaded.
    pub(super) fn is_whole(&self) -> bool {
        (self.t0_ns, self.t1_ns) == (self.data.first_ns, self.data.last_ns)
    }

    /// Begin and end, ns.
    pub fn span_ns(&self) -> (i64, i64) {
        (self.t0_ns, self.t1_ns)
    }

    /// Window of the iteration rate and its step, s, for so many series.
    ///
    /// # Errors
    /// When what was asked for makes too many steps.
    pub(super) fn rate_window(&self, series: usize) -> Result<(f64, f64), Unknown> {
        let packets = self.all().map(|node| self.stream(node).count()).sum();
        let (window, step) = self.settings.rate_window(self.seconds(), packets, series);
        let most = steps::MOST_ASKED as f64 / series.max(1) as f64;
        if self.seconds() / step > most {
            return Err(Unknown::new(format!(
                "{:.0} s are more than {most:.0} steps of {step} s: ask for longer ones (--rate-step), or for a part (--within)",
                self.seconds()
            )));
        }
        Ok((window, step))
    }

    /// Length, s; 0 for an empty one.
    pub fn seconds(&self) -> f64 {
        (self.t1_ns - self.t0_ns).max(0) as f64 / 1e9
    }

    /// The processes' names.
    pub fn nodes(&self) -> &[String] {
        &self.data.nodes
    }

    /// The process of this name: that of a node, or the rule of the only process that has it.
    ///
    /// # Errors
    /// Names the known ones.
    pub fn node(&self, name: &str) -> Result<Node, Unknown> {
        let nodes = || self.data.nodes.iter();
        let found = nodes().position(|node| node == name);
        // A process by its rule alone, where it is the only one of it.
        let is_called = |node: &String| {
            let rest = node.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(" (pid "))
        };
        let is_only = nodes().filter(|node| is_called(node)).count() == 1;
        let found = found.or_else(|| nodes().position(is_called).filter(|_| is_only));
        found.map(|at| at as Node).ok_or_else(|| {
            let known = page::listed(&self.data.nodes, ", ");
            Unknown::new(format!(
                "no process \"{name}\" in this trace; there are {known}"
            ))
        })
    }

    /// All processes by index.
    pub fn all(&self) -> impl Iterator<Item = Node> + use<> {
        0..self.data.nodes.len() as Node
    }

    /// The packets from and to a process in the order of time, as the capture nearest to it saw
    /// them.
    pub fn stream(&self, node: Node) -> impl DoubleEndedIterator<Item = &Packet> + Clone {
        let stream = &self.data.streams[usize::from(node)];
        let packets: &[Packet] = self
            .data
            .captures
            .get(stream.capture)
            .map_or(&[], |capture| &capture.packets);
        let at = |index: &u32| packets[*index as usize].t_ns;
        let from = stream.packets.partition_point(|i| at(i) < self.t0_ns);
        let to = stream.packets.partition_point(|i| at(i) <= self.t1_ns);
        let chosen = stream.packets.get(from..to).unwrap_or(&[]);
        chosen.iter().map(move |&i| &packets[i as usize])
    }

    /// Hands each packet of the interval over for each process that has it in its [`Run::stream`], in the
    /// order of time within these. Of many processes that is quicker than one stream after the other, each of
    /// which is strewn over its capture.
    pub(super) fn each_seen(&self, mut each: impl FnMut(Node, &Packet)) {
        for (at, capture) in self.data.captures.iter().enumerate() {
            let is_nearest = |node: Node| {
                let stream = self.data.streams.get(usize::from(node));
                stream.is_some_and(|stream| stream.capture == at)
            };
            for packet in self.part(&capture.packets) {
                let (src, dst) = (packet.src, packet.dst);
                if is_nearest(src) {
                    each(src, packet);
                }
                if dst != src && is_nearest(dst) {
                    each(dst, packet);
                }
            }
        }
    }

    /// Those of a capture's packets that are in the interval.
    fn part<'a>(&self, packets: &'a [Packet]) -> &'a [Packet] {
        let from = packets.partition_point(|packet| packet.t_ns < self.t0_ns);
        let to = packets.partition_point(|packet| packet.t_ns <= self.t1_ns);
        packets.get(from..to).unwrap_or(&[])
    }

    /// Whether the process has a capture of its own, so that its times are its own.
    pub fn is_own(&self, node: Node) -> bool {
        self.data.is_own[usize::from(node)]
    }

    /// Whether sender and receiver were each captured at their own end.
    pub fn has_both_ends(&self, a: Node, b: Node) -> bool {
        let capture = |node: Node| self.data.streams[usize::from(node)].capture;
        self.is_own(a) && self.is_own(b) && capture(a) != capture(b)
    }

    /// Bound of the error between the clocks of two captures, ns.
    pub fn clock_error_ns(&self) -> Option<i64> {
        self.data.clock_error_ns
    }

    /// An answer about this interval.
    pub(super) fn known<T>(&self, value: T) -> Known<T> {
        Known {
            value,
            t0_ns: self.t0_ns,
            t1_ns: self.t1_ns,
            coverage: self.coverage(),
        }
    }

    /// The reason why nothing can be said of this interval, if there is one.
    ///
    /// # Errors
    /// When no process sent or received a packet in it.
    pub(super) fn need_packets(&self) -> Result<(), Unknown> {
        if self.data.nodes.is_empty() {
            return Err(Unknown::new(
                "the trace holds no TCP packets between processes",
            ));
        }
        if self.all().all(|node| self.stream(node).next().is_none()) {
            return Err(Unknown::new("no packet in this interval"));
        }
        Ok(())
    }
}
