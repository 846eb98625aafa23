//! Records like those of real workflows, the same each time: for the size of a trace and for the
//! speed of its writer. Numbers of calls, processes and files, sizes and times follow traces of
//! the real ones.

use flowtrace_schema::{
    Call, Coverage, Fidelity, FileId, FileKind, FileRecord, HostId, HostRecord, NameRecord, Op,
    Origin, ProcessEnd, ProcessLayer, ProcessStart, Record, Recorder, RunEnd, RunId, RunRecord,
    Tid, Upid, Usage, Writer,
};

/// A workflow: its name, and the function that records `times` repetitions of it.
pub(crate) type Workload = (&'static str, fn(&mut Play, times: u64));

/// All of them.
pub(crate) const WORKLOADS: [Workload; 5] = [
    ("mosaic", mosaic),
    ("C build", build),
    ("metadata", metadata),
    ("random read", random_read),
    ("threads", threads),
];

/// A recording under way.
pub(crate) struct Play {
    writer: Writer,
    recorder: Recorder,
    now: u64,
    random: u64,
    upids: u32,
    files: u32,
    /// Calls recorded so far.
    pub(crate) calls: u64,
}

/// The process and thread that make calls.
#[derive(Clone, Copy)]
struct Caller {
    upid: Upid,
    tid: Option<Tid>,
}

impl Play {
    /// Begins a recording.
    pub(crate) fn new(path: &std::path::Path) -> Play {
        let (writer, recorder) = Writer::create(path, false).expect("a trace");
        recorder.record(Record::Host(Box::new(HostRecord {
            id: HostId(1),
            name: "node".into(),
            boot_id: Some("a1a3a6cf-0b5e-4f5c-9d55-0d3c2d5e6f70".into()),
            system: "Linux 6.12 x86_64".into(),
            cpus: Some(2),
            memory_bytes: Some(8 << 30),
            epoch_unix_ns: 1_700_000_000_000_000_000,
        })));
        recorder.record(Record::Run(Box::new(RunRecord {
            id: RunId(1),
            host: HostId(1),
            command: Some("run".into()),
            cwd: "/home/ada/project".into(),
            version: "0.1.0",
            file_layer: flowtrace_schema::FileLayer::DirectPassthrough,
            process_layer: ProcessLayer::Ptrace,
        })));
        Play {
            writer,
            recorder,
            now: 50_000_000,
            random: 1,
            upids: 0,
            files: 0,
            calls: 0,
        }
    }

    /// Completes the file. Returns the number of rows that were dropped.
    pub(crate) fn finish(self) -> u64 {
        let end = RunEnd {
            id: RunId(1),
            end_ns: self.now,
            exit_code: Some(0),
            exit_signal: None,
        };
        self.writer.finish(&self.recorder, end).dropped
    }

    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        // xorshift64
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }

    fn process(&mut self, parent: Option<Upid>, command: &str) -> Upid {
        let mut image = |origin, prev: Option<Upid>| {
            self.upids += 1;
            self.now += 300_000;
            let upid = Upid(self.upids);
            self.recorder
                .record(Record::ProcessStart(Box::new(ProcessStart {
                    upid,
                    host: HostId(1),
                    pid: 20_000 + self.upids,
                    parent,
                    prev,
                    origin,
                    exe: Some("/usr/bin/x86_64-linux-gnu-gcc-12".into()),
                    argv: Some(command.replace(' ', "\0").into_bytes()),
                    cwd: Some("/home/ada/project".into()),
                    environment: None,
                    start_ns: self.now,
                })));
            upid
        };
        let fork = image(Origin::Fork, None);
        let exec = image(Origin::Exec, Some(fork));
        self.end_process(fork);
        exec
    }

    fn end_process(&self, upid: Upid) {
        let some = Some(123_456);
        self.recorder
            .record(Record::ProcessEnd(Box::new(ProcessEnd {
                upid,
                end_ns: Some(self.now),
                exit_code: Some(0),
                exit_signal: None,
                inner_pid: None,
                usage: Usage {
                    user_ns: some,
                    sys_ns: some,
                    on_cpu_ns: Some(1_234_567),
                    run_queue_ns: some,
                    tracer_ns: some,
                    max_rss_bytes: Some(12_345_678),
                    minor_faults: Some(1234),
                    major_faults: Some(0),
                    voluntary_switches: Some(12),
                    involuntary_switches: Some(3),
                    read_calls: Some(200),
                    write_calls: Some(20),
                    read_bytes: some,
                    write_bytes: some,
                    threads: Some(1),
                    ..Usage::default()
                },
            })));
    }

    fn file(&mut self, kind: FileKind, name: &str) -> FileId {
        self.files += 1;
        let file = FileId(self.files);
        let exists = kind != FileKind::Absent;
        self.recorder.record(Record::File(FileRecord {
            id: file,
            host: HostId(1),
            inode: exists.then(|| (65024, 10_000_000 + u64::from(self.files))),
            kind,
            size_bytes: exists.then_some(0),
            first_ns: self.now,
            coverage: Coverage::Exact,
        }));
        self.recorder.record(Record::Name(Box::new(NameRecord {
            file,
            directory: Some(FileId(1)),
            name: name.into(),
            from_ns: self.now,
        })));
        file
    }

    fn end_name(&self, file: FileId, name: &str) {
        self.recorder.record(Record::NameEnd {
            file,
            directory: FileId(1),
            name: name.into(),
            at_ns: self.now,
        });
    }

    /// A call of about `takes` ns that follows the one before after some time.
    fn call(&mut self, by: Caller, takes: u64, call: Call) {
        self.now += 10_000 + self.below(10_000);
        let duration_ns = takes / 2 + self.below(takes);
        self.calls += 1;
        self.recorder.call(&Call {
            start_ns: self.now,
            duration_ns,
            upid: Some(by.upid),
            tid: by.tid,
            ..call
        });
    }

    fn look(&mut self, by: Caller, op: Op, file: FileId, result: i64) {
        self.call(
            by,
            1500,
            Call {
                result,
                ..plain(op, file)
            },
        );
    }

    fn open(&mut self, by: Caller, op: Op, file: FileId) {
        let flags = Some(0o100_102);
        self.call(
            by,
            20_000,
            Call {
                flags,
                ..plain(op, file)
            },
        );
    }

    fn data(&mut self, by: Caller, op: Op, file: FileId, offset: u64, (length, got): (u64, u64)) {
        let call = Call {
            offset: Some(offset),
            length: Some(length),
            result: got as i64,
            ..plain(op, file)
        };
        self.call(by, 1500 + length / 8, call);
    }

    fn close(&mut self, by: Caller, file: FileId) {
        self.look(by, Op::Flush, file, 0);
        self.look(by, Op::Release, file, 0);
    }
}

