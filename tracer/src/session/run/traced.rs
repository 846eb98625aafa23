//! A run whose processes are followed by ptrace.

use std::io;
use std::sync::{Arc, Mutex};

use flowtrace_schema::{Loss, ProcessLayer};
use nix::unistd::Pid;

use super::super::Result;
use super::super::launch::Calls;
use super::super::recording::{HOST, Recording};
use super::report::Background;
use super::setup::{Run, Started};
use crate::callers::TaskTable;
use crate::memory::Spared;
use crate::net::follow::Follow;
use crate::net::senders::Watch;
use crate::proc::Upids;
use crate::proc::channels::Registry;
use crate::proc::fd_tracker::{By, FdTracker};
use crate::proc::lifetimes::{End, Lifetimes};
use crate::proc::observer::ChannelLookup;
use crate::proc::rings::Feed;
use crate::proc::sampler::Sampler;
use crate::proc::topology::Picked;
use crate::proc::views::Views;

impl Run<'_> {
    /// Follows the command, which is seized already.
    pub(super) fn traced(&self, mut started: Started<'_>) -> Result<(End, Option<Background>)> {
        // The command, which was forked before, keeps the usual score.
        let _spared = Spared::begin();
        let streams = &started.inherited.streams;
        let start = started.mounts.start(self.cwd, streams, self.directories);
        let table = Arc::new(TaskTable::new());
        let recording = started.recording;
        let root = started.job.root.as_raw() as u32;
        let channels = Registry::new(HOST, recording.recorder.clone());
        let channels = Arc::new(Mutex::new(channels));
        // Once no process traces any more, a call that the filter selects would fail.
        let topology = self.options.topology && !self.options.detach;
        self.report_coverage(&mut started, ProcessLayer::Ptrace, topology, None);
        let served = self.serve(&mut started, table.clone(), ProcessLayer::Ptrace)?;
        let mut lifetimes = Lifetimes::new(
            root,
            HOST,
            recording.clock,
            recording.recorder.clone(),
            Arc::new(Upids::new()),
            table,
            self.options.environment.clone(),
        );
        if !topology {
            recording.recorder.lost(Loss::TopologyLeftOut, 1);
        }
        lifetimes.observe(Box::new(FdTracker::new(
            HOST,
            recording.recorder.clone(),
            channels.clone(),
            served.files(),
            Views::new(
                served
                    .mounts()
                    .iter()
                    .map(|mount| (&*mount.at, &*mount.source)),
            ),
            if topology { By::Calls } else { By::Snapshots },
            None,
        )));
        lifetimes.observe(Box::new(Feed {
            rings: Arc::clone(&self.rings),
            recorder: recording.recorder.clone(),
        }));
        let namespaces = started.namespaces.take();
        let senders = namespaces.as_ref().and_then(|all| all.senders());
        let calls = match topology {
            true => Calls::Picked(Picked {
                datagrams: senders.is_some(),
                // Where nothing is mounted there is no other record of them.
                gcc_opens: served.mounts().is_empty(),
            }),
            false => Calls::Free,
        };
        if let Some(senders) = senders {
            lifetimes.observe(Box::new(Watch::new(senders)));
        }
        if let Some(namespaces) = namespaces {
            namespaces.follow(lifetimes.living());
            lifetimes.observe(Box::new(Follow(namespaces)));
        }
        let sampler = self.sampler(recording, channels);
        if let Some(sampler) = &sampler {
            lifetimes.observe(Box::new(sampler.feed()));
        }
        let sampler_ns = sampler.as_ref().map(Sampler::used_ns);
        let host_sampler = recording.host_sampler(self.options.host_hertz, sampler_ns);
        self.go_on(&mut started, &start, lifetimes.living(), calls)?;
        let end = lifetimes.follow(&mut started.job);
        drop(sampler);
        drop(host_sampler);
        self.conclude(started, served, end)
    }

    /// Samples the threads. A run goes on without samples.
    pub(super) fn sampler(
        &self,
        recording: &Recording,
        channels: Arc<dyn ChannelLookup>,
    ) -> Option<Sampler> {
        let hertz = self.options.sample_hertz;
        let (clock, recorder) = (recording.clock, recording.recorder.clone());
        let start = || Sampler::start(hertz, clock, recorder, channels);
        (hertz > 0).then(start).and_then(|sampler| {
            let failed = |_: &io::Error| recording.recorder.lost(Loss::ThreadsNotSampled, 1);
            sampler.inspect_err(failed).ok()
        })
    }
}

/// The reason why ptrace was refused: another process traces them already, which may be an outer run, or the
/// system forbids it.
pub(super) fn refused(root: Pid, error: &io::Error) -> String {
    let own = std::process::id();
    let tracer =
        crate::proc::tracer_of(root.as_raw() as u32).or_else(|| crate::proc::tracer_of(own));
    let Some(pid) = tracer else {
        return format!("ptrace: {error}");
    };
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{} (pid {pid}) traces them already", name.trim())
}
