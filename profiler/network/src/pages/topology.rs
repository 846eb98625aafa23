//! Traffic and topology.

use super::{called, name, page};
use crate::calls;
use crate::matrix;
use crate::page::{Cell, Page};
use crate::run::{Node, Run, Unit};
use crate::topology;
use flowtrace_render::units;

/// `network matrix`: the traffic of each process to each other one.
pub fn matrix(run: &Run) -> Page {
    page(run, calls::traffic_matrix(run, None), |known| {
        let columns = [
            "src",
            "dst",
            "payload_bytes",
            "wire_bytes",
            "packets",
            "repeated",
            "received_bytes",
        ];
        let mut page = Page::new(run, &columns);
        let received = matrix::received(run);
        let mut cells: Vec<_> = known
            .value
            .off_diagonal()
            .filter(|(.., t)| t.packets > 0)
            .collect();
        cells.sort_by_key(|(src, dst, t)| (std::cmp::Reverse(t.payload_bytes), *src, *dst));
        let mut differing = 0;
        for &(src, dst, traffic) in &cells {
            let got = received.at(src, dst).map(|t| t.payload_bytes);
            let is_compared = run.has_both_ends(src as Node, dst as Node);
            differing += u64::from(is_compared && got != Some(traffic.payload_bytes));
            page.rows.push(vec![
                name(run, src as Node),
                name(run, dst as Node),
                Cell::Bytes(traffic.payload_bytes as f64),
                Cell::Bytes(traffic.wire_bytes as f64),
                Cell::Count(traffic.packets),
                Cell::Count(traffic.repeated),
                super::cell(got.filter(|_| is_compared), |b| Cell::Bytes(b as f64)),
            ]);
        }
        let payload: u64 = cells.iter().map(|(.., t)| t.payload_bytes).sum();
        let talking = cells.len();
        page.lines.push(match cells.first() {
            Some((src, dst, most)) => format!(
                "{} of payload in {}; most from {} to {}: {}",
                units::bytes(payload as i64),
                units::counted(talking as i64, "direction", "directions"),
                called(run, *src as Node),
                called(run, *dst as Node),
                units::bytes(most.payload_bytes as i64)
            ),
            None => "no process sent anything to another".into(),
        });
        page.notes.extend(super::left_out(&page.coverage));
        if differing > 0 {
            page.notes.push(format!(
                "{} carried other bytes at the receiver than at the sender: a capture is incomplete, or packets were lost between them",
                units::counted(differing as i64, "direction", "directions")
            ));
        }
        page
    })
}

/// `network topology`: the heavy edges, and the pattern that they form.
pub fn topology(run: &Run) -> Page {
    // If no smoothing is set, the topology of the interval.
    page(run, calls::traffic_matrix(run, None), |known| {
        let bytes = matrix::bytes(&known.value, run.settings.unit);
        let found = topology::infer(&bytes, run.settings.b_min);
        let mut page = Page::new(run, &["src", "dst", "bytes", "share_of_heaviest"]);
        let pairs = topology::undirected(&found.edges).len();
        page.lines.push(format!(
            "{}: {} between {} ({} directed)",
            found.form(),
            units::counted(pairs as i64, "edge", "edges"),
            units::counted(found.talkers as i64, "process", "processes"),
            found.edges.len()
        ));
        for edge in &found.edges {
            page.rows.push(vec![
                name(run, edge.src as Node),
                name(run, edge.dst as Node),
                Cell::Bytes(edge.bytes),
                Cell::Share(edge.ratio),
            ]);
        }
        let pruned = known
            .value
            .off_diagonal()
            .filter(|(.., t)| t.bytes(run.settings.unit) > 0.0)
            .count()
            - found.edges.len();
        if pruned > 0 {
            page.notes.push(format!(
                "{} below {} of the heaviest edge left out (--min-share)",
                units::counted(pruned as i64, "direction", "directions"),
                Cell::Share(run.settings.b_min).shown()
            ));
        }
        page.notes.extend(super::left_out(&page.coverage));
        if run.settings.unit == Unit::Frame {
            page.notes
                .push("whole frames, as online VTTIF counts; not comparable with payload".into());
        }
        page
    })
}

/// `network changes`: times at which the topology changed.
pub fn changes(run: &Run) -> Page {
    page(run, calls::smoothed_topology(run), |known| {
        let mut page = Page::new(run, &["t_ns", "edges", "distance", "topology"]);
        for change in &known.value.changes {
            page.rows.push(vec![
                Cell::Instant(change.t_ns),
                Cell::Count(change.edges.len() as u64),
                Cell::Number(change.distance),
                Cell::Text(change.form.clone()),
            ]);
        }
        let window = run.settings.window_s;
        page.lines.push(match known.value.changes.len() {
            0 if run.seconds() < 1.5 * window => format!(
                "unknown: the interval of {} is shorter than one and a half times the smoothing of {window} s (--smooth)",
                crate::wording::seconds(run.seconds())
            ),
            0 => "the topology never came to rest: it changes faster than the smoothing can follow".into(),
            1 => "one topology throughout".into(),
            n => format!("{} of topology", units::counted(n as i64 - 1, "change", "changes")),
        });
        page
    })
}