fn plain(op: Op, file: FileId) -> Call {
    Call {
        start_ns: 0,
        duration_ns: 0,
        upid: None,
        tid: None,
        op,
        file: Some(file),
        offset: None,
        length: None,
        flags: None,
        result: 0,
        fidelity: Fidelity::Exact,
    }
}

/// Montage: some hundred programs, two at a time, that read and write images of some MB.
fn mosaic(play: &mut Play, times: u64) {
    let command = "mProject -X raw/tile_1_2.fits projected/p_tile_1_2.fits region.hdr";
    let files: Vec<FileId> = (0..400)
        .map(|i| play.file(FileKind::File, &format!("p_tile_{i}.fits")))
        .collect();
    for program in 0..140 * times {
        let by = [0, 1].map(|_| Caller {
            upid: play.process(Some(Upid(1)), command),
            tid: None,
        });
        let (from, to) = (
            files[(program % 200) as usize],
            files[(200 + program % 200) as usize],
        );
        for by in by {
            for _ in 0..20 {
                play.look(by, Op::Lookup, from, 0);
                play.look(by, Op::Getattr, to, 0);
            }
            play.open(by, Op::Open, from);
            play.open(by, Op::Open, to);
        }
        for i in 0..180 {
            for by in by {
                let short = play.below(30) == 0;
                let got = if short { 2880 } else { 4096 };
                play.data(by, Op::Read, from, i * 4096, (4096, got));
                if i % 2 == 0 {
                    play.data(by, Op::Write, to, i * 4096, (4096, 4096));
                }
            }
        }
        for by in by {
            play.close(by, from);
            play.close(by, to);
            play.end_process(by.upid);
        }
    }
}

