//! A run beside its lower bound, for people.

use flowtrace_render::table::{Align, Table};
use flowtrace_render::units;

use crate::analysis::ideal::{Bound, Capacities, Ideal, Machine, Phase};

/// Phases listed; more are counted.
const SHOWN: usize = 12;

const fn bound(bound: Bound) -> &'static str {
    match bound {
        Bound::DiskRead => "reading",
        Bound::DiskWrite => "writing",
        Bound::Network => "network",
        Bound::Memory => "memory",
        Bound::Cpu => "CPU",
    }
}

/// The whole comparison as text, ended by a newline.
pub fn text(ideal: &Ideal, capacities: &Capacities, begins_ns: i64) -> String {
    let ratio = ideal.measured_ns as f64 / ideal.ideal_ns.max(1) as f64;
    let rate = |rate: f64| format!("{}/s", units::bytes(rate as i64));
    let mut out = format!(
        "flowtrace: {} measured, {} at best: {ratio:.1} times as long\n\n",
        units::duration(ideal.measured_ns),
        units::duration(ideal.ideal_ns)
    );
    let beyond = &ideal.beyond;
    let mut table = Table::new(&[("beyond the ideal", Align::Left), ("time", Align::Right)]);
    for (name, ns) in [
        ("stragglers", beyond.stragglers),
        ("the last of incoming flows", beyond.receive_skew),
        ("more bytes than need be", beyond.expansion),
        ("not at the same time", beyond.not_overlapped),
        ("CPUs busy with other work", beyond.other_work),
        ("no step running", beyond.gaps),
        ("unexplained", beyond.unexplained),
        ("sum", beyond.sum()),
    ] {
        table.row(vec![name.into(), units::duration(ns)]);
    }
    out += &table.finish("  ");
    out.push('\n');
    let mut table = Table::new(&[
        ("phase", Align::Right),
        ("begin", Align::Right),
        ("took", Align::Right),
        ("ideal", Align::Right),
        ("bound by", Align::Left),
        ("read", Align::Right),
        ("written", Align::Right),
        ("CPU", Align::Right),
    ]);
    let mut phases: Vec<(usize, _)> = ideal.phases.iter().enumerate().collect();
    // The longest phases are shown; they stay in order.
    phases.sort_by_key(|(_, phase)| phase.from - phase.to);
    phases.truncate(SHOWN);
    phases.sort_by_key(|(at, _)| *at);
    let mut uneven = String::new();
    for (at, phase) in phases {
        uneven += &skew(at + 1, phase).unwrap_or_default();
        if let Some(ns) = phase
            .receive_skew_ns
            .filter(|ns| *ns >= (phase.to - phase.from) / 50)
        {
            uneven += &format!(
                "  phase {}: the last flow into a machine ended {} after the mean of its flows\n",
                at + 1,
                units::duration(ns)
            );
        }
        table.row(vec![
            (at + 1).to_string(),
            units::since_begin(phase.from, begins_ns),
            units::duration(phase.to - phase.from),
            units::duration(phase.ideal_ns),
            bound(phase.bound).into(),
            units::bytes(phase.read_bytes),
            units::bytes(phase.write_bytes),
            units::duration(phase.cpu_ns),
        ]);
    }
    out += &table.finish("  ");
    out += &uneven;
    let more = ideal.phases.len().saturating_sub(SHOWN);
    if more > 0 {
        out += &format!("  +{more} shorter phases: --format json\n");
    }
    out += &format!(
        "  capacities of a node: disk {} reading, {} writing{}{}; {} and {} cores in all\n",
        rate(capacities.disk_read),
        rate(capacities.disk_write),
        capacities
            .network
            .map_or(String::new(), |r| format!(", network {}", rate(r))),
        capacities
            .memory
            .map_or(String::new(), |r| format!(", memory {}", rate(r))),
        units::counted(ideal.nodes as i64, "node", "nodes"),
        ideal.cores
    );
    out
}

/// The machine on which the others waited, with its shares of the work; `None`: all ended at about the same
/// time.
fn skew(number: usize, phase: &Phase) -> Option<String> {
    let last = phase.machines.iter().max_by_key(|one| one.ended_ns)?;
    let count = phase.machines.len() as i64;
    let all: i64 = phase.machines.iter().map(|one| one.ended_ns).sum();
    let others = all.checked_sub(last.ended_ns)?.checked_div(count - 1)?;
    let late = last.ended_ns - others;
    if late < (phase.to - phase.from) / 50 {
        return None;
    }
    let share = |of: fn(&Machine) -> i64| {
        let total: i64 = phase.machines.iter().map(of).sum();
        (total > 0).then(|| units::share(of(last) as f64 / total as f64))
    };
    let mut did = Vec::new();
    did.extend(share(|one| one.bytes).map(|part| format!("{part} of the bytes of file calls")));
    did.extend(share(|one| one.cpu_ns).map(|part| format!("{part} of the CPU time")));
    let did = match did.is_empty() {
        true => String::new(),
        false => format!(
            "; it had {}, where {} is even",
            did.join(" and "),
            units::share(1.0 / count as f64)
        ),
    };
    Some(format!(
        "  phase {number}: {} ended last, {} after the mean of the other {}{did}\n",
        last.host,
        units::duration(late),
        units::counted(count - 1, "machine", "machines"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::ideal::Beyond;

    #[test]
    fn the_machine_with_the_larger_share_is_named() {
        let machine = |host: &str, ended_ns, bytes| Machine {
            host: host.into(),
            ended_ns,
            cpu_ns: 1,
            bytes,
        };
        let phase = |machines| Phase {
            from: 0,
            to: 1_000_000_000,
            read_bytes: 0,
            write_bytes: 0,
            extra_bytes: 0,
            pipe_bytes: 0,
            network_bytes: 0,
            cpu_ns: 3,
            ideal_ns: 1,
            receive_skew_ns: None,
            bound: Bound::Cpu,
            beyond: Beyond::default(),
            machines,
        };
        let uneven = vec![
            machine("n1", 400_000_000, 10),
            machine("n2", 1_000_000_000, 80),
            machine("n3", 600_000_000, 10),
        ];
        let said = skew(2, &phase(uneven)).unwrap();
        assert!(
            said.contains("phase 2: n2 ended last, 500 ms after"),
            "{said}"
        );
        assert!(said.contains("80 % of the bytes"), "{said}");
        let even = vec![
            machine("n1", 995_000_000, 1),
            machine("n2", 1_000_000_000, 9),
        ];
        assert_eq!(skew(1, &phase(even)), None);
        assert_eq!(skew(1, &phase(Vec::new())), None);
    }
}
