//! Answers report everything that they leave out or lack.

use crate::frames::{Segment, ethernet, ipv4, pcap};
use crate::own_first_flow;
use crate::support::{Scratch, flowtrace, prints};

/// A segment in the middle of a connection, with `payload` bytes to deliver (PSH).
fn data(ports: (u16, u16), payload: usize) -> Segment {
    const PSH_ACK: u8 = 24;
    Segment {
        ports,
        seq: 100,
        ack: 100,
        flags: PSH_ACK,
        payload,
    }
}

/// Frames with times, 1 µs apart.
fn timed(frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<(u64, Vec<u8>)> {
    let times = (1_700_000_000_000_000_000..).step_by(1000);
    times.zip(frames).collect()
}

/// Imports a capture of these frames.
fn import(scratch: &Scratch, timed: &[(u64, Vec<u8>)]) {
    std::fs::write(scratch.join("x.pcap"), pcap(timed)).unwrap();
    prints(scratch, &["import", "-q", "x.pcap"]);
}

/// Three hosts, of which two exchange nearly all data, and some datagrams. Traffic without a pattern gets no
/// name, and traffic that was not analysed is reported.
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
    let segment = |src, dst, ports, payload| data(ports, payload).frame(src, dst);
    let frames = [
        segment(a, b, (4000, 80), 1400),
        segment(b, a, (80, 4000), 1400),
        segment(c, a, (4001, 80), 10),
        datagram(a, c, 100),
        datagram(a, c, 50),
    ];
    let timed = timed(frames);
    import(&scratch, &timed);
    let said = prints(&scratch, &["network", "topology", "trace.db"]);
    assert!(
        said.starts_with("no pattern that has a name: 1 edge between 3 processes"),
        "{said}"
    );
    let left_out = "left out, for these methods are of TCP: 1 flow of UDP, 2 packets, 150 B";
    for question in ["matrix", "topology"] {
        let said = prints(&scratch, &["network", question, "trace.db"]);
        assert!(said.contains(left_out), "{said}");
    }
    let json = prints(
        &scratch,
        &["network", "matrix", "trace.db", "--format", "json"],
    );
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let other = &json["coverage"]["other_flows"][0];
    assert_eq!(
        (&other["kind"], &other["packets"]),
        (&"UDP".into(), &2.into())
    );
    let said = prints(&scratch, &["network", "flows", "trace.db"]);
    assert!(
        said.contains("2 flows of TCP without least round trip and retransmissions: they are what the kernel says"),
        "{said}"
    );
    // Datagrams alone.
    std::fs::write(scratch.join("udp.pcap"), pcap(&timed[3..])).unwrap();
    prints(&scratch, &["import", "-q", "udp.pcap", "-o", "udp.db"]);
    let said = flowtrace(&scratch, &["network", "matrix", "udp.db"]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(
        said.contains("it has 1 flow of UDP, 2 packets, 150 B"),
        "{said}"
    );
}

/// Two hosts that talk over IPv4 and IPv6, each with a capture: the received bytes of all four directions are
/// known.
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
    prints(&scratch, &[&["import", "-q"][..], &files].concat());
    let matrix = ["network", "matrix", "trace.db", "--format", "json"];
    let json: serde_json::Value = serde_json::from_str(&prints(&scratch, &matrix)).unwrap();
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

/// Packets that could not be captured or stored are reported in every answer, `flows` included.
#[test]
fn answers_say_what_was_lost() {
    let scratch = Scratch::new();
    let frame = data((4000, 80), 10).frame([10, 0, 0, 1], [10, 0, 0, 2]);
    import(&scratch, &timed([frame]));
    let questions = ["flows", "peers", "matrix", "overview"];
    for question in questions {
        let said = prints(&scratch, &["network", question, "trace.db"]);
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
        let said = prints(&scratch, &["network", question, "trace.db"]);
        let lost: Vec<&str> = said.lines().filter(|l| l.contains(" × ")).collect();
        let expected = [
            "note: lost: 1 × times the disk of the trace was full",
            "note: lost: 7 × packets that the kernel dropped",
            "note: lost: 345 × rows not stored",
        ];
        assert_eq!(lost, expected, "{said}");
    }
}

/// Connections over loopback, of which one has an owner, and one connection of another program. A connection
/// of an unknown process has no row; it is reported with its bytes.
#[test]
fn connections_without_an_owner_are_said_to_be_left_out() {
    let scratch = Scratch::new();
    let lo = [127, 0, 0, 1];
    let frames = [(4000, 100), (4001, 1200), (4002, 1300)]
        .map(|(port, payload)| data((port, 80), payload).frame(lo, lo));
    let timed: Vec<_> = frames
        .into_iter()
        .map(|frame| (1_700_000_000_000_000_000, frame))
        .collect();
    import(&scratch, &timed);
    own_first_flow(
        &scratch,
        ("/usr/bin/client", "client"),
        ("/usr/bin/server", "server"),
    );
    let left_out = "left out: 2 flows of TCP within one address without a known owner \
                    (--by endpoint shows them), 2 packets, 2.5 kB of payload";
    for question in ["overview", "matrix", "topology"] {
        let said = prints(&scratch, &["network", question, "trace.db"]);
        assert!(said.contains(left_out), "{said}");
    }
    let by = ["network", "matrix", "trace.db", "--by", "endpoint"];
    assert!(!prints(&scratch, &by).contains("left out"));
}

/// A recorded run of a client and a server on loopback, beside another program on another interface, and a
/// connection of the client that was refused. The answers are about the run alone.
#[test]
fn a_recorded_run_is_analysed_without_other_programs() {
    let scratch = Scratch::new();
    let lo = [127, 0, 0, 1];
    let refused = [(5000, 9000, 2), (9000, 5000, 20)].map(|(from, to, flags)| Segment {
        ports: (from, to),
        seq: 100,
        ack: 100,
        flags,
        payload: 0,
    });
    let frames = [
        data((4000, 80), 100).frame(lo, lo),
        data((80, 4000), 300).frame(lo, lo),
        data((4001, 80), 50).frame(lo, lo),
        data((80, 4001), 20).frame(lo, lo),
        data((6000, 7000), 900).frame([10, 0, 0, 1], [10, 0, 0, 2]),
        refused[0].frame(lo, lo),
        refused[1].frame(lo, lo),
    ];
    import(&scratch, &timed(frames));
    let client = ("/usr/bin/client", "client");
    own_first_flow(&scratch, client, ("/usr/bin/server", "server"));
    // Without a run the owners are those that a capture found, and nothing is left out for them.
    let said = prints(&scratch, &["network", "matrix", "trace.db"]);
    assert!(said.contains("900 B"), "{said}");
    let db = rusqlite::Connection::open(scratch.join("trace.db")).unwrap();
    db.execute_batch(
        "UPDATE run SET process_layer = 'ptrace';
         INSERT INTO flow_owner (flow_id, side, upid, evidence)
           SELECT flow_id, 'src', 2, 'calls' FROM flow WHERE sport = 5000;
         INSERT INTO process (upid, host_id, pid, origin, exe, command, start_ns)
           VALUES (3, 1, 72, 'seen', '/usr/bin/other', 'other', 0);
         INSERT INTO flow_owner (flow_id, side, upid, evidence)
           SELECT flow_id, 'src', 3, 'calls' FROM flow WHERE sport = 4001
           UNION SELECT flow_id, 'dst', 1, 'calls' FROM flow WHERE sport = 4001;",
    )
    .unwrap();
    drop(db);
    let said = prints(&scratch, &["network", "trace.db"]);
    assert!(said.starts_with("3 processes in "), "{said}");
    // On loopback the capture is that of every process.
    assert!(!said.contains("without a capture"), "{said}");
    for part in [
        "from server (pid 70) to client (pid 71): 300 B",
        "1 flow of TCP of programs outside of the run, 1 packet, 900 B",
        "1 flow of TCP without payload, as refused connections, 2 packets",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // With `--host`, all that the host sent or got is analysed, of the run or not.
    let host = ["network", "matrix", "trace.db", "--host", "10.0.0.1"];
    let said = prints(&scratch, &[&host[..], &["--host", "10.0.0.2"]].concat());
    assert!(said.contains("900 B"), "{said}");
    let watched = prints(&scratch, &["network", "matrix", "trace.db", "--watch", "1"]);
    let once = prints(&scratch, &["network", "matrix", "trace.db"]);
    assert_eq!(watched.trim_start_matches("---\n"), once);
}
