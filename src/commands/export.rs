//! `flowtrace export`: a trace in formats of other programs.

use std::path::PathBuf;
use std::process::ExitCode;

use flowtrace_profiler::export::pcapng;
use flowtrace_schema::Trace;

use crate::failure::Failure;
use crate::output;

/// Write a trace in a format of other programs
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    format: Format,
}

#[derive(Debug, clap::Subcommand)]
enum Format {
    /// Packets for Wireshark and tcpdump, with the processes that sent them as comments
    ///
    /// Headers are made again from what the trace has: hardware addresses, checksums and payload
    /// are not in it. `flowtrace import` reads the file with the hosts that it came from.
    Pcapng(Pcapng),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  flowtrace export pcapng trace.db -o trace.pcapng && wireshark trace.pcapng")]
struct Pcapng {
    /// Trace to read
    trace: PathBuf,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> super::Outcome {
    let Format::Pcapng(args) = &args.format;
    let trace = Trace::open(&args.trace)?;
    output::write_to(
        args.output.as_deref(),
        &args.trace,
        |out| match pcapng::write(&trace, out) {
            Ok(0) => Err(Failure::new(
                1,
                format!("there are no packets in {}", args.trace.display()),
            )
            .hint("flowtrace capture, run --net and import record packets")),
            Ok(_) => Ok(()),
            Err(pcapng::Error::Trace(error)) => Err(error.into()),
            Err(pcapng::Error::Output(error)) => Err(error.into()),
        },
    )?;
    Ok(ExitCode::SUCCESS)
}
