//! Captures of several hosts at once, made of network namespaces: whatever one sends another
//! receives, and the captures of both show it.

use std::path::{Path, PathBuf};

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
            let (sent, received) = (number(&at(from), &bytes_sql), number(&at(to), &bytes_sql));
            assert_eq!(sent, received, "{pattern}: {from} to {to}");
            // TCP sends again what a busy host acknowledges late: what is numbered counts.
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

/// Every topology, every way of the schedule, three moments of stopping after the last packet.
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

/// Two hosts, each with a recording of its own; both are then one trace.
#[test]
fn after_a_merge_waits_name_the_process_on_the_other_host() {
    if !need_lab() {
        return;
    }
    let scratch = Scratch::new();
    let script = r#"
A=10.9.0.1,10.9.0.2
# The second computes long, so that the first waits for it.
for i in 1 2; do
  mkdir w$i
  (cd w$i; ip netns exec h$i unshare --uts sh -c 'hostname "$0"; exec "$@"' host$i \
    "$FLOWTRACE" run -q --net --sample 200 -o ../h$i.db -- "$PATTERNS" --rank $((i - 1)) --hosts $A \
    --bytes 20000 --iterations 10 --compute-us 30000 --slow 1:3 > out) & eval "run$i=$!"
done
wait $run1; wait $run2
"$FLOWTRACE" merge -o all.db h1.db h2.db
"$FLOWTRACE" dag all.db --format graphml > dag.graphml
"$FLOWTRACE" summary all.db > summary
"$FLOWTRACE" network flows all.db > flows
"$FLOWTRACE" network peers all.db --format json > peers
"#;
    let output = run(&scratch, 2, script);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    let trace = scratch.join("all.db");
    let sql = "SELECT COUNT(*) FROM flows JOIN processes AS a ON a.upid = src_upid
               JOIN processes AS b ON b.upid = dst_upid
               WHERE bytes > 0 AND proto = 'tcp' AND a.host <> b.host AND captures = 2";
    assert_eq!(number(&trace, sql), 1, "{error}");
    let sql = "SELECT COUNT(*) FROM waits JOIN processes AS a USING (upid)
               JOIN processes AS b ON b.upid = counterpart_upid
               JOIN channels USING (channel_id)
               WHERE a.host <> b.host AND kind = 'tcp'";
    assert!(number(&trace, sql) > 0, "{error}");
    let read = |name: &str| std::fs::read_to_string(scratch.join(name)).unwrap();
    let dag = read("dag.graphml");
    assert!(dag.contains("socket"), "{dag}");
    let summary = read("summary");
    let line = summary
        .lines()
        .find(|line| line.trim_start().starts_with("network"));
    assert!(line.is_some_and(|line| line.contains(" flow")), "{summary}");
    let flows = read("flows");
    assert!(
        flows.contains("patterns (pid ") && flows.contains(" on host2)"),
        "{flows}"
    );
    let peers: serde_json::Value = serde_json::from_str(&read("peers")).unwrap();
    let rows = peers["rows"].as_array().unwrap();
    let sum = |row: &serde_json::Value| {
        row["a_to_b_bytes"].as_i64().unwrap() + row["b_to_a_bytes"].as_i64().unwrap()
    };
    // Ten messages each way, and the rank that asked.
    let between = rows.iter().filter(|row| sum(row) >= 400_001);
    assert_eq!(between.count(), 1, "{peers}");
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
    assert_eq!(number(&trace, BY_THEIR_RANKS), 1);
    assert!(patterns().exists() && Path::new(FLOWTRACE).exists());
}

