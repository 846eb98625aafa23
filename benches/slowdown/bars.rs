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

const BARS: [Bar; 8] = [
    Bar {
        title: "logging on/off <= 1.05",
        ways: (Way::Flowtrace, Way::Bare),
        limit: 1.05,
        applies: |workload| workload.filesystem,
    },
    Bar {
        title: "recording calls <= 1.05",
        ways: (Way::Flowtrace, Way::Unlogged),
        limit: 1.05,
        applies: |workload| workload.filesystem,
    },
    Bar {
        title: "as fast as bindfs (flowtrace/bindfs <= 1)",
        ways: (Way::Flowtrace, Way::Bindfs),
        limit: 1.0,
        applies: |workload| workload.filesystem,
    },
    Bar {
        title: "cached <= 1.25 x native",
        ways: (Way::Cached, Way::Native),
        limit: 1.25,
        applies: |workload| workload.real_work,
    },
    Bar {
        title: "processes alone <= 1.05 x native",
        ways: (Way::Processes, Way::Native),
        limit: 1.05,
        applies: |workload| workload.real_work,
    },
    Bar {
        title: "processes alone, where there is nothing else, <= 1.25 x native",
        ways: (Way::Processes, Way::Native),
        limit: 1.25,
        applies: |workload| workload.name == "spawn",
    },
    Bar {
        title: "system calls <= 1.10 x native",
        ways: (Way::Processes, Way::Native),
        limit: 1.10,
        applies: |workload| workload.name == "syscalls",
    },
    Bar {
        title: "calls of one byte by the kernel layer <= 3 x native",
        ways: (Way::Kernel, Way::Native),
        limit: 3.0,
        applies: |workload| workload.name == "bytes",
    },
];

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
