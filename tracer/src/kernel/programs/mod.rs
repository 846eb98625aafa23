//! Records of calls by two eBPF programs at the tracepoints `sys_enter` and `sys_exit`
//! (tracer/bpf/calls.bpf.c), for some 0.15 µs a record. They pick calls by number and callers by process, and live
//! as long as their descriptors are open.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::dropped::Dropped;
use super::ring_size;
use super::sample::{Carried, OpenId, Sample, What, bytes};
use crate::bpf::object::Use;
use crate::bpf::objects::{self, Source};
use crate::bpf::per_cpu_rings::{PerCpuRings, SLOT};
use crate::bpf::tail_call::TailCall;
use crate::bpf::traced_pids::TracedPids;
use crate::bpf::{Map, attach};

mod blocked;
mod layout;
mod switches;
mod wanted;

use layout::Config;
pub(crate) use switches::Scheduler;

/// Environment variable: if set, threads are not throttled when rings fill up.
const MAY_DROP: &str = "FLOWTRACE_CALLS_MAY_DROP";

/// Options of the programs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// Bytes of each ring, a power of 2 of pages.
    pub(super) size: usize,
    /// Records also entries of calls that may block.
    pub(super) blocking: bool,
    /// Stops threads that make calls while a ring is half full, by a SIGSTOP of the kernel: their tracer is
    /// to take it away when there is free space again.
    pub(super) throttles: bool,
    /// Other programs enter processes into the map as soon as they are forked, and the architecture of their
    /// programs.
    pub(super) are_named: bool,
}

/// Records of calls by eBPF programs, which run as long as this lives.
#[derive(Debug)]
pub(crate) struct CallSource {
    rings: PerCpuRings,
    /// The map that processes are to be entered into; `None`: other programs do so.
    processes: Option<TracedPids>,
    wanted: Map,
    lost: Map,
    /// Used fraction of the fullest ring at the last read.
    used: f64,
    /// Losses up to the last read: entries of calls that move data, returns, other entries.
    known: [u64; 3],
    tail_call: TailCall,
    /// The programs and their links, which live as long as these are open.
    _owned: [Vec<OwnedFd>; 2],
}

impl CallSource {
    /// Records the calls of process `pid`, which has not run its program yet, and of all that it will fork,
    /// where each process is stopped by ptrace when it is reported; `blocking`: also calls that may block.
    ///
    /// # Errors
    /// When the kernel refuses the programs.
    pub(crate) fn of_ptraced(pid: u32, blocking: bool) -> io::Result<CallSource> {
        let options = Options {
            size: ring_size::of_calls()?,
            blocking,
            throttles: !may_drop(),
            are_named: false,
        };
        Self::open(TracedPids::below(pid)?, options)
    }

    /// Records the calls of processes that other eBPF programs trace. Their reports of a call must come after
    /// the records made here, so they are to be attached later.
    ///
    /// # Errors
    /// When the kernel refuses the programs.
    pub(crate) fn of_traced(traced: TracedPids, blocking: bool) -> io::Result<CallSource> {
        let options = Options {
            size: ring_size::of_calls()?,
            blocking,
            throttles: false,
            are_named: true,
        };
        Self::open(traced, options)
    }

    /// Begins to record the calls of the processes in `traced`, and of those that will be entered there.
    ///
    /// # Errors
    /// When the kernel refuses such programs, or numbers processes otherwise than we do.
    pub(super) fn open(traced: TracedPids, options: Options) -> io::Result<CallSource> {
        let Options {
            size,
            blocking,
            throttles,
            are_named,
        } = options;
        crate::linux::in_first_pid_namespace()?;
        let cpus = crate::cpus::array_length()?;
        let rings = PerCpuRings::new(cpus, size)?;
        let tail_call = TailCall::new()?;
        let config = Config {
            ring_bits: rings.bits(),
            stop_above: if throttles {
                (size / SLOT) as u32 / 2
            } else {
                0
            },
        };
        let (config, numbers) = (config.bytes(), wanted::numbers(blocking));
        let mut uses = vec![
            ("tail_call", Use::Shared(tail_call.as_fd())),
            ("walks", Use::Entries(cpus)),
            (".rodata", Use::Value(&config)),
            (".bss.wanted", Use::Value(&numbers)),
        ];
        uses.extend(rings.uses());
        uses.extend(traced.uses());
        let mut loaded = objects::open(Source::Calls)?.load(&["entries", "returns"], &uses)?;
        let links = loaded.programs.iter().map(attach);
        let links = links.collect::<io::Result<_>>()?;
        let (wanted, lost) = (loaded.map(".bss.wanted")?, loaded.map(".bss.lost")?);
        Ok(CallSource {
            rings,
            processes: (!are_named).then_some(traced),
            wanted,
            lost,
            used: 0.0,
            known: [0; 3],
            tail_call,
            _owned: [links, loaded.programs],
        })
    }

