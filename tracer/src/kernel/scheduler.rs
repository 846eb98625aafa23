//! Who tells of the scheduler, and of requests to devices.

use std::io;
use std::os::fd::BorrowedFd;

use super::calls;
use super::perf::{Rings, size_of_scheduler_rings};
use super::programs::Switches;
use super::sample::Sample;

/// See the module.
pub(crate) struct Scheduler {
    /// `None`: perf's rings tell all by themselves.
    switches: Option<Switches>,
    rings: Rings,
}

impl Scheduler {
    /// As far as may be by programs in the kernel, unless perf's rings are asked for.
    ///
    /// # Errors
    /// When there are no such rings.
    pub(crate) fn open() -> io::Result<Scheduler> {
        let size = size_of_scheduler_rings()?;
        let programs = || Switches::open(size / 2).ok();
        let switches = (!calls::are_by_perf()).then(programs).flatten();
        let rings = Rings::open_scheduler(switches.as_ref())?;
        Ok(Scheduler { switches, rings })
    }

    /// Whether requests to devices are told, too.
    pub(super) fn reports_requests(&self) -> bool {
        self.rings.reports_requests()
    }

    /// True if it reports the calls in which threads wait, as far as these have no records of their own.
    pub(super) fn reports_calls(&self) -> bool {
        self.switches.is_some()
    }

    /// Perf's.
    pub(super) fn rings(&self) -> &Rings {
        &self.rings
    }

    /// All that holds the tracepoints open.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let switches = self.switches.iter().flat_map(Switches::descriptors);
        self.rings.descriptors().chain(switches)
    }

    /// Hands over what waits. Returns how many records were dropped since the last time.
    pub(super) fn drain(&mut self, mut take: impl FnMut(Sample)) -> u64 {
        let switches = self.switches.as_mut();
        let mut lost = switches.map_or(0, |switches| switches.drain(&mut take));
        self.rings.drain(take, &mut lost);
        lost
    }
}
