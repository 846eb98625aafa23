//! Hand-made traces, written through the schema's writer as the tracer would.

use std::path::Path;

use flowtrace_schema::{
    Activity, Call, ChannelEndClosed, ChannelEndRecord, ChannelId, ChannelKind, ChannelRecord,
    Coverage, Direction, Fidelity, FileId, FileKind, FileLayer, FileRecord, HostId, HostRecord,
    Loss, NameRecord, Op, Origin, ProcessEnd, ProcessLayer, ProcessStart, Record, Recorder, RunEnd,
    RunId, RunRecord, SampleRecord, Side, Text, Tid, Trace, TracedDirectory, Upid, Usage,
    WaitObject, Writer,
};

const MS: u64 = 1_000_000;
pub(crate) const O_WRONLY: u32 = 1;

/// The trace of a run of `command` as `build` makes it, which ends well at `end`, and the directory that
/// contains it.
#[allow(dead_code, reason = "each test binary uses a part")]
pub(crate) fn written(
    command: &str,
    build: impl FnOnce(&mut Script),
    end: u64,
) -> (tempfile::TempDir, Trace) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("t.db");
    let mut script = Script::new(&file, command);
    build(&mut script);
    script.finish(end, 0);
    (directory, Trace::open(&file).unwrap())
}

/// A trace under construction. Times are milliseconds.
pub(crate) struct Script {
    writer: Option<Writer>,
    recorder: Recorder,
    upids: u32,
    files: u32,
    channels: u32,
    ends: u32,
    samples: u64,
    threads: std::collections::HashMap<u32, u32>,
}

#[allow(dead_code, reason = "each test binary uses a part")]
impl Script {
    /// Begins a run of `command` in `/w`.
    pub(crate) fn new(path: &Path, command: &str) -> Script {
        let (writer, recorder) = Writer::create(path, true).unwrap();
        recorder.record(Record::Host(Box::new(HostRecord {
            id: HostId(1),
            name: "node".into(),
            boot_id: None,
            system: "Linux 6.12 x86_64".into(),
            cpus: Some(2),
            memory_bytes: Some(8 << 30),
            epoch_unix_ns: 1_700_000_000_000_000_000,
        })));
        recorder.record(Record::Run(Box::new(RunRecord {
            id: RunId(1),
            host: HostId(1),
            command: Some(command.into()),
            cwd: "/w".into(),
            version: "0.1.0",
            file_layer: FileLayer::DirectMmap,
            process_layer: ProcessLayer::Ptrace,
        })));
        recorder.record(Record::TracedDirectory(Box::new(TracedDirectory {
            run: RunId(1),
            path: "/w".into(),
            source: None,
            file_layer: FileLayer::DirectMmap,
            fuse_flags: None,
            attribute_ttl_ns: 0,
            filesystem: None,
        })));
        Script {
            writer: Some(writer),
            recorder,
            upids: 0,
            files: 0,
            channels: 0,
            ends: 0,
            samples: 0,
            threads: Default::default(),
        }
    }

    fn image(
        &mut self,
        pid: u32,
        parent: Option<u32>,
        prev: Option<u32>,
        origin: Origin,
        (exe, argv): (&str, &[&str]),
        at: u64,
    ) -> u32 {
        self.upids += 1;
        let mut arguments = Vec::new();
        for argument in argv {
            arguments.extend_from_slice(argument.as_bytes());
            arguments.push(0);
        }
        self.recorder
            .record(Record::ProcessStart(Box::new(ProcessStart {
                upid: Upid(self.upids),
                host: HostId(1),
                pid,
                parent: parent.map(Upid),
                prev: prev.map(Upid),
                origin,
                exe: (!exe.is_empty()).then(|| exe.into()),
                argv: (!argv.is_empty()).then_some(arguments),
                cwd: Some("/w".into()),
                environment: (origin == Origin::Exec).then_some(Upid(self.upids)),
                start_ns: at * MS,
            })));
        self.upids
    }

