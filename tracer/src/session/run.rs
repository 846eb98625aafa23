//! `flowtrace run`: trace one command from its start to the end of its last process.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use flowtrace_schema::{Loss, is_system_path};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::geteuid;

use super::directory::{TracedPath, open_all};
use super::inherited::Inherited;
use super::launch::{Calls, Plan};
use super::mounts::Mounts;
use super::program::find_program;
use super::recorder_process::RecorderProcess;
use super::recording::{HOST, RUN, Recording};
use super::seeing::Layer;
use super::signals::{self, SignalForwarder};
use super::{Error, Result, limits, nested};
use crate::kernel::{self, Scheduler};
use crate::net::live::Live;
use crate::proc;
use crate::proc::lifetimes::End;
use crate::stacks;

mod coverage;
mod job;
mod notice;
mod options;
mod report;
mod setup;
mod traced;
mod watched;

use job::Job;
pub use notice::{Coverage, Notice};
pub use options::{Following, RunOptions};
pub use report::{Background, RunReport};
use setup::{Run, Started};
use watched::{CallRing, EbpfEvents};

/// Runs a command under trace. Call it while the process has one thread.
///
/// # Errors
/// If the command never ran. Later errors are in the report.
pub fn run(options: &RunOptions, notify: &mut dyn FnMut(Notice)) -> Result<RunReport> {
    let suits = options.layer == Layer::Auto && kernel_layer_suits(options);
    if suits && watched::may_be_reported() {
        match run_by(options, Layer::Kernel, false, notify) {
            // The command has not begun.
            Err(Error::KernelLayer(_)) => {}
            result => return result,
        }
    }
    run_by(options, options.layer, suits, notify)
}

/// True if the kernel layer records what these options want.
fn kernel_layer_suits(options: &RunOptions) -> bool {
    // Of files of the machine only a mount shows every call.
    let is_of_machine = |directory: &PathBuf| {
        let path = directory.canonicalize().unwrap_or_default().join("");
        path == Path::new("/") || is_system_path(path.as_os_str().as_bytes())
    };
    watched::are_wanted(options, false, false)
        && !(options.without_calls || options.seeing.needs_mount())
        && !options.directories.iter().any(is_of_machine)
}

/// Runs the command with this source of file calls. `lacks_ebpf`: the kernel layer would be better.
fn run_by(
    options: &RunOptions,
    layer: Layer,
    lacks_ebpf: bool,
    notify: &mut dyn FnMut(Notice),
) -> Result<RunReport> {
    proc::near::begin();
    let program = find_program(&options.command[0])?;
    if !proc::numbers_agree() {
        return Err(Error::ForeignProc);
    }
    if layer == Layer::Kernel && !options.bare && !geteuid().is_root() {
        // Before anything is made or replaced, because this is mostly refused.
        kernel::try_calls().map_err(|error| Error::KernelLayer(error.to_string()))?;
    }
    let cwd = std::env::current_dir().map_err(Error::system("find the working directory"))?;
    let asked = match options.directories.as_slice() {
        [] => vec![cwd.clone()],
        directories => directories.to_vec(),
    };
    let by_kernel = layer == Layer::Kernel && !options.bare;
    let unmounted = asked.iter().filter(|_| by_kernel);
    let unmounted: Vec<_> = unmounted
        .map(|path| TracedPath::of(path))
        .collect::<Result<_>>()?;
    let opened = match options.mount && !by_kernel {
        true => open_all(&asked),
        false => Ok(Default::default()),
    };
    let ((directories, in_mounts), refused) = match opened {
        // The user named no directory: what can be recorded without one is.
        Err(error @ Error::Directory { .. }) if options.directories.is_empty() => {
            (Default::default(), Some(error.to_string()))
        }
        opened => (opened?, None),
    };
    for directory in in_mounts {
        notify(Notice::SeenAlready { directory });
    }
    let inherited = Inherited::find(&directories, by_kernel);
    let permission = options.seeing.permission();
    let mounts = directories
        .iter()
        .map(|directory| directory.new_mount(&directory.path, permission));
    let plan = Plan {
        program,
        arguments: options.command.clone(),
        mounts: mounts
            .collect::<std::io::Result<_>>()
            .map_err(Error::system("inspect the filesystem to trace"))?,
        signals: signals::block().map_err(Error::errno("block signals"))?,
        environment: match &options.stacks {
            Some(stacks) if stacks.python => vec![("PYTHONPERFSUPPORT", "1")],
            _ => Vec::new(),
        },
    };
    let forwarder = match options.detach {
        true => Ok(SignalForwarder::behind()),
        false => SignalForwarder::in_front(),
    };
    let forwarder = Arc::new(forwarder.map_err(Error::system("start a process"))?);
    let recorder = match options.bare {
        true => None,
        false => Some(RecorderProcess::start()?),
    };
    let mut mounts = Mounts::make(&plan, &directories, options.seeing.transport, notify)?;
    mounts.refused = mounts.refused.or(refused);
    if let Err(error) = limits::lift() {
        mounts.child.abandon();
        return Err(Error::system("trace here")(error));
    }
    if let Some(limit) = limits::few_descriptors() {
        notify(Notice::FewDescriptors { limit });
    }
    let run = Run {
        options,
        directories: &directories,
        unmounted: &unmounted,
        cwd: &cwd,
        program: &plan.program,
        forwarder,
        offers: Arc::default(),
        by_kernel,
        lacks_ebpf,
        rings: Arc::default(),
    };
    let report = match recorder {
        None => run.bare(mounts, inherited),
        Some(recorder) => run.recorded(recorder, mounts, inherited, notify),
    };
    run.forwarder.end();
    report
}

