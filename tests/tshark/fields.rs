//! The fields of packets, as tshark dissects them and as a trace stores them.

use std::path::Path;
use std::process::{Command, Stdio};

/// All stored fields of one packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fields {
    /// Time in ns since 1970.
    pub(crate) t_ns: i64,
    pub(crate) src: String,
    pub(crate) dst: String,
    pub(crate) proto: String,
    pub(crate) sport: Option<i64>,
    pub(crate) dport: Option<i64>,
    pub(crate) wire_bytes: i64,
    pub(crate) payload_bytes: Option<i64>,
    pub(crate) seq: Option<i64>,
    pub(crate) ack: Option<i64>,
    pub(crate) flags: Option<i64>,
    pub(crate) window: Option<i64>,
    pub(crate) tsval: Option<i64>,
    pub(crate) tsecr: Option<i64>,
    /// 0 if the frame does not say it.
    pub(crate) way: i64,
    pub(crate) is_fragment: bool,
    pub(crate) has_tag: bool,
}

const COLUMNS: &[&str] = &[
    "frame.time_epoch",
    "frame.len",
    "frame.protocols",
    "ip.src",
    "ip.dst",
    "ipv6.src",
    "ipv6.dst",
    "ip.len",
    "ip.hdr_len",
    "ip.frag_offset",
    "ip.flags.mf",
    "ip.proto",
    "ipv6.plen",
    "ipv6.fraghdr.offset",
    "ipv6.fraghdr.nxt",
    "tcp.srcport",
    "tcp.dstport",
    "udp.srcport",
    "udp.dstport",
    "udp.length",
    "tcp.seq_raw",
    "tcp.ack_raw",
    "tcp.flags",
    "tcp.window_size",
    "tcp.len",
    "tcp.options.timestamp.tsval",
    "tcp.options.timestamp.tsecr",
    "sll.pkttype",
    "vlan.id",
    "ipv6.opt.length",
    "frame.interface_id",
    "sctp.srcport",
    "sctp.dstport",
    "frame.packet_flags_direction",
];

/// The IP packets of a capture according to tshark, in the order of the file.
pub(crate) fn of_tshark(capture: &Path) -> Vec<Fields> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(capture);
    command.args(["-T", "fields", "-E", "occurrence=f", "-E", "separator=;"]);
    for preference in [
        "tcp.desegment_tcp_streams:FALSE",
        "ip.defragment:FALSE",
        "ipv6.defragment:FALSE",
        "tcp.check_checksum:FALSE",
        // Other dissectors may match whole packets and give them other protocol names.
        "tcp.try_heuristic_first:FALSE",
    ] {
        command.args(["-o", preference]);
    }
    for column in COLUMNS {
        command.args(["-e", column]);
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(row).collect()
}

fn row(line: &str) -> Option<Fields> {
    let cells: Vec<&str> = line.split(';').collect();
    let at = |name: &str| {
        let place = COLUMNS.iter().position(|column| *column == name).unwrap();
        cells[place]
    };
    let number = |name: &str| {
        let text = at(name);
        match text.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16).ok(),
            None => text.parse::<i64>().ok(),
        }
    };
    let is_set = |name: &str| matches!(at(name), "1" | "True" | "true");
    // The outermost packet: errors of ICMP carry another one.
    let protocols: Vec<&str> = at("frame.protocols").split(':').collect();
    let ip = protocols.iter().position(|p| matches!(*p, "ip" | "ipv6"))?;
    let is_4 = protocols[ip] == "ip";
    let offset = if is_4 {
        number("ip.frag_offset")
    } else {
        number("ipv6.fraghdr.offset")
    };
    let is_later = offset.unwrap_or(0) > 0;
    let known = ["tcp", "udp", "icmp", "icmpv6", "sctp"];
    let mut behind = protocols[ip + 1..].iter();
    let dissected = behind.find(|p| known.contains(p)).map(|p| (*p).to_owned());
    // Later fragments are not dissected.
    let carried = if is_4 {
        number("ip.proto")
    } else {
        number("ipv6.fraghdr.nxt")
    };
    let proto = match dissected {
        Some(proto) => proto,
        None => match carried {
            Some(6) => "tcp".into(),
            Some(17) => "udp".into(),
            Some(1) => "icmp".into(),
            Some(58) => "icmpv6".into(),
            Some(132) => "sctp".into(),
            other => format!("ip-{}", other?),
        },
    };
    let is_tcp = proto == "tcp" && !is_later;
    let of_tcp = |name| number(name).filter(|_| is_tcp);
    let port = |side: &str| match proto.as_str() {
        "tcp" | "udp" | "sctp" if !is_later => number(&format!("{proto}.{side}")),
        _ => None,
    };
    let behind_ip = number("ip.len")
        .zip(number("ip.hdr_len"))
        .map(|(all, head)| all - head);
    let payload_bytes = match proto.as_str() {
        "tcp" if !is_later => number("tcp.len"),
        "udp" | "icmp" | "icmpv6" if is_4 && !is_later => behind_ip.map(|bytes| bytes - 8),
        "sctp" if is_4 => behind_ip.map(|bytes| bytes - 12),
        _ if is_4 => behind_ip,
        "udp" if number("ipv6.fraghdr.offset").is_none() => number("udp.length").map(|b| b - 8),
        "icmpv6" if protocols[ip + 1] == "icmpv6" => number("ipv6.plen").map(|bytes| bytes - 8),
        // tshark has no field for the length after extension headers.
        _ => None,
    };
    let of_direction = match number("frame.packet_flags_direction") {
        Some(1) => 2,
        Some(2) => 1,
        _ => 0,
    };
    Some(Fields {
        t_ns: nanoseconds(at("frame.time_epoch")),
        src: at(if is_4 { "ip.src" } else { "ipv6.src" }).into(),
        dst: at(if is_4 { "ip.dst" } else { "ipv6.dst" }).into(),
        sport: port("srcport"),
        dport: port("dstport"),
        wire_bytes: number("frame.len")?,
        payload_bytes,
        seq: of_tcp("tcp.seq_raw"),
        ack: of_tcp("tcp.ack_raw"),
        flags: of_tcp("tcp.flags").map(|flags| flags & 255),
        window: of_tcp("tcp.window_size"),
        tsval: of_tcp("tcp.options.timestamp.tsval"),
        tsecr: of_tcp("tcp.options.timestamp.tsecr"),
        way: match number("sll.pkttype") {
            Some(0..=2) => 2,
            Some(3) => 3,
            Some(4) => 1,
            _ => of_direction,
        },
        is_fragment: is_later || is_set("ip.flags.mf") || number("ipv6.fraghdr.nxt").is_some(),
        has_tag: number("vlan.id").is_some(),
        proto,
    })
}

