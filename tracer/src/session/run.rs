//! `flowtrace run`: trace one command from its start to the end of its last process.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use flowtrace_schema::{
    FileLayer, Loss, ProcessLayer, Record, RunRecord, Summary, Text, quote_argv,
};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::directory::{Directory, open_all};
use super::inherited::Inherited;
use super::launch::{Plan, Start, find_program};
use super::recording::{HOST, RUN, Recording, own_files};
use super::seeing::Seeing;
use super::serving::{Served, Serving};
use super::views::Views;
use super::{Error, Result, limits, signals};
use crate::callers::{Callers, TaskTable};
use crate::fs::Offers;
use crate::proc::channels::Registry;
use crate::proc::lifetimes::{End, LeftBehind, Lifetimes, Watcher};
use crate::proc::observer::ChannelLookup;
use crate::proc::reading::Image;
use crate::proc::sampler::Sampler;
use crate::proc::watched::{Watched, Whose};
use crate::proc::wiring::Wiring;
use crate::proc::{self, Upids, children};

/// What to trace, and where to.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The command and its arguments; at least one.
    pub command: Vec<OsString>,
    /// Directories to trace; the working directory when empty.
    pub directories: Vec<PathBuf>,
    /// The trace to write.
    pub output: PathBuf,
    /// Whether an older trace there may be replaced.
    pub replace: bool,
    /// How files are seen.
    pub seeing: Seeing,
    /// Samples of each thread a second; 0: none.
    pub sample_hertz: u32,
    /// Samples of the machine's counters a second; 0: none.
    pub host_hertz: u32,
    /// Whether system calls on names and channels are stopped: files outside the directories, and
    /// channels that open and close between two execs.
    pub topology: bool,
    /// Mount the same views and record nothing: the yardstick for what recording costs.
    pub bare: bool,
    /// Follow processes without ptrace, so that those of the command may trace each other.
    pub no_ptrace: bool,
    /// Record the processes and no file call: the yardstick for what recording the calls costs.
    pub without_calls: bool,
}

/// What the user should hear while the run goes on.
#[derive(Clone, Debug)]
pub enum Notice {
    /// A view could not be mounted over its own path.
    OtherPath {
        /// The directory.
        directory: PathBuf,
        /// Where its view is instead.
        view: PathBuf,
        /// Why.
        reason: String,
    },
    /// File calls cannot be seen at all.
    NoFiles {
        /// Why.
        reason: String,
    },
    /// Processes are not followed by ptrace.
    NotTraced {
        /// Why not; `None` when that was asked for.
        refused: Option<String>,
        /// How they are followed instead.
        layer: ProcessLayer,
        /// Whether what each process used is told by the kernel.
        has_costs: bool,
    },
    /// The command has ended, and processes it left behind have not.
    StillRunning {
        /// Which.
        processes: Vec<LeftBehind>,
    },
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// How the command ended.
    pub end: End,
    /// What became of the trace; `None` without recording.
    pub trace: Option<Summary>,
}

/// Runs a command under trace. Call it while the process has one thread.
///
/// # Errors
/// When the command never ran. What goes wrong later is told by the report.
pub fn run(options: &RunOptions, notify: &mut dyn FnMut(Notice)) -> Result<RunReport> {
    let program = find_program(&options.command[0])?;
    let cwd = std::env::current_dir().map_err(Error::system("find the working directory"))?;
    let asked = if options.directories.is_empty() {
        vec![cwd.clone()]
    } else {
        options.directories.clone()
    };
    let directories = open_all(&asked)?;
    let inherited = Inherited::find(&directories);
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
        signal_mask: signals::block().map_err(Error::errno("block signals"))?,
        picks_calls: options.topology && !options.bare && !options.no_ptrace,
    };
    let views = Views::mount(&plan, &directories, notify)?;
    if let Err(error) = limits::lift() {
        views.child.abandon();
        return Err(Error::system("trace here")(error));
    }
    let run = Run {
        options,
        directories: &directories,
        cwd: &cwd,
        program: &plan.program,
        offers: Arc::default(),
    };
    if options.bare {
        run.bare(views, inherited)
    } else {
        run.recorded(views, inherited, notify)
    }
}

struct Run<'a> {
    options: &'a RunOptions,
    directories: &'a [Directory],
    cwd: &'a Path,
    program: &'a Path,
    offers: Arc<Offers>,
}