/// A program that connects to itself has both ends.
#[test]
fn a_program_that_talks_to_itself_is_at_both_ends() {
    let has_python = std::process::Command::new("python3").arg("-V").output();
    if !need_lab() || has_python.is_err() {
        eprintln!("skipped: no lab, or no python3");
        return;
    }
    let scratch = Scratch::new();
    let script = r#"
"$FLOWTRACE" run -q --net --interface lo -o run.db -- python3 -c '
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
end, _ = server.accept()
client.sendall(b"x" * 1000)
while len(end.recv(1000, socket.MSG_PEEK)) < 1000: pass
'"#;
    let output = run(&scratch, 1, script);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    let sql = "SELECT COUNT(*) FROM flows WHERE bytes = 1000 AND src_upid = dst_upid";
    assert_eq!(number(&scratch.join("run.db"), sql), 1, "{error}");
}

/// Both ends of a connection of 100 000 bytes each way, on the loopback of the namespace.
const BOTH_RANKS: &str = r#"
both() {
  "$PATTERNS" --rank 0 --hosts 127.0.0.1,127.0.0.1 "$@" > /dev/null &
  rank=$!
  "$PATTERNS" --rank 1 --hosts 127.0.0.1,127.0.0.1 "$@" > /dev/null
  wait $rank
}
"#;

/// Connections of which both ends are tied to the process that has them.
const BY_THEIR_RANKS: &str = "SELECT COUNT(*) FROM flows
    JOIN processes AS a ON a.upid = src_upid JOIN processes AS b ON b.upid = dst_upid
    WHERE bytes > 0 AND a.command LIKE '%--rank 1 %' AND b.command LIKE '%--rank 0 %'";

/// The trace of a capture alone, while both ranks talk.
fn captured(scratch: &Scratch, patterns: &str) -> PathBuf {
    let script = format!(
        r#"{BOTH_RANKS}
"$FLOWTRACE" capture -i lo -o run.db 2> log & capture=$!
until grep -q capturing log; do sleep 0.01; done
both {patterns}
kill -TERM $capture; wait $capture"#
    );
    let output = run(scratch, 1, &script);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    scratch.join("run.db")
}

#[test]
fn the_kernel_tells_of_short_connections_too() {
    if !need_lab() {
        return;
    }
    let scratch = Scratch::new();
    let trace = captured(&scratch, "--bytes 1000 --iterations 100 --compute-us 1");
    // As an independent witness: what the kernel counted is what was captured.
    for (side, bytes) in [("src", 100_001), ("dst", 100_000)] {
        let sql = format!(
            "SELECT MAX(bytes_acked) FROM flow_samples JOIN flows USING (flow_id)
             WHERE bytes > 0 AND side = '{side}'"
        );
        let acknowledged = number(&trace, &sql);
        // SYN and FIN count as one each, as far as they are acknowledged.
        assert!(
            (bytes..=bytes + 2).contains(&acknowledged),
            "{side}: {acknowledged}"
        );
        let sql = format!(
            "SELECT COUNT(*) FROM flow_samples WHERE side = '{side}' AND min_rtt_ns > 0
             AND rtt_ns >= min_rtt_ns"
        );
        assert!(number(&trace, &sql) > 0, "{side}");
    }
}

/// What the kernel says when a connection ends stands with it, though the next one over the
/// same ports has begun by then.
#[test]
fn connections_over_the_same_ports_have_their_own_samples() {
    let has_python = std::process::Command::new("python3").arg("-V").output();
    if !need_lab() || has_python.is_err() {
        eprintln!("skipped: no lab, or no python3");
        return;
    }
    let scratch = Scratch::new();
    // Who closes first keeps the address for a while: the server.
    let script = r#"
cat > server.py <<'END'
import socket
server = socket.create_server(("127.0.0.1", 7001))
print("ready", flush=True)
while True:
    end, _ = server.accept()
    size, got = int(end.recv(6)), 0
    while got < size: got += len(end.recv(1 << 16))
    end.shutdown(socket.SHUT_WR)
    end.recv(1)
END
cat > client.py <<'END'
import socket
for size in 50000, 100, 7000, 20:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    client.bind(("127.0.0.1", 7000))
    client.connect(("127.0.0.1", 7001))
    client.sendall(b"%06d" % size + bytes(size))
    client.recv(1)
    client.close()
END
"$FLOWTRACE" capture -q -i lo -o run.db -- bash -c '
  python3 server.py > ready & server=$!
  until grep -q ready ready; do sleep 0.01; done
  python3 client.py
  kill $server'
"#;
    let output = run(&scratch, 1, script);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    let trace = scratch.join("run.db");
    let flows = "SELECT COUNT(*) FROM flows WHERE sport = 7000 AND bytes > 0";
    assert_eq!(number(&trace, flows), 4, "{error}");
    // SYN and FIN count as one each.
    let sql = "SELECT COUNT(*) FROM flows JOIN (SELECT flow_id, MAX(bytes_acked) AS acked
               FROM flow_samples WHERE side = 'src' GROUP BY flow_id) USING (flow_id)
               WHERE sport = 7000 AND acked BETWEEN out_bytes AND out_bytes + 2";
    assert_eq!(number(&trace, sql), 4, "{error}");
}

