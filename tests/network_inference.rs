//! `flowtrace network` on the reference captures and on small ones made here.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[path = "support/frames.rs"]
mod frames;
mod support;

use frames::{Segment, ethernet, ipv4, pcap};
use support::{Scratch, flowtrace, shared};

fn succeeds(directory: &Path, arguments: &[&str]) -> String {
    let output = flowtrace(directory, arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// A trace of a reference capture, one host per file.
fn imported(scratch: &Scratch, name: &str) -> bool {
    let mut arguments = vec![
        "import".to_owned(),
        "-o".into(),
        "trace.db".into(),
        "--quiet".into(),
    ];
    for host in 1..=4 {
        let Some(file) = shared(&format!("captures/{name}/ns{host}.pcap.gz")) else {
            return false;
        };
        arguments.extend(["--host".into(), format!("h{host}={}", file.display())]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    succeeds(scratch, &arguments);
    true
}

const QUESTIONS: [&str; 23] = [
    "overview",
    "matrix",
    "topology",
    "changes",
    "iterations",
    "stationary",
    "cdf",
    "spectrum",
    "peaks",
    "period",
    "court",
    "balance",
    "bias",
    "multiload",
    "imbalance",
    "messages",
    "decomposition",
    "component",
    "slowdown",
    "pop",
    "critical-path",
    "state",
    "components",
];

#[test]
fn every_question_is_answered_on_a_capture() {
    let scratch = Scratch::new();
    if !imported(&scratch, "lu.S") {
        return;
    }
    for (i, question) in QUESTIONS.into_iter().enumerate() {
        // Each in one format, in turn: all of them go through the same writer.
        let format = ["table", "json", "csv"][i % 3];
        let text = succeeds(
            &scratch,
            &["network", question, "trace.db", "--format", format],
        );
        assert!(text.lines().count() >= 1 || format == "csv", "{question}");
        if format == "json" {
            let json: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert!(
                json["t1_ns"].as_i64() > json["t0_ns"].as_i64(),
                "{question}"
            );
        }
    }
    for question in ["latency", "bandwidth"] {
        let ends = ["--from", "10.77.0.1", "--to", "10.77.0.2"];
        let arguments = [&["network", question, "trace.db"][..], &ends].concat();
        assert!(!succeeds(&scratch, &arguments).is_empty());
    }
    let faster = ["--scale", "10.77.0.4=0.5", "--no-latency"];
    let arguments = [&["network", "what-if", "trace.db"][..], &faster].concat();
    assert!(succeeds(&scratch, &arguments).contains("instead of"));
    let output = flowtrace(&scratch, &["network", "what-if", "trace.db"]);
    assert_eq!(output.status.code(), Some(2));
    let placed = succeeds(
        &scratch,
        &["network", "placement", "trace.db", "--capacity", "a,b=1e6"],
    );
    assert!(placed.starts_with("unknown:"), "{placed}");
    // The launcher's connections are no part of the program.
    let overview = succeeds(&scratch, &["network", "trace.db"]);
    assert!(overview.contains("4 processes"), "{overview}");
    assert!(overview.contains("left out: 10.77.0.254"), "{overview}");
    // Payload as counted at the sender's port, 426 476, less a repeated segment of 222.
    let matrix = succeeds(
        &scratch,
        &["network", "matrix", "trace.db", "--format", "json"],
    );
    let matrix: serde_json::Value = serde_json::from_str(&matrix).unwrap();
    let payload = |src: &str, dst: &str| {
        let rows = matrix["rows"].as_array().unwrap().iter();
        let mut rows = rows.filter(|row| row["src"] == src && row["dst"] == dst);
        rows.next()
            .map(|row| row["payload_bytes"].as_i64().unwrap())
    };
    assert_eq!(payload("10.77.0.1", "10.77.0.2"), Some(426_254));
    assert_eq!(payload("10.77.0.2", "10.77.0.3"), None);
    let period = succeeds(
        &scratch,
        &["network", "period", "trace.db", "--format", "json"],
    );
    let period: serde_json::Value = serde_json::from_str(&period).unwrap();
    let seconds = period["rows"][0]["period_s"].as_f64().unwrap();
    assert!((seconds / 0.001638 - 1.0).abs() < 0.02, "{seconds}");
    // The same answer each time.
    let again = succeeds(&scratch, &["network", "trace.db"]);
    assert_eq!(overview, again);
    let dot = succeeds(
        &scratch,
        &["network", "topology", "trace.db", "--format", "dot"],
    );
    assert_eq!(dot.matches(" -> ").count(), 8, "{dot}");
}

#[test]
fn wrong_uses_say_what_is_there() {
    let scratch = Scratch::new();
    if !imported(&scratch, "is.S") {
        return;
    }
    let output = flowtrace(&scratch, &["network", "trace.db", "--host", "nosuch"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        error.contains("no host \"nosuch\"") && error.contains("10.77.0.1") && error.contains("h1"),
        "{error}"
    );
    let ends = ["--from", "10.77.0.1", "--to", "elsewhere"];
    let output = flowtrace(
        &scratch,
        &[&["network", "latency", "trace.db"][..], &ends].concat(),
    );
    assert_eq!(output.status.code(), Some(2));
    let output = flowtrace(
        &scratch,
        &["network", "balance", "trace.db", "--format", "dot"],
    );
    assert_eq!(output.status.code(), Some(2));
    for value in ["nan", "-1", "0", "x"] {
        let output = flowtrace(&scratch, &["network", "trace.db", "--last", value]);
        assert_eq!(output.status.code(), Some(2), "{value}");
    }
    // A host can be named by its name or its address.
    let some = succeeds(
        &scratch,
        &[
            "network",
            "matrix",
            "trace.db",
            "--host",
            "h1",
            "--host",
            "10.77.0.2",
        ],
    );
    assert!(some.contains("2 directions"), "{some}");
    let nothing = succeeds(
        &scratch,
        &["network", "trace.db", "--within", "90000..90001"],
    );
    assert!(nothing.starts_with("unknown:"), "{nothing}");
}

/// The page of the run shows the same numbers.
#[test]
fn a_report_shows_the_traffic_and_the_spectrum() {
    let scratch = Scratch::new();
    if !imported(&scratch, "lu.S") {
        return;
    }
    let of = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&succeeds(&scratch, arguments)).unwrap()
    };
    let network = &of(&["report", "trace.db", "--format", "json"])["network"];
    let matrix = of(&["network", "matrix", "trace.db", "--format", "json"]);
    let rows = matrix["rows"].as_array().unwrap();
    let traffic = network["traffic"].as_array().unwrap();
    assert_eq!(traffic.len(), rows.len());
    for row in rows {
        let is_same = |cell: &&serde_json::Value| {
            let name = |side: &str| &network["nodes"][cell[side].as_u64().unwrap() as usize];
            name("src") == &row["src"] && name("dst") == &row["dst"]
        };
        let cell = traffic.iter().find(is_same).unwrap();
        for column in ["payload_bytes", "wire_bytes", "packets"] {
            assert_eq!(cell[column], row[column], "{column} of {row}");
        }
    }
    let topology = of(&["network", "topology", "trace.db", "--format", "json"]);
    let edges = topology["rows"].as_array().unwrap().len();
    assert_eq!(network["edges"].as_array().unwrap().len(), edges);
    let rate = network["rate"]["per_s"].as_array().unwrap();
    assert!(rate.len() > 1 && rate.len() <= 1500);
    let spectrum = &network["spectrum"];
    assert_eq!(
        spectrum["hz"].as_array().unwrap().len(),
        spectrum["power"].as_array().unwrap().len()
    );
}

/// What is read bit by bit while a trace grows gives the same answers, here of one that has ended.
#[test]
fn watching_says_what_asking_once_says() {
    let scratch = Scratch::new();
    if !imported(&scratch, "lu.S") {
        return;
    }
    for question in ["matrix", "iterations", "period", "balance"] {
        let asked = ["network", question, "trace.db", "--format", "csv"];
        let once = succeeds(&scratch, &asked);
        let watched = succeeds(&scratch, &[&asked[..], &["--watch", "1"]].concat());
        let rows = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| !line.is_empty());
            lines.map(str::to_owned).collect()
        };
        assert!(!rows(&once).is_empty(), "{question}");
        assert_eq!(rows(&watched), rows(&once), "{question}");
    }
    // Only the end of it is read.
    let asked = ["network", "matrix", "trace.db", "--last", "0.05"];
    let once = succeeds(&scratch, &asked);
    let watched = succeeds(&scratch, &[&asked[..], &["--watch", "1"]].concat());
    assert!(
        watched.contains(once.lines().next().unwrap()),
        "{watched}\n{once}"
    );
}

/// Whoever looks on has the last answer when the recording ends, however long the pause would have been.
#[test]
fn the_last_answer_comes_when_the_recording_ends() {
    let scratch = Scratch::new();
    if !imported(&scratch, "is.S") {
        return;
    }
    // Who records holds the trace.
    let trace = std::fs::File::open(scratch.join("trace.db")).unwrap();
    trace.lock().unwrap();
    let mut watching = Command::new(env!("CARGO_BIN_EXE_flowtrace"))
        .args(["network", "matrix", "trace.db", "--watch", "600"])
        .current_dir(&*scratch)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut answers = BufReader::new(watching.stdout.take().unwrap()).lines();
    answers
        .find(|line| line.as_ref().unwrap() == "---")
        .unwrap()
        .unwrap();
    assert!(watching.try_wait().unwrap().is_none());
    trace.unlock().unwrap();
    let ended = Instant::now();
    let last = answers
        .filter(|line| line.as_ref().unwrap() == "---")
        .count();
    assert!(watching.wait().unwrap().success());
    assert_eq!(last, 1);
    assert!(
        ended.elapsed() < Duration::from_secs(60),
        "{:?}",
        ended.elapsed()
    );
}

/// A trace of packets alone: of what ran nothing is known, and of one address not who talks to whom.
#[test]
fn packets_alone_are_no_workflow() {
    let scratch = Scratch::new();
    let local = [127, 0, 0, 1];
    let frame = |t: u64, ports, seq, ack, flags, payload| {
        let segment = Segment {
            ports,
            seq,
            ack,
            flags,
            payload,
        };
        (1_700_000_000_000_000_000 + t, segment.frame(local, local))
    };
    let frames = [
        frame(0, (4000, 80), 100, 0, 2, 0),
        frame(1000, (80, 4000), 500, 101, 18, 0),
        frame(2000, (4000, 80), 101, 501, 24, 1000),
        frame(3000, (80, 4000), 501, 1101, 24, 300),
    ];
    std::fs::write(scratch.join("lo.pcap"), pcap(&frames)).unwrap();
    succeeds(&scratch, &["import", "-q", "lo.pcap"]);
    let said = succeeds(&scratch, &["summary", "trace.db"]);
    assert!(
        said.contains("what ran is not known: only packets were recorded"),
        "{said}"
    );
    assert!(
        !said.contains("critical path") && !said.contains("execs"),
        "{said}"
    );
    for question in ["critical-path", "bottlenecks", "waits", "resources"] {
        let refused = flowtrace(&scratch, &[question, "trace.db"]);
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{question}: {why}");
        assert!(why.contains("only packets were recorded"), "{why}");
    }
    let said = succeeds(&scratch, &["network", "trace.db"]);
    assert!(said.contains("--by endpoint"), "{said}");
    let said = succeeds(
        &scratch,
        &["network", "matrix", "trace.db", "--by", "endpoint"],
    );
    assert!(said.contains("127.0.0.1:4000"), "{said}");
    // With the two programs known, they are called as everywhere.
    let db = rusqlite::Connection::open(scratch.join("trace.db")).unwrap();
    db.execute_batch(
        "INSERT INTO process (upid, host_id, pid, origin, exe, command, start_ns) VALUES
           (1, 1, 70, 'seen', '/usr/bin/python3.11', 'python3 srv.py', 0),
           (2, 1, 71, 'seen', '/usr/bin/curl', 'curl localhost', 0);
         INSERT INTO flow_owner (flow_id, side, upid, evidence) VALUES
           (1, 'dst', 1, 'descriptors'), (1, 'src', 2, 'descriptors');",
    )
    .unwrap();
    drop(db);
    for question in ["flows", "peers", "matrix"] {
        let said = succeeds(&scratch, &["network", question, "trace.db"]);
        assert!(
            said.contains("srv.py (pid 70)") && said.contains("curl (pid 71)"),
            "{said}"
        );
    }
    let arguments = [
        "network", "latency", "trace.db", "--from", "curl", "--to", "srv.py",
    ];
    succeeds(&scratch, &arguments);
}

/// Three hosts, of which two exchange nearly everything, and datagrams beside: what is no pattern has no
/// name, and what is not looked at is said.
#[test]
fn answers_say_what_they_leave_out() {
    let scratch = Scratch::new();
    let (a, b, c) = ([10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]);
    let datagram = |src, dst, payload: usize| {
        let mut body = [40000_u16.to_be_bytes(), 53_u16.to_be_bytes()].concat();
        body.extend((8 + payload as u16).to_be_bytes());
        body.resize(8 + payload, 0);
        ethernet(&ipv4(src, dst, 17, &body))
    };
    let segment = |src, dst, ports, payload| {
        let (seq, ack, flags) = (100, 100, 24);
        Segment {
            ports,
            seq,
            ack,
            flags,
            payload,
        }
        .frame(src, dst)
    };
    let frames = [
        segment(a, b, (4000, 80), 1400),
        segment(b, a, (80, 4000), 1400),
        segment(c, a, (4001, 80), 10),
        datagram(a, c, 100),
        datagram(a, c, 50),
    ];
    let timed = frames.into_iter().enumerate();
    let timed: Vec<_> = timed
        .map(|(at, frame)| (1_700_000_000_000_000_000 + at as u64 * 1000, frame))
        .collect();
    std::fs::write(scratch.join("x.pcap"), pcap(&timed)).unwrap();
    succeeds(&scratch, &["import", "-q", "x.pcap"]);
    let said = succeeds(&scratch, &["network", "topology", "trace.db"]);
    assert!(
        said.starts_with("no pattern that has a name: 1 edge between 3 processes"),
        "{said}"
    );
    let left_out = "left out, for these methods are of TCP: 1 flow of UDP, 2 packets, 150 B";
    for question in ["matrix", "topology"] {
        let said = succeeds(&scratch, &["network", question, "trace.db"]);
        assert!(said.contains(left_out), "{said}");
    }
    let json = succeeds(
        &scratch,
        &["network", "matrix", "trace.db", "--format", "json"],
    );
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let other = &json["coverage"]["other_flows"][0];
    assert_eq!(
        (&other["kind"], &other["packets"]),
        (&"UDP".into(), &2.into())
    );
    let said = succeeds(&scratch, &["network", "flows", "trace.db"]);
    assert!(
        said.contains("2 flows of TCP without least round trip and retransmissions: they are what the kernel says"),
        "{said}"
    );
    // Nothing else at all.
    std::fs::write(scratch.join("udp.pcap"), pcap(&timed[3..])).unwrap();
    succeeds(&scratch, &["import", "-q", "udp.pcap", "-o", "udp.db"]);
    let said = flowtrace(&scratch, &["network", "matrix", "udp.db"]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(
        said.contains("it holds 1 flow of UDP, 2 packets, 150 B"),
        "{said}"
    );
}

/// Two hosts that talk over IPv4 and IPv6, each captured: what was received is known of all four
/// directions.
#[test]
fn hosts_with_two_kinds_of_addresses_have_captures_of_their_own() {
    let scratch = Scratch::new();
    let v6 = |from: u8, to: u8, body: &[u8]| {
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend((body.len() as u16).to_be_bytes());
        packet.extend([6, 64]);
        for host in [from, to] {
            packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
        }
        ethernet(&[&packet, body].concat())
    };
    let mut captures = [Vec::new(), Vec::new()];
    for i in 0..40_u32 {
        let from = (i / 2 % 2) as usize;
        let (src, dst) = (1 + from as u8, 2 - from as u8);
        let bytes = 100 + 100 * from;
        let segment = Segment {
            ports: [(4000, 80), (80, 4000)][from],
            seq: 1000 + i / 4 * bytes as u32,
            ack: 5000,
            flags: 24,
            payload: bytes,
        };
        let frame = match i % 2 {
            0 => segment.frame([10, 0, 0, src], [10, 0, 0, dst]),
            _ => v6(src, dst, &segment.bytes()),
        };
        let t_ns = 1_700_000_000_000_000_000 + u64::from(i) * 1_000_000;
        captures[from].push((t_ns, frame.clone()));
        captures[1 - from].push((t_ns + 100_000, frame));
    }
    for (name, frames) in ["a.pcap", "b.pcap"].iter().zip(&mut captures) {
        frames.sort_by_key(|(t_ns, _)| *t_ns);
        std::fs::write(scratch.join(name), pcap(frames)).unwrap();
    }
    let files = ["--host", "a=a.pcap", "--host", "b=b.pcap"];
    succeeds(&scratch, &[&["import", "-q"][..], &files].concat());
    let matrix = ["network", "matrix", "trace.db", "--format", "json"];
    let json: serde_json::Value = serde_json::from_str(&succeeds(&scratch, &matrix)).unwrap();
    let row = |row: &serde_json::Value| {
        let name = |what: &str| row[what].as_str().unwrap().to_owned();
        (name("src"), name("dst"), row["received_bytes"].as_i64())
    };
    let mut rows: Vec<_> = json["rows"].as_array().unwrap().iter().map(row).collect();
    rows.sort();
    let row = |src: &str, dst: &str, bytes| (src.to_owned(), dst.to_owned(), Some(bytes));
    let expected = [
        row("10.0.0.1", "10.0.0.2", 1000),
        row("10.0.0.2", "10.0.0.1", 2000),
        row("fd00::1", "fd00::2", 1000),
        row("fd00::2", "fd00::1", 2000),
    ];
    assert_eq!(rows, expected);
}

/// What could not be captured or stored is said whatever is asked, with `flows` as with the rest.
#[test]
fn answers_say_what_was_lost() {
    let scratch = Scratch::new();
    let segment = Segment {
        ports: (4000, 80),
        seq: 100,
        ack: 100,
        flags: 24,
        payload: 10,
    };
    let frame = segment.frame([10, 0, 0, 1], [10, 0, 0, 2]);
    let timed = [(1_700_000_000_000_000_000, frame)];
    std::fs::write(scratch.join("x.pcap"), pcap(&timed)).unwrap();
    succeeds(&scratch, &["import", "-q", "x.pcap"]);
    let questions = ["flows", "peers", "matrix", "overview"];
    for question in questions {
        let said = succeeds(&scratch, &["network", question, "trace.db"]);
        assert!(!said.contains("lost"), "{said}");
    }
    let db = rusqlite::Connection::open(scratch.join("trace.db")).unwrap();
    db.execute_batch(
        "INSERT INTO loss (source, counter, value, meaning, severity) VALUES
           ('store', 'disk_full', 1, 'times the disk of the trace was full', 'error'),
           ('store', 'rows_dropped', 345, 'rows not stored', 'data_loss'),
           ('packets', 'kernel_dropped', 7, 'packets that the kernel dropped', 'data_loss'),
           ('packets', 'not_ip', 8, 'frames of other protocols', 'info'),
           ('files', 'calls_dropped', 9, 'reads and writes', 'data_loss');",
    )
    .unwrap();
    drop(db);
    for question in questions {
        let said = succeeds(&scratch, &["network", question, "trace.db"]);
        let lost: Vec<&str> = said.lines().filter(|l| l.contains(" × ")).collect();
        let expected = [
            "note: lost: 1 × times the disk of the trace was full",
            "note: lost: 7 × packets that the kernel dropped",
            "note: lost: 345 × rows not stored",
        ];
        assert_eq!(lost, expected, "{said}");
    }
}

/// Connections over loopback, of which one has an owner, and one of another program: who is not known is
/// no row, and is told of with its bytes.
#[test]
fn connections_without_an_owner_are_said_to_be_left_out() {
    let scratch = Scratch::new();
    let lo = [127, 0, 0, 1];
    let frames = [(4000, 100), (4001, 1200), (4002, 1300)].map(|(port, payload)| {
        let (seq, ack, flags) = (100, 100, 24);
        let ports = (port, 80);
        Segment {
            ports,
            seq,
            ack,
            flags,
            payload,
        }
        .frame(lo, lo)
    });
    let timed: Vec<_> = frames
        .into_iter()
        .map(|frame| (1_700_000_000_000_000_000, frame))
        .collect();
    std::fs::write(scratch.join("x.pcap"), pcap(&timed)).unwrap();
    succeeds(&scratch, &["import", "-q", "x.pcap"]);
    let db = rusqlite::Connection::open(scratch.join("trace.db")).unwrap();
    db.execute_batch(
        "INSERT INTO process (upid, host_id, pid, origin, exe, command, start_ns) VALUES
           (1, 1, 70, 'seen', '/usr/bin/server', 'server', 0),
           (2, 1, 71, 'seen', '/usr/bin/client', 'client', 0);
         INSERT INTO flow_owner (flow_id, side, upid, evidence) VALUES
           (1, 'dst', 1, 'descriptors'), (1, 'src', 2, 'descriptors');",
    )
    .unwrap();
    drop(db);
    let left_out = "left out: 2 flows of TCP within one address without a known owner \
                    (--by endpoint shows them), 2 packets, 2.5 kB of payload";
    for question in ["overview", "matrix", "topology"] {
        let said = succeeds(&scratch, &["network", question, "trace.db"]);
        assert!(said.contains(left_out), "{said}");
    }
    let by = ["network", "matrix", "trace.db", "--by", "endpoint"];
    assert!(!succeeds(&scratch, &by).contains("left out"));
}
