//! `flowtrace capture`: packets, alone or around a command.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use flowtrace_render::units::{counted, plain};
use flowtrace_tracer::session::{self, CaptureOptions, CaptureReport, End};

use crate::failure::{Failure, OWN_FAILURE};
use crate::{capturing, conclude, output};

/// Capture packets, until Ctrl-C or for as long as a command runs
///
/// Headers are kept, payload is not. It needs CAP_NET_RAW; inside a network namespace of one's own
/// (unshare -Urn) nothing. `flowtrace run --net` traces processes and files as well.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  flowtrace capture -i eth0 -o net.db
  flowtrace capture -i lo --port 5432 -- ./query.sh

Exit status: the command's own, as for run (143 when --seconds ended it); without a command 0.")]
pub(crate) struct Args {
    /// Interface to capture; may be given several times [default: all that are up]
    #[arg(short, long = "interface", value_name = "IF")]
    interfaces: Vec<String>,
    /// Trace file to write
    #[arg(short, long, default_value = flowtrace_schema::DEFAULT_TRACE, value_parser = output::ending::only(output::ending::TRACE))]
    output: PathBuf,
    /// Remove an older trace, instead of keeping it as FILE.old
    #[arg(long)]
    force: bool,
    /// Capture this port of TCP, UDP and SCTP alone; may be given several times
    #[arg(long = "port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    ports: Vec<u16>,
    /// Bytes of each packet that are read
    #[arg(long, value_name = "BYTES", default_value_t = 128, value_parser = clap::value_parser!(u32).range(64..=65535))]
    snap: u32,
    /// Stop after so many seconds; a command is ended then (SIGTERM, 5 s later SIGKILL; what it started
    /// and does not end itself runs on)
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,
    /// Store passwords and keys of command lines as they are: otherwise they are masked, and counted
    #[arg(long)]
    keep_secrets: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
    /// Command to run, with its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) fn run(args: Args) -> crate::failure::Outcome {
    let has_command = !args.command.is_empty();
    let code = if has_command {
        OWN_FAILURE
    } else {
        crate::failure::USAGE
    };
    let live = flowtrace_tracer::net::live::LiveOptions {
        owners: true,
        ..capturing::options(&args.interfaces, &args.ports, args.snap, code)?
    };
    let names: Vec<_> = live.interfaces.iter().map(|i| i.name.clone()).collect();
    let options = CaptureOptions {
        live,
        output: output::resolved(&args.output),
        replace: args.force,
        keep_secrets: args.keep_secrets,
        command: args.command,
        limit: args
            .seconds
            .map(|seconds| Duration::from_secs(seconds.into())),
    };
    let mut begun = |refused: Vec<flowtrace_tracer::net::live::Refused>| {
        for refused in &refused {
            message!(
                "flowtrace: packets of {} are not captured: {}",
                refused.interface,
                refused.reason
            );
        }
        if !args.quiet && !has_command {
            let names: Vec<_> = names
                .iter()
                .filter(|name| !refused.iter().any(|r| r.interface == **name))
                .map(String::as_str)
                .collect();
            message!(
                "flowtrace: capturing {}; Ctrl-C ends that",
                names.join(", ")
            );
        }
    };
    let report = session::capture(&options, &mut begun).map_err(|error| {
        let failure = Failure::from(error);
        if has_command {
            failure
        } else {
            failure.with_code(crate::failure::USAGE)
        }
    })?;
    print_report(&options, &report, args.quiet);
    Ok(match report.end {
        None => ExitCode::SUCCESS,
        Some(End::Exited(code)) => ExitCode::from(code as u8),
        Some(End::Killed(signal)) => ExitCode::from((128 + signal) as u8),
    })
}

fn print_report(options: &CaptureOptions, report: &CaptureReport, quiet: bool) {
    if let Some(how) = report.trace.displaced {
        return message!("flowtrace: {}", conclude::displaced(&options.output, how));
    }
    let trace = output::shown(&options.output).display();
    conclude::say_unrecorded(&options.output);
    if let Some(error) = &report.trace.write_error {
        message!(
            "flowtrace: cannot write {trace}: {error}; {} rows are missing from the trace",
            report.trace.dropped
        );
    }
    if quiet {
        return;
    }
    if let (true, Some(seconds)) = (report.is_over_time, options.limit) {
        message!(
            "flowtrace: the command was ended after {} s (--seconds)",
            seconds.as_secs()
        );
    }
    if let Some(kept) = &report.trace.kept {
        conclude::say_kept(kept);
    }
    let live = &report.live;
    let mut lost: Vec<String> = Vec::new();
    let reasons = [
        (live.dropped, "by the kernel"),
        (
            live.unstored,
            "because the trace could not be written as fast",
        ),
        // Most of these rows are packets, but not all need be.
        (
            report.trace.dropped,
            "rows because the trace could not be written",
        ),
    ];
    for (count, why) in reasons {
        lost.extend((count > 0).then(|| format!("{count} {why}")));
    }
    lost.extend(live.gone.iter().map(|name| {
        let name = plain(name);
        format!("packets of {name} after it was deleted or left the network namespace")
    }));
    let lost = match lost.as_slice() {
        [] => "none lost".into(),
        all => format!("lost: {}", all.join(", ")),
    };
    message!(
        "flowtrace: {} in {}, {lost} · {trace}",
        counted(live.packets as i64, "packet", "packets"),
        counted(live.flows.into(), "flow", "flows"),
    );
}
