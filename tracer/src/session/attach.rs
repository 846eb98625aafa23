//! `flowtrace mount`: a traced mount of a directory at a mount point, without starting a command.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowtrace_schema::{Record, RunRecord, Summary, Text};
use nix::unistd::{getegid, geteuid};

use super::directory::Directory;
use super::launch::Namespace;
use super::mounts::ReadyMount;
use super::recorder_process::RecorderProcess;
use super::recording::{HOST, RUN, Recording};
use super::seeing::Seeing;
use super::serving::{Served, Serving};
use super::trace_files::own_files;
use super::{Error, Result, limits, signals};
use crate::host::HostSampler;
use crate::mounting;
use crate::proc::environment::Wanted;
use crate::proc::tracepoints::Reported;
use crate::proc::watched::{Observers, Ready, Watched, Whose};

/// Directory to mount, and the trace to write.
#[derive(Clone, Debug)]
pub struct AttachOptions {
    /// Directory to trace.
    pub source: PathBuf,
    /// Mount point of the traced mount.
    pub mountpoint: PathBuf,
    /// Working directory of the user, for the record.
    pub cwd: PathBuf,
    /// The trace to write.
    pub output: PathBuf,
    /// True if an older trace there is removed; otherwise it is kept beside the new one.
    pub replace: bool,
    /// Store passwords and keys of command lines, instead of masking them.
    pub keep_secrets: bool,
    /// Settings for file calls.
    pub seeing: Seeing,
    /// Samples of the machine's counters a second; 0: none.
    pub host_hertz: u32,
    /// Follow processes by the kernel's announcements (proc connector) alone.
    pub announced: bool,
}

/// A mount session whose mount is ready.
pub struct Attach {
    recording: Recording,
    served: Served,
    callers: Arc<Watched>,
    host_sampler: Option<HostSampler>,
    mountpoint: PathBuf,
}

/// Result of a mount session.
#[derive(Clone, Debug)]
pub struct AttachReport {
    /// Summary of the trace.
    pub trace: Summary,
}

impl Attach {
    /// The path under which an older trace is kept whose place the new one took.
    pub fn kept(&self) -> Option<PathBuf> {
        self.recording.older().kept()
    }

    /// Mounts, and starts serving and recording. Call it while the process has one thread.
    ///
    /// # Errors
    /// If the mount cannot be made, or the trace cannot be written; nothing is left behind.
    pub fn start(options: &AttachOptions) -> Result<Attach> {
        let source = Directory::open(&options.source)?;
        let mountpoint = Directory::open(&options.mountpoint)?;
        if mountpoint.path != source.path && mountpoint.path.starts_with(&source.path) {
            return Err(Error::ViewInItself {
                mountpoint: mountpoint.path,
                source_path: source.path,
            });
        }
        // A mount over its own source hides the trace as one of the source's files.
        let under = |trace: &PathBuf| trace.starts_with(&mountpoint.path);
        if mountpoint.path != source.path && own_files(&options.output).iter().any(under) {
            return Err(Error::TraceUnderView {
                trace: options.output.clone(),
                mountpoint: mountpoint.path,
            });
        }
        limits::lift().map_err(Error::system("trace here"))?;
        signals::block().map_err(Error::errno("block signals"))?;
        let process = RecorderProcess::start()?;
        let recording = Recording::start_in(
            process,
            &options.output,
            options.replace,
            options.keep_secrets,
        )?;
        match Attach::mount(options, source, &mountpoint.path, &recording) {
            Ok((served, callers)) => {
                recording.older().settle();
                Ok(Attach {
                    host_sampler: recording.host_sampler(options.host_hertz, None),
                    recording,
                    served,
                    callers,
                    mountpoint: mountpoint.path,
                })
            }
            Err(error) => {
                recording.discard();
                Err(error)
            }
        }
    }

    fn mount(
        options: &AttachOptions,
        source: Directory,
        at: &Path,
        recording: &Recording,
    ) -> Result<(Served, Arc<Watched>)> {
        let fail = |reason: String| Error::View {
            path: at.to_owned(),
            reason,
        };
        // Before any process can use the mount.
        let (clock, recorder) = (recording.clock, recording.recorder.clone());
        let callers = Watched::start(
            Whose::Anybodys,
            HOST,
            clock,
            recorder,
            Wanted::default(),
            (!options.announced)
                .then(|| Ready::load(None, Reported::Lifetimes)?.begin(None))
                .flatten(),
        );
        let on = options.seeing.transport.prepare()?;
        let (device, namespace) = match mount_directly(&source, at, &options.seeing) {
            Ok(device) => (device, Some(Namespace::Privileged)),
            Err(direct) => match mounting::mount_by_helper(at) {
                Ok(device) => (device, None),
                Err(helper) => return Err(fail(format!("{direct}; {helper}"))),
            },
        };
        drop(on);
        let directories = [source];
        let serving = Serving {
            directories: &directories,
            hidden: own_files(&options.output),
            seeing: &options.seeing,
            namespace,
            offers: Arc::default(),
            rings: Arc::default(),
        };
        let mount = ReadyMount {
            directory: 0,
            at: at.to_owned(),
            device,
        };
        let served = serving.serve(vec![mount], Some((recording, callers.clone())));
        let served = served.inspect_err(|_| {
            let _ = mounting::unmount(at);
        })?;
        let mount = &served.mounts()[0];
        recording.recorder.record(Record::Run(Box::new(RunRecord {
            id: RUN,
            host: HOST,
            command: None,
            cwd: Text::from(options.cwd.as_path()),
            version: env!("CARGO_PKG_VERSION"),
            file_layer: mount.session.layer(),
            process_layer: callers.layer(),
        })));
        mount.record(&recording.recorder, options.seeing.attribute_ttl);
        recording.recorder.settle();
        Ok((served, callers))
    }

    /// Mount point.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Serves until the mount is unmounted, then completes the trace. A SIGTERM, SIGINT or SIGHUP unmounts
    /// it.
    pub fn serve(self) -> AttachReport {
        signals::unmount_on_request(self.mountpoint.clone());
        let mut nobody = Observers::default();
        self.callers
            .watch(None, &mut nobody, || self.served.is_finished());
        self.served.join();
        drop(self.host_sampler);
        AttachReport {
            trace: self.recording.finish(None, None),
        }
    }
}

fn mount_directly(
    source: &Directory,
    at: &Path,
    seeing: &Seeing,
) -> std::io::Result<std::os::fd::OwnedFd> {
    let device = mounting::open_device()
        .map_err(|e| std::io::Error::new(e.kind(), format!("{}: {e}", mounting::DEVICE)))?;
    let mount = source.new_mount(at, seeing.permission())?;
    mounting::mount(&device, &mount, geteuid().as_raw(), getegid().as_raw())?;
    Ok(device)
}
