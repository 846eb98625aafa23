//! Parts of waits for storage: the time for which a thread's own requests were in a queue of the kernel, and
//! the time for which a device had them.

use std::collections::HashMap;

use super::super::sample::Stage;

/// A request from its begin on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Request {
    tid: u32,
    queued: u64,
    issued: Option<u64>,
    done: Option<u64>,
}

/// The parts of a wait, ns. The rest is neither: locks and journal of the file system, and requests that
/// others make for the thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    /// No request of the thread was at a device, and one waited for it.
    pub(super) queue_ns: u64,
    /// A request of the thread was at a device.
    pub(super) device_ns: u64,
}

/// Requests of all threads of the machine.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// By device and sector.
    under_way: HashMap<(u32, u64), Request>,
    /// Those done since the thread's last interval ended.
    done: HashMap<u32, Vec<Request>>,
}

impl Requests {
    /// A request reached a stage; `concerns` returns true for threads that are followed.
    pub(super) fn reported(
        &mut self,
        stage: Stage,
        place: (u32, u64),
        tid: u32,
        at: u64,
        concerns: impl Fn(u32) -> bool,
    ) {
        match stage {
            Stage::Queued => {
                let request = Request {
                    tid,
                    queued: at,
                    issued: None,
                    done: None,
                };
                self.under_way.insert(place, request);
            }
            Stage::Issued => {
                // Not all requests were in a queue.
                let request = self.under_way.entry(place).or_insert(Request {
                    tid,
                    queued: at,
                    issued: None,
                    done: None,
                });
                request.issued.get_or_insert(at);
            }
            Stage::Done => {
                if let Some(mut request) = self.under_way.remove(&place)
                    && concerns(request.tid)
                {
                    request.done = Some(at);
                    self.done.entry(request.tid).or_default().push(request);
                }
            }
        }
    }

    /// Records were dropped: a request under way may be over.
    pub(super) fn forget(&mut self) {
        *self = Requests::default();
    }

    /// An interval of a thread is over. Returns its parts, if it was a wait for storage.
    pub(super) fn close(&mut self, tid: u32, from: u64, to: u64, storage: bool) -> Parts {
        let mut own = self.done.remove(&tid).unwrap_or_default();
        if !storage {
            return Parts::default();
        }
        own.extend(self.under_way.values().filter(|request| request.tid == tid));
        let within = |begin: u64, end: u64| {
            let (begin, end) = (begin.max(from), end.min(to));
            (begin < end).then_some((begin, end))
        };
        let end = |request: &Request| request.done.unwrap_or(u64::MAX);
        let at_device = own.iter().filter_map(|r| within(r.issued?, end(r)));
        let device_ns = length(at_device.collect());
        let at_all = own.iter().filter_map(|r| within(r.queued, end(r)));
        Parts {
            queue_ns: length(at_all.collect()).saturating_sub(device_ns),
            device_ns,
        }
    }
}

/// Total time covered by at least one of the intervals.
fn length(mut intervals: Vec<(u64, u64)>) -> u64 {
    intervals.sort_unstable();
    let (mut sum, mut reached) = (0, 0);
    for (from, to) in intervals {
        let from = from.max(reached);
        sum += to.saturating_sub(from);
        reached = reached.max(to);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use Stage::{Done, Issued, Queued};

    #[test]
    fn a_wait_is_split_by_its_own_requests() {
        let mut requests = Requests::default();
        let mut report = |stage, sector, tid, at| {
            requests.reported(stage, (8, sector), tid, at, |tid| tid < 10);
        };
        // Two at a time, one of them straight to the device, and one of another thread.
        report(Queued, 1, 5, 100);
        report(Issued, 1, 99, 130);
        report(Queued, 7, 50, 90);
        report(Issued, 2, 5, 140);
        report(Done, 2, 0, 200);
        report(Queued, 3, 5, 195);
        report(Done, 1, 0, 180);
        report(Done, 7, 0, 210);
        let parts = |queue_ns, device_ns| Parts {
            queue_ns,
            device_ns,
        };
        // 110 to 130 queued, 130 to 200 at the device, 200 to 220 queued again.
        assert_eq!(requests.close(5, 110, 220, true), parts(40, 70));
        requests.reported(Issued, (8, 3), 5, 230, |_| true);
        assert_eq!(requests.close(5, 220, 250, true), parts(10, 20));
        assert_eq!(requests.close(50, 0, 300, true), parts(0, 0));
        requests.reported(Done, (8, 3), 0, 260, |_| true);
        assert_eq!(requests.close(5, 250, 270, false), parts(0, 0));
        assert_eq!(requests.close(5, 250, 280, true), parts(0, 0));
    }
}
