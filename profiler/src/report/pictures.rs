//! Pictures of the page: those that the commands draw, too, as SVG. The page shows them as images, in which
//! no script runs.

use flowtrace_network::pages;
use flowtrace_network::run::Run;
use flowtrace_render::plot::{self, Picture};
use serde::Serialize;

use super::calls::Calls;
use crate::analysis::counters::Machines;
use crate::model::Workflow;
use crate::text::statistics::{self, MACHINE_COLUMNS, Of};

/// SVG documents, each with the command that draws it.
#[derive(Debug, Default, Serialize)]
pub(super) struct Pictures {
    /// Pictures beside the distributions.
    calls: Vec<Drawn>,
    /// Pictures beside the answers from packets.
    network: Vec<Drawn>,
    /// Counters of the machines over time.
    machines: Vec<Drawn>,
}

#[derive(Debug, Serialize)]
struct Drawn {
    svg: String,
    command: &'static str,
}

pub(super) fn of(
    workflow: &Workflow,
    calls: &Calls,
    packets: Option<&Run>,
    machines: &Machines,
) -> Pictures {
    let mut pictures = Pictures::default();
    if !calls.latency.is_empty() {
        let picture = statistics::latency_chart(&calls.latency).into();
        pictures.calls.extend(drawn(&picture, "stats calls"));
    }
    let bytes = statistics::process_bytes(workflow);
    for (found, of, command) in [
        (
            &calls.requests,
            Of::RequestSize,
            "stats cdf --of request-size",
        ),
        (&bytes, Of::ProcessBytes, "stats cdf --of process-bytes"),
    ] {
        if !found.is_empty() {
            let picture = statistics::cdf_chart(found, of).into();
            pictures.calls.extend(drawn(&picture, command));
        }
    }
    pictures.network = packets.map_or_else(Vec::new, of_network);
    // A single machine under its run is in the timeline.
    if machines.hosts.len() > 1 || machines.hosts.iter().any(|host| host.watched.is_some()) {
        let picture = Picture {
            charts: statistics::machine_charts(machines, workflow.begins_ns()),
            columns: MACHINE_COLUMNS,
        };
        pictures.machines.extend(drawn(&picture, "stats machines"));
    }
    pictures
}

fn of_network(run: &Run) -> Vec<Drawn> {
    let pictures = [
        (pages::series_picture(run, true), "network series --by-pair"),
        (pages::cdf_picture(run), "network cdf"),
    ];
    // The reason for a missing picture is beside the rate of all pairs.
    let pictures = pictures.into_iter();
    pictures
        .filter_map(|(picture, command)| drawn(&picture.ok()?, command))
        .collect()
}

/// Writing to memory does not fail; if it did, only this picture would be missing.
fn drawn(picture: &Picture, command: &'static str) -> Option<Drawn> {
    let mut svg = Vec::new();
    plot::write_svg(picture, &mut svg).ok()?;
    Some(Drawn {
        svg: String::from_utf8(svg).ok()?,
        command,
    })
}
