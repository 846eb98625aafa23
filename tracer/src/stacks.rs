//! Call stacks of the threads of a run, sampled while they are on a CPU and, for root, when they have waited.
//!
//! The kernel's CPU clock interrupts each CPU (perf_event_open(2), `perf`) and writes registers and the top of
//! the stack into a ring. One thread reads the rings, puts the records of all CPUs in the order of time
//! (`crate::merge`), follows forks, execs and mappings (`threads`), and unwinds (`unwind`). Equal stacks are one
//! (`interned`). Names of functions come at the end of the run (`symbols`).
//!
//! As root all of the machine is sampled, and processes of others are dropped when they are read. So a process
//! that lives for a millisecond is sampled as often as its CPU time deserves. An ordinary user may sample only a
//! process and its descendants; there each process counts its CPU time from 0 on, and would need a whole period to
//! be sampled once. So the kernel samples more often, and the reader keeps every `FINER`th sample of a CPU.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use flowtrace_schema::{Loss, Record, Recorder, RunId, StackRecord, StackScope};
use globset::{Glob, GlobMatcher};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::bpf::traced_pids::TracedPids;
use crate::clock::Clock;
use crate::cpus;
use crate::merge::Merge;
use crate::priority::Ahead;

mod elf;
mod files;
mod interned;
mod modules;
mod perf;
mod records;
mod symbols;
mod threads;
mod unwind;
mod waits;

use perf::{Event, Scope, Settings};
use threads::Threads;
use waits::Waits;

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing {
    pub(crate) use super::elf::fuzz as elf;
    pub(crate) use super::records::fuzz as records;
    pub(crate) use super::symbols::fuzz as symbols;
}

/// Samples a second of CPU time. Not a round number, so that work at regular intervals is not always, or never,
/// sampled.
const HERTZ: u64 = 99;
/// Samples of the kernel for each one that is kept, where each process has its own clock.
const FINER: u64 = 4;
/// Bytes of the stack in a sample.
const STACK_BYTES: u32 = 16 << 10;
/// Bytes of the ring of each CPU for root. It takes the samples of a second.
const RING_BYTES: usize = 2 << 20;
/// The same for an ordinary user, who may lock one page more for each CPU (`perf_event_mlock_kb`).
const USER_RING_BYTES: usize = 512 << 10;
/// Longest time between two readings, ms.
const PACE_MS: u16 = 50;
const USER_PACE_MS: u16 = 20;

/// Which stacks to sample.
#[derive(Clone, Debug, Default)]
pub struct StackOptions {
    /// Pattern of the names of the programs to sample, and its text; `None`: all.
    pub program: Option<GlobMatcher>,
    /// Have CPython write the names of its functions for this purpose (`PYTHONPERFSUPPORT=1`).
    pub python: bool,
}

impl StackOptions {
    /// Samples the programs whose names match `rule`; all for an empty one, and for `python`, which has CPython
    /// write the names of its functions, too.
    ///
    /// # Errors
    /// The reason why `rule` is no pattern.
    pub fn new(rule: &str) -> Result<StackOptions, String> {
        let python = rule == "python";
        let program = match rule {
            "" => None,
            _ if python => None,
            pattern => Some(
                Glob::new(pattern)
                    .map_err(|error| error.to_string())?
                    .compile_matcher(),
            ),
        };
        Ok(StackOptions { program, python })
    }
}

/// Events that are open, for a command that has not begun.
#[derive(Debug)]
pub(crate) struct Opened {
    events: Vec<Event>,
    settings: Settings,
    command: u32,
}

impl Opened {
    /// Opens events for the program that process `command` will run, and for its descendants.
    ///
    /// # Errors
    /// If the kernel does not allow it: an ordinary user needs `perf_event_paranoid` of at most 2.
    pub(crate) fn for_command(command: u32) -> io::Result<Opened> {
        if !cfg!(target_arch = "x86_64") {
            return Err(io::Error::other("it is made for x86-64"));
        }
        let machine = Self::open(Scope::Machine, command);
        match machine {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => {
                Self::open(Scope::Descendants { of: command }, command)
            }
            result => result,
        }
    }

    /// True if time in the kernel is sampled, too.
    pub(crate) fn sees_all(&self) -> bool {
        self.settings.scope == Scope::Machine
    }

