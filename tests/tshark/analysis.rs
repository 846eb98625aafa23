//! Results that tshark's analysis of TCP and the inference from packets both compute: repeated segments,
//! segments out of order, smallest round trips.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{FLOWTRACE, Scratch, need_program, shared};

const CAPTURES: [&str; 5] = ["is.S", "mg.S", "lu.S", "mg.W-quota-none", "mg.W-quota-full"];

type Pair = (String, String);

/// tshark's results for one direction, in the capture of its sender.
#[derive(Debug, Default, PartialEq)]
struct Analysis {
    repeated: u64,
    out_of_order: u64,
    least_rtt_ns: Option<i64>,
}

fn of_tshark(capture: &Path, found: &mut HashMap<Pair, Analysis>, me: &str) {
    let mut command = Command::new("tshark");
    command.args(["-n", "-o", "tcp.desegment_tcp_streams:FALSE", "-r"]);
    command.arg(capture);
    command.args(["-T", "fields", "-E", "separator=;"]);
    for field in [
        "ip.src",
        "ip.dst",
        "tcp.analysis.retransmission",
        "tcp.analysis.out_of_order",
        "tcp.analysis.ack_rtt",
    ] {
        command.args(["-e", field]);
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let cells: Vec<&str> = line.split(';').collect();
        let [src, dst, repeated, out_of_order, rtt] = cells[..] else {
            panic!("{line}");
        };
        if src == me {
            let of = found.entry((src.into(), dst.into())).or_default();
            of.repeated += u64::from(!repeated.is_empty());
            of.out_of_order += u64::from(!out_of_order.is_empty());
        } else if let Ok(seconds) = rtt.parse::<f64>() {
            // The partner's acknowledgement of data that this host sent.
            let of = found.entry((dst.into(), src.into())).or_default();
            let ns = (seconds * 1e9).round() as i64;
            of.least_rtt_ns = Some(of.least_rtt_ns.map_or(ns, |least| least.min(ns)));
        }
    }
}

/// The rows of an answer.
fn rows(directory: &Path, question: &str) -> Vec<serde_json::Value> {
    let output = Command::new(FLOWTRACE)
        .current_dir(directory)
        .args(["network", question, "trace.db", "--format", "json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{question}");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    answer["rows"].as_array().unwrap().clone()
}

fn pair(row: &serde_json::Value) -> Pair {
    let name = |side: &str| row[side].as_str().unwrap().to_owned();
    (name("src"), name("dst"))
}

/// Repetitions agree in every direction of every capture, and round trips agree to the nanosecond. One
/// exception: if the only quick acknowledgement was of a kind that the inference does not trust (delayed),
/// its smallest round trip is larger, never smaller.
#[test]
fn repetitions_and_round_trips_are_those_of_tshark() {
    if !need_program("tshark") {
        return;
    }
    let (mut directions, mut repeated, mut same, mut larger) = (0, 0, 0, 0);
    for name in CAPTURES {
        let scratch = Scratch::new();
        let mut import = Command::new(FLOWTRACE);
        import.current_dir(&*scratch);
        import.args(["import", "-q", "-o", "trace.db"]);
        let mut theirs = HashMap::new();
        for host in 1..=4 {
            let Some(file) = shared(&format!("captures/{name}/ns{host}.pcap.gz")) else {
                return;
            };
            of_tshark(&file, &mut theirs, &format!("10.77.0.{host}"));
            import
                .arg("--host")
                .arg(format!("h{host}={}", file.display()));
        }
        assert!(import.status().unwrap().success());
        for row in rows(&scratch, "matrix") {
            let Some(tshark) = theirs.get(&pair(&row)) else {
                panic!("{name}: {row}");
            };
            assert_eq!(row["repeated"], tshark.repeated, "{name}: {row}");
            // Nothing came out of order, and neither says that something did.
            assert_eq!(tshark.out_of_order, 0, "{name}: {row}");
            directions += 1;
            repeated += tshark.repeated;
        }
        for row in rows(&scratch, "iterations") {
            // The threshold is one and a half round trips.
            let Some(threshold) = row["threshold_ns"].as_i64() else {
                continue;
            };
            let ours = threshold as f64 / 1.5;
            let tshark = theirs[&pair(&row)].least_rtt_ns.unwrap() as f64;
            assert!(ours >= tshark - 1.0, "{name}: {row}: {tshark}");
            if ours <= tshark + 1.0 {
                same += 1;
            } else {
                larger += 1;
            }
        }
    }
    assert!(directions >= 46 && repeated > 0, "{directions}, {repeated}");
    assert!(same >= 9 * larger, "{same} the same, {larger} larger");
    println!(
        "{directions} directions, {repeated} repetitions, {same} round trips the same, {larger} larger"
    );
}
