//! Hand-made runs with samples, pipes and counters, written through the schema's writer.

use std::path::Path;

use flowtrace_schema::{
    Activity, Call, ChannelEndClosed, ChannelEndRecord, ChannelId, ChannelKind, ChannelRecord,
    ChannelTraffic, CounterRecord, Coverage, Direction, Fidelity, FileId, FileKind, FileLayer,
    FileRecord, HostId, HostRecord, HostSample, Loss, NameRecord, Op, Origin, ProcessEnd,
    ProcessLayer, ProcessStart, Record, Recorder, RunEnd, RunId, RunRecord, SampleRecord, Side,
    Tid, TracedDirectory, Upid, Usage, WaitObject, Waker, Writer,
};

const MS: u64 = 1_000_000;

/// A run under construction. Times are milliseconds.
pub(crate) struct Play {
    writer: Option<Writer>,
    recorder: Recorder,
    upids: u32,
    samples: u64,
    ends: u32,
    channels: u32,
    files: u32,
    counters: Vec<String>,
    last_call: u64,
}

/// The life of a process: (until, state), one after another from its begin.
pub(crate) type Life<'a> = &'a [(u64, Doing)];

/// States of a process in a play.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Doing {
    Cpu,
    Queue,
    File,
    Lock,
    /// Blocked on a lock that this process released, as the scheduler reported.
    LockOf(u32),
    /// Blocked on the lock of a file; [`Play::lock`] has the calls.
    Flock,
    Sleep,
    Timer,
    Stopped,
    Child,
    /// Blocked on a lock in its own memory.
    Futex,
    /// Reading from a channel.
    In(u32),
    /// Writing to a channel.
    Out(u32),
    /// Reading from a channel until this process wrote, as the scheduler reported.
    InOf(u32, u32),
    /// Waiting for a channel, or for a connection, until a time limit.
    Limit(Option<u32>),
    /// Waiting for a connection.
    Accept,
    /// Waiting for one of two channels, or for the first or a connection.
    Poll(u32, Option<u32>),
}

