//! What an answer rests on.

use super::Run;

/// What was seen and what was missed in the interval of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Segments looked at.
    pub packets: u64,
    /// Packets that the kernels dropped; `None`: some capture does not say.
    pub dropped: Option<i64>,
    /// Processes known only from their partners' captures.
    pub without_capture: Vec<String>,
    /// Bound of the error between the captures' clocks, ns.
    pub clock_error_ns: Option<i64>,
    /// Addresses that are no part of the program.
    pub left_out: Vec<String>,
}

impl Run {
    /// What answers about this interval rest on.
    pub fn coverage(&self) -> Coverage {
        let mut coverage = Coverage {
            dropped: Some(0),
            clock_error_ns: self.data.clock_error_ns,
            left_out: self.data.left_out.clone(),
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
}
