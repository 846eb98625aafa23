//! How the clocks of several hosts relate, from packets that two of them captured.
//!
//! A packet from A to B is seen at both; the difference of the two times is its delay plus what
//! B's clock is ahead. Delays have a floor, so that the lower convex hull of these differences
//! over time shows the clocks alone, and that of the other direction shows them with the other
//! sign: Zhang, Liu, Xia, "Clock synchronization algorithms for network measurements" (INFOCOM
//! 2002). What remains unknown is half the difference of the two floors, and never more than half
//! their sum, which needs no clock: the error bound.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;

use flowtrace_schema::{ClockCorrection, HostId, Trace, store_clocks};

mod hull;
mod matching;
mod merging;
mod pair;

pub use merging::of_traces;
pub use pair::Fit;

use matching::Matcher;

/// Hosts whose captures show the same packets, and what that says of their clocks.
#[derive(Clone, Debug, PartialEq)]
pub struct Relation {
    /// The host, by number and name.
    pub host: HostId,
    /// Its name.
    pub name: String,
    /// How its clock relates to the common scale, which is that of the first host.
    pub clock: ClockCorrection,
    /// Packets of it that were found in a capture of another host.
    pub matched: u64,
    /// Whether the correction was needed: otherwise the clocks agree within the error.
    pub is_corrected: bool,
}

/// What can be said of the clocks of a trace.
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
    let trace = Trace::open(path)?;
    let alignment = relate(&trace)?;
    drop(trace);
    if !alignment.related.is_empty() {
        let clocks = alignment.related.iter().map(|r| (r.host, r.clock));
        store_clocks(path, clocks)?;
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
        let scale = if is_corrected {
            before.then(path.scale)
        } else {
            before
        };
        alignment.related.push(Relation {
            host: HostId(u32::try_from(id).unwrap_or(0)),
            name,
            clock: ClockCorrection {
                offset_ns: scale.offset_ns.round() as i64,
                drift_ppb: (scale.drift * 1e9).round() as i64,
                error_ns: Some(path.error_ns.ceil() as i64),
            },
            matched: path.matched,
            is_corrected,
        });
    }
    Ok(alignment)
}

/// From the times of one clock to those of another: `t + offset_ns - drift * t`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// To add at time 0.
    pub offset_ns: f64,
    /// By how much the clock runs faster than the other.
    pub drift: f64,
}

impl Scale {
    /// The clock itself.
    pub const SAME: Scale = Scale {
        offset_ns: 0.0,
        drift: 0.0,
    };

    /// A time on the other clock.
    pub fn apply(self, t_ns: f64) -> f64 {
        t_ns + self.offset_ns - self.drift * t_ns
    }

    /// This one, and then `next`.
    pub fn then(self, next: Scale) -> Scale {
        Scale {
            offset_ns: self.offset_ns + next.offset_ns - next.drift * self.offset_ns,
            drift: self.drift + next.drift - self.drift * next.drift,
        }
    }

    /// The way back.
    pub fn inverse(self) -> Scale {
        let factor = 1.0 / (1.0 - self.drift);
        Scale {
            offset_ns: -self.offset_ns * factor,
            drift: 1.0 - factor,
        }
    }
}

/// How a host is related to the first one, over as many others as that takes.
#[derive(Clone, Copy, Debug)]
struct Related {
    scale: Scale,
    error_ns: f64,
    matched: u64,
    /// The times for which packets show it.
    span: (f64, f64),
}

impl Related {
    /// Whether no correction at all is within the error.
    fn agrees(&self) -> bool {
        let off = |t: f64| (self.scale.apply(t) - t).abs();
        off(self.span.0).max(off(self.span.1)) <= self.error_ns
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
            // A fit brings times of b to those of a.
            let (next, scale) = if *a == host {
                (*b, fit.scale)
            } else if *b == host {
                (*a, fit.scale.inverse())
            } else {
                continue;
            };
            let there = Related {
                scale: scale.then(here.scale),
                error_ns: here.error_ns + fit.error_ns,
                matched: fit.matched,
                span: fit.span,
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
