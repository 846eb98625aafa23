//! A run whose processes are followed without ptrace.

use std::sync::{Arc, Mutex};

use flowtrace_schema::{MOST_ARGUMENTS, ProcessLayer, Text};

use super::super::launch::{Calls, Namespace};
use super::super::recording::{HOST, Recording};
use super::super::{Error, Result};
use super::options::{Following, RunOptions};
use super::report::Background;
use super::setup::{Run, Started};
use crate::bpf::traced_pids::TracedPids;
use crate::kernel::{CallSource, KernelLayer, Scheduler, Selection};
use crate::memory::{self, Spared};
use crate::mounting;
use crate::net::follow::Follow;
use crate::net::senders::Watch;
use crate::proc::channels::Registry;
use crate::proc::children;
use crate::proc::fd_tracker::{By, FdTracker};
use crate::proc::lifetimes::End;
use crate::proc::observer::ChannelLookup;
use crate::proc::reading::Image;
use crate::proc::sampler::Sampler;
use crate::proc::tracepoints::Reported;
use crate::proc::views::Views;
use crate::proc::watched::{Feed, Observers, Ready, Watched, Whose};
use crate::side_by_side::both;

/// True if ptrace is not wanted, or certain to be refused.
pub(super) fn without_ptrace(options: &RunOptions) -> bool {
    !options.following.may_use_ptrace() || crate::proc::tracer_of(std::process::id()).is_some()
}

/// Events of eBPF programs.
pub(super) struct EbpfEvents {
    processes: TracedPids,
    /// Events of processes.
    pub(super) feed: Feed,
    /// Events of calls, for the kernel layer.
    pub(super) calls: Option<CallSource>,
}

/// Size of the ring of each CPU for records of calls, KiB, if it is asked for.
pub(super) struct CallRing(pub(super) Option<u32>);

impl EbpfEvents {
    /// Begins to report process `root` and all that it forks. `None` if not all requested events can be
    /// reported.
    pub(super) fn start(root: u32, topology: bool, calls: Option<CallRing>) -> Option<EbpfEvents> {
        let processes = TracedPids::below(root).ok()?;
        let reported = match (topology, calls.is_some()) {
            (false, _) => Reported::Lifetimes,
            (true, false) => Reported::Files,
            (true, true) => Reported::FileCalls,
        };
        let (ready, calls) = both(
            || Ready::load(Some(processes.clone()), reported),
            || {
                calls
                    .map(|CallRing(kib)| CallSource::open(&processes, kib))
                    .transpose()
            },
        );
        // The events of calls began before: the last event of a call has to be one of its effects.
        let calls = calls.ok()?;
        let tail_call = calls.as_ref().map(CallSource::tail_call);
        let feed = ready?.begin(tail_call)?;
        Some(EbpfEvents {
            processes,
            feed,
            calls,
        })
    }

    /// The processes of the run.
    pub(super) fn processes(&self) -> &TracedPids {
        &self.processes
    }

    /// True if more is reported than begins and ends of processes.
    pub(super) fn is_all(&self) -> bool {
        self.feed.reports_files()
    }
}

/// True if eBPF programs are to report the processes, if they can.
pub(super) fn are_reported(options: &RunOptions, by_kernel: bool, without_ptrace: bool) -> bool {
    may_be_reported() && are_wanted(options, by_kernel, without_ptrace)
}

/// True if eBPF programs may report the processes, as far as is known without trying.
pub(super) fn may_be_reported() -> bool {
    nix::unistd::geteuid().is_root() && crate::linux::in_first_pid_namespace().is_ok()
}

/// True if these options are best served by eBPF programs that report the processes. Not for a run that will detach
/// from processes.
pub(super) fn are_wanted(options: &RunOptions, by_kernel: bool, without_ptrace: bool) -> bool {
    // eBPF programs do not report refused connections, nor anything else that only a stop at a call shows. A launcher starts many flowtraces, and the
    // programs of each one run for the calls of all.
    let reports_as_much = || {
        options.following == Following::Best
            && options.topology
            && options.net.is_none()
            && options.launch.is_none()
    };
    !(options.bare || options.detach || options.following == Following::Announced)
        && (without_ptrace || by_kernel || reports_as_much())
}

