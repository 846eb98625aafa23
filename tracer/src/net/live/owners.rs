//! The processes at the ends of flows, as their open descriptors show, or calls that do not show addresses. A
//! row is recorded when a process is found, and again when it has left: the trace is complete at any time.

use std::collections::HashMap;

use flowtrace_schema::{End, Evidence, FlowId, FlowOwner, Record, Recorder, Upid};

/// Processes that have the ends of flows open.
#[derive(Debug)]
pub(super) struct Owners {
    recorder: Recorder,
    ends: HashMap<(FlowId, End), Holders>,
    /// Rows so far.
    rows: u32,
}

/// All processes that were seen to have one end open.
#[derive(Debug)]
struct Holders {
    /// Time of the last reading.
    read_ns: i64,
    all: Vec<Holder>,
}

/// A process that was seen to have an end open, with the first and last time.
#[derive(Clone, Copy, Debug)]
struct Holder {
    row: u32,
    upid: Upid,
    from_ns: i64,
    to_ns: i64,
    /// True if its row says that it has the end open no more.
    has_left: bool,
    evidence: Evidence,
}

impl Owners {
    pub(super) fn new(recorder: &Recorder) -> Owners {
        Owners {
            recorder: recorder.clone(),
            ends: HashMap::new(),
            rows: 0,
        }
    }

    /// These processes have a socket at one end of a flow open at `t_ns`. Several sockets may be there: each
    /// is reported with the time of their common reading.
    pub(super) fn hold(&mut self, flow: FlowId, end: End, holders: &[Upid], t_ns: i64) {
        // A socket that no process has open any more was not given to others.
        if holders.is_empty() {
            return;
        }
        let known_holders = self.ends.entry((flow, end)).or_insert(Holders {
            read_ns: t_ns,
            all: Vec::new(),
        });
        if t_ns > known_holders.read_ns {
            // All holders of the reading before have been reported.
            known_holders.settle((flow, end), &self.recorder);
            known_holders.read_ns = t_ns;
        }
        for &upid in holders {
            if let Some(known) = known_holders
                .all
                .iter_mut()
                .find(|holder| holder.upid == upid)
            {
                known.to_ns = t_ns;
                continue;
            }
            self.rows += 1;
            let holder = Holder {
                row: self.rows,
                upid,
                from_ns: t_ns,
                to_ns: t_ns,
                has_left: false,
                evidence: Evidence::Descriptors,
            };
            holder.record((flow, end), &self.recorder);
            known_holders.all.push(holder);
        }
    }

    /// This process made a socket at one end of a flow.
    pub(super) fn made(&mut self, flow: FlowId, end: End, upid: Upid, t_ns: i64) {
        let known_holders = self.ends.entry((flow, end)).or_insert(Holders {
            read_ns: t_ns,
            all: Vec::new(),
        });
        if known_holders.all.iter().any(|holder| holder.upid == upid) {
            return;
        }
        self.rows += 1;
        let holder = Holder {
            row: self.rows,
            upid,
            from_ns: t_ns,
            to_ns: i64::MAX,
            has_left: false,
            evidence: Evidence::Calls,
        };
        holder.record((flow, end), &self.recorder);
        known_holders.all.push(holder);
    }

    /// The only socket at this end is closed.
    pub(super) fn closed(&mut self, flow: FlowId, end: End) {
        if let Some(mut known_holders) = self.ends.remove(&(flow, end)) {
            known_holders.settle((flow, end), &self.recorder);
        }
    }

    /// Records the processes that have left until the last reading.
    pub(super) fn finish(&mut self) {
        for (end, mut known_holders) in self.ends.drain() {
            known_holders.settle(end, &self.recorder);
        }
    }
}

impl Holders {
    /// The owner at the last reading has the end open until the flow ends.
    fn settle(&mut self, end: (FlowId, End), recorder: &Recorder) {
        for holder in &mut self.all {
            let has_left = holder.to_ns < self.read_ns;
            if has_left != holder.has_left {
                holder.has_left = has_left;
                holder.record(end, recorder);
            }
        }
    }
}

impl Holder {
    fn record(&self, (flow, end): (FlowId, End), recorder: &Recorder) {
        recorder.record(Record::FlowOwner(Box::new(FlowOwner {
            row: self.row,
            flow,
            end,
            upid: self.upid,
            from_ns: Some(self.from_ns),
            to_ns: self.has_left.then_some(self.to_ns),
            evidence: self.evidence,
        })));
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use flowtrace_schema::Writer;

    use super::*;

    const FLOW: FlowId = FlowId(3);

    struct Trace {
        owners: Owners,
        recorder: Recorder,
        _writer: Writer,
        path: PathBuf,
        _directory: tempfile::TempDir,
    }

    impl Trace {
        fn new() -> Trace {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("trace.db");
            let (writer, recorder) = Writer::create(&path, false).unwrap();
            Trace {
                owners: Owners::new(&recorder),
                recorder,
                _writer: writer,
                path,
                _directory: directory,
            }
        }

        /// Process, first and last reading of each row that is in the trace now.
        fn rows(&self) -> Vec<(u32, i64, Option<i64>)> {
            assert!(self.recorder.settle());
            let db = rusqlite::Connection::open(&self.path).unwrap();
            let mut rows = db
                .prepare("SELECT upid, from_ns, to_ns FROM flow_owners ORDER BY upid")
                .unwrap();
            let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
            rows.unwrap().map(Result::unwrap).collect()
        }
    }

    #[test]
    fn owners_are_in_the_trace_from_the_first_look_on() {
        let mut trace = Trace::new();
        trace.owners.hold(FLOW, End::Src, &[Upid(1), Upid(2)], 10);
        assert_eq!(trace.rows(), [(1, 10, None), (2, 10, None)]);
        trace.owners.hold(FLOW, End::Src, &[Upid(2)], 20);
        trace.owners.hold(FLOW, End::Src, &[Upid(2), Upid(3)], 30);
        let rows = [(1, 10, Some(10)), (2, 10, None), (3, 30, None)];
        assert_eq!(trace.rows(), rows);
        // No process has the socket of data that the kernel still sends for ended ones.
        trace.owners.hold(FLOW, End::Src, &[], 40);
        trace.owners.closed(FLOW, End::Src);
        assert_eq!(trace.rows(), rows);
        assert!(trace.owners.ends.is_empty());
    }

    #[test]
    fn who_made_a_socket_holds_it_to_the_end() {
        let mut trace = Trace::new();
        for upid in [1, 1, 2] {
            trace
                .owners
                .made(FLOW, End::Src, Upid(upid), 10 * i64::from(upid));
        }
        trace.owners.finish();
        assert_eq!(trace.rows(), [(1, 10, None), (2, 20, None)]);
    }

    #[test]
    fn two_sockets_at_one_end_are_reported_one_after_the_other() {
        let mut trace = Trace::new();
        for t_ns in [10, 20, 30] {
            trace.owners.hold(FLOW, End::Dst, &[Upid(1)], t_ns);
            trace.owners.hold(FLOW, End::Dst, &[Upid(2)], t_ns);
            assert_eq!(trace.rows(), [(1, 10, None), (2, 10, None)]);
        }
        trace.owners.hold(FLOW, End::Dst, &[Upid(1)], 40);
        trace.owners.finish();
        assert_eq!(trace.rows(), [(1, 10, None), (2, 10, Some(30))]);
    }
}
