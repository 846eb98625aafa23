//! Reports of a monitor that samples traffic, and the gaps behind ball-in-the-court delays.

use super::{called, name, page};
use crate::calls;
use crate::page::{Cell, Page};
use crate::run::{Node, Run};
use crate::topology;
use crate::trigger::{Reactive, Report};
use flowtrace_render::units;

/// `network trigger`: the times of the reports of a reactive monitor, and their traffic.
pub fn trigger(run: &Run, settings: Reactive) -> Page {
    page(run, calls::reactive(run, settings), |known| {
        let columns = ["report", "event", "from_ns", "to_ns", "src", "dst", "bytes"];
        let mut page = Page::new(run, &columns);
        let reports = &known.value;
        let count = |event: &str| reports.iter().filter(|r| r.parts().0 == event).count();
        page.lines.push(match reports.len() {
            0 => format!(
                "no report: no pair sent {} twice within {}",
                units::bytes(settings.byte_threshold as i64),
                Cell::Seconds(settings.time_bound_ns as f64 / 1e9).shown()
            ),
            n => format!(
                "{}: {} while traffic held, {} when it went quiet, {} at the end",
                units::counted(n as i64, "report", "reports"),
                count("held"),
                count("quiet"),
                count("open")
            ),
        });
        for (number, report) in reports.iter().enumerate() {
            let (event, (from, to), matrix) = report.parts();
            page.lines.push(reported(run, number + 1, report));
            for (src, dst, bytes) in matrix.off_diagonal().filter(|(.., bytes)| **bytes > 0) {
                page.rows.push(vec![
                    Cell::Count(number as u64 + 1),
                    Cell::Text(event.into()),
                    Cell::Instant(from),
                    Cell::Instant(to),
                    name(run, src as Node),
                    name(run, dst as Node),
                    Cell::Bytes(*bytes as f64),
                ]);
            }
        }
        page
    })
}

fn reported(run: &Run, number: usize, report: &Report) -> String {
    let (event, (from, to), matrix) = report.parts();
    let bytes = matrix.map(|bytes| *bytes as f64);
    let whole: f64 = bytes.off_diagonal().map(|(.., bytes)| *bytes).sum();
    format!(
        "{number}, {event}: {} in {}, {}",
        Cell::Bytes(whole).shown(),
        Cell::Seconds((to - from) as f64 / 1e9).shown(),
        topology::infer(&bytes, run.settings.b_min).form()
    )
}

/// `network records`: every gap for which a process is responsible.
pub fn records(run: &Run) -> Page {
    page(run, calls::bic_records(run, None), |known| {
        let columns = ["t_ns", "process", "towards", "gap_s", "from", "to"];
        let mut page = Page::new(run, &columns);
        page.lines
            .push(match known.value.iter().max_by_key(|gap| gap.ns) {
                Some(longest) => format!(
                    "{} that end with an own send, the longest {} of {}",
                    units::counted(known.value.len() as i64, "gap", "gaps"),
                    Cell::Seconds(longest.ns as f64 / 1e9).shown(),
                    called(run, longest.process)
                ),
                None => "no gap ends with an own send".into(),
            });
        for gap in &known.value {
            page.rows.push(vec![
                Cell::Instant(gap.t_ns),
                name(run, gap.process),
                name(run, gap.peer),
                Cell::Seconds(gap.ns as f64 / 1e9),
                Cell::Text(gap.kinds.0.name().into()),
                Cell::Text(gap.kinds.1.name().into()),
            ]);
        }
        page
    })
}
