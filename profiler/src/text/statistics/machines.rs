//! Counters of machines as a table and as plots over time (Taufer et al., figures 2 and 5).

use flowtrace_render::plot::{Axis, Chart, Series, Shape};
use flowtrace_render::units;
use flowtrace_render::units::Unit;

use crate::analysis::counters::{Device, Host, Machines};
use crate::export::sheet::{Cell, Sheet};

/// Number of plots of a machine beside each other.
pub const MACHINE_COLUMNS: usize = 4;

/// Sums of the counters of each machine, and the part of its agent's messages that arrived.
pub fn machines(found: &Machines) -> Sheet {
    let mut sheet = Sheet::new(
        "what the counters of each machine say",
        &[
            ("machine", "machine", Unit::Text),
            ("cpus", "CPUs", Unit::Count),
            ("cpu_busy", "busy", Unit::Share),
            ("cpu_busy_most", "most", Unit::Share),
            ("memory_used_most_bytes", "memory, most", Unit::Bytes),
            ("disk_read_per_s", "disk read", Unit::Rate),
            ("disk_write_per_s", "written", Unit::Rate),
            ("net_receive_per_s", "network in", Unit::Rate),
            ("net_send_per_s", "out", Unit::Rate),
            ("samples_sent", "samples", Unit::Count),
            ("samples_lost", "lost", Unit::Count),
            ("confidence", "confidence", Unit::Share),
            ("clock_error_ns", "clock ±", Unit::Ns),
            ("drift_ppb", "", Unit::Count),
            ("final", "final", Unit::Count),
        ],
    );
    for host in &found.hosts {
        sheet.push(row(host));
    }
    let watched = found.hosts.iter().filter_map(|host| host.watched.as_ref());
    let (mut rate, mut sent, mut came, mut count) = (0.0, 0, 0, 0);
    for node in watched {
        rate += node.per_second;
        sent += node.sent;
        came += node.received;
        count += 1;
    }
    if count > 0 {
        sheet.notes.push(format!(
            "{} together: {rate:.1} samples a second, {} of {} came; what is missing lies between its neighbours by proportion",
            units::counted(count, "watched machine", "watched machines"),
            units::count(came),
            units::count(sent),
        ));
    }
    sheet
}

fn row(host: &Host) -> Vec<Cell> {
    let cpus = host.cpus.filter(|&n| n > 0);
    let busy = busy(host);
    let share = |busy: Option<f64>| Cell::from(busy.zip(cpus).map(|(busy, n)| busy / n as f64));
    let most = |values: &[f64]| values.iter().copied().reduce(f64::max);
    let devices = |is_counted: bool, devices: &[Device], way: fn(&Device) -> &[f32]| {
        if !is_counted {
            return None;
        }
        let sum = sum(devices, way, host.t_ns.len());
        mean(&sum, &host.t_ns).map(|rate| rate.round() as i64)
    };
    let used = memory(host);
    let mut row: Vec<Cell> = vec![
        name(host).into(),
        host.cpus.into(),
        share(mean(&busy, &host.t_ns)),
        share(most(&busy)),
        most(&used).map(|bytes| bytes as i64).into(),
        devices(host.has_disks, &host.disks, |d| &d.inward).into(),
        devices(host.has_disks, &host.disks, |d| &d.outward).into(),
        devices(host.has_interfaces, &host.interfaces, |d| &d.inward).into(),
        devices(host.has_interfaces, &host.interfaces, |d| &d.outward).into(),
    ];
    let node = host.watched.as_ref();
    let of_node =
        |value: fn(&crate::analysis::counters::Watched) -> i64| Cell::from(node.map(value));
    row.extend([
        of_node(|node| node.sent),
        of_node(|node| node.sent - node.received),
        node.and_then(|node| node.confidence).into(),
        node.and_then(|node| node.clock_error_ns).into(),
        of_node(|node| node.drift_ppb),
        of_node(|node| i64::from(node.is_final)),
    ]);
    row
}

fn name(host: &Host) -> String {
    host.name.clone().unwrap_or_else(|| "?".into())
}

/// Number of CPUs busy at each sample.
fn busy(host: &Host) -> Vec<f64> {
    let both = host.cpu_user.iter().zip(&host.cpu_system);
    both.map(|(user, system)| f64::from(user + system))
        .collect()
}

/// Memory in use at each sample, bytes; empty: not known.
fn memory(host: &Host) -> Vec<f64> {
    let Some(all) = host.memory_bytes else {
        return Vec::new();
    };
    let available = host.memory_available.iter();
    available
        .map(|&left| (all as f64 - f64::from(left)).max(0.0))
        .collect()
}

fn sum(devices: &[Device], way: fn(&Device) -> &[f32], samples: usize) -> Vec<f64> {
    let mut sum = vec![0.0; samples];
    for device in devices {
        for (sum, more) in sum.iter_mut().zip(way(device)) {
            *sum += f64::from(*more);
        }
    }
    sum
}

