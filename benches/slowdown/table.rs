//! The table: a row per workload, printed as soon as it is measured.

use std::io::Write;

use crate::measure::{Row, Unit};
use crate::ways::Way;

/// Ratios beside those to native.
const PAIRS: [(Way, Way); 4] = [
    (Way::Fuse, Way::Bare),
    (Way::Fuse, Way::Unlogged),
    (Way::Fuse, Way::Bindfs),
    (Way::Cached, Way::Bindfs),
];

pub(crate) struct Table {
    native: bool,
    /// A column each: the ratio of one way to another.
    columns: Vec<(Way, Way, String)>,
    /// Width of the first column.
    name: usize,
}

impl Table {
    /// A table for these ways and rows of these names.
    pub(crate) fn new(ways: &[Way], names: &[String]) -> Table {
        let has = |way| ways.contains(&way);
        let native = has(Way::Native);
        let mut columns = Vec::new();
        if native {
            let others = ways.iter().filter(|&&way| way != Way::Native);
            columns.extend(others.map(|&way| (way, Way::Native, way.name().to_owned())));
        }
        for (way, to) in PAIRS {
            if has(way) && has(to) {
                columns.push((way, to, format!("{}/{}", way.name(), to.name())));
            }
        }
        Table {
            native,
            columns,
            name: names.iter().map(String::len).max().unwrap_or(0),
        }
    }

    pub(crate) fn head(&self) {
        let mut line = format!("{:<1$}", "", self.name);
        if self.native {
            line += &format!(" {:>11}", "native");
        }
        for (_, _, title) in &self.columns {
            line += &format!(" {title:>0$}", width(title));
        }
        println!("{line}  spread");
    }

    pub(crate) fn row(&self, row: &Row) {
        let mut line = format!("{:<1$}", row.name, self.name);
        if self.native {
            let native = row.cost(Way::Native).map(|cost| cost.median);
            let native = native.map_or_else(|| "-".to_owned(), |cost| show(row.unit, cost));
            line += &format!(" {native:>11}");
        }
        for (way, to, title) in &self.columns {
            let ratio = row.ratio(*way, *to);
            let ratio = ratio.map_or_else(|| "-".to_owned(), |r| format!("{:.2}", r.median));
            line += &format!(" {ratio:>0$}", width(title));
        }
        if let Some(ratio) = row.ratio(Way::Flowtrace, Way::Native) {
            line += &format!("  ±{:.2}", ratio.spread());
        }
        println!("{line}");
        let _ = std::io::stdout().flush();
    }
}

fn width(title: &str) -> usize {
    title.len().max(6)
}

fn show(unit: Unit, cost: f64) -> String {
    match unit {
        Unit::Seconds => format!("{cost:.3} s"),
        Unit::PerFile(files) => format!("{:.2} µs", cost / files as f64 * 1e6),
        Unit::Fio(job) => job.show(cost),
    }
}
