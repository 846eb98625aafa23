//! Views on samples: the counterpart of each wait, and the time accounting of a process.

use std::path::Path;

use flowtrace_schema::{
    Activity, FileLayer, HostId, HostRecord, Origin, ProcessEnd, ProcessLayer, ProcessStart,
    Record, Recorder, RunEnd, RunId, RunRecord, SampleRecord, SampledTotals, Side, Tid, Upid,
    Usage, WaitObject, Waker, Writer,
};
use rusqlite::Connection;

struct Play {
    recorder: Recorder,
    samples: u64,
}

impl Play {
    fn process(&self, upid: u32, parent: Option<u32>, from: u64, until: u64, usage: Usage) {
        self.recorder
            .record(Record::ProcessStart(Box::new(ProcessStart {
                upid: Upid(upid),
                host: HostId(1),
                pid: 100 + upid,
                parent: parent.map(Upid),
                prev: None,
                origin: Origin::Fork,
                exe: None,
                argv: None,
                cwd: None,
                environment: None,
                start_ns: from,
            })));
        self.recorder
            .record(Record::ProcessEnd(Box::new(ProcessEnd {
                upid: Upid(upid),
                end_ns: Some(until),
                exit_code: Some(0),
                exit_signal: None,
                inner_pid: None,
                usage,
            })));
    }

    fn sample(&mut self, upid: u32, activity: Activity, from: u64, until: u64) -> SampleRecord {
        self.samples += 1;
        SampleRecord {
            id: self.samples,
            start_ns: from,
            end_ns: until,
            upid: Upid(upid),
            tid: Tid(100 + upid),
            activity,
            op: Some("read"),
            objects: Vec::new(),
            file: None,
            samples: ((until - from) / 20) as u32,
            exact: false,
            waker: None,
        }
    }

    fn record(&self, sample: SampleRecord) {
        self.recorder.record(Record::Sample(Box::new(sample)));
    }
}

fn waits_for(object: u64, side: Option<Side>) -> WaitObject {
    WaitObject {
        object,
        side,
        channel: None,
    }
}

fn play(path: &Path, play: impl FnOnce(&mut Play)) -> Connection {
    let (writer, recorder) = Writer::create(path, false).unwrap();
    recorder.record(Record::Host(Box::new(HostRecord {
        id: HostId(1),
        name: "here".into(),
        boot_id: None,
        system: "Linux".into(),
        cpus: Some(2),
        memory_bytes: None,
        epoch_unix_ns: 0,
    })));
    recorder.record(Record::Run(Box::new(RunRecord {
        id: RunId(1),
        host: HostId(1),
        command: None,
        cwd: "/".into(),
        version: "0",
        file_layer: FileLayer::None,
        process_layer: ProcessLayer::Ptrace,
    })));
    play(&mut Play {
        recorder: recorder.clone(),
        samples: 0,
    });
    let end = RunEnd {
        id: RunId(1),
        end_ns: 10_000,
        exit_code: Some(0),
        exit_signal: None,
    };
    assert_eq!(writer.finish(&recorder, end).dropped, 0);
    Connection::open(path).unwrap()
}

fn rows(db: &Connection, sql: &str) -> Vec<Vec<Option<i64>>> {
    let mut statement = db.prepare(sql).unwrap();
    let columns = statement.column_count();
    let rows = statement.query_map([], |row| (0..columns).map(|at| row.get(at)).collect());
    rows.unwrap().map(Result::unwrap).collect()
}

/// Process 2 reads pipe 77 and process 3 writes it; 4 has its writing end open for a while, 5 reads it, too,
/// and 6 writes it when nobody waits any more.
fn pipe(db: &Connection) {
    db.execute_batch(
        "INSERT INTO channel (channel_id, host_id, kind, inode) VALUES (9, 1, 'pipe', 77);
         INSERT INTO channel_end (channel_id, upid, fd, direction, from_ns, to_ns, used) VALUES
           (9, 2, 0, 'read', 0, NULL, 1), (9, 3, 1, 'write', 0, NULL, 0),
           (9, 3, 4, 'write', 0, NULL, 1), (9, 4, 1, 'write', 0, 400, 0),
           (9, 5, 0, 'read', 0, NULL, NULL), (9, 6, 1, 'write', 900, NULL, 1);",
    )
    .unwrap();
}

