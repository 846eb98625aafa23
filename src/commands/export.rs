//! `flowtrace export`.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use flowtrace_profiler::export::rows::Csv;
use flowtrace_profiler::export::stacks::{self, firefox, folded, pprof, speedscope};
use flowtrace_profiler::export::timeline::timeline;
use flowtrace_profiler::export::{chrome, parquet, pcapng, perfetto, wfformat};
use flowtrace_profiler::graph;
use flowtrace_profiler::load::load;
use flowtrace_profiler::model::{FileIndex, Workflow};
use flowtrace_profiler::stacks::Samples;
use flowtrace_render::units;
use flowtrace_schema::{Trace, doc};

use crate::drawing::{self, View};
use crate::failure::Failure;
use crate::{explained, graphviz, output};

/// Write a trace in a format of other programs
///
/// Graphs are those of `flowtrace dag`, with every process and file unless --by says otherwise.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  flowtrace export trace.db wfformat -o run.json     # WfCommons
  flowtrace export trace.db chrome -o run.trace      # open in ui.perfetto.dev
  flowtrace export trace.db csv -o tables/           # every view as a file
  flowtrace export trace.db parquet -o dataset/      # for DuckDB, Polars, Spark
  flowtrace export trace.db pcapng -o run.pcapng     # open in Wireshark
  flowtrace export trace.db speedscope -o run.speedscope  # call stacks, open in speedscope.app
  flowtrace export trace.db folded --waits | flamegraph.pl > waits.svg
  flowtrace export trace.db graphml | python3 analyse.py")]
pub(crate) struct Args {
    /// Trace to read
    #[arg(default_value = flowtrace_schema::DEFAULT_TRACE)]
    trace: PathBuf,
    /// Format to write [default: by the ending of FILE]
    #[arg(value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    view: View,
    /// Write to FILE (csv, parquet: into the directory FILE) instead of standard output (`-`)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the stacks of threads that waited, not of those on a CPU (speedscope, folded, pprof)
    #[arg(long)]
    waits: bool,
    /// Replace files even if flowtrace did not write them, or somebody changed them since
    #[arg(long, requires = "output")]
    force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Graph for Graphviz
    Dot,
    /// Graph for networkx, igraph, Gephi, yEd
    Graphml,
    /// Graph for older tools
    Gml,
    /// Graph for Cytoscape and cytoscape.js
    Cytoscape,
    /// Picture of the graph, through Graphviz
    Svg,
    /// Picture of the graph, through Graphviz
    Png,
    /// Picture of the graph, through Graphviz
    #[value(alias = "jpg")]
    Jpeg,
    /// Picture of the graph, through Graphviz
    Pdf,
    /// Picture of the graph, through Graphviz
    Ps,
    /// Workflow for WfCommons (WfFormat 1.6)
    Wfformat,
    /// Timeline for ui.perfetto.dev and chrome://tracing (JSON)
    Chrome,
    /// Timeline for ui.perfetto.dev (protobuf, exact nanoseconds)
    Perfetto,
    /// A CSV file of every view, in a directory
    Csv,
    /// A dataset for DuckDB, Polars, Spark: every view as Parquet files, partitioned by run and host, in a
    /// directory that may have those of many traces
    Parquet,
    /// Sampled call stacks for speedscope.app
    Speedscope,
    /// Sampled call stacks for flamegraph.pl, inferno and the like: a line for each stack
    Folded,
    /// Sampled call stacks for pprof
    Pprof,
    /// Sampled call stacks for profiler.firefox.com
    Firefox,
    /// Packets for Wireshark and tcpdump, with the processes that sent them as comments; hardware
    /// addresses, checksums and payload are not in a trace
    Pcapng,
}

/// `export FORMAT TRACE` reads as well as `export TRACE FORMAT`: puts the trace first.
pub(crate) fn trace_first(words: &mut [OsString]) {
    let [_, command, first, second, ..] = words else {
        return;
    };
    if command == "export" && is_format(first) && !is_format(second) && second != "-o" {
        std::mem::swap(first, second);
    }
}

/// True if the word is a format to write.
pub(crate) fn is_format(word: &OsStr) -> bool {
    let word = word.to_str();
    word.is_some_and(|word| <Format as ValueEnum>::from_str(word, false).is_ok())
}

