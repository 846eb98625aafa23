//! `flowtrace tree`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use flowtrace_profiler::text::tree::{self, Style};

use crate::graphviz::{self, Layout};
use crate::{explained, output};

/// Show the tree of processes with their times and the bytes they moved
///
/// Times count from the start of the command; JSON has those of the recording, as the database. Processes
/// alike (same step, same ending, same kinds of children) share a line, with ×N and their sums. A process
/// that called exec is shown as its last program. The longest chain, always to the child that lived longest,
/// is marked.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  flowtrace tree trace.db
  flowtrace tree trace.db --format svg -o tree.svg
  flowtrace tree trace.db --format json | jq '.[] | select(.on_longest_chain) | .command'")]
pub(crate) struct Args {
    /// Trace to read
    #[arg(default_value = flowtrace_schema::DEFAULT_TRACE)]
    trace: PathBuf,
    /// A line or node for every process, with every program it was and its whole command
    #[arg(long)]
    full: bool,
    /// Text for people, JSON with every process and exact numbers, or a picture [default: by the ending of FILE, else text]
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    output: output::Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A tree
    Text,
    /// A list in the order of the tree; times in nanoseconds, sizes in bytes
    Json,
    /// For Graphviz
    Dot,
    /// Picture, through Graphviz
    Svg,
    /// Picture, through Graphviz
    Png,
    /// Picture, through Graphviz
    #[value(alias = "jpg")]
    Jpeg,
    /// Picture, through Graphviz
    Pdf,
    /// Picture, through Graphviz
    Ps,
}

pub(crate) fn run(args: &Args) -> crate::failure::Outcome {
    let format = args.output.format(args.format, Format::Text)?;
    let (_, workflow) = explained::open(&args.trace)?;
    let path = args.output.path();
    let picture = graphviz::picture(&format);
    let mut dot = Vec::new();
    if format == Format::Dot || picture.is_some() {
        tree::dot(&workflow, args.full, &mut dot)?;
    }
    if let Some(picture) = picture {
        dot = graphviz::render(&dot, Layout::Dot, picture)?;
    }
    output::write_to(&args.output, &args.trace, |out| {
        match format {
            Format::Text => {
                let style = Style {
                    width: match args.full {
                        true => usize::MAX,
                        false => output::width(path),
                    },
                    is_full: args.full,
                };
                output::text(out, &tree::text(&workflow, style))?;
            }
            Format::Json => output::json(out, &tree::rows(&workflow))?,
            _ => out.write_all(&dot)?,
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}
