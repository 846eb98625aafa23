//! The shares of several machines in a phase.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

use crate::model::{ProcessId, Workflow};
use crate::timeline::Timeline;

/// The share of one of several machines in a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Name of the machine.
    pub host: String,
    /// End of its last step in the phase, ns.
    pub ended_ns: i64,
    /// CPU time, ns.
    pub cpu_ns: i64,
    /// Bytes that its file calls moved.
    pub bytes: i64,
}

/// The share of each machine. A step may outlive the phase, as a server does that runs all the time. Then
/// the machine was done at the end of the last step that ended in the phase.
pub(super) fn machines(
    workflow: &Workflow,
    timeline: &Timeline,
    members: &[ProcessId],
    (from, to): (i64, i64),
) -> Vec<Machine> {
    let mut found: BTreeMap<&str, (Machine, bool)> = BTreeMap::new();
    for &id in members {
        let instance = timeline.instance(id);
        let Some(host) = instance.host.as_deref() else {
            continue;
        };
        let (machine, has_ended) = found.entry(host).or_insert_with(|| {
            let machine = Machine {
                host: host.to_owned(),
                ended_ns: from,
                cpu_ns: 0,
                bytes: 0,
            };
            (machine, false)
        });
        let cpu_ns = timeline.instance(id).cpu_ns() as i64;
        machine.cpu_ns = machine.cpu_ns.saturating_add(cpu_ns);
        if instance.is_orchestrator {
            continue;
        }
        let ends_within = instance.to <= to;
        if ends_within && !*has_ended {
            (machine.ended_ns, *has_ended) = (instance.to, true);
        } else if ends_within {
            machine.ended_ns = machine.ended_ns.max(instance.to);
        } else if !*has_ended {
            machine.ended_ns = to;
        }
    }
    let members: HashSet<ProcessId> = members.iter().copied().collect();
    for access in &workflow.accesses {
        let host = members
            .contains(&access.process)
            .then(|| timeline.instance(access.process).host.as_deref());
        if let Some((machine, _)) = host.flatten().and_then(|host| found.get_mut(host)) {
            let bytes = access.read_bytes.saturating_add(access.write_bytes);
            machine.bytes = machine.bytes.saturating_add(bytes);
        }
    }
    found.into_values().map(|(machine, _)| machine).collect()
}
