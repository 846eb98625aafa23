//! Sources of records of the scheduler, and of requests to devices.

use std::io;
use std::os::fd::BorrowedFd;

use super::perf::Rings;
use super::programs::Switches;
use super::ring_size;
use super::sample::Sample;

/// A source of records of the scheduler.
pub(crate) struct Scheduler {
    switches: Switches,
    /// Wakings and requests of tasks other than the idle ones.
    rings: Rings,
}

impl Scheduler {
    /// # Errors
    /// When the kernel refuses the eBPF programs, or perf's rings.
    pub(crate) fn open() -> io::Result<Scheduler> {
        let switches = Switches::open(ring_size::of_scheduler()? / 2)?;
        let rings = Rings::open()?;
        Ok(Scheduler { switches, rings })
    }

    /// True if requests to devices are recorded, too.
    pub(super) fn reports_requests(&self) -> bool {
        self.rings.reports_requests()
    }

    /// The rings of perf.
    pub(super) fn rings(&self) -> &Rings {
        &self.rings
    }

    /// All descriptors that keep the tracepoints open.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.descriptors().chain(self.switches.descriptors())
    }

    /// Calls `take` with the waiting records. Returns how many were dropped since the last time.
    pub(super) fn drain(&mut self, mut take: impl FnMut(Sample)) -> u64 {
        let mut lost = self.switches.drain(&mut take);
        self.rings.drain(take, &mut lost);
        lost
    }
}