impl Run<'_> {
    /// Follows the command by events of the kernel. ptrace was not wanted or, for the given reason, refused.
    pub(super) fn watched(
        &self,
        mut started: Started<'_>,
        refused: Option<String>,
        events: Option<EbpfEvents>,
    ) -> Result<(End, Option<Background>)> {
        let root = started.job.root.as_raw() as u32;
        // No process is stopped here, so flowtrace cannot detach from any: it waits for the last process.
        started.job.detach = false;
        let streams = &started.inherited.streams;
        let start = started.mounts.start(self.cwd, streams, self.directories);
        let (feed, calls) = match events {
            Some(EbpfEvents { feed, calls, .. }) => (Some(feed), calls),
            None => (None, None),
        };
        let places = started.mounts.mounted.iter().map(|mount| &*mount.at);
        let devices = mounting::devices_at(root, places);
        // Without a mount the processes do not depend on flowtrace, and go on.
        let needs_us = !started.mounts.mounted.is_empty();
        if !needs_us {
            memory::be_given_up_first();
        }
        let _spared = needs_us.then(Spared::begin);
        let guarded = feed.as_ref().filter(|_| needs_us);
        let guard = guarded.and_then(|feed| feed.guard(&devices));
        children::adopt_orphans().map_err(Error::system("become the parent of orphans"))?;
        let recording = started.recording;
        let recorder = recording.recorder.clone();
        let reports_files = feed.as_ref().is_some_and(Feed::reports_files);
        let watched = Watched::start(
            Whose::Ours { root },
            HOST,
            recording.clock,
            recorder,
            self.options.environment.clone(),
            feed,
        );
        let layer = match (watched.layer(), reports_files) {
            (ProcessLayer::Tracepoints, true) => ProcessLayer::Ebpf,
            (layer, _) => layer,
        };
        let is_by_ebpf = layer == ProcessLayer::Ebpf;
        self.report_coverage(&mut started, layer, is_by_ebpf, refused);
        let channels = Registry::new(HOST, recording.recorder.clone());
        let channels = Arc::new(Mutex::new(channels));
        let start_layer = |calls| {
            let scheduler = started.scheduler.take();
            self.kernel_layer(recording, (calls, scheduler), channels.clone())
        };
        watched.report_rings_to(Arc::clone(&self.rings));
        if started.mounts.namespace == Some(Namespace::User) {
            watched.withhold_privilege();
        }
        let kernel = calls.map(start_layer).transpose()?;
        let served = self.serve(&mut started, watched.clone(), layer)?;
        let arguments = self.options.command.iter();
        let argv = arguments.flat_map(|a| [a.as_encoded_bytes(), b"\0"].concat());
        let exe = self.program.canonicalize().ok();
        let image = Image {
            exe: exe.map(|path| Text::from(path.as_path())),
            argv: Some(argv.take(MOST_ARGUMENTS + 1).collect()),
            cwd: Some(Text::from(start.directory.as_path())),
            ..Image::default()
        };
        let mut observers = Observers::default();
        let mut sampler = None;
        let namespaces = started.namespaces.take();
        if is_by_ebpf {
            watched.be_observed();
            let mut tracker = FdTracker::new(
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
                By::Kernel,
                kernel.as_ref().map(KernelLayer::found_files),
            );
            tracker.launch(root);
            observers.observe(Box::new(tracker));
            observers
                .record_beginnings(recording.recorder.clone(), self.options.environment.clone());
            if let Some(senders) = namespaces.as_ref().and_then(|all| all.senders()) {
                observers.observe(Box::new(Watch::new(senders)));
            }
            if let Some(kernel) = &kernel {
                observers.observe(Box::new(kernel.feed()));
            }
            sampler = match &kernel {
                Some(kernel) if kernel.reports_waits() => None,
                _ => self.sampler(recording, channels),
            };
            if let Some(sampler) = &sampler {
                observers.observe(Box::new(sampler.feed()));
            }
        }
        watched.launch(root, image);
        if let Some(namespaces) = namespaces {
            namespaces.follow(watched.living());
            observers.observe(Box::new(Follow(namespaces)));
        }
        let sampler_ns = sampler.as_ref().map(Sampler::used_ns);
        let host_sampler = recording.host_sampler(self.options.host_hertz, sampler_ns);
        self.go_on(&mut started, &start, watched.living(), Calls::Free)?;
        let end = watched.follow(root, &mut started.job, observers);
        drop(guard);
        drop(kernel);
        drop(sampler);
        drop(host_sampler);
        self.conclude(started, served, end)
    }

    /// Begins to record calls by eBPF programs.
    fn kernel_layer(
        &self,
        recording: &Recording,
        (calls, scheduler): (CallSource, Option<Scheduler>),
        channels: Arc<dyn ChannelLookup>,
    ) -> Result<KernelLayer> {
        let selection = Selection {
            channels,
            scheduler,
            channel_calls: self.options.channel_calls,
        };
        let (clock, recorder) = (recording.clock, recording.recorder.clone());
        KernelLayer::start(calls, clock, recorder, selection)
            .map_err(|error| Error::KernelLayer(error.to_string()))
    }
}
