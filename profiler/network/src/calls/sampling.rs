//! The reports of a traffic monitor (2.4.2), and the records behind ball-in-the-court delays (4.2.2).

use crate::ball::{self, Kind};
use crate::run::{Answer, Mode, Node, Run, Unit};
use crate::trigger::{Reactive, Report, Sampler};

/// Reports of the reactive sampler on a run. In thesis mode traffic before the first hot pair is
/// discarded. By default all of it is used, since the packets are there.
///
/// # Errors
/// When the interval holds no packet.
pub fn reactive(run: &Run, settings: Reactive) -> Answer<Vec<Report>> {
    run.need_packets()?;
    let mut sent = Vec::new();
    for me in run.all() {
        for packet in run.stream(me).filter(|p| p.src == me && p.dst != me) {
            let bytes = match run.settings.unit {
                Unit::Frame => packet.wire,
                Unit::Payload if packet.is_again => 0,
                Unit::Payload => packet.payload,
            };
            if bytes > 0 {
                sent.push((packet.t_ns, me, packet.dst, bytes));
            }
        }
    }
    sent.sort_unstable();
    let keeps_before = run.settings.mode == Mode::Default;
    let mut sampler = Sampler::new(
        run.nodes().len(),
        Reactive {
            keeps_before,
            ..settings
        },
    );
    let mut reports = Vec::new();
    for (t_ns, src, dst, bytes) in sent {
        let (src, dst) = (usize::from(src), usize::from(dst));
        reports.extend(sampler.packet(t_ns, src, dst, u64::from(bytes)));
    }
    reports.extend(sampler.finish(run.span_ns().1));
    Ok(run.known(reports))
}

/// A gap for which a process is responsible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// End of the gap, which is a send, ns.
    pub t_ns: i64,
    /// The process.
    pub process: Node,
    /// The process that waited, which is the recipient of the send.
    pub peer: Node,
    /// Length of the gap, ns.
    pub ns: i64,
    /// Kinds of the two records.
    pub kinds: (Kind, Kind),
}

/// The gaps of all processes, in the order of time (4.2.2).
///
/// # Errors
/// When the interval holds no packet.
pub fn bic_records(run: &Run, last: Option<f64>) -> Answer<Vec<Gap>> {
    let run = run.last(last);
    run.need_packets()?;
    let mut gaps = Vec::new();
    for process in run.all() {
        let mut before: Option<ball::Record> = None;
        for record in ball::records(&run, process) {
            if let Some(before) = before.filter(|_| record.kind.is_send()) {
                gaps.push(Gap {
                    t_ns: record.t_ns,
                    process,
                    peer: record.peer,
                    ns: record.t_ns - before.t_ns,
                    kinds: (before.kind, record.kind),
                });
            }
            before = Some(record);
        }
    }
    gaps.sort_by_key(|gap| (gap.t_ns, gap.process));
    Ok(run.known(gaps))
}
