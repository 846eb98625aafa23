//! Recording of calls: caller, time and result.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flowtrace_schema::{Call, Fidelity, FileId, Loss, Op, Recorder};

use super::handle::Opener;
use super::in_flight;
use super::split::{Cutting, Served, Split};
use crate::callers::{Caller, Callers, Effort};
use crate::clock::Clock;

/// Passes the calls of one mount to the writer.
pub(crate) struct Log {
    recorder: Recorder,
    clock: Clock,
    callers: Arc<dyn Callers>,
    enabled: bool,
    /// True if calls without a file are on a file that the filter leaves out.
    filtered: bool,
    /// Our first thread. Its actions on files that the command inherited are no calls of the workflow.
    own: u32,
    unknown_callers: AtomicU64,
    out_of_descriptors: AtomicU64,
    writeback: AtomicU64,
    writeback_refused: AtomicU64,
    excluded: AtomicU64,
}

/// A call in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    at_ns: u64,
    pub(crate) tid: u32,
    /// Its caller.
    pub(crate) caller: Option<Caller>,
}

/// Facts of a call besides times, caller and result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    op: Op,
    file: Option<FileId>,
    offset: Option<u64>,
    length: Option<u64>,
    flags: Option<u32>,
    fidelity: Fidelity,
}

impl Event {
    pub(crate) fn new(op: Op, file: Option<FileId>) -> Event {
        Event {
            op,
            file,
            offset: None,
            length: None,
            flags: None,
            fidelity: Fidelity::Exact,
        }
    }

    pub(crate) fn offset(self, offset: u64) -> Event {
        let offset = Some(offset);
        Event { offset, ..self }
    }

    pub(crate) fn length(self, length: u64) -> Event {
        let length = Some(length);
        Event { length, ..self }
    }

    pub(crate) fn flags(self, flags: u32) -> Event {
        let flags = Some(flags);
        Event { flags, ..self }
    }

    pub(crate) fn fidelity(self, fidelity: Fidelity) -> Event {
        Event { fidelity, ..self }
    }
}

impl Log {
    pub(crate) fn new(
        recorder: Recorder,
        clock: Clock,
        callers: Arc<dyn Callers>,
        enabled: bool,
        filtered: bool,
    ) -> Log {
        Log {
            recorder,
            clock,
            callers,
            enabled,
            filtered,
            own: std::process::id(),
            unknown_callers: AtomicU64::new(0),
            out_of_descriptors: AtomicU64::new(0),
            writeback: AtomicU64::new(0),
            writeback_refused: AtomicU64::new(0),
            excluded: AtomicU64::new(0),
        }
    }

    /// A call arrives. `effort` as in [`Callers::resolve`].
    #[inline]
    pub(crate) fn start(&self, tid: u32, effort: Effort) -> Started {
        if !self.enabled {
            return Started {
                at_ns: 0,
                tid,
                caller: None,
            };
        }
        let at_ns = self.clock.now();
        let caller = match tid {
            0 => None,
            tid => self.callers.resolve(tid, effort),
        };
        Started { at_ns, tid, caller }
    }

    /// A call is about to be answered.
    #[inline]
    pub(crate) fn end(&self, started: Started, event: Event, result: i64) {
        if self.records(&started, &event) {
            self.recorder.call(&self.call(started, event, result));
        }
    }

    /// As [`Log::end`], for reads and writes, which may be pieces of one call.
    #[inline]
    pub(crate) fn end_piece(
        &self,
        started: Started,
        event: Event,
        result: i64,
        split: &Split,
        cutting: Cutting,
    ) {
        if self.records(&started, &event) {
            let served = Served {
                call: self.call(started, event, result),
                tid: started.tid,
                cutting,
            };
            let find_call =
                |is_more: &dyn Fn(_) -> bool| in_flight::of(served.tid, event.op, is_more);
            split.add(served, find_call, |call| self.recorder.call(&call));
        }
    }

    /// A thread closes a file: no more pieces of its calls come.
    pub(crate) fn end_pieces_of(&self, started: &Started, split: &Split) {
        split.closed_by(started.tid, |call| self.recorder.call(&call));
    }

    /// No more pieces come: an open file is released, or the mount is gone.
    pub(crate) fn end_pieces(&self, split: &Split) {
        split.finish(|call| self.recorder.call(&call));
    }

    fn records(&self, started: &Started, event: &Event) -> bool {
        if started.caller.is_none() && self.is_own(started.tid) {
            return false;
        }
        let excluded = self.filtered && event.file.is_none();
        if excluded {
            self.excluded.fetch_add(1, Ordering::Relaxed);
        }
        self.enabled && !excluded
    }

    /// True if a thread is one of this process, which may look up a path that leads through a mount.
    fn is_own(&self, tid: u32) -> bool {
        tid == self.own || tid != 0 && Path::new(&format!("/proc/self/task/{tid}")).exists()
    }

    fn call(&self, started: Started, event: Event, result: i64) -> Call {
        if event.fidelity == Fidelity::Writeback {
            self.writeback.fetch_add(1, Ordering::Relaxed);
        } else if started.caller.is_none() {
            self.unknown_callers.fetch_add(1, Ordering::Relaxed);
        }
        if [-i64::from(libc::EMFILE), -i64::from(libc::ENFILE)].contains(&result) {
            self.out_of_descriptors.fetch_add(1, Ordering::Relaxed);
        }
        Call {
            start_ns: started.at_ns,
            duration_ns: self.clock.now().saturating_sub(started.at_ns),
            upid: started.caller.map(|caller| caller.upid),
            tid: started.caller.and_then(|caller| caller.tid),
            op: event.op,
            file: event.file,
            offset: event.offset,
            length: event.length,
            flags: event.flags,
            result,
            fidelity: event.fidelity,
        }
    }

    /// Changed pages could not be written, and the kernel drops them: of any file, recorded or not.
    pub(crate) fn refused_writeback(&self) {
        self.writeback_refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Passes on the counters of calls that could not be seen.
    pub(crate) fn finish(&self) {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        self.recorder
            .lost(Loss::UnknownCaller, take(&self.unknown_callers));
        self.recorder
            .lost(Loss::OutOfDescriptors, take(&self.out_of_descriptors));
        self.recorder
            .lost(Loss::WritebackPages, take(&self.writeback));
        self.recorder
            .lost(Loss::WritebackRefused, take(&self.writeback_refused));
        self.recorder.lost(Loss::Excluded, take(&self.excluded));
    }
}

impl Started {
    /// The same call, charged to the opener of the file if the kernel does not report the caller.
    pub(crate) fn or_opener(self, opener: Opener) -> Started {
        if self.tid == 0 && self.caller.is_none() {
            Started {
                caller: opener.caller,
                tid: opener.tid,
                ..self
            }
        } else {
            self
        }
    }

    /// The opener of files that this call opens.
    pub(crate) fn opener(&self) -> Opener {
        Opener {
            caller: self.caller,
            tid: self.tid,
        }
    }

    /// The same call, made by the kernel itself.
    pub(crate) fn by_kernel(self) -> Started {
        Started {
            caller: None,
            ..self
        }
    }
}

/// The result column: a value, or the errno as a negative number.
pub(crate) fn outcome<T>(result: &nix::Result<T>, value: impl FnOnce(&T) -> i64) -> i64 {
    match result {
        Ok(result) => value(result),
        Err(errno) => -i64::from(*errno as i32),
    }
}

/// As [`outcome`], for calls that return nothing.
pub(crate) fn done<T>(result: &nix::Result<T>) -> i64 {
    outcome(result, |_| 0)
}