    /// The first process of the run.
    pub(crate) fn root(&mut self, program: (&str, &[&str]), at: u64) -> u32 {
        self.image(100, None, None, Origin::Exec, program, at)
    }

    /// A fork; returns the child's first image.
    pub(crate) fn fork(&mut self, parent: u32, program: (&str, &[&str]), at: u64) -> u32 {
        let pid = 101 + self.upids;
        self.image(pid, Some(parent), None, Origin::Fork, program, at)
    }

    /// An exec; ends `image` and returns the next one of its pid.
    pub(crate) fn exec(
        &mut self,
        image: u32,
        pid: u32,
        parent: Option<u32>,
        program: (&str, &[&str]),
        at: u64,
    ) -> u32 {
        self.exec_after(image, pid, parent, program, (at, 1))
    }

    /// An exec at a time, with the CPU time that `image` had until then.
    pub(crate) fn exec_after(
        &mut self,
        image: u32,
        pid: u32,
        parent: Option<u32>,
        program: (&str, &[&str]),
        (at, cpu): (u64, u64),
    ) -> u32 {
        self.end(image, at, None, None, cpu);
        self.image(pid, parent, Some(image), Origin::Exec, program, at)
    }

    /// A variable that was recorded by name.
    #[allow(dead_code, reason = "not every test that includes this file has one")]
    pub(crate) fn variable(&mut self, image: u32, name: &str, value: &str) {
        self.recorder.record(Record::Environment {
            upid: Upid(image),
            name: name.into(),
            value: value.into(),
        });
    }

    /// The end of an image with its CPU time.
    pub(crate) fn end(
        &mut self,
        image: u32,
        at: u64,
        code: Option<i32>,
        signal: Option<i32>,
        cpu: u64,
    ) {
        self.recorder
            .record(Record::ProcessEnd(Box::new(ProcessEnd {
                upid: Upid(image),
                end_ns: Some(at * MS),
                exit_code: code,
                exit_signal: signal,
                inner_pid: None,
                usage: Usage {
                    user_ns: Some(cpu * MS / 4 * 3),
                    sys_ns: Some(cpu * MS / 4),
                    on_cpu_ns: Some(cpu * MS),
                    read_bytes: Some(u64::from(image) * 100),
                    write_bytes: Some(u64::from(image) * 10),
                    threads: Some(self.threads.get(&image).copied().unwrap_or(1)),
                    ..Usage::default()
                },
            })));
    }

    /// fork, exec of `sh -c`, exec of the program, exit: what make does for a line of a recipe.
    pub(crate) fn job(
        &mut self,
        parent: u32,
        program: (&str, &[&str]),
        at: u64,
        until: u64,
    ) -> u32 {
        let forked = self.fork(parent, ("/usr/bin/make", &["make", "-j2"]), at);
        let pid = 100 + forked;
        let line = program.1.join(" ");
        let shell = ("/usr/bin/dash", &["/bin/sh", "-c", line.as_str()][..]);
        let shell = self.exec(forked, pid, Some(parent), shell, at + 1);
        let image = self.exec(shell, pid, Some(parent), program, at + 2);
        self.end(image, until, Some(0), None, (until - at) * 9 / 10);
        image
    }

    /// A file under its full path.
    pub(crate) fn file(&mut self, path: &str, kind: FileKind, size: u64, at: u64) -> u32 {
        self.files += 1;
        self.recorder.record(Record::File(FileRecord {
            id: FileId(self.files),
            host: HostId(1),
            inode: Some((1, u64::from(self.files))),
            kind,
            size_bytes: Some(size),
            first_ns: at * MS,
            coverage: Coverage::Exact,
        }));
        self.name(self.files, path, at);
        self.files
    }

    /// Another name of a file.
    pub(crate) fn name(&mut self, file: u32, path: impl Into<Text>, at: u64) {
        self.recorder.record(Record::Name(Box::new(NameRecord {
            file: FileId(file),
            directory: None,
            name: path.into(),
            from_ns: at * MS,
        })));
    }

