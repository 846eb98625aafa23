//! `flowtrace import`: packets from captures of other programs.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use flowtrace_net::import::{Error, FileError, Imported, Input, Report, import};
use flowtrace_profiler::clocks::{self, Alignment};
use flowtrace_render::units::{self, bytes, counted, duration};

use crate::failure::Failure;
use crate::{conclude, output};

/// Make a trace of packet captures: pcap and pcapng, plain or compressed by gzip or zstd
///
/// Headers are kept, payload is not. Each file is the capture of one host, named by --host, by the file
/// itself when flowtrace wrote it, or else after the file. A trace covers about two years: of a capture with
/// times further apart the bulk of the packets is kept. Exit status 1: a file could be read only in part, or
/// not at all, or packets of another time are left out; the rest is in the trace. 2: no file is a capture;
/// there is no trace.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  flowtrace import run.pcapng -o trace.db
  flowtrace import --host node1=a.pcap.gz --host node2=b.pcap.gz -o trace.db")]
pub(crate) struct Args {
    /// Captures to read; -: standard input
    #[arg(value_name = "FILE", required_unless_present = "hosts")]
    files: Vec<PathBuf>,
    /// A capture and the host it was made on; may be given several times
    #[arg(long = "host", value_name = "NAME=FILE", value_parser = named)]
    hosts: Vec<(String, PathBuf)>,
    /// Trace file to write
    #[arg(short, long, default_value = flowtrace_schema::DEFAULT_TRACE, value_parser = output::ending::only(output::ending::TRACE))]
    output: PathBuf,
    /// Remove an older trace, instead of keeping it as FILE.old
    #[arg(long)]
    force: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

fn named(argument: &str) -> Result<(String, PathBuf), String> {
    match argument.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => {
            Ok((name.to_owned(), PathBuf::from(file)))
        }
        _ => Err("it is no NAME=FILE".into()),
    }
}

pub(crate) fn run(args: Args) -> crate::failure::Outcome {
    let unnamed = args
        .files
        .into_iter()
        .map(|path| match path.as_os_str() == "-" {
            true => Input {
                path: PathBuf::from("/dev/stdin"),
                host: Some("stdin".into()),
            },
            false => Input { path, host: None },
        });
    let named = args.hosts.into_iter().map(|(host, path)| Input {
        path,
        host: Some(host),
    });
    let inputs: Vec<_> = named.chain(unnamed).collect();
    let output = output::resolved(&args.output);
    let report = import(&inputs, &output, args.force).map_err(failure)?;
    let trace = output::shown(&output).display();
    if let Some(error) = &report.summary.write_error {
        return Err(Failure::new(
            1,
            format!(
                "cannot write {trace}: {error}; {} rows are missing from the trace",
                report.summary.dropped
            ),
        ));
    }
    let clocks = clocks::align(&output)?;
    if let Some(kept) = report.summary.kept.as_deref().filter(|_| !args.quiet) {
        conclude::say_kept(kept);
    }
    if !args.quiet {
        let mut text = Vec::new();
        print(&mut text, &report, &clocks, &trace.to_string())?;
        output::print(|out| Ok(output::text(out, &String::from_utf8_lossy(&text))?))?;
    }
    for (path, why) in &report.refused {
        let name = path.display();
        message!("flowtrace: {name} is not read: {why}; the others are in the trace");
    }
    for file in &report.files {
        complain(file);
    }
    // A file that was not read to its end, or frames of another time, or input of which nothing could be
    // read.
    let is_partial = |file: &Imported| file.damage.is_some() || file.out_of_time > 0;
    let is_damaged = report.files.iter().any(is_partial);
    let is_damaged = is_damaged || !report.refused.is_empty();
    let frames: u64 = report.files.iter().map(|file| file.frames).sum();
    Ok(match is_damaged || frames > 0 && report.packets == 0 {
        true => ExitCode::from(1),
        false => ExitCode::SUCCESS,
    })
}

/// Reports the parts of a file that are missing in the trace though they should be there.
fn complain(file: &Imported) {
    let name = file.path.display();
    if let Some(damage) = &file.damage {
        message!("flowtrace: {name} is read only in part: {damage}");
    }
    if !file.foreign_links.is_empty() {
        let links: Vec<String> = file.foreign_links.iter().map(u16::to_string).collect();
        message!(
            "flowtrace: {name}: {} left out: frames of link layer {} are not read (LINKTYPE_ numbers of tcpdump.org)",
            counted(file.foreign as i64, "frame", "frames"),
            links.join(", ")
        );
    }
    if file.out_of_time > 0 {
        message!(
            "flowtrace: {name}: {} left out: their time is more than a year from that of the bulk of the packets, as before a clock was set; editcap -t shifts times",
            counted(file.out_of_time as i64, "frame", "frames")
        );
    }
}

fn print(out: &mut dyn Write, report: &Report, clocks: &Alignment, trace: &str) -> io::Result<()> {
    writeln!(
        out,
        "{}: {} in {}, captured on {}",
        trace,
        counted(report.packets as i64, "packet", "packets"),
        counted(report.flows.into(), "flow", "flows"),
        counted(report.hosts.into(), "host", "hosts"),
    )?;
    for file in &report.files {
        let mut line = format!(
            "  {}: {} {}, {}",
            file.path.display(),
            if file.hosts.len() == 1 {
                "host"
            } else {
                "hosts"
            },
            file.hosts.join(", "),
            counted(file.frames as i64, "frame", "frames")
        );
        let others = file.ignored - file.out_of_time - file.foreign;
        if others > 0 {
            let others = units::count(others as i64);
            line += &format!(", {others} of them no packets of IP or unreadable");
        }
        writeln!(out, "{line}")?;
    }
    for relation in &clocks.related {
        let error = duration(relation.clock.error_ns.unwrap_or(0));
        let said = if relation.is_corrected {
            let offset = relation.at_start_ns;
            format!(
                "{} {} at its first packet, {:+.2} ppm, within {error}; corrected",
                duration(offset.abs()),
                if offset > 0 { "behind" } else { "ahead" },
                relation.clock.drift_ppb as f64 / 1000.0
            )
        } else {
            format!("agrees within {error}")
        };
        let matched = counted(relation.matched as i64, "packet", "packets");
        writeln!(
            out,
            "  clock of {}: {said} ({matched} seen twice)",
            relation.name
        )?;
    }
    if !clocks.unrelated.is_empty() {
        writeln!(
            out,
            "  clocks of {}: not related, for want of packets that two hosts captured in both directions",
            clocks.unrelated.join(", ")
        )?;
    }
    if let Ok(metadata) = std::fs::metadata(trace) {
        writeln!(out, "  {} written", bytes(metadata.len() as i64))?;
    }
    Ok(())
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Store(error) => error.into(),
        Error::File { ref source, .. } => {
            let hint = match source {
                FileError::NotACapture(_) => Some(
                    "pcap and pcapng are read, plain or compressed by gzip or zstd; other formats: editcap -F pcapng",
                ),
                _ => None,
            };
            let failure = Failure::usage(error.to_string());
            match hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        }
    }
}
