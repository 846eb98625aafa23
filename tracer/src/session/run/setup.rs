//! Parts and steps of a run that do not depend on the layer that follows its processes.

use std::io;
use std::path::Path;
use std::sync::Arc;

use flowtrace_schema::{
    FileLayer, LaunchRecord, Loss, ProcessLayer, Record, RunRecord, Text, quote_argv,
};

use super::super::directory::{Directory, TracedPath};
use super::super::inherited::Inherited;
use super::super::launch::{Calls, Outcome, Start};
use super::super::mounts::Mounts;
use super::super::recording::{HOST, RUN, Recording};
use super::super::serving::{Served, Serving};
use super::super::signals::{self, SignalForwarder};
use super::super::trace_files::own_files;
use super::super::{Error, Result};
use super::job::Job;
use super::options::RunOptions;
use super::report::Background;
use crate::callers::Callers;
use crate::fs::Offers;
use crate::kernel::Scheduler;
use crate::net::live::Namespaces;
use crate::proc::Living;
use crate::proc::lifetimes::End;
use crate::rings::Rings;
/// A command whose child waits, and the state that the run keeps while it runs.
pub(super) struct Started<'a> {
    pub(super) mounts: Mounts,
    pub(super) inherited: Inherited,
    pub(super) recording: &'a Recording,
    /// Namespaces in which packets are captured, besides our own network namespace.
    pub(super) namespaces: Option<Arc<Namespaces>>,
    /// Source of scheduler events for the kernel layer, if there is one.
    pub(super) scheduler: Option<Scheduler>,
    pub(super) job: Job<'a>,
}

pub(super) struct Run<'a> {
    pub(super) options: &'a RunOptions,
    /// Directories to mount.
    pub(super) directories: &'a [Directory],
    /// Directories whose calls are recorded without a mount.
    pub(super) unmounted: &'a [TracedPath],
    pub(super) cwd: &'a Path,
    pub(super) program: &'a Path,
    /// Decides which signals are passed on to the command.
    pub(super) forwarder: Arc<SignalForwarder>,
    pub(super) offers: Arc<Offers>,
    /// True if eBPF programs are to record the calls on files, wherever these are: then nothing is mounted.
    pub(super) by_kernel: bool,
    /// True if eBPF programs would record more than this run does.
    pub(super) lacks_ebpf: bool,
    pub(super) rings: Arc<Rings>,
}

impl Run<'_> {
    /// Starts the command.
    pub(super) fn go(
        &self,
        mounts: &mut Mounts,
        start: &Start,
        inherited: &mut Inherited,
        calls: Calls,
    ) -> io::Result<()> {
        inherited.offer(&self.offers, mounts.child.pid.as_raw() as u32);
        inherited.opened(mounts.child.prepare(start)?);
        self.offers.withdraw();
        mounts.child.go(calls)
    }

    /// Starts the daemons behind the mounts, and records the settings of the recording.
    pub(super) fn serve(
        &self,
        started: &mut Started<'_>,
        callers: Arc<dyn Callers>,
        layer: ProcessLayer,
    ) -> Result<Served> {
        let Started {
            mounts, recording, ..
        } = started;
        let mounted = std::mem::take(&mut mounts.mounted);
        let recorded = !self.options.without_calls;
        let served = self
            .serving(mounts)
            .serve(mounted, recorded.then_some((*recording, callers)))?;
        self.describe(recording, mounts, &served, layer);
        // From here on the trace itself says what is, or was, being recorded.
        recording.recorder.settle();
        Ok(served)
    }

    /// Runs the command; signals go to those of its processes that live.
    pub(super) fn go_on(
        &self,
        started: &mut Started<'_>,
        start: &Start,
        living: Arc<Living>,
        calls: Calls,
    ) -> Result<()> {
        self.go(&mut started.mounts, start, &mut started.inherited, calls)
            .map_err(Error::system("start the command"))?;
        let older = started.recording.older();
        if older.is_pending() {
            // Without a thread for that it is settled at the end.
            let _ = started.mounts.child.when_it_runs(move || older.settle());
        }
        started.inherited.count(&started.recording.recorder);
        let passed_on =
            signals::pass_on(started.job.root, Some(living), Arc::clone(&self.forwarder));
        started.job.command_end = Some(passed_on.map_err(Error::system("pass on signals"))?);
        Ok(())
    }

    /// Ends the run after its last process has ended, or flowtrace has detached from the rest.
    pub(super) fn conclude(
        &self,
        started: Started<'_>,
        served: Served,
        end: io::Result<Option<End>>,
    ) -> Result<(End, Option<Background>)> {
        let vanished = || Error::system("wait for the command")(io::Error::other("it vanished"));
        let end = end.map_err(Error::system("wait for the command"))?;
        let mut mounts = started.mounts;
        started.inherited.settle();
        if started.job.left {
            let end = end.ok_or_else(vanished)?;
            return Ok((end, Some(Background { mounts, served })));
        }
        mounts.unmount();
        served.join();
        self.must_have_run(&mut mounts, end)?;
        Ok((end.ok_or_else(vanished)?, None))
    }

    pub(super) fn serving(&self, mounts: &Mounts) -> Serving<'_> {
        Serving {
            directories: self.directories,
            hidden: own_files(&self.options.output),
            seeing: &self.options.seeing,
            namespace: mounts.namespace,
            offers: Arc::clone(&self.offers),
            rings: Arc::clone(&self.rings),
        }
    }

    fn describe(
        &self,
        recording: &Recording,
        mounts: &Mounts,
        served: &Served,
        process_layer: ProcessLayer,
    ) {
        let file_layer = match served.mounts().first() {
            Some(mount) => mount.session.layer(),
            None if self.by_kernel => FileLayer::Kernel,
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
        for mount in served.mounts() {
            mount.record(&recording.recorder, self.options.seeing.attribute_ttl);
        }
        for directory in self.unmounted {
            directory.record(&recording.recorder);
        }
        let seen = served.mounts().len();
        // Where not even the working directory can be one.
        let least = usize::from(mounts.refused.is_some());
        let wanted = self.directories.len().max(least);
        recording
            .recorder
            .lost(Loss::FilesNotTraced, (wanted - seen) as u64);
        if mounts.namespace.is_none() {
            recording.recorder.lost(Loss::PathNotSeen, seen as u64);
        }
    }

    /// Fails if the process that ended is not the command: the command could not be run, though it existed
    /// when it was checked, or a signal came before.
    pub(super) fn must_have_run(&self, mounts: &mut Mounts, end: Option<End>) -> Result<()> {
        let program = self.program.display().to_string();
        match (mounts.child.outcome(), end) {
            // A script whose interpreter is missing, or a removed working directory.
            (Outcome::Refused(source), _) if source.raw_os_error() == Some(libc::ENOENT) => {
                Err(Error::NotFound(format!("{program} (or its interpreter)")))
            }
            (Outcome::Refused(source), _) => Err(Error::NotExecutable { program, source }),
            (Outcome::Never, Some(End::Killed(signal))) => Err(Error::NeverRan { signal }),
            (Outcome::Ran | Outcome::Never, _) => Ok(()),
        }
    }
}