impl Run<'_> {
    /// The command in its views, with nothing recorded.
    fn bare(&self, mut views: Views, mut inherited: Inherited) -> Result<RunReport> {
        let start = views.start(self.cwd, &inherited.streams, self.directories);
        let served = self
            .serving(&views)
            .serve(std::mem::take(&mut views.mounted), None)?;
        self.go(&mut views, &start, &mut inherited, false)
            .map_err(Error::system("start the command"))?;
        signals::pass_on(views.child.pid, None).map_err(Error::system("pass on signals"))?;
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
        self.exec_failure(&mut views)?;
        Ok(RunReport { end, trace: None })
    }

    /// Starts the command; `traced`: a tracer answers for the calls that a filter picks.
    fn go(
        &self,
        views: &mut Views,
        start: &Start,
        inherited: &mut Inherited,
        traced: bool,
    ) -> io::Result<()> {
        inherited.offer(&self.offers, views.child.pid.as_raw() as u32);
        inherited.opened(views.child.prepare(start)?);
        self.offers.withdraw();
        views.child.go(traced)
    }

    fn recorded(
        &self,
        views: Views,
        inherited: Inherited,
        notify: &mut dyn FnMut(Notice),
    ) -> Result<RunReport> {
        let recording = match Recording::start(&self.options.output, self.options.replace) {
            Ok(recording) => recording,
            Err(error) => {
                views.child.abandon();
                return Err(error);
            }
        };
        match self.record(views, inherited, &recording, notify) {
            Ok(end) => {
                let (code, signal) = match end {
                    End::Exited(code) => (Some(code), None),
                    End::Killed(signal) => (None, Some(signal)),
                };
                Ok(RunReport {
                    end,
                    trace: Some(recording.finish(code, signal)),
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
        views: Views,
        inherited: Inherited,
        recording: &Recording,
        notify: &mut dyn FnMut(Notice),
    ) -> Result<End> {
        let root = views.child.pid;
        if self.options.no_ptrace {
            return self.watched(views, inherited, recording, None, notify);
        }
        match proc::seize(root.as_raw() as u32) {
            Ok(()) => self.traced(views, inherited, recording, notify),
            Err(error) => match refused_to_trace(root, &error) {
                Ok(reason) => self.watched(views, inherited, recording, Some(reason), notify),
                Err(error) => {
                    views.child.abandon();
                    Err(error)
                }
            },
        }
    }

    /// Follows the command by ptrace; it is seized already.
    fn traced(
        &self,
        mut views: Views,
        mut inherited: Inherited,
        recording: &Recording,
        notify: &mut dyn FnMut(Notice),
    ) -> Result<End> {
        let root = views.child.pid;
        let start = views.start(self.cwd, &inherited.streams, self.directories);
        let table = Arc::new(TaskTable::new());
        let served = self.serve(&mut views, recording, table.clone(), ProcessLayer::Ptrace)?;
        let mut lifetimes = Lifetimes::new(
            root.as_raw() as u32,
            HOST,
            recording.clock,
            recording.recorder.clone(),
            Arc::new(Upids::new()),
            table,
        );
        let channels = Registry::new(HOST, recording.recorder.clone());
        let channels = Arc::new(Mutex::new(channels));
        let sampler = self.sampler(recording, channels.clone());
        if let Some(sampler) = &sampler {
            lifetimes.observe(Box::new(sampler.feed()));
        }
        let sampler_ns = sampler.as_ref().map(Sampler::used_ns);
        let host_sampler = recording.host_sampler(self.options.host_hertz, sampler_ns);
        lifetimes.observe(Box::new(Wiring::new(
            HOST,
            recording.recorder.clone(),
            channels,
            served.files(),
            served.views().iter().map(|view| view.at.clone()).collect(),
            self.options.topology,
        )));
        self.go(&mut views, &start, &mut inherited, true)
            .map_err(Error::system("start the command"))?;
        inherited.count(&recording.recorder);
        signals::pass_on(root, Some(lifetimes.living()))
            .map_err(Error::system("pass on signals"))?;
        let end = lifetimes.follow(&mut Job { root, notify });
        drop(sampler);
        drop(host_sampler);
        self.conclude(views, inherited, served, end)
    }

    /// Follows the command without ptrace, which was not wanted or, with the reason, refused.
    fn watched(
        &self,
        mut views: Views,
        mut inherited: Inherited,
        recording: &Recording,
        refused: Option<String>,
        notify: &mut dyn FnMut(Notice),
    ) -> Result<End> {
        let root = views.child.pid;
        let start = views.start(self.cwd, &inherited.streams, self.directories);
        children::adopt_orphans().map_err(Error::system("become the parent of orphans"))?;
        let recorder = recording.recorder.clone();
        let watched = Watched::start(Whose::Ours, HOST, recording.clock, recorder);
        notify(Notice::NotTraced {
            refused,
            layer: watched.layer(),
            has_costs: watched.has_costs(),
        });
        let served = self.serve(&mut views, recording, watched.clone(), watched.layer())?;
        let arguments = self.options.command.iter();
        let argv = arguments.flat_map(|a| [a.as_encoded_bytes(), b"\0"].concat());
        let exe = self.program.canonicalize().ok();
        let image = Image {
            exe: exe.map(|path| Text::from(path.as_path())),
            argv: Some(argv.collect()),
            cwd: Some(Text::from(start.directory.as_path())),
        };
        watched.launch(root.as_raw() as u32, image);
        let host_sampler = recording.host_sampler(self.options.host_hertz, None);
        self.go(&mut views, &start, &mut inherited, false)
            .map_err(Error::system("start the command"))?;
        inherited.count(&recording.recorder);
        signals::pass_on(root, Some(watched.living())).map_err(Error::system("pass on signals"))?;
        let end = watched.follow(root.as_raw() as u32, &mut Job { root, notify });
        drop(host_sampler);
        self.conclude(views, inherited, served, end)
    }

    /// Starts the daemons behind the views, and records what is going to be recorded.
    fn serve(
        &self,
        views: &mut Views,
        recording: &Recording,
        callers: Arc<dyn Callers>,
        layer: ProcessLayer,
    ) -> Result<Served> {
        let mounted = std::mem::take(&mut views.mounted);
        let recorded = !self.options.without_calls;
        let served = self
            .serving(views)
            .serve(mounted, recorded.then_some((recording, callers)))?;
        self.describe(recording, views, &served, layer);
        // From here on whoever opens the trace learns what is, or was, being recorded.
        recording.recorder.settle();
        Ok(served)
    }

    /// The last process has ended.
    fn conclude(
        &self,
        mut views: Views,
        inherited: Inherited,
        served: Served,
        end: io::Result<Option<End>>,
    ) -> Result<End> {
        let end = end.map_err(Error::system("wait for the command"))?;
        inherited.settle();
        views.unmount();
        served.join();
        self.exec_failure(&mut views)?;
        end.ok_or_else(|| Error::system("wait for the command")(io::Error::other("it vanished")))
    }

    /// Looks at what the threads do. A run goes on without.
    fn sampler(&self, recording: &Recording, channels: Arc<dyn ChannelLookup>) -> Option<Sampler> {
        let hertz = self.options.sample_hertz;
        let (clock, recorder) = (recording.clock, recording.recorder.clone());
        let start = || Sampler::start(hertz, clock, recorder, channels);
        (hertz > 0).then(start).and_then(|sampler| {
            let failed = |_: &std::io::Error| recording.recorder.lost(Loss::ThreadsNotSampled, 1);
            sampler.inspect_err(failed).ok()
        })
    }

    fn serving(&self, views: &Views) -> Serving<'_> {
        Serving {
            directories: self.directories,
            hidden: own_files(&self.options.output),
            seeing: &self.options.seeing,
            namespace: views.namespace,
            offers: Arc::clone(&self.offers),
        }
    }

    fn describe(
        &self,
        recording: &Recording,
        views: &Views,
        served: &Served,
        process_layer: ProcessLayer,
    ) {
        let first = served.views().first();
        let file_layer = first.map_or(FileLayer::None, |view| view.session.layer());
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

    /// The command was there when we looked, and yet it could not be run.
    fn exec_failure(&self, views: &mut Views) -> Result<()> {
        let Some(source) = views.child.exec_failure() else {
            return Ok(());
        };
        let program = self.program.display().to_string();
        Err(if source.raw_os_error() == Some(libc::ENOENT) {
            // A script whose interpreter is missing, or a lost working directory.
            Error::NotFound(format!("{program} (or its interpreter)"))
        } else {
            Error::NotExecutable { program, source }
        })
    }
}

/// The command as a job of the shell that started flowtrace.
struct Job<'a> {
    root: Pid,
    notify: &'a mut dyn FnMut(Notice),
}

impl Watcher for Job<'_> {
    fn stopped(&mut self, signal: i32) {
        signals::stop_with(self.root, signal);
    }

    fn ended(&mut self, _end: End, others: Vec<LeftBehind>) {
        if !others.is_empty() {
            (self.notify)(Notice::StillRunning { processes: others });
        }
    }
}

/// Why ptrace was refused: somebody else does it already, or the system forbids it. An error if
/// flowtrace itself is in the way: then the views would be traced twice.
fn refused_to_trace(root: Pid, error: &std::io::Error) -> Result<String> {
    let own = std::process::id();
    let tracer = proc::tracer_of(root.as_raw() as u32).or_else(|| proc::tracer_of(own));
    let Some(pid) = tracer else {
        return Ok(error.to_string());
    };
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let tracer = name.trim().to_owned();
    if tracer == "flowtrace" {
        return Err(Error::NestedTracer { pid });
    }
    Ok(format!("{tracer} (pid {pid}) traces them already"))
}
