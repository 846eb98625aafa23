//! A trace that is being written: clock, writer, and the record of this machine.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flowtrace_schema::{
    HostClock, HostId, HostRecord, Older, Record, Recorder, RunEnd, RunId, Summary, Writer,
};

use super::Result;
use super::recorder_process::RecorderProcess;
use crate::clock::Clock;
use crate::host::{self, HostSampler};

/// The one host of a file that is being recorded.
pub const HOST: HostId = HostId(1);
/// The one run of a file that is being recorded.
pub const RUN: RunId = RunId(1);

/// A trace being written.
#[derive(Debug)]
pub struct Recording {
    /// Time since the start of the recording.
    pub clock: Clock,
    /// Takes the records.
    pub recorder: Recorder,
    /// Wall clock at time 0, ns since 1970.
    pub epoch_unix_ns: i64,
    writer: Writer,
}

impl Recording {
    /// Creates the trace, written by a thread of this process, and records this machine.
    ///
    /// # Errors
    /// If the file cannot be created, or another file than a trace is there.
    pub fn start(output: &Path, replace: bool, keep_secrets: bool) -> Result<Recording> {
        Ok(Recording::of(
            Writer::create(output, replace)?,
            keep_secrets,
        ))
    }

    /// The same, written by a process of its own.
    pub(super) fn start_in(
        process: RecorderProcess,
        output: &Path,
        replace: bool,
        keep_secrets: bool,
    ) -> Result<Recording> {
        Ok(Recording::of(
            process.create(output, replace)?,
            keep_secrets,
        ))
    }

    fn of((writer, recorder): (Writer, Recorder), keep_secrets: bool) -> Recording {
        if keep_secrets {
            recorder.keep_secrets();
        }
        let (clock, epoch_unix_ns) = Clock::start();
        recorder.record(Record::Host(Box::new(this_host(epoch_unix_ns))));
        recorder.record(Record::HostClock(HostClock {
            host: HOST,
            monotonic_ns: clock.boot_base_ns(),
            wall_error_ns: Clock::wall_error_ns(),
        }));
        Recording {
            clock,
            recorder,
            epoch_unix_ns,
            writer,
        }
    }

    /// Records the machine's counters while the returned value lives; `sampler_ns` is the CPU time of the
    /// sampler of threads.
    pub(crate) fn host_sampler(
        &self,
        hertz: u32,
        sampler_ns: Option<Arc<AtomicU64>>,
    ) -> Option<HostSampler> {
        HostSampler::start(host::Setup {
            hertz,
            host: HOST,
            clock: self.clock,
            recorder: self.recorder.clone(),
            sampler_ns,
        })
    }

    /// Completes the file: the recording ends now.
    pub fn finish(self, exit_code: Option<i32>, exit_signal: Option<i32>) -> Summary {
        let now = self.clock.now();
        self.finish_at(now, exit_code, exit_signal)
    }

    /// Completes the file of a recording that ended at a time, ns.
    pub(crate) fn finish_at(
        self,
        end_ns: u64,
        exit_code: Option<i32>,
        exit_signal: Option<i32>,
    ) -> Summary {
        let end = RunEnd {
            id: RUN,
            end_ns,
            exit_code,
            exit_signal,
        };
        self.writer.finish(&self.recorder, end)
    }

    /// The older trace whose place this one takes, to be settled when the recording has begun.
    pub(super) fn older(&self) -> Older {
        self.writer.older()
    }

    /// Removes the file of a recording that never began, and restores an older trace.
    pub(crate) fn discard(self) {
        self.writer.discard();
    }
}

/// Description of this machine, with the wall clock at time 0 of the recording.
pub fn this_host(epoch_unix_ns: i64) -> HostRecord {
    let names = nix::sys::utsname::uname().ok();
    let text = |part: fn(&nix::sys::utsname::UtsName) -> &std::ffi::OsStr| {
        names
            .as_ref()
            .map_or_else(String::new, |u| part(u).to_string_lossy().into_owned())
    };
    let system = [
        text(nix::sys::utsname::UtsName::sysname),
        text(nix::sys::utsname::UtsName::release),
        text(nix::sys::utsname::UtsName::machine),
    ];
    let sysconf = |variable| nix::unistd::sysconf(variable).ok().flatten();
    let memory = sysconf(nix::unistd::SysconfVar::_PHYS_PAGES)
        .zip(sysconf(nix::unistd::SysconfVar::PAGE_SIZE))
        .map(|(pages, size)| pages as u64 * size as u64);
    HostRecord {
        id: HOST,
        name: text(nix::sys::utsname::UtsName::nodename),
        boot_id: std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .ok()
            .map(|id| id.trim().to_owned()),
        system: system.join(" "),
        cpus: crate::cpus::online().ok().map(|all| all.len() as u32),
        memory_bytes: memory,
        epoch_unix_ns,
    }
}
