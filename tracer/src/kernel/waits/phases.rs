//! States of threads from records of the scheduler.

use super::super::sample::{Sample, What};
use super::{Files, Phase, Waits, Wakes, state};

impl Waits {
    /// The next sample in the order of time.
    pub(in super::super) fn sample(&mut self, sample: &Sample, files: &dyn Files) {
        let (tid, at) = (sample.tid, sample.at);
        match sample.what {
            What::Leaves {
                state,
                next,
                ran_ns,
            } => {
                if tid != 0 {
                    self.has_come(tid, ran_ns, at, files);
                    self.leaves(tid, state, at, files);
                }
                if next != 0 {
                    self.runs(next, at, files);
                }
            }
            What::Woken { by, interrupt } => {
                let wakes = Wakes { by, interrupt };
                self.woken(tid, wakes, at, files);
            }
            What::Request {
                stage,
                device,
                sector,
            } => {
                let threads = &self.threads;
                let concerns = |tid| threads.contains_key(&tid);
                self.requests
                    .reported(stage, (device, sector), tid, at, concerns);
            }
            What::In(call) => self.is_in(tid, Some((sample.number, call)), files),
            What::InNoCall => self.is_in(tid, None, files),
            What::Enters(_) | What::AlsoUses(_) | What::Returns(_) | What::Moved(_) => {}
        }
    }

    /// A thread that leaves a CPU has come to one. Where that was not recorded, as now and then in some
    /// virtual machines, its CPU time gives the time at which it came.
    fn has_come(&mut self, tid: u32, ran_ns: Option<u64>, at: u64, files: &dyn Files) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let before = std::mem::replace(&mut thread.ran_ns, ran_ns);
        if let (Phase::Blocked(_) | Phase::Runnable, Some(before), Some(now)) =
            (thread.phase, before, ran_ns)
        {
            let came = at.saturating_sub(now.saturating_sub(before));
            let came = came.max(thread.since);
            self.runs(tid, came, files);
        }
    }

    fn leaves(&mut self, tid: u32, state: u16, at: u64, files: &dyn Files) {
        let phase = match state & state::BLOCKED {
            0 => Phase::Runnable,
            dead if dead & state::DEAD != 0 => Phase::Dead,
            blocked => Phase::Blocked(blocked),
        };
        if !self.threads.contains_key(&tid) {
            match phase {
                Phase::Dead => self.others.remove(&tid),
                _ => self.others.insert(tid, phase),
            };
            return;
        }
        self.close(tid, at, None, files);
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.phase = phase;
            if phase == Phase::Runnable {
                thread.early = None;
            }
        }
        if phase == Phase::Dead {
            self.has_died(tid, at, files);
        }
    }

    fn runs(&mut self, tid: u32, at: u64, files: &dyn Files) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            self.others.insert(tid, Phase::Running);
            return;
        };
        // It was woken before it had left: it has been ready since then.
        if thread.early.take().is_some() && matches!(thread.phase, Phase::Blocked(_)) {
            thread.phase = Phase::Runnable;
        }
        self.close(tid, at, None, files);
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.phase = Phase::Running;
            // A report of its next stop is still to come.
            thread.stopped = false;
        }
    }

    fn woken(&mut self, tid: u32, wakes: Wakes, at: u64, files: &dyn Files) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            if let Some(phase @ Phase::Blocked(_)) = self.others.get_mut(&tid) {
                *phase = Phase::Runnable;
            }
            return;
        };
        match thread.phase {
            Phase::Running => thread.early = Some(wakes),
            Phase::Blocked(_) => {
                thread.early = None;
                self.close(tid, at, Some(wakes), files);
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.phase = Phase::Runnable;
                }
            }
            Phase::Runnable | Phase::Dead => {}
        }
    }
}
