//! Reports of a traffic matrix: reactive and proactive sampling (2.4.2).

use std::collections::HashMap;

use super::matrix::Matrix;

/// Parameters of the reactive sampler. The text gives no values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reactive {
    /// Bytes between two time stamps of a pair.
    pub byte_threshold: u64,
    /// Largest distance of two stamps that make a pair hot, ns.
    pub time_bound_ns: i64,
    /// Time for which the rate must hold before a matrix is reported, ns.
    pub longest_ns: i64,
    /// Quiet time that ends the accumulation, ns.
    pub wait_ns: i64,
    /// True if bytes from before the first hot pair, or from quiet times, count.
    pub keeps_before: bool,
}

impl Default for Reactive {
    fn default() -> Self {
        Reactive {
            byte_threshold: 64 << 10,
            time_bound_ns: 1_000_000_000,
            longest_ns: 10_000_000_000,
            wait_ns: 5_000_000_000,
            keeps_before: false,
        }
    }
}

/// A report of the sampler.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// The rate held. Has the matrix since the begin of accumulation.
    Steady {
        /// Begin and end, ns.
        span_ns: (i64, i64),
        /// Bytes.
        matrix: Matrix<u64>,
    },
    /// No pair was hot for the waiting time. Has the matrix accumulated before.
    Quiet {
        /// Begin and end, ns.
        span_ns: (i64, i64),
        /// Bytes.
        matrix: Matrix<u64>,
    },
    /// The packets ended while traffic continued.
    Open {
        /// Begin and end, ns.
        span_ns: (i64, i64),
        /// Bytes.
        matrix: Matrix<u64>,
    },
}