    /// A name ends, as by a rename.
    pub(crate) fn name_end(&mut self, file: u32, path: &str, at: u64) {
        self.recorder.record(Record::NameEnd {
            file: FileId(file),
            directory: FileId(0),
            name: path.into(),
            at_ns: at * MS,
        });
    }

    /// One call of 100 microseconds that moved `length` bytes.
    pub(crate) fn call(
        &mut self,
        image: u32,
        file: u32,
        op: Op,
        flags: Option<u32>,
        length: Option<u64>,
        at: u64,
    ) {
        let call = Call {
            start_ns: at * MS,
            duration_ns: MS / 10,
            upid: Some(Upid(image)),
            tid: None,
            op,
            file: Some(FileId(file)),
            offset: length.map(|_| 0),
            length,
            flags,
            result: length.map_or(0, |l| l as i64),
            fidelity: Fidelity::Exact,
        };
        self.recorder.call(&call);
    }

    /// Records a call as given.
    pub(crate) fn call_of(&mut self, call: Call) {
        self.recorder.call(&call);
    }

    /// A call that moves no data, at a time in ns; it takes 1 µs.
    #[allow(dead_code, reason = "not every test that includes this file has one")]
    pub(crate) fn bare_call(&mut self, image: u32, file: u32, op: Op, at_ns: u64, result: i64) {
        self.call_of(Call {
            start_ns: at_ns,
            duration_ns: 1000,
            upid: Some(Upid(image)),
            tid: None,
            op,
            file: Some(FileId(file)),
            offset: None,
            length: None,
            flags: None,
            result,
            fidelity: Fidelity::Exact,
        });
    }

    /// Opens and reads a file as `calls` calls of `bytes` each.
    pub(crate) fn read(&mut self, image: u32, file: u32, calls: u64, bytes: u64, at: u64) {
        self.call(image, file, Op::Open, Some(0), None, at);
        for i in 0..calls {
            self.call_of(Call {
                start_ns: (at + i % 3) * MS,
                duration_ns: MS / 10,
                upid: Some(Upid(image)),
                tid: None,
                op: Op::Read,
                file: Some(FileId(file)),
                offset: Some(i * bytes),
                length: Some(bytes),
                flags: None,
                result: bytes as i64,
                fidelity: Fidelity::Exact,
            });
        }
    }

    /// Creates and writes a file.
    pub(crate) fn create(&mut self, image: u32, file: u32, calls: u64, bytes: u64, at: u64) {
        self.call(image, file, Op::Create, Some(O_WRONLY), None, at);
        for i in 0..calls {
            self.call(image, file, Op::Write, None, Some(bytes), at + i % 3);
        }
    }

    /// A process that runs one program from fork to exit and works all the time but `waits`.
    pub(crate) fn program(
        &mut self,
        parent: u32,
        name: &str,
        (at, until): (u64, u64),
        waits: u64,
    ) -> u32 {
        let exe = format!("/usr/bin/{name}");
        let forked = self.fork(parent, (&exe, &[name]), at);
        let image = self.exec(forked, 100 + forked, Some(parent), (&exe, &[name]), at);
        self.end(image, until, Some(0), None, until - at - waits);
        image
    }

    /// A pipe.
    pub(crate) fn pipe(&mut self) -> u32 {
        self.channel(ChannelKind::Pipe)
    }

    /// A channel.
    pub(crate) fn channel(&mut self, kind: ChannelKind) -> u32 {
        self.channels += 1;
        self.recorder
            .record(Record::Channel(Box::new(ChannelRecord {
                id: ChannelId(self.channels),
                host: HostId(1),
                kind,
                inode: 9000 + u64::from(self.channels),
                name: None,
                capacity_bytes: Some(65536),
            })));
        self.channels
    }

