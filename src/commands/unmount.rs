//! `flowtrace unmount`: end a mount session.

use std::path::PathBuf;
use std::process::ExitCode;

use flowtrace_tracer::session::{DetachError, detach};

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
    let shown = args.mountpoint.display();
    match detach(&args.mountpoint, args.lazy) {
        Ok(trace) => {
            if let Some(trace) = trace {
                let trace = trace.display();
                eprintln!("flowtrace: {trace} is complete · next: flowtrace summary {trace}");
            }
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
                    holder.command, holder.pid, holder.holds
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
