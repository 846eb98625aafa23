//! `network` without a subcommand: the answers in a few lines.

use crate::calls;
use crate::page::{Cell, Page};
use crate::run::{Run, Unknown};
use crate::wording;
use flowtrace_render::units;

/// Most periods in the answer.
const PERIODS: usize = 4;

/// Nodes, repetition and balance. An unknown answer is shown with its reason.
pub fn overview(run: &Run) -> Page {
    let mut page = Page::new(run, &["question", "answer"]);
    let first = super::topology(run);
    if let Some(reason) = first.unknown {
        return Page::unknown(run, &Unknown::new(reason));
    }
    // If both ends are captured, each packet was recorded twice.
    let once = calls::traffic_matrix(run, None).map_or(page.coverage.packets, |known| {
        known.value.off_diagonal().map(|(.., t)| t.packets).sum()
    });
    let places = match page.coverage.packets {
        all if all > once => format!(
            " ({} rows, of all places of capture)",
            units::count(all as i64)
        ),
        _ => String::new(),
    };
    page.lines.push(format!(
        "{} in {}, {}{places}",
        units::counted(run.nodes().len() as i64, "process", "processes"),
        wording::seconds(run.seconds()),
        units::counted(once as i64, "packet", "packets")
    ));
    let mut answer = |question: &str, answer: String| {
        page.rows
            .push(vec![Cell::Text(question.into()), Cell::Text(answer)]);
    };
    let headline = |page: &Page| {
        let reason = page
            .unknown
            .as_ref()
            .map(|reason| format!("unknown: {reason}"));
        reason
            .or_else(|| page.lines.first().cloned())
            .unwrap_or_default()
    };
    answer("topology", headline(&first));
    answer("traffic", headline(&super::matrix(run)));
    answer("iterations", headline(&super::iterations(run)));
    let period = super::period(run);
    let every = period
        .lines
        .iter()
        .filter(|line| line.starts_with("period "));
    let every: Vec<String> = every.take(PERIODS).cloned().collect();
    answer(
        "period",
        match every.is_empty() {
            true => headline(&period),
            false => every.join("; "),
        },
    );
    answer("messages", headline(&super::messages(run)));
    answer("balance", headline(&super::balance(run)));
    answer("component", headline(&super::component(run)));
    page.notes.extend(super::left_out(&page.coverage));
    page
}
