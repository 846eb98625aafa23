//! Records of calls by two eBPF programs at the tracepoints `sys_enter` and `sys_exit`
//! (tracer/bpf/calls.bpf.c), for some 0.15 µs a record. They pick calls by number and callers by process, and live
//! as long as their descriptors are open.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::ring_size;
use super::sample::{FileUse, Returned, Sample, What, bytes};
use crate::bpf::object::Use;
use crate::bpf::objects::{self, Source};
use crate::bpf::per_cpu_rings::{PerCpuRings, SLOT};
use crate::bpf::tail_call::TailCall;
use crate::bpf::traced_pids::TracedPids;
use crate::bpf::{Map, attach};
use crate::stat::Inode;

mod blocked;
mod layout;
mod switches;
mod wanted;

pub(crate) use switches::Scheduler;

/// Records of calls by eBPF programs, which run as long as this lives.
#[derive(Debug)]
pub(crate) struct CallSource {
    rings: PerCpuRings,
    lost: Map,
    /// Used fraction of the fullest ring at the last read.
    used: f64,
    /// Losses up to the last read: entries of calls, returns.
    known: [u64; 2],
    tail_call: TailCall,
    /// The programs and their links, which live as long as these are open.
    _owned: [Vec<OwnedFd>; 2],
}

impl CallSource {
    /// Records the calls of the processes in `traced`, which other eBPF programs keep. Their reports of a call must
    /// come after the records made here, so they are to be attached later. `ring_kib`: size of the ring of each CPU,
    /// if it is asked for.
    ///
    /// # Errors
    /// When the kernel refuses such programs, or numbers processes otherwise than we do.
    pub(crate) fn open(traced: &TracedPids, ring_kib: Option<u32>) -> io::Result<CallSource> {
        let size = ring_size::of_calls(ring_kib)?;
        crate::linux::in_first_pid_namespace()?;
        let cpus = crate::cpus::array_length()?;
        let rings = PerCpuRings::new(cpus, size)?;
        let tail_call = TailCall::new()?;
        let (config, calls) = (rings.bits().to_ne_bytes(), wanted::calls());
        let mut uses = vec![
            ("tail_call", Use::Shared(tail_call.as_fd())),
            (".rodata", Use::Value(&config)),
            (".bss.calls", Use::Value(&calls)),
        ];
        uses.extend(rings.uses());
        uses.extend(traced.uses());
        let mut loaded = objects::open(Source::Calls)?.load(&["entries", "returns"], &uses)?;
        let links = loaded.programs.iter().map(attach);
        let links = links.collect::<io::Result<_>>()?;
        let lost = loaded.map(".bss.lost")?;
        Ok(CallSource {
            rings,
            lost,
            used: 0.0,
            known: [0; 2],
            tail_call,
            _owned: [links, loaded.programs],
        })
    }

    /// The tail call after each return.
    pub(crate) fn tail_call(&self) -> &TailCall {
        &self.tail_call
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

    /// Number of lost entries of calls so far, at the last read.
    pub(super) fn lost_entries(&self) -> u64 {
        self.known[0]
    }
}

/// Decodes a record of a program. `None`: an unknown kind.
fn decode(mark: u16, record: &[u8; SLOT]) -> Option<Sample> {
    let number = u32::from(mark) & ((1 << layout::KIND_BITS) - 1);
    let what = match mark >> layout::KIND_BITS {
        layout::ENTRY => What::Enters(file_use(record)?),
        layout::OTHER_ENTRY => What::AlsoUses(file_use(record)?),
        layout::RETURN => What::Returns(Returned {
            result: word(record, layout::RESULT)?.cast_signed(),
            position: known(word(record, layout::POSITION)?),
        }),
        layout::MOVED => What::Moved(word(record, layout::RESULT)?),
        _ => return None,
    };
    Some(Sample {
        at: word(record, layout::AT)?,
        tid: bytes(record, layout::TID).map(u32::from_ne_bytes)?,
        number,
        what,
    })
}

fn file_use(record: &[u8; SLOT]) -> Option<FileUse> {
    use layout::{USE, file_use as of};
    let half = |at: usize| bytes(record, USE + at).map(u32::from_ne_bytes);
    let quarter = |at: usize| bytes(record, USE + at).map(u16::from_ne_bytes);
    let word = |at: usize| word(record, USE + at);
    let uses = quarter(of::USES)?;
    Some(FileUse {
        file: word(of::FILE)?,
        inode: Inode::reported(half(of::DEVICE)?, word(of::INODE)?),
        mode: quarter(of::MODE)?.into(),
        at_position: uses & of::AT_POSITION != 0,
        appends: uses & of::APPENDS != 0,
        offset: known(word(of::OFFSET)?),
        length: known(word(of::LENGTH)?),
        flags: half(of::FLAGS)?,
        descriptor: half(of::DESCRIPTOR)?.cast_signed(),
    })
}

fn word(record: &[u8], at: usize) -> Option<u64> {
    bytes(record, at).map(u64::from_ne_bytes)
}

/// A number for which the programs write `UNKNOWN` if they do not know it.
fn known(number: u64) -> Option<u64> {
    (number != u64::MAX).then_some(number)
}

#[cfg(test)]
mod tests;
