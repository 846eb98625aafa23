//! A run, or an interval of one.

use std::sync::Arc;

use super::accounting::TimeAccounting;
use super::answer::{Known, Unknown};
use super::build::{self, CaptureInput};
use super::coverage::{Coverage, OtherFlows};
use super::data::Data;
use super::memo::Memo;
use super::packet::{Node, Packet};
use super::settings::{Mode, Settings};
use crate::{steps, wording};

/// A run, or an interval of one, the subject of every call. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Run {
    pub(crate) data: Arc<Data>,
    t0_ns: i64,
    t1_ns: i64,
    memo: Arc<Memo>,
    /// The options.
    pub settings: Settings,
}

impl Run {
    /// Combines captures: sorts them, marks retransmissions, and finds the capture nearest to each
    /// process.
    pub fn new(nodes: Vec<String>, captures: Vec<CaptureInput>) -> Run {
        Run::from_data(build::data(nodes, captures))
    }

    /// Adds the bound of the error between the captures' clocks, and addresses outside of the program.
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

    /// Adds the recorded flows to which the methods do not apply, and the number of packets of the
    /// program's connections without a complete header.
    #[must_use]
    pub fn with_other_flows(self, other_flows: Vec<OtherFlows>, without_header: u64) -> Run {
        let mut data = Arc::try_unwrap(self.data).unwrap_or_else(|data| data.copied());
        data.other_flows = other_flows;
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

    /// The last `seconds` before the newest packet; all of the run with `None`.
    #[must_use]
    pub fn last(&self, seconds: Option<f64>) -> Run {
        let Some(seconds) = seconds else {
            return self.clone();
        };
        let ns = (seconds.max(0.0) * 1e9).min(9e18) as i64;
        self.within(self.t1_ns.saturating_sub(ns), self.t1_ns)
    }

    /// The part between two instants, both included, ns.
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

    /// True if this is the whole run.
    pub(crate) fn is_whole(&self) -> bool {
        (self.t0_ns, self.t1_ns) == (self.data.first_ns, self.data.last_ns)
    }

    /// Begin and end of the interval, ns.
    pub fn span_ns(&self) -> (i64, i64) {
        (self.t0_ns, self.t1_ns)
    }

    /// Window of the iteration rate and its step, s, for this number of series.
    ///
    /// # Errors
    /// When the settings would make too many steps.
    pub(crate) fn rate_window(&self, series: usize) -> Result<(f64, f64), Unknown> {
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

    /// Length of the interval, s; 0 for an empty one.
    pub fn seconds(&self) -> f64 {
        (self.t1_ns - self.t0_ns).max(0) as f64 / 1e9
    }

    /// The processes' names.
    pub fn nodes(&self) -> &[String] {
        &self.data.nodes
    }

    /// The process of this name: the name of a node, or a rule or pid that only one process has.
    ///
    /// # Errors
    /// When there is no such process. The reason names the known ones.
    pub fn node(&self, name: &str) -> Result<Node, Unknown> {
        let nodes = || self.data.nodes.iter();
        let found = nodes().position(|node| node == name);
        // The rule or the pid is enough if only one process has it.
        let is_called = |node: &String| {
            let parts = node.rsplit_once(" (pid ");
            parts.is_some_and(|(rule, pid)| rule == name || pid.strip_suffix(')') == Some(name))
        };
        let is_only = nodes().filter(|node| is_called(node)).count() == 1;
        let found = found.or_else(|| nodes().position(is_called).filter(|_| is_only));
        found.map(|at| at as Node).ok_or_else(|| {
            let known = wording::listed(&self.data.nodes, ", ");
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

    /// Calls `each` with each packet of the interval, for each process that has the packet in its
    /// [`Run::stream`], in the order of time within these. With many processes this is quicker than one
    /// stream after the other, since each stream is scattered over its capture.
    pub(crate) fn each_seen(&self, mut each: impl FnMut(Node, &Packet)) {
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

    /// The packets of a capture that are in the interval.
    fn part<'a>(&self, packets: &'a [Packet]) -> &'a [Packet] {
        let from = packets.partition_point(|packet| packet.t_ns < self.t0_ns);
        let to = packets.partition_point(|packet| packet.t_ns <= self.t1_ns);
        packets.get(from..to).unwrap_or(&[])
    }

    /// True if the process has a capture of its own, so that its times are its own.
    pub fn is_own(&self, node: Node) -> bool {
        self.data.is_own[usize::from(node)]
    }

    /// True if sender and receiver were each captured at their own end.
    pub fn has_both_ends(&self, a: Node, b: Node) -> bool {
        let capture = |node: Node| self.data.streams[usize::from(node)].capture;
        self.is_own(a) && self.is_own(b) && capture(a) != capture(b)
    }

    /// Bound of the error between the clocks of two captures, ns.
    pub fn clock_error_ns(&self) -> Option<i64> {
        self.data.clock_error_ns
    }

    /// An answer about this interval.
    pub(crate) fn known<T>(&self, value: T) -> Known<T> {
        Known {
            value,
            t0_ns: self.t0_ns,
            t1_ns: self.t1_ns,
            coverage: self.coverage(),
        }
    }

    /// Fails with the reason if nothing is known of this interval.
    ///
    /// # Errors
    /// When no process sent or received a packet in it.
    pub(crate) fn need_packets(&self) -> Result<(), Unknown> {
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

    /// Coverage of answers about this interval.
    pub fn coverage(&self) -> Coverage {
        let mut coverage = Coverage {
            dropped: Some(0),
            clock_error_ns: self.data.clock_error_ns,
            left_out: self.data.left_out.clone(),
            other_flows: self.data.other_flows.clone(),
            without_header: self.data.without_header,
            ..Coverage::default()
        };
        for capture in &self.data.captures {
            let inside = |t: i64| capture.packets.partition_point(|p| p.t_ns < t) as u64;
            let (t0, t1) = self.span_ns();
            coverage.packets += inside(t1.saturating_add(1)).saturating_sub(inside(t0));
            coverage.dropped = coverage.dropped.zip(capture.dropped).map(|(a, b)| a + b);
        }
        for (node, name) in self.data.nodes.iter().enumerate() {
            if !self.data.is_own[node] {
                coverage.without_capture.push(name.clone());
            }
        }
        coverage
    }

    /// Adds the time accounting of each node from the process tracer.
    #[must_use]
    pub fn with_accounting(self, accounting: Vec<Option<TimeAccounting>>) -> Run {
        let mut data = Arc::try_unwrap(self.data).unwrap_or_else(|data| data.copied());
        data.accounting = accounting;
        Run {
            data: Arc::new(data),
            ..self
        }
    }

    /// Time accounting of a node, if its processes were traced. It covers their whole lives, so that
    /// parts of a run have none.
    pub fn accounting(&self, node: Node) -> Option<TimeAccounting> {
        let known = self
            .data
            .accounting
            .get(usize::from(node))
            .copied()
            .flatten();
        known.filter(|_| self.is_whole())
    }

    /// An answer that several analyses need: computed once per interval, and kept by its type. Only
    /// answers by the default rules may be kept, which no other setting changes.
    pub(crate) fn once<T: Clone + Send + Sync + 'static>(&self, compute: impl FnOnce() -> T) -> T {
        match self.settings.mode {
            Mode::Default => self.memo.once(compute),
            Mode::Thesis => compute(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_by_its_rule_or_pid_where_it_is_the_only_one() {
        let names = ["a.py (pid 7)", "b.py (pid 71)", "b.py (pid 8)", "10.0.0.1"];
        let run = Run::new(names.map(str::to_owned).to_vec(), Vec::new());
        for (name, node) in [
            ("a.py", 0),
            ("7", 0),
            ("71", 1),
            ("b.py (pid 8)", 2),
            ("10.0.0.1", 3),
        ] {
            assert_eq!(run.node(name), Ok(node), "{name}");
        }
        for name in ["b.py", "1", "pid 7", ""] {
            assert!(run.node(name).is_err(), "{name}");
        }
    }
}