#[test]
fn a_capture_alone_names_who_holds_a_connection() {
    if !need_lab() {
        return;
    }
    let scratch = Scratch::new();
    // Some seconds, for without a process tracer one has to look.
    let trace = captured(&scratch, "--bytes 1000 --iterations 40 --compute-us 100000");
    assert_eq!(number(&trace, BY_THEIR_RANKS), 1);
}

/// Whatever ends a capture: who is known to hold a connection is in its trace.
#[test]
fn a_capture_that_is_killed_has_named_who_holds_a_connection() {
    if !need_lab() {
        return;
    }
    let scratch = Scratch::new();
    let script = format!(
        r#"{BOTH_RANKS}
"$FLOWTRACE" capture -i lo -o run.db 2> log & capture=$!
until grep -q capturing log; do sleep 0.01; done
both --bytes 1000 --iterations 100 --compute-us 100000 & ranks=$!
sleep 4
kill -KILL $capture; wait $capture || true
wait $ranks"#
    );
    let output = run(&scratch, 1, &script);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    assert_eq!(
        number(&scratch.join("run.db"), BY_THEIR_RANKS),
        1,
        "{error}"
    );
}

#[test]
fn namespaces_that_a_workflow_makes_are_captured_too() {
    if !need_lab() {
        return;
    }
    let scratch = Scratch::new();
    let workflow = r#"
set -e
for i in 1 2; do ip netns add w$i; done
ip link add eth0 netns w1 type veth peer name eth0 netns w2
for i in 1 2; do
  ip -n w$i addr add 10.8.0.$i/24 dev eth0
  ip -n w$i link set eth0 up
done
for i in 1 2; do
  ip netns exec w$i "$PATTERNS" --rank $((i - 1)) --hosts 10.8.0.1,10.8.0.2 \
    --bytes 3000 --iterations 20 --compute-us 10 > w$i.out & eval "rank$i=$!"
done
wait $rank1; wait $rank2
unshare -n sh -c 'ip link set lo up
  "$PATTERNS" --rank 0 --hosts 127.0.0.1,127.0.0.1 --bytes 1000 --iterations 5 > lo.out &
  "$PATTERNS" --rank 1 --hosts 127.0.0.1,127.0.0.1 --bytes 1000 --iterations 5 > lo.out
  wait'"#;
    std::fs::write(scratch.join("workflow"), workflow).unwrap();
    let script = r#""$FLOWTRACE" run -q --net -o ../run.db -- bash workflow"#;
    let script = format!("mkdir -p w; mv workflow w; cd w\n{script}");
    let output = run(&scratch, 1, &script);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    let trace = scratch.join("run.db");
    let flows = |condition: &str, what: &str| {
        number(
            &trace,
            &format!("SELECT {what} FROM flows WHERE proto = 'tcp' AND bytes > 0 AND {condition}"),
        )
    };
    // Between two namespaces: both ends captured it, alike, and both processes are known.
    let between = "src = '10.8.0.2' AND dst = '10.8.0.1'";
    assert_eq!(flows(between, "COUNT(*)"), 1, "{error}");
    assert_eq!(flows(between, "captures"), 2);
    assert_eq!(
        flows(between, "src_upid IS NOT NULL AND dst_upid IS NOT NULL"),
        1
    );
    let sql = "SELECT COUNT(DISTINCT out_packets || ' ' || out_bytes || ' ' || back_packets || ' ' || back_bytes)
               FROM flow_captures JOIN (SELECT flow_id FROM flows
                 WHERE captures = 2 AND bytes > 0 AND proto = 'tcp') USING (flow_id)";
    assert_eq!(number(&trace, sql), 1);
    assert_eq!(
        flows(between, "out_bytes >= 60001 AND back_bytes >= 60000"),
        1
    );
    // And inside one.
    let inside = "src = '127.0.0.1'";
    assert_eq!(flows(inside, "out_bytes"), 5001);
    assert_eq!(flows(inside, "back_bytes"), 5000);
    let sql = "SELECT COUNT(DISTINCT namespace) FROM captures WHERE namespace IS NOT NULL";
    assert!(number(&trace, sql) >= 3);
}

