//! Every answer as a page, as `flowtrace network` prints it. There is one function per subcommand.

mod analysis;
mod balance;
mod between;
mod decomposition;
mod overview;
mod pictures;
mod rates;
mod sampling;
mod topology;

pub use analysis::{critical_path, placement, pop, slowdown, state, what_if};
pub use balance::{application, balance, bias, court, multiload};
pub use between::{predict, series, slowdown_cdf};
pub use decomposition::{bandwidth, component, decomposition, latency, messages};
pub use overview::overview;
pub use pictures::{cdf_picture, series_picture};
pub use rates::{cdf, components, iterations, peaks, period, spectrum, stationary};
pub use sampling::{records, trigger};
pub use topology::{changes, matrix, topology};

pub use super::page::Page;

use super::page::Cell;
use super::run::{Coverage, Node, Run};
use super::wording::listed;
use flowtrace_render::units;

/// Name of a process as a cell.
fn name(run: &Run, node: Node) -> Cell {
    Cell::Text(run.nodes()[usize::from(node)].clone())
}

/// Name of a process as text.
fn called(run: &Run, node: Node) -> &str {
    &run.nodes()[usize::from(node)]
}

/// The cell of a value, or of an unknown one.
fn cell<T>(value: Option<T>, make: impl Fn(T) -> Cell) -> Cell {
    value.map_or(Cell::Unknown, make)
}

/// The page of an answer, or of the reason why there is none.
fn page<T>(
    run: &Run,
    answer: super::Answer<T>,
    make: impl FnOnce(&super::Known<T>) -> Page,
) -> Page {
    match answer {
        Ok(known) => make(&known).about(&known),
        Err(unknown) => Page::unknown(run, &unknown),
    }
}

/// Lines about recorded traffic that is no part of the answers.
fn left_out(coverage: &Coverage) -> Vec<String> {
    let mut lines = Vec::new();
    let (tcp, others): (Vec<_>, Vec<_>) =
        coverage.other_flows.iter().partition(|flows| flows.is_tcp);
    for (kinds, why) in [(others, ", for these methods are of TCP"), (tcp, "")] {
        if !kinds.is_empty() {
            let each: Vec<String> = kinds.iter().map(ToString::to_string).collect();
            lines.push(format!(
                "left out{why}: {} (flowtrace network flows shows them)",
                each.join("; ")
            ));
        }
    }
    if coverage.without_header > 0 {
        lines.push(format!(
            "left out: {} of TCP without a whole header (later fragments, or cut by the capture)",
            units::counted(coverage.without_header as i64, "packet", "packets")
        ));
    }
    if !coverage.left_out.is_empty() {
        lines.push(format!(
            "no part of the program, left out: {}",
            listed(&coverage.left_out, ", ")
        ));
    }
    lines
}
