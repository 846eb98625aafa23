//! Relation of the clocks of several hosts, from packets that two of them captured.
//!
//! A packet from A to B is seen at both. The difference of the two times is its delay plus the lead of B's
//! clock. Delays have a floor, so that the lower convex hull of these differences over time shows the clocks
//! alone; the hull of the other direction shows them with the other sign: Zhang, Liu, Xia, "Clock
//! synchronization algorithms for network measurements" (INFOCOM 2002). The remaining error is half the
//! difference of the two floors. It is never more than half their sum, which needs no clock: the error bound.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;

use flowtrace_schema::{ClockCorrection, HostId, HostRow, Trace};

mod hull;
mod matching;
mod merging;
mod pair;
mod scale;

use matching::Matcher;
pub use merging::of_traces;
pub use pair::Fit;
pub use scale::Scale;

/// A host whose captures show the same packets as those of another, and its clock as these packets show it.
#[derive(Clone, Debug, PartialEq)]
pub struct Relation {
    /// Id of the host.
    pub host: HostId,
    /// Name of the host.
    pub name: String,
    /// Relation of its clock to the common scale, which is that of the first host.
    pub clock: ClockCorrection,
    /// Added to its time at the first packet that relates it, ns.
    pub at_start_ns: i64,
    /// Packets of the host that were found in a capture of another host.
    pub matched: u64,
    /// True if a correction was needed: otherwise the clocks agree within the error.
    pub is_corrected: bool,
}

/// Relations of the clocks of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Alignment {
    /// The hosts that are related to the first one, without it.
    pub related: Vec<Relation>,
    /// Names of hosts with captures that could not be related, for want of packets in both
    /// directions that another host captured, too.
    pub unrelated: Vec<String>,
}

/// Relates the clocks of the hosts of a trace, and stores that in it.
///
/// # Errors
/// When the trace cannot be read or changed.
pub fn align(path: &Path) -> flowtrace_schema::Result<Alignment> {
    let trace = Trace::open_to_store(path)?;
    let alignment = relate(&trace)?;
    if !alignment.related.is_empty() {
        trace.store_clocks(alignment.related.iter().map(|r| (r.host, r.clock)))?;
    }
    Ok(alignment)
}

/// As [`align`], without storing anything.
///
/// # Errors
/// When the trace cannot be read.
pub fn relate(trace: &Trace) -> flowtrace_schema::Result<Alignment> {
    let hosts = trace.hosts()?;
    let captures = trace.captures()?;
    let host_of: HashMap<i64, i64> = captures
        .iter()
        .map(|capture| (capture.capture_id, capture.host_id))
        .collect();
    let capturing: Vec<i64> = {
        let mut ids: Vec<_> = host_of.values().copied().collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    };
    let [first, _, ..] = capturing[..] else {
        return Ok(Alignment::default());
    };
    let mut matcher = Matcher::new(&trace.flow_captures()?, &trace.flows()?, &host_of);
    trace.packets(|packet| {
        matcher.packet(packet);
        ControlFlow::Continue(())
    })?;
    let fits = matcher.fits();
    let paths = shortest(first, &fits);
    let mut alignment = Alignment::default();
    for &id in capturing.iter().filter(|&&id| id != first) {
        let host = hosts.iter().find(|host| host.host_id == id);
        let name = host.map_or_else(|| id.to_string(), |host| host.host.clone());
        let Some(path) = paths.get(&id) else {
            alignment.unrelated.push(name);
            continue;
        };
        let before = host.map_or(Scale::SAME, |host| Scale {
            offset_ns: host.clock_offset_ns as f64,
            drift: host.clock_drift_ppb as f64 / 1e9,
        });
        let is_corrected = !path.agrees();
        let (clock, at_start_ns) = match is_corrected {
            true => path.correction(before),
            false => (unchanged(host, path.error_ns), 0),
        };
        alignment.related.push(Relation {
            host: HostId(u32::try_from(id).unwrap_or(0)),
            name,
            clock,
            at_start_ns,
            matched: path.matched,
            is_corrected,
        });
    }
    Ok(alignment)
}

/// Relation of a host to the first one, over as many other hosts as that takes.
#[derive(Clone, Copy, Debug)]
struct Related {
    scale: Scale,
    error_ns: f64,
    matched: u64,
    /// Times by its own clock of the first and last packet that relate it.
    span: (f64, f64),
}

impl Related {
    /// The correction to store when `before` has already brought its times to the scale, and what it adds at
    /// the first packet that relates the host. The drift is stored in whole parts per billion: exact in the
    /// middle of the packets, however far from them time 0 is.
    fn correction(&self, before: Scale) -> (ClockCorrection, i64) {
        let scale = before.then(self.scale);
        let own = |t_ns: f64| before.inverse().apply(t_ns);
        let (from, to) = (own(self.span.0), own(self.span.1));
        let drift_ppb = (scale.drift * 1e9).round();
        let rounded = drift_ppb / 1e9 - scale.drift;
        let offset_ns = scale.offset_ns + rounded * (from + to) / 2.0;
        let error_ns = self.error_ns + (rounded * (to - from) / 2.0).abs();
        let clock = ClockCorrection {
            offset_ns: offset_ns.round() as i64,
            drift_ppb: drift_ppb as i64,
            error_ns: Some(error_ns.ceil() as i64),
        };
        let at_start_ns = offset_ns - drift_ppb / 1e9 * from;
        (clock, at_start_ns.round() as i64)
    }

    /// True if no correction at all is within the error.
    fn agrees(&self) -> bool {
        let off = |t: f64| (self.scale.apply(t) - t).abs();
        off(self.span.0).max(off(self.span.1)) <= self.error_ns
    }
}

/// The stored correction of a host, where packets do not contradict it.
fn unchanged(host: Option<&HostRow>, error_ns: f64) -> ClockCorrection {
    ClockCorrection {
        offset_ns: host.map_or(0, |host| host.clock_offset_ns),
        drift_ppb: host.map_or(0, |host| host.clock_drift_ppb),
        error_ns: Some(error_ns.ceil() as i64),
    }
}

/// The relation of every host to `first` with the smallest error bound (Dijkstra).
fn shortest(first: i64, fits: &[((i64, i64), Fit)]) -> HashMap<i64, Related> {
    let mut found = HashMap::new();
    let start = Related {
        scale: Scale::SAME,
        error_ns: 0.0,
        matched: 0,
        span: (f64::NEG_INFINITY, f64::INFINITY),
    };
    let mut open = HashMap::from([(first, start)]);
    while let Some((&host, _)) = open
        .iter()
        .min_by(|a, b| a.1.error_ns.total_cmp(&b.1.error_ns).then(a.0.cmp(b.0)))
    {
        let here = open.remove(&host).expect("just found");
        found.insert(host, here);
        for ((a, b), fit) in fits {
            // A fit converts times of b to times of a.
            let (next, scale, span) = if *a == host {
                let own = fit.scale.inverse();
                let (from, to) = fit.span;
                (*b, fit.scale, (own.apply(from), own.apply(to)))
            } else if *b == host {
                (*a, fit.scale.inverse(), fit.span)
            } else {
                continue;
            };
            let there = Related {
                scale: scale.then(here.scale),
                error_ns: here.error_ns + fit.error_ns,
                matched: fit.matched,
                span,
            };
            let known = open
                .get(&next)
                .is_some_and(|n| n.error_ns <= there.error_ns);
            if !found.contains_key(&next) && !known {
                open.insert(next, there);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
