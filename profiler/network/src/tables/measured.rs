//! Measurements of the kernels at the ends of flows.

use std::collections::HashMap;

use flowtrace_schema::{FlowMeasure, FlowRow, Result, Trace};

use flowtrace_render::units;

/// Measurements at the two ends of a flow; `None` if the kernel of that end was not read.
#[derive(Debug, Default)]
pub(super) struct Measured {
    src: Option<FlowMeasure>,
    dst: Option<FlowMeasure>,
}

impl Measured {
    /// The least round trip that either end measured.
    pub(super) fn min_rtt_ns(&self) -> Option<i64> {
        let ends = [&self.src, &self.dst].into_iter().flatten();
        ends.filter_map(|end| end.min_rtt_ns).min()
    }

    /// Number of retransmitted segments. Each end counts only its own, so the number is unknown if an
    /// end that sent payload was not read.
    pub(super) fn retransmits_of(&self, flow: &FlowRow) -> Option<i64> {
        let of = |end: &Option<FlowMeasure>, bytes: Option<i64>| {
            let counted = end.as_ref().and_then(|end| end.retransmits);
            counted.or((bytes == Some(0)).then_some(0))
        };
        let src = of(&self.src, flow.out_bytes)?;
        Some(src.saturating_add(of(&self.dst, flow.back_bytes)?))
    }
}

/// Measurements by flow.
pub(super) fn measures(trace: &Trace) -> Result<HashMap<i64, Measured>> {
    let mut all: HashMap<i64, Measured> = HashMap::new();
    for measure in trace.flow_measures()? {
        let ends = all.entry(measure.flow_id).or_default();
        match measure.side.as_str() {
            "src" => ends.src = Some(measure),
            _ => ends.dst = Some(measure),
        }
    }
    Ok(all)
}

/// The reason why flows with one measured end have no number of retransmissions.
pub(super) fn half(flows: &[FlowRow], measures: &HashMap<i64, Measured>) -> Option<String> {
    let is_half = |flow: &&FlowRow| {
        let measured = measures.get(&flow.flow_id);
        measured.is_some_and(|measured| measured.retransmits_of(flow).is_none())
    };
    let count = flows.iter().filter(is_half).count();
    (count > 0).then(|| {
        format!(
            "{} of TCP without retransmissions: each end counts its own, and an end that sent data is on another machine, \
             or ended before it was asked (network matrix has what was seen again: repeated)",
            units::counted(count as i64, "flow", "flows")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_sender_sent_again_is_unknown_to_the_receiver() {
        let asked = |retransmits| {
            Some(FlowMeasure {
                retransmits: Some(retransmits),
                min_rtt_ns: Some(7),
                ..FlowMeasure::default()
            })
        };
        let flow = |out, back| FlowRow {
            flow_id: 1,
            out_bytes: Some(out),
            back_bytes: Some(back),
            ..FlowRow::default()
        };
        let (src, dst) = (None, asked(0));
        let receiver = Measured { src, dst };
        assert_eq!(receiver.retransmits_of(&flow(1000, 0)), None);
        assert_eq!(receiver.retransmits_of(&flow(0, 1000)), Some(0));
        let both = Measured {
            src: asked(47),
            dst: asked(1),
        };
        assert_eq!(both.retransmits_of(&flow(1000, 10)), Some(48));
        let measures = HashMap::from([(1, receiver)]);
        assert!(half(&[flow(1000, 0)], &measures).is_some());
        assert!(half(&[flow(0, 5)], &measures).is_none());
    }
}