impl Run<'_> {
    /// Runs the command in its mounts, without recording.
    fn bare(&self, mut mounts: Mounts, mut inherited: Inherited) -> Result<RunReport> {
        let start = mounts.start(self.cwd, &inherited.streams, self.directories);
        let served = self
            .serving(&mounts)
            .serve(std::mem::take(&mut mounts.mounted), None)?;
        self.go(&mut mounts, &start, &mut inherited, Calls::Free)
            .map_err(Error::system("start the command"))?;
        signals::pass_on(mounts.child.pid, None, Arc::clone(&self.forwarder))
            .map_err(Error::system("pass on signals"))?;
        let end = loop {
            match waitpid(mounts.child.pid, None) {
                Ok(WaitStatus::Exited(_, code)) => break End::Exited(code),
                Ok(WaitStatus::Signaled(_, signal, _)) => break End::Killed(signal as i32),
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => return Err(Error::errno("wait for the command")(errno)),
            }
        };
        inherited.settle();
        mounts.unmount();
        served.join();
        self.must_have_run(&mut mounts, Some(end))?;
        Ok(RunReport {
            end,
            trace: None,
            background: None,
        })
    }

    fn recorded(
        &self,
        recorder: RecorderProcess,
        mounts: Mounts,
        inherited: Inherited,
        notify: &mut dyn FnMut(Notice),
    ) -> Result<RunReport> {
        let root = mounts.child.pid;
        let stacks = self.options.stacks.as_ref();
        let stacks = match stacks.map(|_| stacks::Opened::for_command(root.as_raw() as u32)) {
            Some(Err(error)) => {
                mounts.child.abandon();
                return Err(Error::Stacks(error));
            }
            opened => opened.and_then(std::result::Result::ok),
        };
        let without_ptrace = watched::without_ptrace(self.options);
        // At the same time as the making of the trace: either takes some ms.
        let (topology, calls) = (self.options.topology, self.by_kernel);
        let ring = calls.then_some(CallRing(self.options.ring_kib));
        let start = move || EbpfEvents::start(root.as_raw() as u32, topology, ring);
        let events = watched::are_reported(self.options, calls, without_ptrace)
            .then(|| thread::spawn(start));
        let RunOptions {
            replace,
            keep_secrets,
            ..
        } = *self.options;
        let output = &self.options.output;
        let recording = match Recording::start_in(recorder, output, replace, keep_secrets) {
            Ok(recording) => recording,
            Err(error) if nested::is_outer_trace(&self.options.output, &error) => {
                let trace = self.options.output.clone();
                notify(Notice::OuterTrace { trace });
                return self.bare(mounts, inherited);
            }
            Err(error) => {
                mounts.child.abandon();
                return Err(error);
            }
        };
        let live = self.options.net.as_ref().map(|net| {
            let (live, refused) = Live::start(net, HOST, recording.clock, &recording.recorder);
            recording
                .recorder
                .lost(Loss::NotCaptured, refused.len() as u64);
            refused
                .into_iter()
                .map(Notice::NotCaptured)
                .for_each(&mut *notify);
            live
        });
        let namespaces = live.as_ref().map(Live::namespaces);
        // This, too, takes the kernel some ms.
        let scheduler = (calls && self.options.sample_hertz > 0)
            .then(|| Scheduler::open().ok())
            .flatten();
        let events = events.and_then(|events| events.join().ok().flatten());
        // Lifetimes alone are less than ptrace reports.
        let events = events.filter(|events| events.is_all() || without_ptrace && !calls);
        let stacks = stacks.zip(self.options.stacks.as_ref());
        let stacks = stacks.map(|(opened, options)| {
            let (clock, recorder) = (recording.clock, recording.recorder.clone());
            let traced = events.as_ref().map(EbpfEvents::processes);
            opened.record(RUN, clock, recorder, options, traced)
        });
        let stacks = match stacks.transpose() {
            Ok(stacks) => stacks,
            Err(error) => {
                mounts.child.abandon();
                live.map(Live::stop);
                recording.discard();
                return Err(Error::Stacks(error));
            }
        };
        let started = Started {
            mounts,
            inherited,
            recording: &recording,
            namespaces,
            scheduler,
            job: Job {
                root,
                notify,
                command_end: None,
                detach: self.options.detach,
                left: false,
            },
        };
        let recorded = self.record(started, events);
        let end_ns = recording.clock.now();
        // The names of functions are recorded now, after the end of the run.
        drop(stacks);
        if let Some(live) = live {
            live.stop();
        }
        match recorded {
            Ok((end, background)) => {
                let (code, signal) = match end {
                    End::Exited(code) => (Some(code), None),
                    End::Killed(signal) => (None, Some(signal)),
                };
                Ok(RunReport {
                    end,
                    trace: Some(recording.finish_at(end_ns, code, signal)),
                    background,
                })
            }
            Err(error) => {
                recording.discard();
                Err(error)
            }
        }
    }

    fn record(
        &self,
        started: Started<'_>,
        events: Option<EbpfEvents>,
    ) -> Result<(End, Option<Background>)> {
        let root = started.job.root;
        if self.by_kernel && events.as_ref().is_none_or(|events| events.calls.is_none()) {
            started.mounts.child.abandon();
            return Err(Error::KernelLayer(
                "it needs eBPF programs, which the kernel refuses".into(),
            ));
        }
        if events.is_some() || !self.options.following.may_use_ptrace() {
            return self.watched(started, None, events);
        }
        match proc::seize(root.as_raw() as u32) {
            Ok(()) => self.traced(started),
            Err(error) => {
                let reason = traced::refused(root, &error);
                self.watched(started, Some(reason), None)
            }
        }
    }
}
