//! All data sent is received, in every pattern of communication, and the captures of both hosts show it.

use std::path::Path;

use crate::lab_of_hosts::need_lab;
use crate::support::Scratch;
use crate::{number, succeeds};

/// Captures at every host from before the first to after the last packet.
const PATTERN: &str = r#"
for i in $(seq 1 "$HOSTS"); do
  ip netns exec h$i "$FLOWTRACE" capture -i eth0 -o h$i.db 2> h$i.log &
  eval "capture$i=$!"
done
for i in $(seq 1 "$HOSTS"); do
  until grep -q capturing h$i.log; do sleep 0.01; done
done
for i in $(seq 1 "$HOSTS"); do
  ip netns exec h$i "$PATTERNS" --rank $((i - 1)) --hosts "$ADDRESSES" $PATTERN > truth.$((i - 1)) &
  eval "rank$i=$!"
done
for i in $(seq 1 "$HOSTS"); do eval "wait \$rank$i"; done
sleep "$AFTER"
for i in $(seq 1 "$HOSTS"); do eval "kill -TERM \$capture$i"; done
for i in $(seq 1 "$HOSTS"); do eval "wait \$capture$i"; done
"#;

/// Messages and bytes that a rank says that it sent, by receiver.
fn truth(directory: &Path, rank: usize) -> Vec<(usize, i64)> {
    let text = std::fs::read_to_string(directory.join(format!("truth.{rank}"))).unwrap();
    let sent = text
        .lines()
        .filter_map(|line| line.strip_prefix("sent to "));
    sent.map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        (words[0].parse().unwrap(), words[4].parse().unwrap())
    })
    .collect()
}

fn conserves(hosts: usize, pattern: &str, after: &str) {
    let scratch = Scratch::new();
    let addresses: Vec<String> = (1..=hosts).map(|i| format!("10.9.0.{i}")).collect();
    let script = format!(
        "ADDRESSES={}\nPATTERN='{pattern}'\nAFTER={after}\n{PATTERN}",
        addresses.join(",")
    );
    succeeds(&scratch, hosts, &script);
    for from in 0..hosts {
        for (to, bytes) in truth(&scratch, from) {
            // The first byte of a connection is the number of the rank that connected.
            let bytes = bytes + i64::from(from > to);
            let sql = format!(
                "SELECT SUM(CASE src WHEN '10.9.0.{a}' THEN {{0}} ELSE {{1}} END) FROM flows
                 WHERE proto = 'tcp' AND bytes > 0 AND (src, dst) IN
                   (VALUES ('10.9.0.{a}', '10.9.0.{b}'), ('10.9.0.{b}', '10.9.0.{a}'))",
                a = from + 1,
                b = to + 1
            );
            let bytes_sql = sql.replace("{0}", "out_bytes").replace("{1}", "back_bytes");
            let at = |host: usize| scratch.join(format!("h{}.db", host + 1));
            let (sent, received) = (number(&at(from), &bytes_sql), number(&at(to), &bytes_sql));
            assert_eq!(sent, received, "{pattern}: {from} to {to}");
            // TCP sends data again if a busy host acknowledges late, so only distinct sequence numbers count.
            let numbered = format!(
                "SELECT COALESCE(MAX((p.seq - s.seq & 4294967295) + p.payload_bytes) - 1, 0)
                 FROM packets AS p JOIN packets AS s USING (flow_id, dir)
                 JOIN (SELECT flow_id, src, dst FROM flow) AS f USING (flow_id)
                 WHERE p.payload_bytes > 0 AND s.flags & 2
                   AND CASE dir WHEN 0 THEN src ELSE dst END = '10.9.0.{}'
                   AND CASE dir WHEN 0 THEN dst ELSE src END = '10.9.0.{}'",
                from + 1,
                to + 1
            );
            assert_eq!(
                number(&at(from), &numbered),
                bytes,
                "{pattern}: {from} to {to}"
            );
            assert_eq!(
                number(&at(to), &numbered),
                bytes,
                "{pattern}: {from} to {to}"
            );
        }
        let trace = scratch.join(format!("h{}.db", from + 1));
        assert_eq!(
            number(&trace, "SELECT SUM(dropped) + SUM(unstored) FROM captures"),
            0
        );
    }
}

#[test]
fn what_is_sent_is_received_and_both_captures_show_it() {
    if !need_lab() {
        return;
    }
    conserves(
        4,
        "--pattern ring --bytes 30000 --iterations 20 --compute-us 100",
        "0",
    );
    conserves(
        4,
        "--pattern all-to-all --bytes 5000 --iterations 10 --exchange",
        "0.005",
    );
}

#[test]
fn patterns_of_every_kind_end() {
    if !need_lab() {
        return;
    }
    conserves(
        8,
        "--pattern torus:4x2,hypercube,tree,mesh:2x2x2,bus --phase 2 --iterations 10 --bytes 2000 --compute-us 10",
        "0.05",
    );
}

/// Every topology, every schedule, and captures that stop at three different times after the last packet.
#[test]
#[ignore = "long: tests/long lab"]
fn every_topology_is_conserved_whenever_a_capture_stops() {
    if !need_lab() {
        return;
    }
    for pattern in [
        "mesh:8",
        "mesh:4x2",
        "mesh:2x2x2",
        "torus:8",
        "torus:4x2",
        "torus:2x2x2",
        "hypercube",
        "tree",
        "all-to-all",
        "ring",
        "bus",
    ] {
        for after in ["0", "0.005", "0.05"] {
            for way in ["", "--exchange"] {
                let arguments = format!(
                    "--pattern {pattern} --iterations 20 --bytes 20000 --compute-us 50 {way}"
                );
                conserves(8, &arguments, after);
            }
        }
    }
}