pub(crate) fn run(args: &Args) -> crate::failure::Outcome {
    let target = &output::Target::new(args.output.clone(), args.force);
    let Some(format) = target.named(args.format)? else {
        return Err(Failure::usage("which format?").hint(
            "flowtrace export TRACE FORMAT, or -o FILE with its ending; --help lists the formats",
        ));
    };
    if args.waits && !matches!(format, Format::Speedscope | Format::Folded | Format::Pprof) {
        return Err(Failure::usage(
            "--waits is for speedscope, folded and pprof",
        ));
    }
    let trace = Trace::open(&args.trace)?;
    let graph_format = match format {
        Format::Dot => drawing::Format::Dot,
        Format::Graphml => drawing::Format::Graphml,
        Format::Gml => drawing::Format::Gml,
        Format::Cytoscape => drawing::Format::Cytoscape,
        Format::Svg => drawing::Format::Svg,
        Format::Png => drawing::Format::Png,
        Format::Jpeg => drawing::Format::Jpeg,
        Format::Pdf => drawing::Format::Pdf,
        Format::Ps => drawing::Format::Ps,
        Format::Csv | Format::Parquet | Format::Pcapng => {
            args.view
                .refuse("--by and the options that select a part are for graphs")?;
            return match format {
                Format::Csv => views(&trace, &args.trace, target),
                Format::Parquet => dataset(&trace, target),
                _ => packets(&trace, &args.trace, target),
            };
        }
        Format::Speedscope | Format::Folded | Format::Pprof | Format::Firefox => {
            args.view
                .refuse("--by and the options that select a part are for graphs")?;
            return stacks(&trace, args, format, target);
        }
        Format::Wfformat | Format::Chrome | Format::Perfetto => {
            return whole(&trace, args, format, target);
        }
    };
    // Programs need everything; a picture has to fit a page.
    let is_picture = graphviz::picture(&format).is_some();
    let default = (!is_picture).then_some(drawing::By::Process);
    args.view.write(&trace, graph_format, default, target)?;
    Ok(ExitCode::SUCCESS)
}

