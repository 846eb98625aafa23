//! Sources of records of the scheduler, and of requests to devices.

use std::io;
use std::os::fd::BorrowedFd;

use super::calls;
use super::perf::{Rings, size_of_scheduler_rings};
use super::programs::Switches;
use super::sample::Sample;

/// A source of records of the scheduler.
pub(crate) struct Scheduler {
    /// `None`: perf's rings have all records.
    switches: Option<Switches>,
    rings: Rings,
}

impl Scheduler {
    /// Uses eBPF programs as far as possible, unless perf's rings are asked for.
    ///
    /// # Errors
    /// When perf's rings cannot be had.
    pub(crate) fn open() -> io::Result<Scheduler> {
        let size = size_of_scheduler_rings()?;
        let programs = || Switches::open(size / 2).ok();
        let switches = (!calls::are_by_perf()).then(programs).flatten();
        let rings = Rings::open_scheduler(switches.as_ref())?;
        Ok(Scheduler { switches, rings })
    }

    /// True if requests to devices are recorded, too.
    pub(super) fn reports_requests(&self) -> bool {
        self.rings.reports_requests()
    }

    /// True if it reports the calls in which threads wait, as far as these have no records of their own.
    pub(super) fn reports_calls(&self) -> bool {
        self.switches.is_some()
    }

    /// The rings of perf.
    pub(super) fn rings(&self) -> &Rings {
        &self.rings
    }

    /// All descriptors that keep the tracepoints open.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let switches = self.switches.iter().flat_map(Switches::descriptors);
        self.rings.descriptors().chain(switches)
    }

    /// Calls `take` with the waiting records. Returns how many were dropped since the last time.
    pub(super) fn drain(&mut self, mut take: impl FnMut(Sample)) -> u64 {
        let switches = self.switches.as_mut();
        let mut lost = switches.map_or(0, |switches| switches.drain(&mut take));
        self.rings.drain(take, &mut lost);
        lost
    }
}
