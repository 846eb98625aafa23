//! Processes as eBPF programs report them (tracer/bpf/processes.bpf.c), at the scheduler's tracepoints: every fork,
//! every exec with what it runs, every exit with its use of resources, in the order in which they happened, and no
//! process waits for flowtrace. For root, on kernels that describe their types.
//!
//! A record is in the ring before what it reports goes on: a fork before the child runs, an exec before the program's
//! first instruction. Only exits may come late: they are reported when a thread leaves its CPU for the last time, an
//! instant after its parent may have heard of it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use flowtrace_schema::MOST_ARGUMENTS;

use crate::bpf::object::Use;
use crate::bpf::objects::{self, Source};
use crate::bpf::ring::Ring;
use crate::bpf::tail_call::TailCall;
use crate::bpf::traced_pids::TracedPids;
use crate::bpf::{Map, attach};
use crate::linux::in_first_pid_namespace;
use crate::proc::topology::CHANGES;

mod bpf_snapshot;
mod bytes;
mod called;
mod calls;
mod format;
mod guard;
mod pending;
mod record;

pub(crate) use bpf_snapshot::BpfSnapshot;
pub(crate) use called::{Called, Destination};
pub(crate) use calls::on_name;
use format::Config;
pub(crate) use guard::Guard;
use record::Records;
pub(super) use record::{Ended, Event, Executed, Used, What};

/// Bytes of the ring: enough for 5 000 processes with a kilobyte of arguments each. The kernel clears all of
/// it before the command begins.
const SIZE: u32 = 8 << 20;
/// Bytes of the ring that wakes the reader, the least possible.
const WAKEUP: u32 = 4096;

/// What the programs report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reported {
    /// Begins and ends of processes.
    Lifetimes,
    /// Also the open files of processes, and the calls by which they get files, names and channels.
    Files,
    /// Also the calls on names of files that change none.
    FileCalls,
}

/// The running programs.
#[derive(Debug)]
pub(super) struct Tracepoints {
    ring: Ring,
    wakeup: Ring,
    /// `None`: all processes of the machine.
    processes: Option<TracedPids>,
    reported: Reported,
    lost: Map,
    lost_calls: Map,
    records: Records,
    /// Programs that do not run yet; the first one is that for returns of calls.
    loaded: Vec<OwnedFd>,
    /// Programs and their links: they run as long as these are open.
    owned: Vec<OwnedFd>,
}

impl Tracepoints {
    /// Begins to report these processes and all that they fork, or all of the machine.
    ///
    /// # Errors
    /// When the kernel refuses such programs, has no description of its types, or numbers processes otherwise
    /// than we do.
    pub(super) fn open(
        processes: Option<TracedPids>,
        reported: Reported,
    ) -> io::Result<Tracepoints> {
        let mut tracepoints = Self::load(processes, reported)?;
        tracepoints.begin(None)?;
        Ok(tracepoints)
    }

    /// Loads the programs for [`Tracepoints::begin`].
    ///
    /// # Errors
    /// As [`Tracepoints::open`].
    pub(super) fn load(
        processes: Option<TracedPids>,
        reported: Reported,
    ) -> io::Result<Tracepoints> {
        let with_files = reported >= Reported::Files;
        let with_all = reported == Reported::FileCalls;
        in_first_pid_namespace()?;
        let cpus = crate::cpus::array_length()?;
        let config = Config {
            ring_bytes: SIZE,
            all: processes.is_none(),
            with_files,
            with_directories: with_all,
            arguments_max: MOST_ARGUMENTS as u32 + 1,
            // The C library opens directories for the program, and files to change their modes.
            change_flags: match with_all {
                true => CHANGES | (libc::O_DIRECTORY | libc::O_PATH) as u32,
                false => CHANGES,
            },
        };
        let (config, reports) = (config.bytes(), calls::reports(with_all));
        let (names, opens) = (calls::system_names(), calls::library_opens());
        let mut uses = vec![
            ("ring", Use::Entries(SIZE)),
            ("wakeup", Use::Entries(WAKEUP)),
            ("scratch", Use::Entries(cpus)),
            (".rodata", Use::Value(&config)),
            (".bss.call_reports", Use::Value(&reports)),
            (".bss.system_names", Use::Value(&names)),
            (".bss.library_opens", Use::Value(&opens)),
        ];
        uses.extend(processes.iter().flat_map(TracedPids::uses));
        // Programs that the kernel checks longest come first, after the one for calls.
        let programs: &[&str] = match with_files {
            true => &["called", "executed", "exiting", "forked", "left"],
            false => &["executed", "forked", "left"],
        };
        let mut loaded = objects::open(Source::Processes)?.load(programs, &uses)?;
        Ok(Tracepoints {
            ring: Ring::map(loaded.map("ring")?, SIZE as usize)?,
            wakeup: Ring::map(loaded.map("wakeup")?, WAKEUP as usize)?,
            processes,
            reported,
            lost: loaded.map(".bss.lost")?,
            lost_calls: loaded.map(".bss.lost_calls")?,
            records: Records::default(),
            loaded: loaded.programs,
            owned: Vec::new(),
        })
    }

    /// Begins to report; if there is a program already that runs when calls return, with that as its tail call.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn begin(&mut self, returns: Option<&TailCall>) -> io::Result<()> {
        let reports_files = self.reports_files();
        for (place, program) in self.loaded.drain(..).enumerate() {
            match returns {
                Some(tail_call) if reports_files && place == 0 => tail_call.set(&program)?,
                _ => self.owned.push(attach(&program)?),
            }
            self.owned.push(program);
        }
        Ok(())
    }

    /// Calls `each` with the reported events in their order: all whose record was begun before this call. A
    /// caller's lookup must not miss its exec because a record of another CPU is just being written.
    pub(super) fn receive(&mut self, mut each: impl FnMut(Event)) {
        self.wakeup.drain(|_| {});
        let records = &mut self.records;
        self.ring.drain_all(|record| {
            if let Some(event) = records.take(record) {
                each(event);
            }
        });
    }

    /// Starts a guard: if flowtrace is killed, the reported processes are ended, and the mounts with these
    /// devices. `None`: all of the machine are reported, or no process can be started.
    pub(super) fn guard(&self, views: &[u64]) -> Option<Guard> {
        Guard::start(self.processes.as_ref()?, &self.owned, views).ok()
    }

    /// True if open files are reported, and the calls that open them.
    pub(super) fn reports_files(&self) -> bool {
        self.reported >= Reported::Files
    }

    /// Reports process `pid`, too.
    pub(super) fn follow(&self, pid: u32) {
        if let Some(processes) = &self.processes {
            // If the map is full, the process is found in /proc.
            processes.follow(pid);
        }
    }

    /// Process `pid` is over, or of no interest any more: its id may be used again.
    pub(super) fn forget(&self, pid: u32) {
        if let Some(processes) = &self.processes {
            processes.forget(pid);
        }
    }

    /// Records for which there was no space so far.
    pub(super) fn dropped(&self) -> u64 {
        self.lost.get(0).map_or(0, |[lost]| lost)
    }

    /// Calls that changed nothing and were left out because the ring was nearly full, so far.
    pub(super) fn dropped_calls(&self) -> u64 {
        self.lost_calls.get(0).map_or(0, |[lost]| lost)
    }
}

/// Readable when there is much to be read, or an event that must be read at once.
impl AsFd for Tracepoints {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }
}

#[cfg(test)]
mod tests;