/// Formats that have the whole workflow in them.
fn whole(
    trace: &Trace,
    args: &Args,
    format: Format,
    target: &output::Target,
) -> crate::failure::Outcome {
    args.view
        .refuse("--by and the options that select a part are for graphs")?;
    let workflow = load(trace)?;
    let dag = graph::lineage(&workflow);
    output::write_to(target, &args.trace, |mut out| {
        match format {
            Format::Wfformat => {
                let raw_names = raw_names(trace, &workflow)?;
                wfformat::write(&workflow, &dag, &raw_names, &mut out)?;
            }
            Format::Chrome => chrome::write(&timeline(&workflow, &dag), &mut out)?,
            _ => {
                perfetto::write(&timeline(&workflow, &dag), &mut out)?;
                if let Some(samples) = Samples::read(trace, &workflow)? {
                    stacks::perfetto::write(&samples, &workflow, &mut out)?;
                }
            }
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Formats for call stacks.
fn stacks(
    trace: &Trace,
    args: &Args,
    format: Format,
    target: &output::Target,
) -> crate::failure::Outcome {
    let workflow = load(trace)?;
    let samples = explained::stacks(trace, &workflow)?;
    let (which, kind) = match args.waits {
        true => (&samples.waits, "wait"),
        false => (&samples.samples, "cpu"),
    };
    let groups = stacks::by_rule(which, &workflow);
    let title = output::shown(&args.trace).display().to_string();
    output::write_to(target, &args.trace, |mut out| {
        match format {
            Format::Speedscope => speedscope::write(&samples, &groups, &title, &mut out)?,
            Format::Folded => folded::write(&samples, &groups, &mut out)?,
            Format::Pprof => pprof::write(&samples, &workflow, &groups, kind, &mut out)?,
            _ => firefox::write(&samples, &workflow, &mut out)?,
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The exact names of files whose names are no UTF-8.
fn raw_names(trace: &Trace, workflow: &Workflow) -> Result<wfformat::RawNames, Failure> {
    let place = |file_id| {
        let by_id = |file: &flowtrace_profiler::model::File| file.file_id;
        workflow.files.binary_search_by_key(&file_id, by_id).ok()
    };
    let names = trace.raw_names()?.into_iter();
    Ok(names
        .filter_map(|name| Some((FileIndex(place(name.file_id)? as u32), name.path_raw)))
        .collect())
}

fn packets(trace: &Trace, path: &Path, target: &output::Target) -> crate::failure::Outcome {
    let mut written = pcapng::Written::default();
    output::write_to(target, path, |out| match pcapng::write(trace, out) {
        Ok(pcapng::Written { packets: 0, .. }) => Err(Failure::new(
            1,
            format!("there are no packets in {}", path.display()),
        )
        .hint("flowtrace capture, run --net and import record packets")),
        Ok(all) => {
            written = all;
            Ok(())
        }
        Err(pcapng::Error::Trace(error)) => Err(error.into()),
        Err(pcapng::Error::Output(error)) => Err(error.into()),
    })?;
    if written.again > 0 {
        message!(
            "flowtrace: {} of {} are there more than once, for several places captured them: in Wireshark \
             frame.interface_id == 0 shows those of one",
            units::count(written.again as i64),
            units::counted(written.packets as i64, "packet", "packets")
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Partitioned files for every view.
fn dataset(trace: &Trace, target: &output::Target) -> crate::failure::Outcome {
    let Some(directory) = target.path() else {
        return Err(Failure::usage("parquet writes a directory for every view")
            .hint("name a directory with -o DIR; it may have the views of other traces"));
    };
    let written = parquet::write(trace, directory).map_err(|error| match error {
        parquet::Error::Trace(error) => error.into(),
        error @ parquet::Error::Output { .. } => Failure::new(1, error.to_string())
            .hint("earlier files stay; free space there, or name another directory with -o"),
        error => Failure::new(1, error.to_string()),
    })?;
    message!(
        "flowtrace: {} rows in {} files, {}, in {}",
        written.rows,
        written.files,
        units::bytes(written.bytes as i64),
        directory.display()
    );
    Ok(ExitCode::SUCCESS)
}

/// A file for every view.
fn views(trace: &Trace, path: &Path, target: &output::Target) -> crate::failure::Outcome {
    let Some(directory) = target.path() else {
        return Err(Failure::usage("csv writes a file for every view")
            .hint("name a directory with -o DIR, or one view: flowtrace query trace.db --format csv \"SELECT * FROM processes\""));
    };
    let is_new = |above: &&Path| !above.as_os_str().is_empty() && !above.exists();
    let made: Vec<&Path> = directory.ancestors().take_while(is_new).collect();
    let written = std::fs::create_dir_all(directory)
        .map_err(|error| Failure::new(1, format!("cannot make {}: {error}", directory.display())))
        .and_then(|()| write_views(trace, path, target, directory));
    let (rows, views) = written.map_err(|failure| {
        for above in made {
            // Only the empty directories.
            let _ = std::fs::remove_dir(above);
        }
        failure
            .detail("nothing of this export was kept")
            .or_hint("free space there, or name another directory with -o")
    })?;
    message!(
        "flowtrace: {rows} rows of {views} views in {}",
        directory.display()
    );
    Ok(ExitCode::SUCCESS)
}

/// Writes all views or none; returns the numbers of rows and views.
fn write_views(
    trace: &Trace,
    path: &Path,
    target: &output::Target,
    directory: &Path,
) -> Result<(u64, usize), Failure> {
    let mut rows = 0;
    let mut parts = Vec::new();
    for view in doc::views() {
        let file = directory.join(format!("{}.csv", view.name));
        parts.push(output::Part::write(&file, target.force(), path, |out| {
            let mut counted = Counted {
                csv: Csv::new(out),
                rows: 0,
            };
            trace.query(&format!("SELECT * FROM {}", view.name), &mut counted)?;
            rows += counted.rows;
            Ok(())
        })?);
    }
    let views = parts.len();
    parts.into_iter().try_for_each(output::Part::publish)?;
    Ok((rows, views))
}

struct Counted<W: Write> {
    csv: Csv<W>,
    rows: u64,
}

impl<W: Write> flowtrace_schema::Table for Counted<W> {
    fn columns(&mut self, names: &[String]) -> std::io::Result<()> {
        self.csv.columns(names)
    }

    fn row(&mut self, values: Vec<flowtrace_schema::Value>) -> std::io::Result<()> {
        self.rows += 1;
        self.csv.row(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_may_come_first() {
        let ordered = |line: &str| {
            let mut words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            trace_first(&mut words);
            words.join(OsStr::new(" "))
        };
        let right = "flowtrace export run.db csv -o d";
        assert_eq!(ordered("flowtrace export csv run.db -o d"), right);
        assert_eq!(ordered(right), right);
        assert_eq!(ordered("flowtrace export csv"), "flowtrace export csv");
        assert_eq!(
            ordered("flowtrace dag csv run.db"),
            "flowtrace dag csv run.db"
        );
    }
}
