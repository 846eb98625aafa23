//! Processes as programs of ours in the kernel tell of them ([`crate::bpf`]), at the scheduler's tracepoints: every fork, every
//! exec with what it runs, every end with what was used, in the order in which it happened, and nobody
//! waits for us. For root, on kernels that describe their types.
//!
//! A record is in the ring before what it tells of goes on: a new process's fork before it runs, an exec before the
//! program's first instruction. Only ends may come late: they are told when a thread leaves its processor
//! for the last time, a moment after its parent may have heard of it.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::bpf::code::Code;
use crate::bpf::code::Instruction;
use crate::bpf::followed::Followed;
use crate::bpf::ring::Ring;
use crate::bpf::successor::Successor;
use crate::bpf::{Kind, Map, attach, attach_typed, load, load_typed, registers};
use crate::linux::in_first_pid_namespace;
use crate::side_by_side::{both, side_by_side};

mod bytes;
mod called;
mod calls;
mod contents;
mod format;
mod guard;
mod layout;
mod loops;
mod memory;
mod moment;
mod parts;
mod pending;
mod program;
mod received;
mod record;
mod sent;
mod sockets;
mod table;
mod used;

pub(crate) use called::{Called, Destination};
use calls::returned;
pub(crate) use contents::Contents;
use format::Maps;
pub(crate) use guard::Guard;
use layout::Layout;
use memory::SCRATCH;
pub(crate) use moment::Told;
use program::{ended, executed, exiting, forked};
use record::Records;
pub(super) use record::{Ended, Event, Executed, Used, What};

/// Bytes of the ring: 5 000 processes with a kilobyte of arguments each. The kernel clears all of it before the command begins.
const SIZE: u32 = 8 << 20;
/// Bytes of the ring by which we are woken, the least that there may be.
const BELL: u32 = 4096;
/// Bytes of the ring for what lies in pipes: some that are full.
const CONTENTS: u32 = 1 << 20;
/// The programs at work.
#[derive(Debug)]
pub(super) struct Tracepoints {
    ring: Ring,
    bell: Ring,
    /// `None`: all are told of.
    processes: Option<Followed>,
    lost: Map,
    records: Records,
    contents: Option<Arc<Contents>>,
    /// Programs that do not run yet.
    loaded: Vec<(At, OwnedFd)>,
    /// Held open: the programs and what they use live as long.
    held: (Vec<OwnedFd>, [Map; 3]),
}

impl Tracepoints {
    /// Begins to tell of these processes and all that they fork, or of all of the machine; `with_tables`: also what
    /// processes have open, and the calls by which they come by that.
    ///
    /// # Errors
    /// When the kernel refuses such programs, does not say where it keeps what they read, or counts processes
    /// otherwise than we do.
    pub(super) fn open(processes: Option<Followed>, with_tables: bool) -> io::Result<Tracepoints> {
        let mut tracepoints = Self::load(processes, with_tables)?;
        tracepoints.begin(None)?;
        Ok(tracepoints)
    }

