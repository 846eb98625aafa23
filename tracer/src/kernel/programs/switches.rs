//! Records of the scheduler by eBPF programs (tracer/bpf/switches.bpf.c): switches between threads on each CPU,
//! wakings, and the stages of requests to devices, of the whole machine.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::blocked;
use super::layout::switch::{
    AT, BYTES, EXIT_STATE, IS_REQUEST, IS_WAKING, NEXT, RAN, STAGES, STATE, TID,
};
use crate::bpf::btf::Types;
use crate::bpf::object::Use;
use crate::bpf::objects::{self, Source};
use crate::bpf::ring::Ring;
use crate::bpf::{Kind, Map, attach, missed};
use crate::kernel::sample::{Interrupt, Sample, What, bytes};
use crate::kernel::{ring_size, state};
use crate::side_by_side::side_by_side;

/// Most rings that the programs name one by one; with more CPUs they are in a map of maps.
const NAMED: usize = 16;

/// The running programs.
#[derive(Debug)]
pub(crate) struct Scheduler {
    rings: Vec<Ring>,
    lost: Map,
    /// Losses up to the last read.
    known: u64,
    /// The programs run as long as these and their links are open.
    programs: Vec<OwnedFd>,
    _links: Vec<OwnedFd>,
}

impl Scheduler {
    /// Begins to record all threads of the machine.
    ///
    /// # Errors
    /// When the kernel refuses such programs, numbers processes otherwise than we do, or does not describe
    /// its types.
    pub(crate) fn open() -> io::Result<Scheduler> {
        Self::open_with(ring_size::of_scheduler()?, NAMED)
    }

    /// With a ring of `size` bytes for each CPU. Up to `named` rings are named one by one.
    fn open_with(size: usize, named: usize) -> io::Result<Scheduler> {
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
        let distance = to_preempt_count(Types::of_kernel()?)?;
        let config = [&distance.to_ne_bytes()[..], &[u8::from(is_named)]].concat();
        let descriptors = blocked::descriptors();
        let mut uses = vec![
            ("all_rings", Use::Shared(all.as_fd())),
            (".rodata", Use::Value(&config)),
            (".bss.descriptors", Use::Value(&descriptors)),
        ];
        uses.extend(names.iter().enumerate().map(|(cpu, name)| {
            let ring = rings.get(cpu).unwrap_or(last);
            (name.as_str(), Use::Shared(ring.as_fd()))
        }));
        let programs = ["leaves", "woken", "queued", "issued", "completed"];
        let mut loaded = objects::open(Source::Switches)?.load(&programs, &uses)?;
        let links = loaded.programs.iter().map(attach);
        let links = links.collect::<io::Result<_>>()?;
        let lost = loaded.map(".bss.lost")?;
        let rings = rings.into_iter().map(|map| Ring::map(map, size));
        Ok(Scheduler {
            rings: rings.collect::<io::Result<_>>()?,
            lost,
            known: 0,
            programs: loaded.programs,
            _links: links,
        })
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
        // Not recorded at all: what happened in an interrupt of the program that would record it.
        let missed: io::Result<u64> = self.programs.iter().map(missed).sum();
        let (Ok([dropped]), Ok(missed)) = (self.lost.get(0), missed) else {
            return 0;
        };
        let now = dropped + missed;
        now - std::mem::replace(&mut self.known, now)
    }
}

/// Bytes from the run queue of a CPU to its count of interrupts and of reasons not to preempt: a variable since Linux
/// 6.15 and a member of one since 6.2, on x86-64.
fn to_preempt_count(kernel: &Types) -> io::Result<i64> {
    let to = |variable| kernel.distance("runqueues", variable);
    let within = || Some(to("pcpu_hot")? + kernel.offset("pcpu_hot", "preempt_count")? as i64);
    let found = to("__preempt_count").or_else(within);
    found.ok_or_else(|| io::Error::other("this kernel does not describe its count of interrupts"))
}

/// Decodes a record of a program. `None`: truncated, or of an unknown stage.
fn decode(record: &[u8]) -> Option<Sample> {
    let half = |at: usize| bytes(record, at).map(u32::from_ne_bytes);
    let what = match half(EXIT_STATE)? {
        IS_WAKING => What::Woken {
            by: half(NEXT)?,
            interrupt: match half(STATE)? {
                0 => None,
                2 => Some(Interrupt::Hard),
                _ => Some(Interrupt::Soft),
            },
        },
        IS_REQUEST => What::Request {
            stage: *STAGES.get(half(STATE)? as usize)?,
            device: half(NEXT)?,
            sector: bytes(record, RAN).map(u64::from_ne_bytes)?,
        },
        exit_state => What::Leaves {
            state: state::reported(half(STATE)?, exit_state),
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