/// A build: short programs with long command lines that look for many files and read small ones.
fn build(play: &mut Play, times: u64) {
    let command = "gcc -O2 -g -fPIC -Wall -I../include -MMD -MP -c -o \
                   /home/ada/project/out/lib02/table.o /home/ada/project/out/lib02/table.c";
    let headers: Vec<FileId> = (0..30)
        .map(|i| play.file(FileKind::File, &format!("part{i}.h")))
        .collect();
    for program in 0..477 * times {
        let upid = play.process(Some(Upid(1)), command);
        let by = Caller { upid, tid: None };
        let absent = play.file(FileKind::Absent, &format!("absent{program}"));
        for &header in &headers[..28] {
            play.look(by, Op::Lookup, header, 0);
            play.look(by, Op::Lookup, absent, -2);
        }
        for &header in &headers[..4] {
            play.look(by, Op::Getattr, header, 0);
            play.open(by, Op::Open, header);
            let got = play.below(4000);
            play.data(by, Op::Read, header, 0, (4096, got));
            play.data(by, Op::Read, header, got, (4096, 0));
            play.data(by, Op::Read, header, 0, (832, 832));
            play.close(by, header);
        }
        let object = play.file(FileKind::File, &format!("part{program}.o"));
        play.open(by, Op::Create, object);
        for i in 0..5 {
            play.data(by, Op::Write, object, i * 1500, (1500, 1500));
        }
        play.close(by, object);
        play.end_process(upid);
    }
}

/// Nothing but names: create, stat, unlink, and lookups of absent names.
fn metadata(play: &mut Play, times: u64) {
    let upid = play.process(None, "python3 storm.py");
    let by = Caller { upid, tid: None };
    let directory = play.file(FileKind::Directory, "d");
    let mut files = Vec::new();
    for i in 0..5000 * times {
        let name = format!("f{i}");
        let absent = play.file(FileKind::Absent, &name);
        play.look(by, Op::Lookup, directory, 0);
        play.look(by, Op::Lookup, absent, -2);
        play.end_name(absent, &name);
        let file = play.file(FileKind::File, &name);
        play.open(by, Op::Create, file);
        play.close(by, file);
        files.push((file, name));
    }
    for (i, (file, _)) in files.iter().enumerate() {
        play.look(by, Op::Lookup, directory, 0);
        play.look(by, Op::Lookup, *file, 0);
        play.look(by, Op::Getattr, *file, 0);
        let absent = play.file(FileKind::Absent, &format!("absent{i}"));
        play.look(by, Op::Lookup, absent, -2);
    }
    for (file, name) in &files {
        play.look(by, Op::Lookup, directory, 0);
        play.look(by, Op::Lookup, *file, 0);
        play.look(by, Op::Unlink, *file, 0);
        play.end_name(*file, name);
    }
}

/// `pread` of 4 KiB anywhere in a file of 8 GiB.
fn random_read(play: &mut Play, times: u64) {
    let upid = play.process(None, "fio random.fio");
    let file = play.file(FileKind::File, "big");
    let by = Caller { upid, tid: None };
    for _ in 0..50_000 * times {
        let offset = play.below(2 << 20) * 4096;
        play.data(by, Op::Read, file, offset, (4096, 4096));
    }
}

/// Expensive calls: by the threads of a late program, of large pieces of large files.
fn threads(play: &mut Play, times: u64) {
    play.now = 3_600_000_000_000;
    play.upids = 5000;
    play.files = 5000;
    let upid = play.process(None, "bwa mem -t 16 reference.fa reads.fq");
    let files: Vec<FileId> = (0..100)
        .map(|i| play.file(FileKind::File, &format!("reads{i}")))
        .collect();
    for i in 0..200_000 * times {
        let by = Caller {
            upid,
            tid: Some(Tid(3_000_000 + i as u32 % 16)),
        };
        let file = files[play.below(100) as usize];
        let offset = play.below(20_000_000) * 4096;
        let got = 131_072 - play.below(8) / 7 * 1000;
        play.data(by, Op::Read, file, offset, (131_072, got));
    }
}
