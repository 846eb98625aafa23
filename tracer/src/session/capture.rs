//! `flowtrace capture`: packets alone, while a command runs or until a signal ends the capture.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use flowtrace_schema::{
    FileLayer, Loss, ProcessLayer, Record, RunRecord, Summary, Text, quote_argv,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::program::find_program;
use super::recorder_process::RecorderProcess;
use super::recording::{HOST, RUN, Recording};
use super::signals::{self, Before, Got, SignalForwarder};
use super::{End, Error, Result, origin};
use crate::net::live::{Live, LiveOptions, LiveReport, Refused};

/// Options of a capture.
#[derive(Clone, Debug)]
pub struct CaptureOptions {
    /// Options of the packet capture.
    pub live: LiveOptions,
    /// The trace to write.
    pub output: PathBuf,
    /// True if an older trace there is removed; otherwise it is kept beside the new one.
    pub replace: bool,
    /// Store passwords and keys of command lines, instead of masking them.
    pub keep_secrets: bool,
    /// The command to run during the capture; if empty, a signal ends the capture.
    pub command: Vec<OsString>,
    /// Time limit, after which the command is ended.
    pub limit: Option<Duration>,
}

/// Result of a capture.
#[derive(Debug)]
pub struct CaptureReport {
    /// Totals of the capture.
    pub live: LiveReport,
    /// End of the command.
    pub end: Option<End>,
    /// True if the command was ended because the time was over.
    pub is_over_time: bool,
    /// Summary of the trace.
    pub trace: Summary,
}

/// Interval of the checks for the end of the time and of the command.
const POLL: Duration = Duration::from_millis(20);
/// Time that a command may take to end when the time is over.
const PATIENCE: Duration = Duration::from_secs(5);

/// Captures packets. `begun` gets the interfaces that cannot be captured, once all others are. Call it while
/// the process has one thread.
///
/// # Errors
/// If nothing can be captured, the trace cannot be written, or the command cannot be run.
pub fn capture(
    options: &CaptureOptions,
    begun: &mut dyn FnMut(Vec<Refused>),
) -> Result<CaptureReport> {
    let program = options.command.first().map(|name| find_program(name));
    let program = program.transpose()?;
    let cwd = std::env::current_dir().map_err(Error::system("find the working directory"))?;
    // Signals that end this process end the capture; they stay pending until the capture takes them.
    let before = signals::block().map_err(Error::errno("block signals"))?;
    let process = RecorderProcess::start()?;
    let recording = Recording::start_in(
        process,
        &options.output,
        options.replace,
        options.keep_secrets,
    )?;
    let command = options.command.iter().map(|a| a.as_encoded_bytes());
    recording.recorder.record(Record::Run(Box::new(RunRecord {
        id: RUN,
        host: HOST,
        command: (!options.command.is_empty()).then(|| quote_argv(command)),
        cwd: Text::from(cwd.as_path()),
        version: env!("CARGO_PKG_VERSION"),
        file_layer: FileLayer::None,
        process_layer: ProcessLayer::None,
    })));
    let (live, refused) = Live::start(&options.live, HOST, recording.clock, &recording.recorder);
    if !live.is_capturing() {
        live.stop();
        recording.discard();
        let reasons: Vec<_> = refused
            .iter()
            .map(|refused| format!("{}: {}", refused.interface, refused.reason))
            .collect();
        return Err(Error::system("capture packets")(io::Error::other(
            reasons.join("; "),
        )));
    }
    recording
        .recorder
        .lost(Loss::NotCaptured, refused.len() as u64);
    recording.recorder.settle();
    begun(refused);
    let forwarder = program
        .as_ref()
        .map(|_| SignalForwarder::in_front())
        .transpose();
    let forwarder = forwarder.map_err(Error::system("start a process"))?;
    let child = program.map(|program| start(&program, options, before));
    let ended = child.transpose().and_then(|child| {
        recording.older().settle();
        wait(child.zip(forwarder), options.limit)
    });
    let live = live.stop();
    let (end, is_over_time) = match ended {
        Ok(ended) => ended,
        Err(source) => {
            recording.discard();
            let program = options.command[0].to_string_lossy().into_owned();
            return Err(Error::NotExecutable { program, source });
        }
    };
    let (code, signal) = match end {
        Some(End::Exited(code)) => (Some(code), None),
        Some(End::Killed(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    Ok(CaptureReport {
        live,
        end,
        is_over_time,
        trace: recording.finish(code, signal),
    })
}

#[expect(unsafe_code)]
fn start(program: &std::path::Path, options: &CaptureOptions, before: Before) -> io::Result<Child> {
    let mut command = Command::new(program);
    command
        .arg0(&options.command[0])
        .args(&options.command[1..]);
    // SAFETY: the closure makes nothing but system calls, which are safe between fork and exec.
    unsafe {
        command.pre_exec(move || {
            before.restore()?;
            origin::restore();
            Ok(())
        });
    }
    command.spawn()
}

/// Waits for the end of the command, the end of the time, or a signal that ends this process. When the time
/// is over, the command is ended; the second value is true then.
fn wait(
    mut child: Option<(Child, SignalForwarder)>,
    limit: Option<Duration>,
) -> io::Result<(Option<End>, bool)> {
    let begin = Instant::now();
    // Time at which the command was asked to end.
    let mut asked: Option<Instant> = None;
    let ending = [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ];
    let handled = signals::handled();
    loop {
        if let Some((child, _)) = &mut child
            && let Some(status) = child.try_wait()?
        {
            let end = match (status.code(), status.signal()) {
                (Some(code), _) => End::Exited(code),
                (None, signal) => End::Killed(signal.unwrap_or(0)),
            };
            return Ok((Some(end), asked.is_some()));
        }
        if limit.is_some_and(|limit| begin.elapsed() >= limit) {
            let Some((child, _)) = &child else {
                return Ok((None, false));
            };
            let signal = match asked {
                None => Some(Signal::SIGTERM),
                Some(at) => (at.elapsed() >= PATIENCE).then_some(Signal::SIGKILL),
            };
            if let Some(signal) = signal {
                asked.get_or_insert_with(Instant::now);
                let _ = kill(Pid::from_raw(child.id() as i32), signal);
            }
        }
        let Some(got @ Got { signal, .. }) = signals::wait_at_most(&handled, POLL) else {
            continue;
        };
        match &child {
            None if ending.contains(&signal) => return Ok((None, false)),
            Some((child, forwarder)) if forwarder.is_for_us_alone(got) => {
                let _ = kill(Pid::from_raw(child.id() as i32), signal);
            }
            _ => {}
        }
    }
}