impl Report {
    /// Name, begin and end, ns, and bytes of the report.
    pub fn parts(&self) -> (&'static str, (i64, i64), &Matrix<u64>) {
        match self {
            Report::Steady { span_ns, matrix } => ("held", *span_ns, matrix),
            Report::Quiet { span_ns, matrix } => ("quiet", *span_ns, matrix),
            Report::Open { span_ns, matrix } => ("open", *span_ns, matrix),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    bytes: u64,
    last_ns: Option<i64>,
}

/// Reads packets, and reports when traffic is significant.
#[derive(Debug)]
pub struct Sampler {
    settings: Reactive,
    pairs: HashMap<(usize, usize), Pair>,
    matrix: Matrix<u64>,
    began_ns: Option<i64>,
    hot_ns: i64,
    /// Time from which bytes count.
    since_ns: Option<i64>,
}

impl Sampler {
    /// A sampler for `nodes` processes.
    pub fn new(nodes: usize, settings: Reactive) -> Self {
        Sampler {
            settings,
            pairs: HashMap::new(),
            matrix: Matrix::new(nodes),
            began_ns: None,
            hot_ns: 0,
            since_ns: None,
        }
    }

    /// Adds a packet; times must not decrease. The pair gets a stamp at each multiple of the byte
    /// threshold. A packet over several multiples makes its pair hot.
    pub fn packet(&mut self, t_ns: i64, src: usize, dst: usize, bytes: u64) -> Option<Report> {
        let ended = self.tick(t_ns);
        let threshold = self.settings.byte_threshold.max(1);
        let pair = self.pairs.entry((src, dst)).or_default();
        let crossed = (pair.bytes + bytes) / threshold - pair.bytes / threshold;
        pair.bytes += bytes;
        let mut is_hot = crossed > 1;
        if crossed > 0 {
            let gap = pair.last_ns.map(|last| t_ns - last);
            is_hot |= gap.is_some_and(|gap| gap < self.settings.time_bound_ns);
            pair.last_ns = Some(t_ns);
        }
        if is_hot {
            self.hot_ns = t_ns;
            // The first hot pair begins the accumulation of all pairs. Nothing before it is kept.
            self.began_ns.get_or_insert(t_ns);
        }
        if self.began_ns.is_some() || self.settings.keeps_before {
            self.since_ns.get_or_insert(t_ns);
            *self.matrix.at_mut(src, dst) += bytes;
        }
        ended
    }

    /// Advances the time without a packet.
    pub fn tick(&mut self, t_ns: i64) -> Option<Report> {
        let began = self.began_ns?;
        if t_ns - self.hot_ns > self.settings.wait_ns {
            self.began_ns = None;
            let (span_ns, matrix) = self.taken(self.hot_ns, None);
            return Some(Report::Quiet { span_ns, matrix });
        }
        if t_ns - began >= self.settings.longest_ns {
            self.began_ns = Some(t_ns);
            let (span_ns, matrix) = self.taken(t_ns, Some(t_ns));
            return Some(Report::Steady { span_ns, matrix });
        }
        None
    }

    /// Ends with the last packet. Returns the reports up to then, and the accumulated matrix.
    pub fn finish(mut self, t_ns: i64) -> Vec<Report> {
        let mut reports: Vec<Report> = self.tick(t_ns).into_iter().collect();
        let is_open = self.began_ns.is_some() && self.matrix.off_diagonal().any(|cell| *cell.2 > 0);
        if is_open {
            let (span_ns, matrix) = self.taken(t_ns, None);
            reports.push(Report::Open { span_ns, matrix });
        }
        reports
    }

    /// Takes the bytes accumulated until `to_ns`. The next accumulation begins at `since_ns`.
    fn taken(&mut self, to_ns: i64, since_ns: Option<i64>) -> ((i64, i64), Matrix<u64>) {
        let from_ns = self.since_ns.unwrap_or(to_ns);
        self.since_ns = since_ns;
        let size = self.matrix.size();
        let matrix = std::mem::replace(&mut self.matrix, Matrix::new(size));
        ((from_ns, to_ns), matrix)
    }
}

/// Bytes per pair and second of the last `n` seconds, for queries at any time.
#[derive(Debug)]
pub struct Proactive {
    seconds: usize,
    nodes: usize,
    /// A ring of (second, bytes) per pair. Pairs without traffic need none.
    pairs: HashMap<(usize, usize), Vec<(i64, u64)>>,
    now: i64,
}

impl Proactive {
    /// Keeps `seconds` whole seconds for `nodes` processes.
    pub fn new(nodes: usize, seconds: usize) -> Self {
        Proactive {
            seconds: seconds.max(1),
            nodes,
            pairs: HashMap::new(),
            now: i64::MIN,
        }
    }

    /// Memory of the thesis's dense form with 4 bytes per counter, bytes.
    pub fn dense_bytes(nodes: usize, seconds: usize) -> usize {
        4 * seconds * nodes * nodes
    }

    /// Adds a packet.
    pub fn packet(&mut self, t_ns: i64, src: usize, dst: usize, bytes: u64) {
        let second = t_ns.div_euclid(1_000_000_000);
        self.now = self.now.max(second);
        let n = self.seconds;
        let ring = self
            .pairs
            .entry((src, dst))
            .or_insert_with(|| vec![(i64::MIN, 0); n]);
        let slot = &mut ring[second.rem_euclid(n as i64) as usize];
        match slot.0.cmp(&second) {
            std::cmp::Ordering::Less => *slot = (second, bytes),
            std::cmp::Ordering::Equal => slot.1 += bytes,
            std::cmp::Ordering::Greater => {} // older than what is kept
        }
    }

    /// The sum of the last `seconds` whole seconds, including the present one; at most those that are
    /// kept.
    pub fn query(&self, seconds: usize) -> Matrix<u64> {
        let kept = seconds.min(self.seconds) as i64;
        let mut matrix = Matrix::new(self.nodes);
        for (&(src, dst), ring) in &self.pairs {
            let recent = ring
                .iter()
                .filter(|(s, _)| *s > self.now - kept && *s <= self.now);
            *matrix.at_mut(src, dst) = recent.map(|(_, bytes)| bytes).sum();
        }
        matrix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    #[test]
    fn memory_of_the_dense_form() {
        assert_eq!(Proactive::dense_bytes(16, 3600), 3_686_400);
    }

    #[test]
    fn a_steady_rate_is_reported_and_silence_ends_it() {
        let settings = Reactive {
            byte_threshold: 1000,
            ..Reactive::default()
        };
        let mut sampler = Sampler::new(2, settings);
        let mut reports = Vec::new();
        for i in 0..120 {
            reports.extend(sampler.packet(i * S / 10, 0, 1, 500));
        }
        reports.extend(sampler.tick(20 * S));
        assert_eq!(reports.len(), 2);
        // Stamps at 0.1 s (first), 0.3 s: hot, and only then does it count.
        let Report::Steady { span_ns, matrix } = &reports[0] else {
            panic!("{reports:?}")
        };
        assert_eq!((span_ns.0, *matrix.at(0, 1)), (3 * S / 10, 50_000));
        assert!(matches!(&reports[1], Report::Quiet { matrix, .. } if *matrix.at(0, 1) == 8_500));
    }

    /// As above, but packets from before the first hot pair count, and the trace ends while traffic
    /// continues.
    #[test]
    fn offline_nothing_is_discarded() {
        let settings = Reactive {
            byte_threshold: 1000,
            keeps_before: true,
            ..Reactive::default()
        };
        let mut sampler = Sampler::new(2, settings);
        let mut reports = Vec::new();
        for i in 0..120 {
            reports.extend(sampler.packet(i * S / 10, 0, 1, 500));
        }
        reports.extend(sampler.finish(12 * S));
        let (event, span_ns, matrix) = reports[0].parts();
        assert_eq!((event, span_ns.0, *matrix.at(0, 1)), ("held", 0, 51_500));
        let (event, span_ns, matrix) = reports[1].parts();
        assert_eq!((event, span_ns.1), ("open", 12 * S));
        assert_eq!(*matrix.at(0, 1), 60_000 - 51_500);
    }

    #[test]
    fn slow_traffic_is_never_hot_and_a_large_packet_is_at_once() {
        let mut sampler = Sampler::new(2, Reactive::default());
        for i in 0..100 {
            assert_eq!(sampler.packet(i * 2 * S, 0, 1, 65_536), None);
        }
        assert_eq!(sampler.began_ns, None);
        sampler.packet(300 * S, 1, 0, 200_000);
        assert_eq!(sampler.began_ns, Some(300 * S));
    }

    #[test]
    fn the_last_seconds_are_summed_and_clipped() {
        let mut ring = Proactive::new(2, 5);
        for second in 0..20 {
            ring.packet(second * S + 1, 0, 1, 10);
        }
        assert_eq!(*ring.query(2).at(0, 1), 20);
        assert_eq!(*ring.query(100).at(0, 1), 50);
    }
}
