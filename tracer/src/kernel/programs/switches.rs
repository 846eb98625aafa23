//! Switches between threads on each CPU, and the effects of interrupts of an idle CPU: the threads that they
//! wake, and the requests to devices that they complete. Recorded by eBPF programs at the tracepoints
//! `sched_switch`, `sched_waking` and `block_rq_complete` (tracer/bpf/switches.bpf.c).
//!
//! In some virtual machines perf's rings and those of tracefs have no records of the idle task of a CPU, but
//! eBPF programs run there, too: without them, a thread that was woken on such a CPU seemed to wait on until
//! it left it again. Wakings and requests of other tasks come from perf's rings, which have the flag of an
//! interrupt ([`crate::kernel::sched`]).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::blocked;
use super::layout::switch::{AT, BYTES, EXIT_STATE, IS_DONE, IS_WAKING, NEXT, RAN, STATE, TID};
use crate::bpf::object::Use;
use crate::bpf::objects::{self, Source};
use crate::bpf::ring::Ring;
use crate::bpf::{Kind, Map, attach};
use crate::kernel::sample::Stage;
use crate::kernel::sample::{Sample, What, bytes};
use crate::kernel::sched;
use crate::side_by_side::side_by_side;

/// The task that runs on a CPU without other work.
const IDLE: u32 = 0;
/// Most rings that the programs name one by one; with more CPUs they are in a map of maps.
const NAMED: usize = 16;

/// The running programs.
#[derive(Debug)]
pub(in crate::kernel) struct Switches {
    rings: Vec<Ring>,
    lost: Map,
    /// Losses up to the last read.
    known: u64,
    /// The programs and their links: they run as long as these are open.
    owned: Vec<OwnedFd>,
}

impl Switches {
    /// Begins to record all threads of the machine, in a ring of `size` bytes for each CPU.
    ///
    /// # Errors
    /// When the kernel refuses such programs, numbers processes otherwise than we do, or does not describe
    /// its types.
    pub(in crate::kernel) fn open(size: usize) -> io::Result<Switches> {
        Self::open_with(size, NAMED)
    }

    /// Up to `named` rings are named one by one.
    fn open_with(size: usize, named: usize) -> io::Result<Switches> {
        crate::linux::in_first_pid_namespace()?;
        let cpus = crate::cpus::array_length()?;
        // The kernel clears the rings, and the command begins after that.
        let rings = (0..cpus).map(|_| || Map::new(Kind::Ring, 0, size as u32));
        let rings = side_by_side(rings).into_iter();
        let rings = rings.collect::<io::Result<Vec<Map>>>()?;
        let last = rings.last().ok_or_else(|| io::Error::other("no CPU"))?;
        let all = Map::array_of(last, cpus)?;
        let is_named = rings.len() <= named;
        if !is_named {
            for (cpu, ring) in (0..).zip(&rings) {
                all.put(cpu, &ring.descriptor())?;
            }
        }
        let names: Vec<String> = (0..NAMED).map(|cpu| format!("ring_{cpu}")).collect();
        let (config, descriptors) = ([u8::from(is_named)], blocked::descriptors());
        let mut uses = vec![
            ("all_rings", Use::Shared(all.as_fd())),
            (".rodata", Use::Value(&config)),
            (".bss.descriptors", Use::Value(&descriptors)),
        ];
        uses.extend(names.iter().enumerate().map(|(cpu, name)| {
            let ring = rings.get(cpu).unwrap_or(last);
            (name.as_str(), Use::Shared(ring.as_fd()))
        }));
        let programs = ["leaves", "woken", "completed"];
        let mut loaded = objects::open(Source::Switches)?.load(&programs, &uses)?;
        let links = loaded.programs.iter().map(attach);
        let mut owned = links.collect::<io::Result<Vec<_>>>()?;
        let lost = loaded.map(".bss.lost")?;
        owned.extend(loaded.programs);
        let rings = rings.into_iter().map(|map| Ring::map(map, size));
        Ok(Switches {
            rings: rings.collect::<io::Result<_>>()?,
            lost,
            known: 0,
            owned,
        })
    }

    /// All descriptors that keep the programs at their tracepoints.
    pub(in crate::kernel) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.owned.iter().map(AsFd::as_fd)
    }

    /// Calls `take` with the waiting records. Returns how many were lost since the last time, up to a little
    /// earlier.
    pub(in crate::kernel) fn drain(&mut self, mut take: impl FnMut(Sample)) -> u64 {
        for ring in &mut self.rings {
            // A record that is still being written would delay those after it to the next time, when they are
            // too late.
            ring.drain_all(|record| {
                let call = record.get(BYTES..).and_then(blocked::decode);
                if let Some(sample) = decode(record) {
                    if let Some((number, what)) = call {
                        take(Sample {
                            number,
                            what,
                            ..sample
                        });
                    }
                    take(sample);
                }
            });
        }
        let Ok([now]) = self.lost.get(0) else {
            return 0;
        };
        now - std::mem::replace(&mut self.known, now)
    }
}

/// Decodes a record of a program. `None`: truncated.
fn decode(record: &[u8]) -> Option<Sample> {
    let half = |at: usize| bytes(record, at).map(u32::from_ne_bytes);
    let what = match half(EXIT_STATE)? {
        // An idle CPU wakes threads only in interrupts.
        IS_WAKING => What::Woken {
            by: IDLE,
            in_interrupt: true,
        },
        IS_DONE => What::Request {
            stage: Stage::Done,
            device: half(NEXT)?,
            sector: bytes(record, RAN).map(u64::from_ne_bytes)?,
        },
        exit_state => What::Leaves {
            state: sched::state::reported(half(STATE)?, exit_state),
            next: half(NEXT)?,
            ran_ns: Some(bytes(record, RAN).map(u64::from_ne_bytes)?),
        },
    };
    Some(Sample {
        at: bytes(record, AT).map(u64::from_ne_bytes)?,
        tid: half(TID)?,
        number: 0,
        what,
    })
}

#[cfg(test)]
mod tests;
