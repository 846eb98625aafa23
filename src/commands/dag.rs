//! `flowtrace dag`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use flowtrace_profiler::export::{dot, drawing, graphml};
use flowtrace_profiler::graph::{self, groups};
use flowtrace_profiler::load::load;
use flowtrace_schema::Trace;

use crate::graphviz::{self, Layout};
use crate::output;

/// Up to this many nodes every process and file can be drawn on a page.
const READABLE: usize = 60;
/// Up to this many groups a rule graph is drawn whole unless asked otherwise.
const MOST_GROUPS: usize = 150;

/// Write the workflow as a graph of processes and files
///
/// Ellipses are processes, boxes files, dotted lines forks. The graph never has a cycle; edges
/// left out for that are counted.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  flowtrace dag trace.db | dot -Tsvg > dag.svg
  flowtrace dag trace.db --by process --format graphml -o dag.graphml")]
pub(crate) struct Args {
    /// Trace to read
    trace: PathBuf,
    /// Format of the graph
    #[arg(long, value_enum, default_value_t = Format::Dot)]
    format: Format,
    /// A node per process and file, or per rule [default: process up to 60 nodes, else rule]
    #[arg(long, value_enum)]
    by: Option<By>,
    /// Draw only the N heaviest nodes and one that counts the others
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_nodes: Option<u32>,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Graphviz
    Dot,
    /// GraphML, for networkx, igraph, Gephi, yEd
    Graphml,
    /// Picture, through Graphviz
    Svg,
    /// Picture, through Graphviz
    Png,
    /// Picture, through Graphviz
    Pdf,
    /// Picture, through Graphviz
    Ps,
}

impl Format {
    /// Name of a picture's format, as Graphviz calls it.
    fn picture(self) -> Option<&'static str> {
        match self {
            Format::Dot | Format::Graphml => None,
            Format::Svg => Some("svg"),
            Format::Png => Some("png"),
            Format::Pdf => Some("pdf"),
            Format::Ps => Some("ps"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    /// Every process and every version of a file
    Process,
    /// One node per workflow step, one per kind of file between steps
    Rule,
}

pub(crate) fn run(args: &Args) -> super::Outcome {
    let workflow = load(&Trace::open(&args.trace)?)?;
    let dag = graph::build(&workflow);
    let nodes = dag.graph.node_count();
    let by = args.by.unwrap_or(if nodes <= READABLE {
        By::Process
    } else {
        By::Rule
    });
    let mut drawing = match by {
        By::Process => drawing::of_processes(&workflow, &dag),
        By::Rule => drawing::of_rules(&workflow, &dag, &groups::by_rule(&workflow, &dag)),
    };
    let drawn = drawing.nodes.len();
    let limit = match args.max_nodes {
        Some(most) => Some(most as usize),
        None if args.by.is_none() => Some(MOST_GROUPS),
        None => None,
    };
    if let Some(most) = limit {
        drawing.limit(most);
    }
    let mut bytes = Vec::new();
    match args.format {
        Format::Graphml => graphml::write(&drawing, &mut bytes)?,
        _ => dot::write(&drawing, &mut bytes)?,
    }
    if let Some(picture) = args.format.picture() {
        bytes = graphviz::render(&bytes, Layout::Dot, picture)?;
    }
    output::write_to(args.output.as_deref(), &args.trace, |out| {
        Ok(out.write_all(&bytes)?)
    })?;
    if args.by.is_none() && by == By::Rule {
        eprintln!(
            "flowtrace: drew {drawn} groups by rule, because {nodes} processes and files do not fit a page; all of them: --by process"
        );
    }
    if drawing.nodes.len() < drawn {
        let cut = drawn - (drawing.nodes.len() - 1);
        eprintln!(
            "flowtrace: {cut} of {drawn} nodes are only counted, as the node \"+{cut} more\"; draw more: --max-nodes {drawn}"
        );
    }
    let forks = dag
        .dropped
        .iter()
        .filter(|d| !d.edge.kind.is_data())
        .count();
    if !dag.dropped.is_empty() {
        eprintln!(
            "flowtrace: left out {} that close cycles: {forks} from parent to child, {} of data",
            if dag.dropped.len() == 1 {
                "1 edge".into()
            } else {
                format!("{} edges", dag.dropped.len())
            },
            dag.dropped.len() - forks
        );
    }
    Ok(ExitCode::SUCCESS)
}