#[allow(dead_code, reason = "each test binary uses a part")]
impl Play {
    /// Begins a run of `command` in `/w` on a machine with this number of CPUs.
    pub(crate) fn new(path: &Path, command: &str, cpus: u32) -> Play {
        let (writer, recorder) = Writer::create(path, true).unwrap();
        recorder.record(Record::Host(Box::new(HostRecord {
            id: HostId(1),
            name: "node".into(),
            boot_id: None,
            system: "Linux".into(),
            cpus: Some(cpus),
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
        Play {
            writer: Some(writer),
            recorder,
            upids: 0,
            samples: 0,
            ends: 0,
            channels: 0,
            files: 0,
            counters: Vec::new(),
            last_call: 0,
        }
    }

    /// A process of a program from its exec to its end, with samples every 20 ms and exact time accounting.
    pub(crate) fn process(
        &mut self,
        program: &str,
        parent: Option<u32>,
        from: u64,
        life: Life<'_>,
    ) -> u32 {
        self.threads(program, parent, from, &[life])
    }

    /// A process of several threads from its exec to the end of the last thread, likewise.
    pub(crate) fn threads(
        &mut self,
        program: &str,
        parent: Option<u32>,
        from: u64,
        lives: &[Life<'_>],
    ) -> u32 {
        let upid = self.begin(program, parent, from);
        let (mut cpu, mut queue, mut file, mut all, mut end) = (0, 0, 0, 0, from);
        for (thread, life) in (0..).zip(lives) {
            let mut at = from;
            for &(until, doing) in *life {
                match doing {
                    Doing::Cpu => cpu += until - at,
                    Doing::Queue => queue += until - at,
                    Doing::File => file += until - at,
                    _ => {}
                }
                self.sample_of((upid, 100 + upid + 1000 * thread), doing, at, until);
                at = until;
            }
            all += at - from;
            end = end.max(at);
        }
        let at = end;
        let usage = Usage {
            threads: Some(lives.len() as u32),
            on_cpu_ns: Some(cpu * MS),
            run_queue_ns: Some(queue * MS),
            block_io_ns: Some(file * MS),
            tracer_ns: Some(0),
            thread_ns: Some(all * MS),
            ..Usage::default()
        };
        self.recorder
            .record(Record::ProcessEnd(Box::new(ProcessEnd {
                upid: Upid(upid),
                end_ns: Some(at * MS),
                exit_code: Some(0),
                exit_signal: None,
                inner_pid: None,
                usage,
            })));
        upid
    }

    /// The begin of a process whose end is not recorded.
    pub(crate) fn begin(&mut self, program: &str, parent: Option<u32>, from: u64) -> u32 {
        self.upids += 1;
        let mut arguments = Vec::new();
        for argument in program.split(' ') {
            arguments.extend_from_slice(argument.as_bytes());
            arguments.push(0);
        }
        let name = program.split(' ').next().unwrap_or(program);
        self.recorder
            .record(Record::ProcessStart(Box::new(ProcessStart {
                upid: Upid(self.upids),
                host: HostId(1),
                pid: 100 + self.upids,
                parent: parent.map(Upid),
                prev: None,
                origin: Origin::Exec,
                exe: Some(format!("/usr/bin/{name}").into_bytes().into()),
                argv: Some(arguments),
                cwd: Some("/w".into()),
                environment: None,
                start_ns: from * MS,
            })));
        self.upids
    }

    /// A state of a process, as one interval of samples.
    pub(crate) fn sample(&mut self, upid: u32, doing: Doing, from: u64, until: u64) {
        self.sample_of((upid, 100 + upid), doing, from, until);
    }

    fn sample_of(&mut self, (upid, tid): (u32, u32), doing: Doing, from: u64, until: u64) {
        self.samples += 1;
        let (activity, sides) = match doing {
            Doing::Cpu => (Activity::Running, vec![]),
            Doing::Queue => (Activity::Runnable, vec![]),
            Doing::File => (Activity::File, vec![]),
            Doing::Lock | Doing::LockOf(_) | Doing::Flock | Doing::Futex => {
                (Activity::Lock, vec![])
            }
            Doing::Sleep => (Activity::Sleep, vec![]),
            Doing::Timer => (Activity::Event, vec![]),
            Doing::Stopped => (Activity::Stopped, vec![]),
            Doing::Child => (Activity::Child, vec![]),
            Doing::In(channel) | Doing::InOf(channel, _) => {
                (Activity::Channel, vec![(Some(channel), Side::Read)])
            }
            Doing::Limit(channel) => (Activity::Sleep, vec![(channel, Side::Read)]),
            Doing::Out(channel) => (Activity::Channel, vec![(Some(channel), Side::Write)]),
            Doing::Accept => (Activity::Channel, vec![(None, Side::Read)]),
            Doing::Poll(one, other) => {
                let any = [Some(one), other].map(|channel| (channel, Side::Read));
                (Activity::Channel, any.to_vec())
            }
        };
        let waker = match doing {
            Doing::LockOf(upid) | Doing::InOf(_, upid) => Some(Waker {
                upid: Upid(upid),
                tid: Tid(100 + upid),
            }),
            _ => None,
        };
        let objects = sides.into_iter().map(|(channel, side)| WaitObject {
            object: channel.map_or(1, |channel| u64::from(channel) + 1000),
            side: Some(side),
            channel: channel.map(ChannelId),
        });
        self.recorder.record(Record::Sample(Box::new(SampleRecord {
            id: self.samples,
            start_ns: from * MS,
            end_ns: until * MS,
            upid: Upid(upid),
            tid: Tid(tid),
            activity,
            op: Some(match doing {
                Doing::Futex => "futex",
                Doing::Flock => "flock",
                _ => "read",
            }),
            objects: objects.collect(),
            file: None,
            samples: ((until - from) / 20).max(1) as u32,
            exact: waker.is_some(),
            waker,
        })));
    }

    /// A new channel; [`Play::pipe`] adds its users.
    pub(crate) fn channel(&mut self, kind: ChannelKind) -> u32 {
        self.channels += 1;
        self.recorder
            .record(Record::Channel(Box::new(ChannelRecord {
                id: ChannelId(self.channels),
                host: HostId(1),
                kind,
                inode: u64::from(self.channels) + 1000,
                name: None,
                capacity_bytes: Some(65536),
            })));
        self.channels
    }

    /// A process has an end of a channel from a time on.
    pub(crate) fn hold(&mut self, channel: u32, upid: u32, direction: Direction, from: u64) {
        self.ends += 1;
        self.recorder.record(Record::ChannelEnd(ChannelEndRecord {
            id: self.ends,
            channel: ChannelId(channel),
            upid: Upid(upid),
            fd: 0,
            direction,
            from_ns: from * MS,
        }));
    }

    /// A process has an end of a channel for a time.
    pub(crate) fn end(
        &mut self,
        channel: u32,
        upid: u32,
        direction: Direction,
        from: u64,
        to: u64,
    ) {
        self.hold(channel, upid, direction, from);
        self.recorder
            .record(Record::ChannelEndClosed(ChannelEndClosed {
                id: self.ends,
                to_ns: Some(to * MS),
                used: Some(true),
                bytes: None,
                at_most_bytes: None,
            }));
    }

    /// Bytes that a process sent through a socket and received from it, counted call by call.
    pub(crate) fn moved(&mut self, channel: u32, upid: u32, sent: u64, received: u64) {
        for (side, bytes) in [(Side::Write, sent), (Side::Read, received)] {
            if bytes > 0 {
                self.recorder
                    .record(Record::ChannelTraffic(Box::new(ChannelTraffic {
                        channel: ChannelId(channel),
                        upid: Upid(upid),
                        side,
                        calls: 1,
                        bytes: Some(bytes),
                        duration_ns: 1,
                        first_ns: 1,
                        last_ns: 2,
                        exact: true,
                    })));
            }
        }
    }

    /// Both ends of a pipe for a time.
    pub(crate) fn pipe(&mut self, channel: u32, writer: u32, reader: u32, from: u64, to: u64) {
        self.end(channel, writer, Direction::Write, from, to);
        self.end(channel, reader, Direction::Read, from, to);
    }

    /// A file in `/w`.
    pub(crate) fn file(&mut self, name: &str, at: u64) -> u32 {
        self.files += 1;
        self.recorder.record(Record::File(FileRecord {
            id: FileId(self.files),
            host: HostId(1),
            inode: Some((1, u64::from(self.files))),
            kind: FileKind::File,
            size_bytes: Some(1000),
            first_ns: at * MS,
            coverage: Coverage::Exact,
        }));
        self.recorder.record(Record::Name(Box::new(NameRecord {
            file: FileId(self.files),
            directory: None,
            name: format!("/w/{name}").into_bytes().into(),
            from_ns: at * MS,
        })));
        self.files
    }

    fn call(
        &mut self,
        upid: u32,
        file: u32,
        op: Op,
        flags: Option<u32>,
        data: Option<(u64, u64)>,
        at: u64,
    ) {
        self.last_call = self.last_call.max(at * MS) + 1;
        self.call_taking(upid, file, op, flags, data, MS / 100);
    }

    /// A call that begins at `last_call`.
    fn call_taking(
        &mut self,
        upid: u32,
        file: u32,
        op: Op,
        flags: Option<u32>,
        data: Option<(u64, u64)>,
        duration_ns: u64,
    ) {
        let call = Call {
            start_ns: self.last_call,
            duration_ns,
            upid: Some(Upid(upid)),
            tid: None,
            op,
            file: Some(FileId(file)),
            offset: data.map(|(offset, _)| offset),
            length: data.map(|(_, length)| length),
            flags,
            result: data.map_or(0, |(_, length)| length as i64),
            fidelity: Fidelity::Exact,
        };
        self.recorder.call(&call);
    }

    /// A process reads a file. Calls are made in the order of time.
    pub(crate) fn read(&mut self, upid: u32, file: u32, at: u64) {
        self.call(upid, file, Op::Open, Some(0), None, at);
        self.call(upid, file, Op::Read, None, Some((0, 1000)), at);
    }

    /// A process creates and writes a file.
    pub(crate) fn create(&mut self, upid: u32, file: u32, at: u64) {
        self.call(upid, file, Op::Create, Some(1), None, at);
        self.call(upid, file, Op::Write, None, Some((0, 1000)), at);
    }

    /// A process renames, removes or changes the attributes of a file.
    pub(crate) fn alter(&mut self, upid: u32, file: u32, op: Op, at: u64) {
        self.call(upid, file, op, None, None, at);
    }

    /// A process requests the lock of a file and has it after `has_it_after` ms, or frees it: `flock(2)`.
    pub(crate) fn lock(&mut self, upid: u32, file: u32, at: u64, has_it_after: Option<u64>) {
        let operation = if has_it_after.is_some() { 1 } else { 2 };
        self.last_call = self.last_call.max(at * MS) + 1;
        let duration_ns = has_it_after.unwrap_or(0) * MS + 1000;
        self.call_taking(upid, file, Op::Flock, Some(operation), None, duration_ns);
    }

    /// A program may use less than all of its machine.
    pub(crate) fn confine(&mut self, upid: u32, cpus: Option<&str>, cpu_quota_ns: Option<u64>) {
        self.recorder.record(Record::Setting {
            upid: Upid(upid),
            umask: None,
            environment: None,
            cpus: cpus.map(str::to_owned),
            cpu_quota_ns,
        });
    }

    pub(crate) fn lost(&mut self, loss: Loss) {
        self.recorder.lost(loss, 1);
    }

    /// A process writes to a file at a position.
    pub(crate) fn write_at(&mut self, upid: u32, file: u32, offset: u64, length: u64, at: u64) {
        self.call(upid, file, Op::Write, None, Some((offset, length)), at);
    }

    /// A process writes to a file from a time on; given are the number of calls, the time of each answer, and
    /// the time until the next call, ns.
    pub(crate) fn writes_in_turn(
        &mut self,
        upid: u32,
        file: u32,
        at: u64,
        (count, answer_ns, between_ns): (u64, u64, u64),
    ) {
        self.last_call = self.last_call.max(at * MS);
        for offset in 0..count {
            self.call_taking(upid, file, Op::Write, None, Some((offset, 1)), answer_ns);
            self.last_call += answer_ns + between_ns;
        }
    }

    /// A counter of the machine at a time.
    pub(crate) fn counter(&mut self, name: &str, at: u64, value: u64) {
        let known = self.counters.iter().position(|known| known == name);
        let id = known.unwrap_or_else(|| {
            self.counters.push(name.to_owned());
            self.recorder
                .record(Record::Counter(Box::new(CounterRecord {
                    id: self.counters.len() as u32,
                    name: name.to_owned(),
                    unit: "ns",
                    meaning: "a counter",
                })));
            self.counters.len() - 1
        });
        self.recorder.record(Record::HostSample(HostSample {
            t_ns: at * MS,
            host: HostId(1),
            counter: id as u32 + 1,
            value,
        }));
    }

    /// The CPUs of the machine are busy for a share of the time, in percent, from begin to `until`.
    pub(crate) fn busy(&mut self, cpus: u64, percent: u64, until: u64) {
        for at in (0..=until).step_by(500) {
            self.counter("cpu.user", at, at * MS * cpus * percent / 100);
            self.counter("cpu.idle", at, at * MS * cpus * (100 - percent) / 100);
        }
    }

    /// The end of the run.
    pub(crate) fn finish(mut self, at: u64) {
        let end = RunEnd {
            id: RunId(1),
            end_ns: at * MS,
            exit_code: Some(0),
            exit_signal: None,
        };
        let writer = self.writer.take().expect("only once");
        assert_eq!(writer.finish(&self.recorder, end).dropped, 0);
    }

    /// The recorder dies: the run has no end.
    pub(crate) fn cut(mut self) {
        let end = RunEnd {
            id: RunId(99),
            end_ns: 0,
            exit_code: None,
            exit_signal: None,
        };
        let writer = self.writer.take().expect("only once");
        writer.finish(&self.recorder, end);
    }
}
