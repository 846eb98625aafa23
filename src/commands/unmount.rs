//! `flowtrace unmount`: end a mount session.

use std::path::PathBuf;
use std::process::ExitCode;

use flowtrace_tracer::session::{DetachError, Detached, detach};

use flowtrace_schema::quote_argv;

use super::Outcome;
use crate::failure::Failure;

/// Unmount a traced view and complete its trace
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the view is mounted
    mountpoint: PathBuf,
    /// Take the view away now, even if something uses it; the trace ends when that does
    #[arg(long)]
    lazy: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    // This process must not hold what it is to release.
    let mountpoint = std::path::absolute(&args.mountpoint).unwrap_or(args.mountpoint.clone());
    let _ = std::env::set_current_dir("/");
    let shown = args.mountpoint.display();
    match detach(&mountpoint, args.lazy) {
        Ok(Detached::Completed(Some(trace))) => {
            let trace = quote_argv([trace.as_os_str().as_encoded_bytes()]);
            let trace = trace.text();
            eprintln!("flowtrace: {trace} is complete · next: flowtrace summary {trace}");
            Ok(ExitCode::SUCCESS)
        }
        Ok(Detached::Completed(None)) => Ok(ExitCode::SUCCESS),
        Ok(Detached::DaemonWasDead) => {
            eprintln!(
                "flowtrace: {shown} is unmounted; its daemon had died before, so the trace ends \
                 where that happened"
            );
            Ok(ExitCode::SUCCESS)
        }
        Err(DetachError::NotMounted(path)) => Err(Failure::usage(format!(
            "{} is not a mounted view of flowtrace",
            path.display()
        ))),
        Err(DetachError::Busy(holders)) => {
            let mut failure = Failure::new(1, format!("cannot unmount {shown}: it is in use"));
            for holder in holders {
                let holder = format!(
                    "held by {} (pid {}): {}",
                    super::run::shorten(&holder.command),
                    holder.pid,
                    holder.holds
                );
                failure = failure.detail(holder);
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