    /// An image has an end of a channel; `used` as in `channel_end`.
    pub(crate) fn holds(
        &mut self,
        image: u32,
        channel: u32,
        direction: Direction,
        (at, until): (u64, u64),
        used: Option<bool>,
    ) {
        let most = (used == Some(false)).then_some(0);
        self.add_end(image, channel, direction, (at, until), (used, most));
    }

    /// An image has an end, through which it may have moved at most `bytes` bytes.
    #[allow(dead_code)] // not every test bounds bytes
    pub(crate) fn holds_at_most(
        &mut self,
        image: u32,
        channel: u32,
        direction: Direction,
        time: (u64, u64),
        bytes: u64,
    ) {
        self.add_end(image, channel, direction, time, (None, Some(bytes)));
    }

    /// An image has both ends of a pipe; that it moved some data does not show through which.
    #[allow(dead_code)] // not every test has pools
    pub(crate) fn holds_both(&mut self, image: u32, channel: u32, time: (u64, u64)) {
        for direction in [Direction::Read, Direction::Write] {
            self.add_end(image, channel, direction, time, (Some(false), Some(100)));
        }
    }

    fn add_end(
        &mut self,
        image: u32,
        channel: u32,
        direction: Direction,
        (at, until): (u64, u64),
        (used, at_most_bytes): (Option<bool>, Option<u64>),
    ) {
        self.ends += 1;
        self.recorder.record(Record::ChannelEnd(ChannelEndRecord {
            id: self.ends,
            channel: ChannelId(channel),
            upid: Upid(image),
            fd: 1,
            direction,
            from_ns: at * MS,
        }));
        self.recorder
            .record(Record::ChannelEndClosed(ChannelEndClosed {
                id: self.ends,
                to_ns: Some(until * MS),
                used,
                bytes: None,
                at_most_bytes,
            }));
    }

    /// Samples of the only thread of an image agree from `at` to `until`, one in 20 ms.
    pub(crate) fn sample(
        &mut self,
        image: u32,
        time: (u64, u64),
        activity: Activity,
        waits_at: Option<(u32, Side)>,
    ) {
        self.sample_thread(image, 0, time, activity, waits_at);
    }

    /// The image ends with this many threads, instead of one; to be called before its end is recorded.
    pub(crate) fn threads(&mut self, image: u32, threads: u32) {
        self.threads.insert(image, threads);
    }

    /// Samples of one of the threads of an image, counted from 0.
    pub(crate) fn sample_thread(
        &mut self,
        image: u32,
        thread: u32,
        (at, until): (u64, u64),
        activity: Activity,
        waits_at: Option<(u32, Side)>,
    ) {
        self.samples += 1;
        let objects = waits_at.map(|(channel, side)| WaitObject {
            object: 9000 + u64::from(channel),
            side: Some(side),
            channel: Some(ChannelId(channel)),
        });
        self.recorder.record(Record::Sample(Box::new(SampleRecord {
            id: self.samples,
            start_ns: at * MS,
            end_ns: until * MS,
            upid: Upid(image),
            tid: Tid(100 + image + 10_000 * thread),
            activity,
            op: None,
            objects: objects.into_iter().collect(),
            file: None,
            samples: ((until - at) / 20).max(1) as u32,
            exact: false,
            waker: None,
        })));
    }

    /// Something was lost.
    pub(crate) fn lost(&mut self, loss: Loss, count: u64) {
        self.recorder.lost(loss, count);
    }

    /// The end of the run.
    pub(crate) fn finish(mut self, at: u64, exit_code: i32) {
        let end = RunEnd {
            id: RunId(1),
            end_ns: at * MS,
            exit_code: Some(exit_code),
            exit_signal: None,
        };
        let writer = self.writer.take().expect("only once");
        writer.finish(&self.recorder, end);
    }

    /// The recorder dies: the records passed on are in the file, but the run has no end.
    pub(crate) fn cut(mut self) {
        let writer = self.writer.take().expect("only once");
        let end = RunEnd {
            id: RunId(99),
            end_ns: 0,
            exit_code: None,
            exit_signal: None,
        };
        writer.finish(&self.recorder, end);
    }
}
