//! Made-up traffic as the trace of a recording.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use flowtrace_schema::{
    CaptureEnd, CaptureId, CaptureRecord, CaptureSource, FileLayer, FlowId, FlowRecord, FlowSeen,
    HostId, HostRecord, Packet, ProcessLayer, Record, Recorder, RunEnd, RunId, RunRecord,
    TcpFields, Text, Way, Writer,
};

use crate::programs::{Connection, Program, Round, Seen, Traffic};

/// Ethernet, IPv4, TCP with timestamps.
const HEADERS: u32 = 66;
/// Number of TCP.
const TCP: u8 = 6;

/// Records a program until there are so many packets; their number and the length of the run, s.
pub(crate) fn whole(path: &Path, program: Program, packets: u64) -> (u64, f64) {
    let round_ns = program.round_ns(175_000.0);
    let mut recording = Recording::begin(path, program);
    let mut traffic = Traffic::new(program, round_ns);
    while recording.packets < packets {
        recording.round(&traffic.round());
    }
    let found = (recording.packets, recording.end_ns as f64 / 1e9);
    recording.end();
    found
}

/// Records a program as it would be, at so many packets a second for so many seconds.
pub(crate) fn live(path: &Path, program: Program, rate: f64, seconds: f64) -> u64 {
    let mut recording = Recording::begin(path, program);
    let mut traffic = Traffic::new(program, program.round_ns(rate));
    let started = Instant::now();
    while started.elapsed().as_secs_f64() < seconds {
        let round = traffic.round();
        if let Some(last) = round.packets.last() {
            let due = started + Duration::from_nanos(last.t_ns.unsigned_abs());
            let early = due.saturating_duration_since(Instant::now());
            // Not for each round: sleeping costs more than packets do.
            if early > Duration::from_millis(20) {
                std::thread::sleep(early);
            }
        }
        recording.round(&round);
    }
    let packets = recording.packets;
    recording.end();
    packets
}

struct Recording {
    writer: Writer,
    recorder: Recorder,
    captures: u16,
    flows: u32,
    /// What each capture saw of each flow.
    seen: HashMap<(u32, u16), FlowSeen>,
    packets: u64,
    end_ns: i64,
}

impl Recording {
    fn begin(path: &Path, program: Program) -> Recording {
        let (writer, recorder) = Writer::create(path, true).expect("a trace can be made");
        let captures = program.captures();
        for capture in 0..captures {
            let host = HostId(u32::from(capture) + 1);
            recorder.record(Record::Host(Box::new(HostRecord {
                id: host,
                name: format!("node{capture}"),
                boot_id: None,
                system: "unknown".into(),
                cpus: None,
                memory_bytes: None,
                epoch_unix_ns: 0,
            })));
            recorder.record(Record::Capture(Box::new(CaptureRecord {
                id: CaptureId(u32::from(capture) + 1),
                host,
                interface: "eth0".into(),
                source: CaptureSource::Ring,
                file: None,
                link_type: Some(1),
                namespace: None,
                snap_length: Some(128),
                from_ns: Some(0),
            })));
        }
        recorder.record(Record::Run(Box::new(RunRecord {
            id: RunId(1),
            host: HostId(1),
            command: None,
            cwd: Text::from("/"),
            version: env!("CARGO_PKG_VERSION"),
            file_layer: FileLayer::None,
            process_layer: ProcessLayer::None,
        })));
        Recording {
            writer,
            recorder,
            captures,
            flows: 0,
            seen: HashMap::new(),
            packets: 0,
            end_ns: 0,
        }
    }

    fn round(&mut self, round: &Round) {
        let first_ns = round.packets.first().map_or(0, |packet| packet.t_ns);
        for connection in &round.connections {
            self.connection(connection, first_ns);
        }
        for packet in &round.packets {
            self.packet(packet);
        }
    }

    fn connection(&mut self, connection: &Connection, first_ns: i64) {
        self.flows += 1;
        self.recorder.record(Record::Flow(Box::new(FlowRecord {
            id: FlowId(self.flows),
            capture: CaptureId(1),
            src: connection.src,
            sport: Some(connection.sport),
            dst: connection.dst,
            dport: Some(connection.dport),
            protocol: TCP,
            first_ns,
        })));
    }

    fn packet(&mut self, packet: &Seen) {
        let (flow, capture) = (
            FlowId(packet.flow + 1),
            CaptureId(u32::from(packet.capture) + 1),
        );
        let sums = self
            .seen
            .entry((packet.flow, packet.capture))
            .or_insert(FlowSeen {
                flow,
                capture,
                first_ns: packet.t_ns,
                ..FlowSeen::default()
            });
        let way = usize::from(packet.back);
        sums.last_ns = packet.t_ns;
        sums.packets[way] += 1;
        sums.bytes[way] += u64::from(packet.payload);
        self.recorder.packet(&Packet {
            t_ns: packet.t_ns,
            capture,
            flow,
            back: packet.back,
            way: Way::Unknown,
            marks: 0,
            payload_bytes: packet.payload,
            wire_bytes: packet.payload + HEADERS,
            tcp: Some(TcpFields {
                seq: packet.seq,
                ack: packet.ack,
                flags: packet.flags,
                window: 65_535,
                timestamps: None,
            }),
        });
        self.packets += 1;
        self.end_ns = self.end_ns.max(packet.t_ns);
    }

    fn end(self) {
        for sums in self.seen.into_values() {
            self.recorder.record(Record::FlowSeen(Box::new(sums)));
        }
        for capture in 1..=self.captures {
            self.recorder
                .record(Record::CaptureEnd(Box::new(CaptureEnd {
                    id: CaptureId(capture.into()),
                    from_ns: Some(0),
                    to_ns: Some(self.end_ns),
                    received: None,
                    dropped: Some(0),
                    unstored: 0,
                    ignored: 0,
                })));
        }
        let end = RunEnd {
            id: RunId(1),
            end_ns: self.end_ns.unsigned_abs(),
            exit_code: Some(0),
            exit_signal: None,
        };
        let summary = self.writer.finish(&self.recorder, end);
        assert_eq!(summary.packets, self.packets, "{:?}", summary.write_error);
    }
}