#[test]
fn a_wait_names_the_holder_of_the_other_end() {
    let scratch = tempfile::tempdir().unwrap();
    let db = play(&scratch.path().join("t.db"), |play| {
        for upid in 1..=6 {
            play.process(upid, None, 0, 1000, Usage::default());
        }
        let reader = play.sample(2, Activity::Channel, 300, 800);
        play.record(SampleRecord {
            objects: vec![waits_for(77, Some(Side::Read))],
            ..reader
        });
        let poller = play.sample(5, Activity::Channel, 300, 800);
        let objects = [(77, Side::Read), (78, Side::Read)];
        let objects = objects.map(|(inode, side)| waits_for(inode, Some(side)));
        play.record(SampleRecord {
            objects: objects.to_vec(),
            ..poller
        });
        let sleeper = play.sample(1, Activity::Sleep, 0, 900);
        play.record(sleeper);
        let running = play.sample(1, Activity::Running, 900, 1000);
        play.record(running);
    });
    pipe(&db);
    let found = rows(
        &db,
        "SELECT upid, object, channel_id, counterpart_upid, duration_ns, overlap_ns, used FROM waits
         ORDER BY 1, 2, 4",
    );
    let wait = |values: [i64; 7]| values.map(Some).to_vec();
    assert_eq!(
        found,
        [
            vec![Some(1), None, None, None, Some(900), None, None],
            wait([2, 77, 9, 3, 500, 500, 1]),
            wait([2, 77, 9, 4, 500, 100, 0]),
            wait([5, 77, 9, 3, 500, 500, 1]),
            wait([5, 77, 9, 4, 500, 100, 0]),
            vec![Some(5), Some(78), None, None, Some(500), None, None],
        ]
    );
    let one = rows(
        &db,
        "SELECT COUNT(DISTINCT wait_id) FROM waits WHERE upid = 5",
    );
    assert_eq!(one, [[Some(1)]]);
}

#[test]
fn a_parent_waits_for_the_children_that_live() {
    let scratch = tempfile::tempdir().unwrap();
    let db = play(&scratch.path().join("t.db"), |play| {
        play.process(1, None, 0, 1000, Usage::default());
        for (child, from, until) in [(2, 0, 50), (3, 0, 500), (4, 150, 900), (5, 950, 990)] {
            play.process(child, Some(1), from, until, Usage::default());
        }
        let any = play.sample(1, Activity::Child, 100, 200);
        play.record(any);
        let one = play.sample(1, Activity::Child, 200, 900);
        play.record(SampleRecord {
            objects: vec![waits_for(104, None)],
            ..one
        });
    });
    let found = rows(
        &db,
        "SELECT from_ns, counterpart_upid, overlap_ns FROM waits WHERE reason = 'child'
         ORDER BY 1, 2",
    );
    let wait = |values: [i64; 3]| values.map(Some).to_vec();
    assert_eq!(
        found,
        [wait([100, 3, 100]), wait([100, 4, 50]), wait([200, 4, 700])]
    );
}

/// An interval that goes on is written again, and remains one.
#[test]
fn an_interval_grows() {
    let scratch = tempfile::tempdir().unwrap();
    let db = play(&scratch.path().join("t.db"), |play| {
        play.process(1, None, 0, 1000, Usage::default());
        let objects = vec![
            waits_for(7, Some(Side::Read)),
            waits_for(8, Some(Side::Write)),
        ];
        let sample = play.sample(1, Activity::Channel, 100, 300);
        for end_ns in [300, 900] {
            play.record(SampleRecord {
                end_ns,
                samples: (end_ns / 100) as u32,
                exact: false,
                waker: None,
                objects: objects.clone(),
                ..sample.clone()
            });
        }
    });
    let found = rows(&db, "SELECT t_ns, end_ns, samples, object FROM samples");
    assert_eq!(found, [[Some(100), Some(900), Some(9), None]]);
    let polled = rows(&db, "SELECT object FROM waits ORDER BY 1");
    assert_eq!(polled, [[Some(7)], [Some(8)]]);
}