    fn open(scope: Scope, command: u32) -> io::Result<Opened> {
        let period_ns = 1_000_000_000 / HERTZ;
        let settings = match scope {
            Scope::Machine => Settings {
                scope,
                period_ns,
                stack_bytes: STACK_BYTES,
                ring_bytes: RING_BYTES,
            },
            Scope::Descendants { .. } => Settings {
                scope,
                period_ns: period_ns / FINER,
                stack_bytes: STACK_BYTES,
                ring_bytes: USER_RING_BYTES,
            },
        };
        let cpus = cpus::online()?.into_iter();
        // A CPU may have gone offline since.
        let events = cpus.map(|cpu| Event::open(settings, cpu));
        let events = events.filter(|opened| {
            let error = opened.as_ref().err().and_then(io::Error::raw_os_error);
            error != Some(libc::ENODEV)
        });
        let events = events.collect::<io::Result<Vec<_>>>()?;
        if scope == Scope::Machine {
            events.iter().try_for_each(Event::enable)?;
        }
        Ok(Opened {
            events,
            settings,
            command,
        })
    }

    /// Begins to record. The command may run from now on. Threads that wait are sampled, too, if eBPF programs know
    /// the processes (`traced`), and if the kernel allows it.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn record(
        self,
        run: RunId,
        clock: Clock,
        recorder: Recorder,
        options: &StackOptions,
        traced: Option<&TracedPids>,
    ) -> io::Result<Stacks> {
        let traced = traced.filter(|_| self.sees_all());
        let waits =
            traced.and_then(|traced| Waits::sample(&self.events, self.settings, traced).ok());
        recorder.record(Record::Stack(Box::new(StackRecord::Sampling {
            run,
            period_ns: 1_000_000_000 / HERTZ,
            waits: waits.is_some(),
            scope: match self.settings.scope {
                Scope::Machine => StackScope::All,
                Scope::Descendants { .. } => StackScope::User,
            },
            program: options
                .program
                .as_ref()
                .map(|pattern| pattern.glob().to_string()),
        })));
        let is_over = Arc::<AtomicBool>::default();
        let reader = Reader {
            threads: Threads::new(
                self.command,
                clock,
                recorder.clone(),
                options.program.clone(),
            ),
            merge: Merge::default(),
            events: self.events,
            clock,
            recorder,
            finer: match self.settings.scope {
                Scope::Machine => 1,
                Scope::Descendants { .. } => FINER,
            },
        };
        let work = {
            let is_over = Arc::clone(&is_over);
            move || reader.run(&is_over)
        };
        let thread = std::thread::Builder::new().name("stacks".into());
        Ok(Stacks {
            waits,
            is_over,
            thread: Some(thread.spawn(work)?),
        })
    }
}

/// Stacks are sampled while this value lives. When it is dropped, the names of functions are recorded.
#[derive(Debug)]
pub(crate) struct Stacks {
    waits: Option<Waits>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Stacks {
    fn drop(&mut self) {
        // Its samples are in the rings before they are read for the last time.
        self.waits.take();
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// State of the thread that reads.
struct Reader {
    events: Vec<Event>,
    merge: Merge<records::Record>,
    threads: Threads,
    clock: Clock,
    recorder: Recorder,
    finer: u64,
}

impl Reader {
    fn run(mut self, is_over: &AtomicBool) {
        // A ring takes the samples of a second: where many threads run, the next turn of this one may come later.
        let _ahead = Ahead::of_the_command();
        let pace = match self.finer {
            1 => PACE_MS,
            _ => USER_PACE_MS,
        };
        let mut samples = vec![0u64; self.events.len()];
        // What a CPU wrote before this time was in its ring at the last reading.
        let mut complete_until = 0;
        loop {
            // Read before the rings, so that all records of the run are in them.
            let is_last = is_over.load(Ordering::Acquire);
            let before = self.clock.monotonic_now();
            let mut lost = 0;
            for (cpu, event) in self.events.iter_mut().enumerate() {
                let (merge, count, finer) = (&mut self.merge, &mut samples[cpu], self.finer);
                event.drain(|bytes| {
                    if records::is_sample(bytes) {
                        *count += 1;
                        if !count.is_multiple_of(finer) {
                            return;
                        }
                    }
                    let Some(record) = records::parse(bytes) else {
                        return;
                    };
                    match record.what {
                        records::What::Lost(count) => lost += count,
                        _ => merge.waiting().push(record),
                    }
                });
            }
            self.recorder.lost(Loss::StacksDropped, lost);
            let until = if is_last { u64::MAX } else { complete_until };
            for record in self.merge.before(until) {
                self.threads.take(record);
            }
            if is_last {
                break;
            }
            complete_until = before;
            let mut fds: Vec<PollFd<'_>> = self
                .events
                .iter()
                .map(|event| PollFd::new(event.as_fd(), PollFlags::POLLIN))
                .collect();
            // A ring is a quarter full, or it is time.
            let _ = poll(&mut fds, PollTimeout::from(pace));
            if fds.iter().any(|fd| {
                fd.revents()
                    .is_some_and(|events| events.contains(PollFlags::POLLHUP))
            }) {
                // The processes of an event have ended: it is readable for ever.
                std::thread::sleep(std::time::Duration::from_millis(pace.into()));
            }
        }
        drop(self.events);
        self.threads.finish();
    }
}
