//! Receive skew (Krevat et al.): a machine that waits for several flows waits for the last of them.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use flowtrace_schema::{Result, Trace};

/// Least share of a machine's received bytes in a phase that a flow of data has. A smaller flow carries
/// requests or acknowledgements.
const LEAST_SHARE: f64 = 0.01;

/// Bytes that a machine received by one flow in a phase.
#[derive(Clone, Copy, Debug, Default)]
struct Incoming {
    bytes: u64,
    /// Time at which the last packet arrived, ns, and time at which it was sent, if only that was captured.
    came_ns: Option<i64>,
    sent_ns: Option<i64>,
}

/// Received data by machine (address), and by flow with its direction.
type Receivers<'a> = BTreeMap<&'a str, BTreeMap<(i64, u8), Incoming>>;

/// The receive skew of each phase, ns: mean over the machines that received data from others of the end of
/// the last flow minus the mean end of all their flows. `None`: no packets of the phase were captured, or
/// none moved data between machines.
///
/// # Errors
/// When the trace cannot be read.
pub fn receive_skew(trace: &Trace, phases: &[(i64, i64)]) -> Result<Vec<Option<i64>>> {
    if trace.captures()?.is_empty() {
        return Ok(vec![None; phases.len()]);
    }
    // Addresses of both ends, src first.
    let mut ends: HashMap<i64, [String; 2]> = HashMap::new();
    for flow in trace.flows()? {
        if flow.src != flow.dst {
            ends.insert(flow.flow_id, [flow.src, flow.dst]);
        }
    }
    // By phase, receiver, and flow with its direction.
    let mut found: Vec<Receivers<'_>> = vec![BTreeMap::new(); phases.len()];
    trace.packets(|packet| {
        let phase = phases.partition_point(|&(_, to)| to <= packet.t_ns);
        let is_within = phases
            .get(phase)
            .is_some_and(|&(from, _)| from <= packet.t_ns);
        let (Some(ends), true) = (
            ends.get(&packet.flow_id),
            is_within && packet.payload_bytes > 0,
        ) else {
            return ControlFlow::Continue(());
        };
        let receiver = &ends[usize::from(packet.dir == 0)];
        let flows = found[phase].entry(receiver).or_default();
        let flow = flows.entry((packet.flow_id, packet.dir)).or_default();
        flow.bytes += u64::from(packet.payload_bytes);
        // A packet may have been captured at both ends: it arrived when the receiver saw it.
        let at = if packet.way == 1 {
            &mut flow.sent_ns
        } else {
            &mut flow.came_ns
        };
        *at = (*at).max(Some(packet.t_ns));
        ControlFlow::Continue(())
    })?;
    Ok(found.iter().map(of_phase).collect())
}

fn of_phase(receivers: &Receivers<'_>) -> Option<i64> {
    let skews: Vec<f64> = receivers
        .values()
        .filter_map(|flows| of_machine(flows.values()))
        .collect();
    let mean = skews.iter().sum::<f64>() / skews.len() as f64;
    (!skews.is_empty()).then_some(mean as i64)
}

/// The last end minus the mean of the ends; `None`: nothing arrived.
fn of_machine<'a>(flows: impl Iterator<Item = &'a Incoming> + Clone) -> Option<f64> {
    let all: u64 = flows.clone().map(|flow| flow.bytes).sum();
    let heavy = flows.filter(|flow| flow.bytes as f64 >= all as f64 * LEAST_SHARE);
    let ends: Vec<i64> = heavy
        .filter_map(|flow| flow.came_ns.or(flow.sent_ns))
        .collect();
    let last = *ends.iter().max()?;
    // Relative to the last end, so that large times lose no precision.
    let before = ends.iter().map(|end| (last - end) as f64).sum::<f64>();
    Some(before / ends.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(bytes: u64, came_ns: i64) -> Incoming {
        Incoming {
            bytes,
            came_ns: Some(came_ns),
            sent_ns: Some(came_ns - 1),
        }
    }

    #[test]
    fn the_last_flow_counts_against_the_mean_of_all_and_questions_do_not() {
        // Ends at 10, 20 and 60: 60 − 30. A flow of some bytes that ended at 1 is not data.
        let flows = [flow(1000, 10), flow(1000, 20), flow(1000, 60), flow(5, 1)];
        assert_eq!(of_machine(flows.iter()), Some(30.0));
        assert_eq!(of_machine([flow(1, 5)].iter()), Some(0.0));
        assert_eq!(of_machine([].iter()), None);
        let sent = Incoming {
            came_ns: None,
            ..flow(1000, 101)
        };
        assert_eq!(
            of_machine([sent, flow(1000, 0)].iter()),
            Some(50.0),
            "as far as it is known"
        );
        let keyed = |flows: &[Incoming]| (0..).map(|n| (n, 0)).zip(flows.iter().copied()).collect();
        let receivers = BTreeMap::from([("a", keyed(&flows)), ("b", keyed(&[flow(7, 7)]))]);
        assert_eq!(of_phase(&receivers), Some(15), "mean over both machines");
        assert_eq!(of_phase(&BTreeMap::new()), None);
    }
}
