//! `flowtrace run`: trace one command from its start to the end of its last process.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use flowtrace_schema::{
    FileLayer, LaunchRecord, Loss, ProcessLayer, Record, RunRecord, Summary, Text, quote_argv,
};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::geteuid;

use super::directory::{Directory, open_all};
use super::inherited::Inherited;
use super::launch::{Calls, Outcome, Plan, Start};
use super::program::find_program;
use super::recording::{HOST, RUN, Recording, own_files};
use super::seeing::{Layer, Seeing};
use super::serving::{Served, Serving};
use super::signals::{self, Sieve};
use super::views::Views;
use super::{Error, Result, limits, nested};
use crate::callers::Callers;
use crate::fs::{Offers, Opens};
use crate::kernel::{self, Scheduler};
use crate::net::live::{Live, LiveOptions, Namespaces};
use crate::proc::environment::Wanted;
use crate::proc::lifetimes::End;
use crate::proc::{self, Living};
use crate::rings::Rings;

mod job;
mod notice;
mod traced;
mod watched;

use job::Job;
pub use notice::Notice;
use watched::Telling;

/// What to trace, and where to.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The command and its arguments; at least one.
    pub command: Vec<OsString>,
    /// Directories to trace; the working directory when empty.
    pub directories: Vec<PathBuf>,
    /// Whether to mount views of them. Without, what is known of files is what is told of opens and
    /// names, and with [`Layer::Kernel`] of reads and writes.
    pub mount: bool,
    /// The trace to write.
    pub output: PathBuf,
    /// Whether an older trace there may be replaced.
    pub replace: bool,
    /// As what a launcher started this recording.
    pub launch: Option<LaunchRecord>,
    /// How files are seen.
    pub seeing: Seeing,
    /// Samples of each thread a second; 0: none.
    pub sample_hertz: u32,
    /// Samples of the machine's counters a second; 0: none.
    pub host_hertz: u32,
    /// Whether system calls on names and channels are stopped: files outside the directories, and
    /// channels that open and close between two execs.
    pub topology: bool,
    /// The environment variables to record.
    pub environment: Wanted,
    /// Store passwords and keys of command lines, instead of masking them.
    pub keep_secrets: bool,
    /// Let go of processes that outlive the command, instead of following them to their end.
    pub detach: bool,
    /// Mount the same views and record nothing: the yardstick for what recording costs.
    pub bare: bool,
    /// Record the processes and no file call: the yardstick for what recording the calls costs.
    pub without_calls: bool,
    /// How processes are followed.
    pub following: Following,
    /// Capture packets, too.
    pub net: Option<LiveOptions>,
    /// Who tells of reads and writes.
    pub layer: Layer,
    /// Record every call on pipes and sockets, not their sums alone; with [`Layer::Kernel`].
    pub channel_calls: bool,
}

/// How the processes of a command are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Following {
    /// By programs in the kernel where these tell as much as ptrace does, else by ptrace.
    #[default]
    Best,
    /// By ptrace: each is held for a moment when it begins, runs a program and ends.
    ByPtrace,
    /// Without ptrace, in whatever way there is.
    WithoutPtrace,
}

/// How a run ended.
#[derive(Debug)]
pub struct RunReport {
    /// How the command ended.
    pub end: End,
    /// What became of the trace; `None` without recording.
    pub trace: Option<Summary>,
    /// Views that processes which were let go still use.
    pub background: Option<Background>,
}

/// The views of a run that is over, for the processes that live on in them.
#[derive(Debug)]
pub struct Background {
    views: Views,
    served: Served,
}

impl Background {
    /// Serves the views until nobody can reach them any more.
    pub fn serve(mut self) {
        self.views.unmount_when_unused();
        self.served.join();
    }
}

/// Runs a command under trace. Call it while the process has one thread.
///
/// # Errors
/// When the command never ran. What goes wrong later is told by the report.
pub fn run(options: &RunOptions, notify: &mut dyn FnMut(Notice)) -> Result<RunReport> {
    proc::near::begin();
    let program = find_program(&options.command[0])?;
    if !proc::numbers_agree() {
        return Err(Error::ForeignProc);
    }
    if options.layer == Layer::Kernel && !options.bare && !geteuid().is_root() {
        // Before anything is made or replaced: this is mostly refused.
        kernel::try_tracepoints().map_err(|error| Error::KernelLayer(error.to_string()))?;
    }
    let cwd = std::env::current_dir().map_err(Error::system("find the working directory"))?;
    let asked = match options.directories.as_slice() {
        _ if !options.mount => Vec::new(),
        [] => vec![cwd.clone()],
        directories => directories.to_vec(),
    };
    let (directories, in_views) = open_all(&asked)?;
    for directory in in_views {
        notify(Notice::SeenAlready { directory });
    }
    let everywhere = options.layer == Layer::Kernel && directories.is_empty();
    let inherited = Inherited::find(&directories, everywhere);
    let permission = options.seeing.permission();
    let views = directories
        .iter()
        .map(|directory| directory.view(&directory.path, permission));
    let plan = Plan {
        program,
        arguments: options.command.clone(),
        views: views
            .collect::<std::io::Result<_>>()
            .map_err(Error::system("inspect the filesystem to trace"))?,
        signals: signals::block().map_err(Error::errno("block signals"))?,
    };
    let sieve = match options.detach {
        true => Ok(Sieve::behind()),
        false => Sieve::in_front(),
    };
    let sieve = Arc::new(sieve.map_err(Error::system("start a process"))?);
    let views = Views::mount(&plan, &directories, options.seeing.transport, notify)?;
    if let Err(error) = limits::lift() {
        views.child.abandon();
        return Err(Error::system("trace here")(error));
    }
    if let Some(limit) = limits::few_descriptors() {
        notify(Notice::FewDescriptors { limit });
    }
    let run = Run {
        options,
        directories: &directories,
        cwd: &cwd,
        program: &plan.program,
        sieve,
        offers: Arc::default(),
        kernel: (options.layer == Layer::Kernel && !options.bare).then(Arc::default),
        rings: Arc::default(),
    };
    let report = match options.bare {
        true => run.bare(views, inherited),
        false => run.recorded(views, inherited, notify),
    };
    run.sieve.end();
    report
}