/// What goes by after the interface was down is there, too, and meanwhile nobody waits in circles: that took all of a processor.
#[test]
fn an_interface_may_go_down_and_come_back() {
    if !need_lab() {
        return;
    }
    let scratch = Scratch::new();
    let script = r#"ip link set lo up
        "$0" capture -q -i lo -o down.db -- bash -c '
            echo one > /dev/udp/127.0.0.1/9
            ip link set lo down
            sleep 2
            cat /proc/$PPID/stat > stat
            ip link set lo up
            echo three > /dev/udp/127.0.0.1/9'"#;
    let output = std::process::Command::new("unshare")
        .args(["-n", "sh", "-c", script, support::FLOWTRACE])
        .current_dir(&*scratch)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    let sql = "SELECT SUM(out_bytes) FROM flows WHERE proto = 'udp' AND dport = 9";
    assert_eq!(number(&scratch.join("down.db"), sql), 4 + 6);
    let stat = std::fs::read_to_string(scratch.join("stat")).unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    // User and system time, in hundredths of a second.
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    assert!(ticks < 100, "{ticks} of 200 ticks: {stat}");
}

/// The capture of an interface that is deleted ends there, and is not said to be whole.
#[test]
fn an_interface_that_is_deleted_is_told() {
    if !need_lab() {
        return;
    }
    let scratch = Scratch::new();
    let script = r#"ip link add gone type veth peer name other && ip addr add 10.77.0.1/24 dev gone
        ip link set gone up && ip link set other up
        ip neigh add 10.77.0.2 lladdr 02:00:00:00:00:01 dev gone
        "$0" capture -i gone -o gone.db -- bash -c '
            echo one > /dev/udp/10.77.0.2/9
            ip link del gone
            sleep 1'"#;
    let output = std::process::Command::new("unshare")
        .args(["-n", "sh", "-c", script, support::FLOWTRACE])
        .current_dir(&*scratch)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    assert!(error.contains("lost: what passed gone after"), "{error}");
    let trace = scratch.join("gone.db");
    let lost = "SELECT COALESCE(SUM(value), 0) FROM losses WHERE counter = 'interface_gone'";
    assert_eq!(number(&trace, lost), 1);
    let span = "SELECT (to_ns - from_ns) / 1000000 FROM captures";
    assert!((0..600).contains(&number(&trace, span)), "{error}");
}