/// Mean of rates, each of which lasts until the next sample; `None`: no time passed, or not known.
fn mean(rates: &[f64], t_ns: &[i64]) -> Option<f64> {
    let lengths = t_ns.windows(2).map(|pair| (pair[1] - pair[0]) as f64);
    let weighted: f64 = rates.iter().zip(lengths).map(|(rate, ns)| rate * ns).sum();
    let whole = (t_ns.last()? - t_ns.first()?) as f64;
    (whole > 0.0 && !rates.is_empty()).then(|| weighted / whole)
}

/// Plots of the counters over time, [`MACHINE_COLUMNS`] a row, a row for each machine; times count from
/// `begins_ns`. Plots below each other have the same axes.
pub fn machine_charts(found: &Machines, begins_ns: i64) -> Vec<Chart> {
    let shown = &found.hosts;
    let lines: Vec<[Vec<Series>; MACHINE_COLUMNS]> =
        shown.iter().map(|host| lines(host, begins_ns)).collect();
    let most = |column: usize, of: fn(&(f64, f64)) -> f64| {
        let series = lines.iter().flat_map(|row| &row[column]);
        series
            .flat_map(|s| s.shape.points())
            .map(|p| of(&p))
            .fold(0.0, f64::max)
    };
    let end = (0..MACHINE_COLUMNS)
        .map(|column| most(column, |p| p.0))
        .fold(0.0, f64::max);
    let tops: [f64; MACHINE_COLUMNS] = std::array::from_fn(|column| most(column, |p| p.1));
    const NAMES: [(&str, &str, Unit); MACHINE_COLUMNS] = [
        ("CPU", "CPUs busy", Unit::Count),
        ("memory", "in use", Unit::Bytes),
        ("disks", "bytes per second", Unit::Rate),
        ("network", "bytes per second", Unit::Rate),
    ];
    let mut charts = Vec::new();
    for (host, row) in shown.iter().zip(lines) {
        for ((series, (what, label, unit)), top) in row.into_iter().zip(NAMES).zip(tops) {
            let is_known = series
                .iter()
                .any(|series| !series.shape.points().is_empty());
            let what = if is_known {
                what.into()
            } else {
                format!("{what} not recorded")
            };
            charts.push(Chart {
                title: format!("{}: {what}", name(host)),
                x: Axis {
                    unit: Unit::Ns,
                    range: Some((0.0, end)),
                    ..Axis::default()
                },
                y: Axis {
                    label: label.into(),
                    unit,
                    range: Some((0.0, top)),
                    ..Axis::default()
                },
                series,
                ..Chart::default()
            });
        }
    }
    charts
}

/// CPU, memory, disks and network of a machine. A rate is drawn from its sample to the next one.
fn lines(host: &Host, begins_ns: i64) -> [Vec<Series>; MACHINE_COLUMNS] {
    let times: Vec<f64> = host.t_ns.iter().map(|t| (t - begins_ns) as f64).collect();
    let line = |name: &str, values: &[f64]| Series {
        name: name.into(),
        shape: Shape::Line(
            times
                .windows(2)
                .zip(values)
                .flat_map(|(pair, &value)| [(pair[0], value), (pair[1], value)])
                .collect(),
        ),
    };
    let of = |is_counted: bool, devices: &[Device], inward, outward| {
        let count = if is_counted { host.t_ns.len() } else { 0 };
        vec![
            line(inward, &sum(devices, |d| &d.inward, count)),
            line(outward, &sum(devices, |d| &d.outward, count)),
        ]
    };
    [
        vec![line("", &busy(host))],
        vec![line("", &memory(host))],
        of(host.has_disks, &host.disks, "read", "written"),
        of(host.has_interfaces, &host.interfaces, "in", "out"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::counters::Watched;

    #[test]
    fn rates_are_weighted_by_their_time_and_losses_counted() {
        const S: i64 = 1_000_000_000;
        let host = Host {
            name: Some("n1".into()),
            cpus: Some(4),
            t_ns: vec![0, S, 4 * S],
            cpu_user: vec![4.0, 1.0, 0.0],
            cpu_system: vec![0.0; 3],
            watched: Some(Watched {
                received: 90,
                sent: 100,
                confidence: Some(0.9),
                per_second: 2.0,
                ..Watched::default()
            }),
            ..Host::default()
        };
        let found = Machines { hosts: vec![host] };
        let sheet = machines(&found);
        let cell = |name: &str| {
            let at = sheet.columns.iter().position(|c| c.name == name).unwrap();
            sheet.rows[0][at].clone()
        };
        // 4 CPUs for 1 s and 1 for 3 s: 1.75 of 4.
        assert_eq!(cell("cpu_busy"), Cell::from(1.75 / 4.0));
        assert_eq!(cell("cpu_busy_most"), Cell::from(1.0));
        assert_eq!(
            cell("net_send_per_s"),
            Cell::from(None::<i64>),
            "not recorded"
        );
        assert_eq!(cell("samples_lost"), Cell::from(10));
        assert!(
            sheet.notes[0].contains("2.0 samples a second, 90 of 100 came"),
            "{:?}",
            sheet.notes
        );
        let charts = machine_charts(&found, 0);
        assert_eq!(charts.len(), MACHINE_COLUMNS);
        let Shape::Line(points) = &charts[0].series[0].shape else {
            panic!("{:?}", charts[0])
        };
        assert_eq!(points[2..], [(1e9, 1.0), (4e9, 1.0)]);
    }
}