/// A command whose child waits, and what is kept of it while it runs.
struct Started<'a> {
    views: Views,
    inherited: Inherited,
    recording: &'a Recording,
    /// Where packets are captured beside our own network namespace.
    namespaces: Option<Arc<Namespaces>>,
    /// Who tells of it for the kernel layer, where it can be followed.
    scheduler: Option<Scheduler>,
    job: Job<'a>,
}

struct Run<'a> {
    options: &'a RunOptions,
    directories: &'a [Directory],
    cwd: &'a Path,
    program: &'a Path,
    /// Which signals the command is still to get.
    sieve: Arc<Sieve>,
    offers: Arc<Offers>,
    /// Where FUSE and the kernel layer meet, if that was asked for.
    kernel: Option<Arc<Opens>>,
    rings: Arc<Rings>,
}

impl Run<'_> {
    /// The command in its views, with nothing recorded.
    fn bare(&self, mut views: Views, mut inherited: Inherited) -> Result<RunReport> {
        let start = views.start(self.cwd, &inherited.streams, self.directories);
        let served = self
            .serving(&views)
            .serve(std::mem::take(&mut views.mounted), None)?;
        self.go(&mut views, &start, &mut inherited, Calls::Free)
            .map_err(Error::system("start the command"))?;
        signals::pass_on(views.child.pid, None, Arc::clone(&self.sieve))
            .map_err(Error::system("pass on signals"))?;
        let end = loop {
            match waitpid(views.child.pid, None) {
                Ok(WaitStatus::Exited(_, code)) => break End::Exited(code),
                Ok(WaitStatus::Signaled(_, signal, _)) => break End::Killed(signal as i32),
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => return Err(Error::errno("wait for the command")(errno)),
            }
        };
        inherited.settle();
        views.unmount();
        served.join();
        self.must_have_run(&mut views, Some(end))?;
        Ok(RunReport {
            end,
            trace: None,
            background: None,
        })
    }

    /// Starts the command.
    fn go(
        &self,
        views: &mut Views,
        start: &Start,
        inherited: &mut Inherited,
        calls: Calls,
    ) -> io::Result<()> {
        inherited.offer(&self.offers, views.child.pid.as_raw() as u32);
        inherited.opened(views.child.prepare(start)?);
        self.offers.withdraw();
        views.child.go(calls)
    }

    fn recorded(
        &self,
        views: Views,
        inherited: Inherited,
        notify: &mut dyn FnMut(Notice),
    ) -> Result<RunReport> {
        let root = views.child.pid;
        let without_ptrace = watched::without_ptrace(self.options);
        // Beside the making of the trace: either takes some ms.
        let (topology, calls) = (self.options.topology, self.kernel.is_some());
        let waits = self.options.sample_hertz > 0;
        let start = move || Telling::start(root.as_raw() as u32, topology, calls, waits);
        let told = watched::are_told(self.options, without_ptrace).then(|| thread::spawn(start));
        let RunOptions {
            replace,
            keep_secrets,
            ..
        } = *self.options;
        let recording = match Recording::start(&self.options.output, replace, keep_secrets) {
            Ok(recording) => recording,
            Err(error) if nested::is_outer_trace(&self.options.output, &error) => {
                let trace = self.options.output.clone();
                notify(Notice::OuterTrace { trace });
                return self.bare(views, inherited);
            }
            Err(error) => {
                views.child.abandon();
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
        let scheduler = (calls && waits).then(|| Scheduler::open().ok()).flatten();
        let told = told.and_then(|told| told.join().ok().flatten());
        // Lifetimes alone are less than what ptrace tells.
        let told = told.filter(|told| told.is_all() || without_ptrace && told.calls.is_none());
        let started = Started {
            views,
            inherited,
            recording: &recording,
            namespaces,
            scheduler,
            job: Job {
                root,
                notify,
                detach: self.options.detach,
                left: false,
            },
        };
        let recorded = self.record(started, told);
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
                    trace: Some(recording.finish(code, signal)),
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
        told: Option<Telling>,
    ) -> Result<(End, Option<Background>)> {
        let root = started.job.root;
        if told.is_some() || self.options.following == Following::WithoutPtrace {
            return self.watched(started, None, told);
        }
        match proc::seize(root.as_raw() as u32) {
            Ok(()) => self.traced(started),
            Err(error) => {
                let reason = traced::refused(root, &error);
                if self.kernel.is_none() {
                    return self.watched(started, Some(reason), None);
                }
                started.views.child.abandon();
                Err(Error::KernelLayer(format!(
                    "processes cannot be followed by ptrace ({reason})"
                )))
            }
        }
    }

    /// Starts the daemons behind the views, and records what is going to be recorded.
    fn serve(
        &self,
        started: &mut Started<'_>,
        callers: Arc<dyn Callers>,
        layer: ProcessLayer,
    ) -> Result<Served> {
        let Started {
            views, recording, ..
        } = started;
        let mounted = std::mem::take(&mut views.mounted);
        let recorded = !self.options.without_calls;
        let served = self
            .serving(views)
            .serve(mounted, recorded.then_some((*recording, callers)))?;
        self.describe(recording, views, &served, layer);
        // From here on whoever opens the trace learns what is, or was, being recorded.
        recording.recorder.settle();
        Ok(served)
    }

    /// Runs the command; signals go to those that live.
    fn go_on(
        &self,
        started: &mut Started<'_>,
        start: &Start,
        living: Arc<Living>,
        calls: Calls,
    ) -> Result<()> {
        self.go(&mut started.views, start, &mut started.inherited, calls)
            .map_err(Error::system("start the command"))?;
        let older = started.recording.older();
        if older.is_kept() {
            // Without a thread for that it is removed at the end.
            let _ = started.views.child.when_it_runs(move || older.remove());
        }
        started.inherited.count(&started.recording.recorder);
        signals::pass_on(started.job.root, Some(living), Arc::clone(&self.sieve))
            .map_err(Error::system("pass on signals"))
    }

    /// The last process has ended, or those that are left were let go.
    fn conclude(
        &self,
        started: Started<'_>,
        served: Served,
        end: io::Result<Option<End>>,
    ) -> Result<(End, Option<Background>)> {
        let vanished = || Error::system("wait for the command")(io::Error::other("it vanished"));
        let end = end.map_err(Error::system("wait for the command"))?;
        let mut views = started.views;
        started.inherited.settle();
        if started.job.left {
            let end = end.ok_or_else(vanished)?;
            return Ok((end, Some(Background { views, served })));
        }
        views.unmount();
        served.join();
        self.must_have_run(&mut views, end)?;
        Ok((end.ok_or_else(vanished)?, None))
    }

    fn serving(&self, views: &Views) -> Serving<'_> {
        Serving {
            directories: self.directories,
            hidden: own_files(&self.options.output),
            seeing: &self.options.seeing,
            namespace: views.namespace,
            offers: Arc::clone(&self.offers),
            kernel: self.kernel.clone(),
            rings: Arc::clone(&self.rings),
        }
    }

    fn describe(
        &self,
        recording: &Recording,
        views: &Views,
        served: &Served,
        process_layer: ProcessLayer,
    ) {
        let file_layer = match served.views().first() {
            Some(view) => view.session.layer(),
            None if self.kernel.is_some() => FileLayer::Kernel,
            None => FileLayer::None,
        };
        recording.recorder.record(Record::Run(Box::new(RunRecord {
            id: RUN,
            host: HOST,
            command: Some(quote_argv(
                self.options.command.iter().map(|a| a.as_encoded_bytes()),
            )),
            cwd: Text::from(self.cwd),
            version: env!("CARGO_PKG_VERSION"),
            file_layer,
            process_layer,
        })));
        if let Some(launch) = &self.options.launch {
            let launch = LaunchRecord {
                run: RUN,
                ..launch.clone()
            };
            recording.recorder.record(Record::Launch(Box::new(launch)));
        }
        for view in served.views() {
            recording.directory(view, self.options.seeing.attribute_ttl);
        }
        let seen = served.views().len();
        recording
            .recorder
            .lost(Loss::FilesNotTraced, (self.directories.len() - seen) as u64);
        if views.namespace.is_none() {
            recording.recorder.lost(Loss::PathNotSeen, seen as u64);
        }
    }

    /// An error where what ended is not the command: it could not be run, though it was there when we looked, or a
    /// signal came before.
    fn must_have_run(&self, views: &mut Views, end: Option<End>) -> Result<()> {
        let program = self.program.display().to_string();
        match (views.child.outcome(), end) {
            // A script whose interpreter is missing, or a lost working directory.
            (Outcome::Refused(source), _) if source.raw_os_error() == Some(libc::ENOENT) => {
                Err(Error::NotFound(format!("{program} (or its interpreter)")))
            }
            (Outcome::Refused(source), _) => Err(Error::NotExecutable { program, source }),
            (Outcome::Never, Some(End::Killed(signal))) => Err(Error::NeverRan { signal }),
            (Outcome::Ran | Outcome::Never, _) => Ok(()),
        }
    }
}
