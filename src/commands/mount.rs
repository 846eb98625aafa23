//! `flowtrace mount`: a traced mount of a directory.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use flowtrace_tracer::session::{Attach, AttachOptions};

use crate::failure::{Failure, OWN_FAILURE, Outcome};
use crate::{conclude, output, seeing};

/// Mount a directory for tracing; all calls through the mount are recorded
///
/// Calls that are made through the path of the directory itself, or were open before, are not seen.
/// Stays in the background until `flowtrace unmount MOUNTPOINT`, which completes the trace.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  flowtrace mount /data /mnt/traced -o data.db
  (cd /mnt/traced && ./analysis.sh)
  flowtrace unmount /mnt/traced && flowtrace summary data.db")]
pub(crate) struct Args {
    /// Directory to trace
    source: PathBuf,
    /// Existing directory at which the traced mount appears
    mountpoint: PathBuf,
    /// Trace file to write
    #[arg(short, long, default_value = flowtrace_schema::DEFAULT_TRACE, value_parser = output::ending::only(output::ending::TRACE))]
    output: PathBuf,
    /// Remove an older trace, instead of keeping it as FILE.old
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    seeing: seeing::Args,
    /// Rate at which to record counters of the machine (CPUs, memory, disks, network), a second; 0: never
    #[arg(long, value_name = "HZ", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=10))]
    host_sample: u32,
    /// Store passwords and keys of command lines as they are: otherwise they are masked, and counted
    #[arg(long)]
    keep_secrets: bool,
    /// Follow processes by the kernel's announcements alone, even where more can be had (for tests)
    #[arg(long, hide = true)]
    announced: bool,
    /// Stay in the foreground
    #[arg(short, long)]
    foreground: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let seeing = args.seeing.seeing()?;
    let options = AttachOptions {
        cwd: std::env::current_dir().unwrap_or_default(),
        // The daemon leaves the working directory.
        source: output::resolved(&args.source),
        mountpoint: output::resolved(&args.mountpoint),
        output: output::resolved(&args.output),
        replace: args.force,
        keep_secrets: args.keep_secrets,
        seeing,
        host_hertz: args.host_sample,
        announced: args.announced,
    };
    if args.foreground {
        let attach = Attach::start(&options).map_err(Failure::from)?;
        if let Some(kept) = attach.kept() {
            conclude::say_kept(&kept);
        }
        message!(
            "flowtrace: {} is traced at {}; end with Ctrl-C or flowtrace unmount",
            options.source.display(),
            attach.mountpoint().display()
        );
        if let Some(how) = attach.serve().trace.displaced {
            return Err(conclude::displaced(&options.output, how));
        }
        conclude::say_unrecorded(&options.output);
        conclude::conclude(&options.output, true)?;
        return Ok(ExitCode::SUCCESS);
    }
    in_background(&options)
}

/// Forks the daemon and waits until its mount is ready, or until it reports why there is none.
fn in_background(options: &AttachOptions) -> Outcome {
    let system = |what: &str, e: std::io::Error| Failure::new(OWN_FAILURE, format!("{what}: {e}"));
    let (mut ours, theirs) =
        UnixStream::pair().map_err(|e| system("cannot make a socket pair", e))?;
    match flowtrace_tracer::session::fork_daemon() {
        Err(e) => Err(system("cannot start the daemon", e)),
        Ok(flowtrace_tracer::session::Fork::Parent) => {
            drop(theirs);
            let mut answer = Vec::new();
            ours.read_to_end(&mut answer)
                .map_err(|e| system("cannot hear from the daemon", e))?;
            match answer.split_first() {
                Some((0, kept)) => {
                    if !kept.is_empty() {
                        conclude::say_kept(Path::new(OsStr::from_bytes(kept)));
                    }
                    message!(
                        "flowtrace: {} is traced at {}; flowtrace unmount {} completes {}",
                        options.source.display(),
                        options.mountpoint.display(),
                        options.mountpoint.display(),
                        options.output.display()
                    );
                    Ok(ExitCode::SUCCESS)
                }
                Some((&code, message)) => Err(Failure::new(code, String::from_utf8_lossy(message))),
                None => Err(Failure::new(
                    OWN_FAILURE,
                    "the daemon ended before the mount was ready",
                )),
            }
        }
        Ok(flowtrace_tracer::session::Fork::Daemon) => {
            drop(ours);
            daemon(options, theirs)
        }
    }
}

fn daemon(options: &AttachOptions, mut ready: UnixStream) -> Outcome {
    match Attach::start(options).map_err(Failure::from) {
        Ok(attach) => {
            let _ = ready.write_all(&[0]);
            let kept = attach.kept().unwrap_or_default();
            let _ = ready.write_all(kept.as_os_str().as_bytes());
            drop(ready);
            // Nobody reads messages here; rules that could not be stored are inferred by readers.
            if attach.serve().trace.displaced.is_none() {
                let _ = conclude::conclude(&options.output, false);
            }
        }
        Err(failure) => {
            let _ = ready.write_all(&[failure.code()]);
            let _ = ready.write_all(failure.to_string().as_bytes());
        }
    }
    Ok(ExitCode::SUCCESS)
}
