//! `flowtrace unmount`: end a mount session.

use std::path::PathBuf;
use std::process::ExitCode;

use flowtrace_schema::{Displaced, Unrecorded, quote_argv};
use flowtrace_tracer::session::{DetachError, Detached, Holder, detach};

use crate::conclude;
use crate::failure::{Failure, Outcome};

/// Unmount a traced mount and complete its trace
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Path of the mount
    mountpoint: PathBuf,
    /// Unmount now, even if a process uses the mount; the trace is complete when that process ends
    #[arg(long)]
    lazy: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    // This process must not use the mount that it is to unmount.
    let mountpoint = std::path::absolute(&args.mountpoint).unwrap_or(args.mountpoint.clone());
    let _ = std::env::set_current_dir("/");
    let shown = args.mountpoint.display();
    match detach(&mountpoint, args.lazy) {
        Ok(Detached::Completed(Some(trace))) if !trace.exists() => {
            Err(conclude::displaced(&trace, Displaced::Deleted).with_code(1))
        }
        Ok(Detached::Completed(Some(trace))) if Unrecorded::of(&trace).is_some() => {
            conclude::say_unrecorded(&trace);
            Ok(ExitCode::SUCCESS)
        }
        Ok(Detached::Completed(Some(trace))) => {
            let trace = quote_argv([trace.as_os_str().as_encoded_bytes()]);
            let trace = trace.text();
            message!("flowtrace: {trace} is complete · next: flowtrace summary {trace}");
            Ok(ExitCode::SUCCESS)
        }
        Ok(Detached::Completed(None)) => Ok(ExitCode::SUCCESS),
        Ok(Detached::StillUsed { holders, trace }) => {
            let trace =
                trace.map_or_else(|| "the trace".to_owned(), |path| path.display().to_string());
            message!(
                "flowtrace: {shown} is gone from its path; {trace} is complete when the last user \
                 of the mount ends"
            );
            if holders.is_empty() {
                message!("  its processes are not known: they are another user's, or in another namespace");
            }
            for holder in &holders {
                message!("  {}", describe(holder));
            }
            Ok(ExitCode::SUCCESS)
        }
        Ok(Detached::DaemonWasDead) => {
            message!(
                "flowtrace: {shown} is unmounted; its daemon had died before, so the trace ends \
                 where that happened"
            );
            Ok(ExitCode::SUCCESS)
        }
        Err(DetachError::NotMounted(path)) => Err(Failure::usage(format!(
            "{} is not a mount of flowtrace",
            path.display()
        ))),
        Err(DetachError::OfRun(path)) => Err(Failure::new(
            1,
            format!(
                "cannot unmount {}: it is a mount of the flowtrace run that this command is part of",
                path.display()
            ),
        )
        .hint("flowtrace run unmounts it when its command ends")),
        Err(DetachError::Busy(holders)) => {
            let mut failure = Failure::new(1, format!("cannot unmount {shown}: it is in use"));
            for holder in &holders {
                failure = failure.detail(describe(holder));
            }
            Err(failure.hint("end those, or use --lazy"))
        }
        Err(DetachError::StillFlushing(pid)) => Err(Failure::new(
            1,
            format!("{shown} is unmounted, but process {pid} has not completed the trace yet"),
        )),
        Err(DetachError::Refused(error)) => {
            Err(Failure::new(1, format!("cannot unmount {shown}: {error}")))
        }
    }
}

fn describe(holder: &Holder) -> String {
    let command = flowtrace_render::units::shorten(&holder.command, 60);
    format!("in use by {command} (pid {}): {}", holder.pid, holder.holds)
}
