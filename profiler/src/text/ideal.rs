//! A run beside its lower bound, for people.

use crate::analysis::ideal::{Bound, Capacities, Ideal};
use crate::text::table::{Align, Table};
use crate::text::units;

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

/// All of it as text, ended by a newline.
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
        ("more bytes than need be", beyond.expansion),
        ("not at the same time", beyond.not_overlapped),
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
    // The longest are what matters; they stay in order.
    phases.sort_by_key(|(_, phase)| phase.from - phase.to);
    phases.truncate(SHOWN);
    phases.sort_by_key(|(at, _)| *at);
    for (at, phase) in phases {
        table.row(vec![
            (at + 1).to_string(),
            units::moment(phase.from, begins_ns),
            units::duration(phase.to - phase.from),
            units::duration(phase.ideal_ns),
            bound(phase.bound).into(),
            units::bytes(phase.read_bytes),
            units::bytes(phase.write_bytes),
            units::duration(phase.cpu_ns),
        ]);
    }
    out += &table.finish("  ");
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
