//! Waits for a process outside of the run: a server of which only the connection is known.

use std::collections::BTreeMap;

use flowtrace_render::units;

use crate::analysis::critical_path::CriticalPath;
use crate::analysis::phrases::percent;
use crate::model::{ProcessId, Workflow};
use crate::timeline::{Channel, State, Timeline};

/// The step on the critical path with the longest wait for a process outside of the run.
pub(super) struct Outside {
    /// Rule of the step.
    pub(super) step: String,
    /// Share of the run that the step waited so.
    pub(super) share: f64,
    /// The finding in a line.
    pub(super) why: String,
}

/// The longest such wait; `None`: no step on the path waited for a process outside of the run.
pub(super) fn outside(
    workflow: &Workflow,
    timeline: &Timeline,
    path: &CriticalPath,
) -> Option<Outside> {
    // By rule, and then by channel.
    let mut waits: BTreeMap<&str, BTreeMap<u32, f64>> = BTreeMap::new();
    for step in &path.steps {
        let pieces = timeline.pieces_within(step.process, step.from_ns, step.to_ns);
        for piece in pieces {
            let Some(at) = piece.channel else { continue };
            if is_outside(&timeline.channels[at as usize], step.process, piece.state) {
                let share = timeline.shares(piece)[piece.state as usize];
                let ns = share * piece.overlap(step.from_ns, step.to_ns) as f64;
                let rule = &*workflow.program(&step.program).rule;
                *waits.entry(rule).or_default().entry(at).or_default() += ns;
            }
        }
    }
    let sum = |of: &BTreeMap<u32, f64>| of.values().sum::<f64>();
    let (rule, of) = waits.iter().max_by(|a, b| sum(a.1).total_cmp(&sum(b.1)))?;
    let (&most, _) = of.iter().max_by(|a, b| a.1.total_cmp(b.1))?;
    let share = sum(of) / timeline.length().max(1) as f64;
    let channel = &timeline.channels[most as usize];
    let name = channel.name.as_deref().map(units::plain);
    Some(Outside {
        step: (*rule).to_owned(),
        share,
        why: format!(
            "{} waited for something outside of the run for {} of it: {}{}",
            units::shorten(&units::plain(rule), 40),
            percent(share),
            channel.kind,
            name.map_or_else(String::new, |name| format!(
                " {}",
                units::shorten(&name, 60)
            )),
        ),
    })
}

/// True if a process waited at a channel of which no other process of the run ever had the other end. A
/// process that had it may be gone while its data is still on its way.
fn is_outside(channel: &Channel, process: ProcessId, state: State) -> bool {
    let others = match state {
        State::In => [&channel.writers, &channel.write_holders],
        State::Out => [&channel.readers, &channel.read_holders],
        _ => return false,
    };
    let mut others = others.into_iter().flatten();
    !channel.is_token && others.all(|&(other, ..)| other == process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_that_has_ended_was_of_the_run() {
        let (receiver, sender) = (ProcessId(1), ProcessId(2));
        let mut channel = Channel {
            readers: vec![(receiver, 0, 100)],
            writers: vec![(receiver, 0, 100)],
            ..Channel::default()
        };
        assert!(is_outside(&channel, receiver, State::In));
        channel.writers.push((sender, 0, 10));
        assert!(!is_outside(&channel, receiver, State::In));
        assert!(is_outside(&channel, receiver, State::Out));
        assert!(!is_outside(&channel, receiver, State::Cpu));
    }
}
