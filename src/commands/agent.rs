//! `flowtrace agent`: watches one machine for a collector.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use flowtrace_monitor::service::{self, AgentOptions};
use flowtrace_monitor::{Key, KeyError};

use crate::failure::Failure;

/// Watch this machine for a collector: samples of its counters in small signed datagrams
///
/// Sends totals of CPUs, memory, disks and network until a signal, or until the collector stops it; the
/// collector chooses the counters and the rate. The last totals go over TCP. Lost datagrams cost resolution,
/// never a total.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  flowtrace agent --to head:4790 --key ~/.flowtrace.key &
  pdsh -w n[1-8] flowtrace agent --to head:4790 --key ~/.flowtrace.key --for 600

Exit status: 0 the last totals arrived; 1 they did not; 2 wrong use.")]
pub(crate) struct Args {
    /// Address of the collector
    #[arg(long, value_name = "HOST:PORT")]
    to: String,
    /// File with the key that agents and the collector share
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// End after so many seconds, instead of by a signal or by the collector
    #[arg(long = "for", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    length: Option<u64>,
    /// Name of this machine [default: its node name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(args: Args) -> crate::failure::Outcome {
    let options = AgentOptions {
        key: Key::read(&args.key).map_err(key_failure)?,
        length: args.length.map(Duration::from_secs),
        name: args.name,
        to: args.to,
    };
    let report = service::agent(&options).map_err(|error| {
        Failure::usage(format!("cannot reach {}: {error}", options.to))
            .hint("--to takes the address at which flowtrace collect listens, as head:4790")
    })?;
    if let Some(reason) = report.not_final {
        return Err(Failure::new(
            1,
            format!("the last totals did not reach {}: {reason}", options.to),
        )
        .hint("is flowtrace collect running there, with the same key, and may TCP pass?"));
    }
    if !args.quiet {
        message!(
            "flowtrace: {}sent {} and the last totals to {}",
            if report.is_stopped {
                "ended by the collector; "
            } else {
                ""
            },
            flowtrace_render::units::counted(report.sent as i64, "sample", "samples"),
            options.to
        );
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn key_failure(error: KeyError) -> Failure {
    let failure = Failure::usage(error.to_string());
    match error {
        KeyError::Io { .. } => {
            failure.hint("flowtrace collect --key FILE makes one; copy it to every machine")
        }
        KeyError::Open(path) => failure.hint(format!("chmod 600 {}", path.display())),
        KeyError::Short(_) => failure.hint("delete it: flowtrace collect --key FILE makes another"),
    }
}
