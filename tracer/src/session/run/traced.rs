//! A run whose processes are followed by ptrace.

use std::io;
use std::sync::{Arc, Mutex};

use flowtrace_schema::{Loss, ProcessLayer};

use super::super::Result;
use super::super::launch::Calls;
use super::super::recording::{HOST, Recording};
use super::{Background, Run, Started};
use crate::callers::TaskTable;
use crate::proc::Upids;
use crate::proc::channels::Registry;
use crate::proc::lifetimes::{End, Lifetimes};
use crate::proc::observer::ChannelLookup;
use crate::proc::sampler::Sampler;
use crate::proc::wiring::Wiring;

impl Run<'_> {
    /// Follows the command, which is seized already.
    pub(super) fn traced(&self, mut started: Started<'_>) -> Result<(End, Option<Background>)> {
        let streams = &started.inherited.streams;
        let start = started.views.start(self.cwd, streams, self.directories);
        let table = Arc::new(TaskTable::new());
        let served = self.serve(&mut started, table.clone(), ProcessLayer::Ptrace)?;
        let recording = started.recording;
        let mut lifetimes = Lifetimes::new(
            started.job.root.as_raw() as u32,
            HOST,
            recording.clock,
            recording.recorder.clone(),
            Arc::new(Upids::new()),
            table,
            self.options.environment.clone(),
        );
        // Where nobody traces any more, a call that the filter picks would fail.
        let topology = self.options.topology && !self.options.detach;
        let channels = Registry::new(HOST, recording.recorder.clone());
        let channels = Arc::new(Mutex::new(channels));
        lifetimes.observe(Box::new(Wiring::new(
            HOST,
            recording.recorder.clone(),
            channels.clone(),
            served.files(),
            served.views().iter().map(|view| view.at.clone()).collect(),
            topology,
        )));
        let sampler = self.sampler(recording, channels);
        if let Some(sampler) = &sampler {
            lifetimes.observe(Box::new(sampler.feed()));
        }
        let sampler_ns = sampler.as_ref().map(Sampler::used_ns);
        let host_sampler = recording.host_sampler(self.options.host_hertz, sampler_ns);
        let calls = match topology {
            true => Calls::Picked,
            false => Calls::Free,
        };
        self.go_on(&mut started, &start, lifetimes.living(), calls)?;
        let end = lifetimes.follow(&mut started.job);
        drop(sampler);
        drop(host_sampler);
        self.conclude(started, served, end)
    }

    /// Looks at what the threads do. A run goes on without.
    fn sampler(&self, recording: &Recording, channels: Arc<dyn ChannelLookup>) -> Option<Sampler> {
        let hertz = self.options.sample_hertz;
        let (clock, recorder) = (recording.clock, recording.recorder.clone());
        let start = || Sampler::start(hertz, clock, recorder, channels);
        (hertz > 0).then(start).and_then(|sampler| {
            let failed = |_: &io::Error| recording.recorder.lost(Loss::ThreadsNotSampled, 1);
            sampler.inspect_err(failed).ok()
        })
    }
}