/// In a namespace that a workflow makes, one ring serves all interfaces: the capture of one that is
/// deleted ends there, too, and another one under its name is another capture.
#[test]
fn an_interface_that_is_deleted_in_a_namespace_is_told() {
    if !need_lab() {
        return;
    }
    let scratch = Scratch::new();
    let script = r#"
cat > inside <<'END'
make() {
  ip link add gone type veth peer name other && ip addr add 10.77.0.1/24 dev gone
  ip link set gone up && ip link set other up
  ip neigh add 10.77.0.2 lladdr 02:00:00:00:00:01 dev gone
}
make; echo one > /dev/udp/10.77.0.2/9; ip link del gone
sleep 1
make; echo three > /dev/udp/10.77.0.2/10; sleep 0.5
END
mkdir w
(cd w && "$FLOWTRACE" run -q --net -o ../run.db -- unshare -n bash ../inside)
"$FLOWTRACE" summary run.db > summary
"#;
    let output = run(&scratch, 1, script);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    let trace = scratch.join("run.db");
    for (port, bytes) in [(9, 4), (10, 6)] {
        let sql = format!("SELECT SUM(out_bytes) FROM flows WHERE dport = {port}");
        assert_eq!(number(&trace, &sql), bytes, "{error}");
    }
    let first = "SELECT COUNT(*) FROM captures WHERE interface = 'gone' AND to_ns <
        (SELECT first_ns FROM flows WHERE dport = 10)";
    assert_eq!(number(&trace, first), 1, "{error}");
    let all = "SELECT COUNT(*) FROM captures WHERE interface = 'gone'";
    assert_eq!(number(&trace, all), 2, "{error}");
    // The two ends of the first pair.
    let told = "SELECT value FROM losses WHERE counter = 'interface_ended' AND severity = 'info'";
    assert_eq!(number(&trace, told), 2, "{error}");
    let summary = std::fs::read_to_string(scratch.join("summary")).unwrap();
    assert!(
        summary.contains("2 × interfaces that were deleted"),
        "{summary}"
    );
}

/// The time ends the command with the capture, not the capture alone.
#[test]
fn a_command_is_ended_with_the_time() {
    if !need_lab() {
        return;
    }
    let scratch = Scratch::new();
    let script = r#"ip link set lo up
        exec "$0" capture -i lo --seconds 1 -o time.db -- sleep 30"#;
    let begin = std::time::Instant::now();
    let output = std::process::Command::new("unshare")
        .args(["-n", "sh", "-c", script, support::FLOWTRACE])
        .current_dir(&*scratch)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(143), "{error}");
    assert!(begin.elapsed().as_secs() < 20);
    assert!(error.contains("ended after 1 s (--seconds)"), "{error}");
}

/// Somebody without any right, in a user and network namespace of his own.
#[test]
fn nobody_needs_a_right_in_a_namespace_of_his_own() {
    if !need_lab() {
        return;
    }
    let scratch = Scratch::new();
    let user = support::user::User::new(&scratch);
    let flowtrace = user.flowtrace.to_str().unwrap();
    if !user
        .command("unshare")
        .args(["-Urn", "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        support::missing("users may not make namespaces");
        return;
    }
    let script = r#"ip link set lo up
        "$0" capture -q -i lo -o own.db -- bash -c 'echo hello > /dev/udp/127.0.0.1/9'"#;
    let output = user
        .command("unshare")
        .args(["-Urn", "sh", "-c", script, flowtrace])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    let sql = "SELECT out_bytes FROM flows WHERE proto = 'udp' AND dport = 9";
    assert_eq!(number(&user.home.join("own.db"), sql), 6);
    // Outside of one it is refused, said, and the rest goes on.
    if nix::unistd::geteuid().is_root() {
        let output = user
            .command(flowtrace)
            .args([
                "run",
                "--no-summary",
                "--net",
                "--interface",
                "lo",
                "-o",
                "run.db",
                "--",
                "true",
            ])
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{error}");
        assert!(error.contains("it needs CAP_NET_RAW"), "{error}");
        let sql = "SELECT value FROM losses WHERE counter = 'not_captured'";
        assert_eq!(number(&user.home.join("run.db"), sql), 1);
        let doctor = user.command(flowtrace).arg("doctor").output().unwrap();
        let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
        let line = text
            .lines()
            .find(|line| line.contains("packets (AF_PACKET)"));
        assert!(
            line.is_some_and(|line| line.contains("it needs CAP_NET_RAW")),
            "{text}"
        );
    }
}
