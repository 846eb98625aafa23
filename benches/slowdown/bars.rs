//! The bars: what a ratio must not exceed, and whether it does.

use crate::measure::Row;
use crate::ways::Way;
use crate::workloads::Workload;

/// A ratio of two ways that has a limit.
struct Bar {
    title: &'static str,
    ways: (Way, Way),
    limit: f64,
    applies: fn(&Workload) -> bool,
}

const BARS: [Bar; 11] = [
    Bar {
        title: "Montage <= 1.03 x native",
        limit: 1.03,
        applies: |workload| workload.name == "montage",
        ..OF_FLOWTRACE
    },
    Bar {
        title: "Montage, preprocessing alone <= 1.05 x native",
        limit: 1.05,
        applies: |workload| workload.name == "montage-pp",
        ..OF_FLOWTRACE
    },
    Bar {
        title: "C build <= 1.06 x native",
        limit: 1.06,
        applies: |workload| workload.name == "cbuild",
        ..OF_FLOWTRACE
    },
    Bar {
        title: "metadata storm <= 1.15 x native",
        limit: 1.15,
        applies: |workload| workload.name == "metadata",
        ..OF_FLOWTRACE
    },
    Bar {
        title: "small files from Python <= 1.5 x native",
        limit: 1.5,
        applies: |workload| workload.name == "small-files",
        ..OF_FLOWTRACE
    },
    Bar {
        title: "500 processes <= 1.20 x native",
        limit: 1.20,
        applies: |workload| workload.name == "spawn",
        ..OF_FLOWTRACE
    },
    Bar {
        title: "system calls <= 1.10 x native",
        limit: 1.10,
        applies: |workload| workload.name == "syscalls",
        ..OF_FLOWTRACE
    },
    Bar {
        title: "calls of one byte <= 3 x native",
        limit: 3.0,
        applies: |workload| workload.name == "bytes",
        ..OF_FLOWTRACE
    },
    Bar {
        title: "through a mount, recording calls <= 1.05",
        ways: (Way::Fuse, Way::Unlogged),
        limit: 1.05,
        applies: |workload| workload.filesystem,
    },
    Bar {
        title: "a mount is as fast as bindfs (fuse/bindfs <= 1)",
        ways: (Way::Fuse, Way::Bindfs),
        limit: 1.0,
        applies: |workload| workload.filesystem,
    },
    Bar {
        title: "cached <= 1.25 x native",
        ways: (Way::Cached, Way::Native),
        limit: 1.25,
        applies: |workload| workload.real_work,
    },
];

/// A run with no options; as root that is the kernel layer.
const OF_FLOWTRACE: Bar = Bar {
    title: "",
    ways: (Way::Flowtrace, Way::Native),
    limit: 1.0,
    applies: |_| false,
};

/// A line for each bar and each workload that it applies to, if the ways were run.
pub(crate) fn judge(measured: &[(&Workload, Row)]) -> Vec<String> {
    let mut lines = Vec::new();
    for bar in &BARS {
        for (workload, row) in measured.iter().filter(|(w, _)| (bar.applies)(w)) {
            let Some(ratio) = row.ratio(bar.ways.0, bar.ways.1) else {
                continue;
            };
            let met = ratio.median <= bar.limit;
            let sure = (ratio.median - bar.limit).abs() > ratio.spread();
            lines.push(format!(
                "{}: {}{} ({:.2} ±{:.2}) on {}",
                bar.title,
                if met { "met" } else { "missed" },
                if sure { "" } else { " within the spread" },
                ratio.median,
                ratio.spread(),
                workload.name
            ));
        }
    }
    lines
}