/// Nobody else has the other end of the pipe open, as when a process waits for its own pipe in which a signal
/// handler writes, or the channel is not known: the waker is known all the same.
#[test]
fn a_waker_is_the_counterpart_where_nobody_has_the_other_end_open() {
    let scratch = tempfile::tempdir().unwrap();
    let db = play(&scratch.path().join("t.db"), |play| {
        play.process(1, None, 0, 1000, Usage::default());
        play.process(2, None, 0, 1000, Usage::default());
        let sample = play.sample(1, Activity::Channel, 100, 300);
        let (upid, tid) = (Upid(2), Tid(102));
        play.record(SampleRecord {
            exact: true,
            waker: Some(Waker { upid, tid }),
            objects: Vec::new(),
            ..sample
        });
    });
    let found = rows(
        &db,
        "SELECT counterpart_upid, overlap_ns, waker_upid FROM waits",
    );
    assert_eq!(found, [[Some(2), Some(200), Some(2)]]);
}

#[test]
fn the_parts_of_a_process_sum_to_its_time() {
    let used = |on_cpu, life| Usage {
        on_cpu_ns: Some(on_cpu),
        run_queue_ns: Some(100),
        tracer_ns: Some(50),
        thread_ns: Some(life),
        ..Usage::default()
    };
    let scratch = tempfile::tempdir().unwrap();
    let db = play(&scratch.path().join("t.db"), |play| {
        // Blocked for 850, of which the samples give storage a fifth.
        play.process(1, None, 0, 1000, used(0, 1000));
        let totals = SampledTotals {
            upid: Upid(1),
            samples: 50,
            sampled_ns: 1000,
            waiting_ns: 800,
            storage_ns: 160,
            ..SampledTotals::default()
        };
        play.recorder.record(Record::Sampled(totals));
        for (activity, from, until) in [
            (Activity::Runnable, 0, 200),
            (Activity::File, 200, 360),
            (Activity::Lock, 360, 1000),
        ] {
            let sample = play.sample(1, activity, from, until);
            play.record(sample);
        }
        // Not sampled, but known to have waited for block devices: longer than it was blocked.
        let usage = Usage {
            block_io_ns: Some(10_000),
            ..used(300, 500)
        };
        play.process(2, None, 0, 500, usage);
        // Costs unreadable.
        play.process(3, None, 0, 500, Usage::default());
    });
    let found = rows(
        &db,
        "SELECT upid, storage_ns, wait_ns, thread_ns, samples FROM processes ORDER BY upid",
    );
    assert_eq!(
        found,
        [
            vec![Some(1), Some(170), Some(680), Some(1000), Some(50)],
            vec![Some(2), Some(50), Some(0), Some(500), None],
            vec![Some(3), None, None, None, None],
        ]
    );
    let sums = rows(
        &db,
        "SELECT SUM(ns) FROM time_shares GROUP BY upid ORDER BY upid",
    );
    assert_eq!(sums, [[Some(1000)], [Some(500)], [None]]);
    let shares = rows(
        &db,
        "SELECT ns, sampled_ns, samples FROM time_shares WHERE upid = 1 ORDER BY part",
    );
    let share = |values: [i64; 3]| values.map(Some).to_vec();
    assert_eq!(
        shares,
        [
            share([0, 0, 0]),      // on_cpu
            share([100, 200, 10]), // run_queue
            share([170, 160, 8]),  // storage
            share([50, 0, 0]),     // tracer
            share([680, 640, 32]), // wait
        ]
    );
}