    /// The same for [`Tracepoints::begin`] to begin.
    ///
    /// # Errors
    /// Likewise.
    pub(super) fn load(processes: Option<Followed>, with_tables: bool) -> io::Result<Tracepoints> {
        in_first_pid_namespace()?;
        if with_tables && !registers::ARE_KNOWN {
            return Err(io::Error::other("no programs for this processor"));
        }
        // The command begins after this: what takes the kernel and us long goes side by side.
        let rings = || [SIZE, BELL, CONTENTS].map(|size| Map::new(Kind::Ring, 0, size));
        let ([ring, bell, contents], layout) = both(rings, Layout::of_kernel);
        let (layout, ring, bell, contents) = (layout?, ring?, bell?, contents?);
        let processors = crate::cpus::array_length()?;
        let lost = Map::new(Kind::Array, size_of::<u64>(), 1)?;
        let scratch = Map::new(Kind::Array, processors as usize * SCRATCH, 1)?;
        let wanted = Map::new(Kind::Array, calls::WANTED, 1)?;
        wanted.put(0, &calls::wanted())?;
        let sent = Map::new(Kind::Hash, size_of::<u64>(), sent::SOCKETS)?;
        let maps = Maps {
            processes: processes.as_ref().map(Followed::for_programs),
            ring: ring.as_fd(),
            size: SIZE,
            lost: lost.as_fd(),
            scratch: scratch.as_fd(),
            processors,
            bell: bell.as_fd(),
            contents: contents.as_fd(),
            sent: sent.as_fd(),
            pages: with_tables.then(|| layout.open.pages()).flatten(),
            endless: Code::may_be_late(),
            with_tables,
        };
        // Those first that the kernel checks longest.
        let mut programs = vec![(At::Raw(c"sched_process_exec"), executed(&layout, &maps))];
        if with_tables {
            let returns = At::Returns(layout.calls.returns);
            programs.extend([
                (returns, returned(wanted.as_fd(), &layout, &maps)),
                (At::Raw(c"sched_process_exit"), exiting(&layout, &maps)),
            ]);
        }
        programs.extend([
            (At::Raw(c"sched_process_fork"), forked(&layout, &maps)),
            (At::Raw(c"sched_switch"), ended(&layout, &maps)),
        ]);
        let loading = programs
            .iter()
            .map(|(at, code)| || Ok((*at, at.load(code)?)));
        let loaded = side_by_side(loading)
            .into_iter()
            .collect::<io::Result<_>>()?;
        Ok(Tracepoints {
            ring: Ring::map(ring, SIZE as usize)?,
            bell: Ring::map(bell, BELL as usize)?,
            processes,
            lost,
            records: Records::default(),
            contents: match with_tables {
                true => Some(Arc::new(Contents::of(Ring::map(
                    contents,
                    CONTENTS as usize,
                )?))),
                false => None,
            },
            loaded,
            held: (Vec::new(), [scratch, wanted, sent]),
        })
    }

    /// Begins to tell; if there is a program already that is run when calls return, with that as its successor.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn begin(&mut self, returns: Option<&Successor>) -> io::Result<()> {
        for (at, program) in self.loaded.drain(..) {
            match (at, returns) {
                (At::Returns(_), Some(successor)) => successor.set(&program)?,
                _ => self.held.0.push(at.attach(&program)?),
            }
            self.held.0.push(program);
        }
        Ok(())
    }

    /// Hands over what was told and not read yet, in its order: all of which the record was begun before this. Whoever asks for a caller
    /// must not miss its exec for a record of another processor that is just being written.
    pub(super) fn receive(&mut self, mut each: impl FnMut(Event)) {
        self.bell.drain(|_| {});
        let records = &mut self.records;
        self.ring.drain_all(|record| {
            if let Some(event) = records.take(record) {
                each(event);
            }
        });
    }

    /// Has those that are told of end with us, should we be killed, and the views with these devices. `None`: all of the machine
    /// are told of, or there is no room for another process.
    pub(super) fn guard(&self, views: &[u64]) -> Option<Guard> {
        Guard::start(self.processes.as_ref()?, &self.held.0, views).ok()
    }

    /// What is told of what lies in pipes, if what processes have open is told.
    pub(super) fn contents(&self) -> Option<Arc<Contents>> {
        self.contents.clone()
    }

    /// Tells of process `pid`, too.
    pub(super) fn follow(&self, pid: u32) {
        if let Some(processes) = &self.processes {
            // What finds no room is seen by whoever looks for it in /proc.
            processes.follow(pid, false);
        }
    }

    /// Process `pid` is over, or of no interest any more: its id may become another one's.
    pub(super) fn forget(&self, pid: u32) {
        if let Some(processes) = &self.processes {
            processes.forget(pid);
        }
    }

    /// Records that found no room so far.
    pub(super) fn dropped(&self) -> u64 {
        self.lost.get(0).map_or(0, |[lost]| lost)
    }
}

/// Where a program runs.
#[derive(Clone, Copy, Debug)]
enum At {
    /// At the tracepoint of that name.
    Raw(&'static CStr),
    /// When calls return; the number of the type of that tracepoint's function.
    Returns(u32),
}

impl At {
    fn load(self, code: &[Instruction]) -> io::Result<OwnedFd> {
        match self {
            At::Raw(_) => load(code),
            At::Returns(function) => load_typed(code, function),
        }
    }

    fn attach(self, program: &OwnedFd) -> io::Result<OwnedFd> {
        match self {
            At::Raw(name) => attach(name, program),
            At::Returns(_) => attach_typed(program),
        }
    }
}

/// Readable when there is much to be read, or something that must be read at once.
impl AsFd for Tracepoints {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests;