/// Parses seconds with up to nine digits after the point.
fn nanoseconds(text: &str) -> i64 {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction = format!("{fraction:0<9}");
    seconds.parse::<i64>().unwrap() * 1_000_000_000 + fraction[..9].parse::<i64>().unwrap()
}

/// The packets of a trace, in the order of time.
pub(crate) fn of_trace(trace: &Path) -> Vec<Fields> {
    let db = rusqlite::Connection::open(trace).unwrap();
    let sql = "SELECT t_ns + epoch_unix_ns,
        CASE dir WHEN 0 THEN f.src ELSE f.dst END, CASE dir WHEN 0 THEN f.dst ELSE f.src END, f.proto,
        -- Later fragments have none by themselves.
        CASE WHEN marks & 16 THEN NULL WHEN dir = 0 THEN f.sport ELSE f.dport END,
        CASE WHEN marks & 16 THEN NULL WHEN dir = 0 THEN f.dport ELSE f.sport END,
        wire_bytes, payload_bytes, seq, ack, flags, window, tsval, tsecr, way,
        marks & 2 <> 0, marks & 4 <> 0
      FROM packets JOIN (SELECT flow_id, src, sport, dst, dport, proto FROM flow) AS f USING (flow_id)
        JOIN captures USING (capture_id) JOIN hosts USING (host_id)
      ORDER BY packet_id";
    let mut statement = db.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| {
        Ok(Fields {
            t_ns: row.get(0)?,
            src: row.get(1)?,
            dst: row.get(2)?,
            proto: row.get(3)?,
            sport: row.get(4)?,
            dport: row.get(5)?,
            wire_bytes: row.get(6)?,
            payload_bytes: row.get(7)?,
            seq: row.get(8)?,
            ack: row.get(9)?,
            flags: row.get(10)?,
            window: row.get(11)?,
            tsval: row.get(12)?,
            tsecr: row.get(13)?,
            way: row.get(14)?,
            is_fragment: row.get(15)?,
            has_tag: row.get(16)?,
        })
    });
    rows.unwrap().map(Result::unwrap).collect()
}

/// Fails at the first packet in which the two differ.
pub(crate) fn assert_same(name: &str, ours: &[Fields], theirs: &[Fields]) {
    for (number, (our, their)) in ours.iter().zip(theirs).enumerate() {
        let mut our = our.clone();
        if their.payload_bytes.is_none() {
            our.payload_bytes = None;
        }
        assert_eq!(
            &our, their,
            "{name}: packet {number}, flowtrace left, tshark right"
        );
    }
    assert_eq!(
        ours.len(),
        theirs.len(),
        "{name}: packets, flowtrace and tshark"
    );
    let bytes = |all: &[Fields]| all.iter().map(|fields| fields.wire_bytes).sum::<i64>();
    assert_eq!(bytes(ours), bytes(theirs), "{name}");
}
