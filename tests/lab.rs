//! Captures of several hosts at once, made of network namespaces: whatever one sends another
//! receives, and the captures of both show it.

use std::path::Path;

#[path = "support/lab.rs"]
mod lab_of_hosts;
mod support;

use support::{FLOWTRACE, Scratch};

use lab_of_hosts::{need_lab, patterns, run};

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

fn number(trace: &Path, sql: &str) -> i64 {
    let db = rusqlite::Connection::open(trace).unwrap();
    db.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// What ranks say that they sent, by receiver: messages and bytes.
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
    let output = run(&scratch, hosts, &script);
    assert!(
        output.status.success(),
        "{pattern}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    for from in 0..hosts {
        for (to, bytes) in truth(&scratch, from) {
            // The first byte of a connection is the rank that asked for it.
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
            assert_eq!(
                number(&at(from), &bytes_sql),
                bytes,
                "{pattern}: {from} to {to}, sender"
            );
            assert_eq!(
                number(&at(to), &bytes_sql),
                bytes,
                "{pattern}: {from} to {to}, receiver"
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

#[test]
fn loopback_is_captured_once_and_a_run_names_the_processes() {
    if !need_lab() {
        return;
    }
    let scratch = Scratch::new();
    let script = r#"
"$FLOWTRACE" run -q --net --interface lo -o run.db -- sh -c '
  "$PATTERNS" --rank 0 --hosts 127.0.0.1,127.0.0.1 --bytes 1000 --iterations 5 > /dev/null &
  "$PATTERNS" --rank 1 --hosts 127.0.0.1,127.0.0.1 --bytes 1000 --iterations 5 > /dev/null
  wait'
"#;
    let output = run(&scratch, 1, script);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    let trace = scratch.join("run.db");
    let sql = "SELECT SUM(out_bytes) FROM flows WHERE proto = 'tcp' AND bytes > 0";
    assert_eq!(number(&trace, sql), 5001, "{error}");
    let sql = "SELECT SUM(back_bytes) FROM flows WHERE proto = 'tcp' AND bytes > 0";
    assert_eq!(number(&trace, sql), 5000);
    let sql = "SELECT COUNT(*) FROM flows JOIN processes AS a ON a.upid = src_upid
               JOIN processes AS b ON b.upid = dst_upid
               WHERE bytes > 0 AND a.command LIKE '%--rank 1 %' AND b.command LIKE '%--rank 0 %'";
    assert_eq!(number(&trace, sql), 1);
    assert!(patterns().exists() && Path::new(FLOWTRACE).exists());
}