    /// The tail call after each return.
    pub(crate) fn tail_call(&self) -> &TailCall {
        &self.tail_call
    }

    /// Records no calls any more that only may block.
    pub(super) fn leave_out_blocking(&self) {
        // If that fails, more is recorded than is needed.
        let _ = self.wanted.put(0, &wanted::numbers(false));
    }

    /// The map that processes are to be entered into; `None`: other programs do so.
    pub(super) fn processes(&self) -> Option<TracedPids> {
        self.processes.clone()
    }

    /// True if each process is stopped by ptrace until its changes are reported.
    pub(super) fn are_of_ptraced(&self) -> bool {
        self.processes.is_some()
    }

    /// True if threads that fill the rings are to be throttled by the reader.
    pub(super) fn needs_throttle(&self) -> bool {
        !self.are_of_ptraced() && !may_drop()
    }

    /// Calls `take` with the waiting records. Returns how many were lost since the last time, up to a time a
    /// little before the last record.
    pub(super) fn drain(&mut self, mut take: impl FnMut(Sample)) -> u64 {
        self.used = self.rings.drain(|mark, record| {
            if let Some(sample) = decode(mark, record) {
                take(sample);
            }
        });
        // The losses are read after the rings: otherwise records after a loss would count as complete.
        let Ok(now) = self.lost.get(0) else {
            return 0;
        };
        let before = std::mem::replace(&mut self.known, now);
        now.iter().sum::<u64>() - before.iter().sum::<u64>()
    }

    /// True if the rings fill so fast that they are to be emptied at once again.
    pub(super) fn fill_fast(&self) -> bool {
        /// Used fraction of a ring at a read.
        const MUCH: f64 = 0.375;
        self.used > MUCH
    }

    /// Numbers of lost entries of calls so far, at the last read: of those that move data, and of others.
    pub(super) fn lost_entries(&self) -> Dropped {
        let [data, _, others] = self.known;
        Dropped { data, others }
    }
}

fn may_drop() -> bool {
    std::env::var_os(MAY_DROP).is_some_and(|value| !value.is_empty())
}

/// Decodes a record of a program. `None`: an unknown kind.
fn decode(mark: u16, record: &[u8; SLOT]) -> Option<Sample> {
    let word = |at: usize| bytes(record, at).map(u64::from_ne_bytes);
    let of_rest = |n: usize| word(layout::WORDS + 8 * n);
    let number = u32::from(mark) & ((1 << layout::KIND_BITS) - 1);
    let what = match mark >> layout::KIND_BITS {
        kind @ (layout::ENTRY | layout::SHORT_ENTRY | layout::FOREIGN_ENTRY) => {
            // The other words have the former content of the slot.
            let count = match kind {
                layout::SHORT_ENTRY => layout::THREE,
                _ => layout::SIX,
            };
            let mut arguments = [0; layout::SIX];
            for (n, argument) in arguments[..count].iter_mut().enumerate() {
                *argument = of_rest(n)?;
                if kind == layout::FOREIGN_ENTRY {
                    // The other architecture has registers of 32 bits.
                    *argument &= u64::from(u32::MAX);
                }
            }
            What::Enters(arguments)
        }
        layout::RETURN => What::Returns(of_rest(0)?.cast_signed()),
        layout::MOVED => What::Moved(of_rest(0)?),
        layout::CARRIED => What::Carries(Carried {
            fd: of_rest(0)?,
            open: OpenId {
                address: of_rest(1)?,
                inode: of_rest(2)?,
            },
            mode: of_rest(3)? as u32,
        }),
        _ => return None,
    };
    Some(Sample {
        at: word(layout::AT)?,
        tid: bytes(record, layout::TID).map(u32::from_ne_bytes)?,
        number,
        what,
    })
}

#[cfg(test)]
mod tests;
