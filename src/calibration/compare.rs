//! Differences of the capacities of several machines: disks of one model differ by a tenth and more (Krevat
//! et al.).

use flowtrace_render::table::{Align, Table};
use flowtrace_render::units;
use serde::Serialize;

use super::capacity::{Capacities, Measured};

/// A capacity over several machines.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Variation {
    capacity: &'static str,
    /// Number of machines whose capacity is known.
    machines: usize,
    mean: f64,
    /// Standard deviation over the machines as a share of the mean.
    deviation: f64,
    /// The slowest machine, and its capacity as a share of the mean.
    slowest: (String, f64),
    /// The fastest machine, likewise.
    fastest: (String, f64),
}

type Of = fn(&Capacities) -> Option<Measured>;

const ALL: [(&str, Of); 8] = [
    ("disk, reading in sequence", |c| c.disk_read),
    ("disk, writing in sequence", |c| c.disk_write),
    ("disk, reading at random", |c| c.disk_random_read),
    ("disk, writing at random", |c| c.disk_random_write),
    ("memory, copied by a core", |c| c.memory_copy),
    ("one core, steps", |c| c.cpu_one),
    ("all cores, steps", |c| c.cpu_all),
    ("network to the others", |c| c.network),
];

/// The variation of each capacity that several machines have.
pub(crate) fn variations(machines: &[Capacities]) -> Vec<Variation> {
    let of = |(capacity, of): &(&'static str, Of)| {
        let known = machines
            .iter()
            .filter_map(|one| Some((&one.host, of(one)?.value)));
        let mut known: Vec<(&String, f64)> = known.collect();
        known.sort_by(|a, b| a.1.total_cmp(&b.1));
        let count = known.len() as f64;
        let mean = known.iter().map(|one| one.1).sum::<f64>() / count;
        let variance = known.iter().map(|one| (one.1 - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let named = |one: &(&String, f64)| (one.0.clone(), one.1 / mean);
        let (first, last) = known.first().zip(known.last())?;
        (known.len() > 1).then(|| Variation {
            capacity,
            machines: known.len(),
            mean,
            deviation: variance.sqrt() / mean,
            slowest: named(first),
            fastest: named(last),
        })
    };
    ALL.iter().filter_map(of).collect()
}

/// The variations as text, ended by a newline.
pub(crate) fn text(found: &[Variation]) -> String {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let beside = |(host, share): &(String, f64)| {
        format!("{} {:+.1} %", units::plain(host), (share - 1.0) * 100.0)
    };
    let mut out = String::new();
    let disks = found.iter().filter(|one| one.capacity.starts_with("disk"));
    if let Some(most) = disks.max_by(|a, b| a.deviation.total_cmp(&b.deviation)) {
        out += &format!(
            "flowtrace: of the disks of {}, {} varies most: ± {}, the slowest is {} of the mean\n\n",
            units::counted(most.machines as i64, "machine", "machines"),
            most.capacity.trim_start_matches("disk, "),
            percent(most.deviation),
            percent(most.slowest.1)
        );
    }
    let mut table = Table::new(&[
        ("capacity", Align::Left),
        ("machines", Align::Right),
        ("mean", Align::Right),
        ("deviation", Align::Right),
        ("slowest", Align::Left),
        ("fastest", Align::Left),
    ]);
    for one in found {
        let mean = match one.capacity.ends_with("steps") {
            true => units::short_count(one.mean as i64),
            false => units::bytes(one.mean as i64),
        };
        table.row(vec![
            one.capacity.into(),
            one.machines.to_string(),
            format!("{mean}/s"),
            percent(one.deviation),
            beside(&one.slowest),
            beside(&one.fastest),
        ]);
    }
    out + &table.finish("  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_disk_is_named_with_its_share_of_the_mean() {
        let machine = |host: &str, write: f64, network: Option<f64>| Capacities {
            host: host.into(),
            disk_write: Measured::of(vec![write]),
            network: network.and_then(|rate| Measured::of(vec![rate])),
            ..Capacities::default()
        };
        let machines = [
            machine("n1", 110e6, Some(1e8)),
            machine("n2", 100e6, None),
            machine("n3", 60e6, None),
        ];
        let found = variations(&machines);
        // One machine alone has no variation of its network.
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].machines, found[0].mean), (3, 90e6));
        // Squares of 20, 10 and 30 over two.
        assert!((found[0].deviation - 700_f64.sqrt() / 90.0).abs() < 1e-9);
        assert_eq!(found[0].slowest.0, "n3");
        let text = text(&found);
        assert!(
            text.contains("writing in sequence varies most") && text.contains("n3 -33.3 %"),
            "{text}"
        );
    }
}
