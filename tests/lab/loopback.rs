//! One host alone: both ends of each connection, their owners, and the counters of the kernel.

use std::path::PathBuf;

use crate::lab_of_hosts::need_lab;
use crate::support::Scratch;
use crate::{number, succeeds};

/// Both ends of a connection of 100 000 bytes each way, on the loopback of the namespace.
const BOTH_RANKS: &str = r#"
both() {
  "$PATTERNS" --rank 0 --hosts 127.0.0.1,127.0.0.1 "$@" > /dev/null &
  rank=$!
  "$PATTERNS" --rank 1 --hosts 127.0.0.1,127.0.0.1 "$@" > /dev/null
  wait $rank
}
"#;

/// Connections of which both ends have the process that owns them.
const BY_THEIR_RANKS: &str = "SELECT COUNT(*) FROM flows
    JOIN processes AS a ON a.upid = src_upid JOIN processes AS b ON b.upid = dst_upid
    WHERE bytes > 0 AND a.command LIKE '%--rank 1 %' AND b.command LIKE '%--rank 0 %'";

/// Captures on loopback alone while both ranks talk, and returns the trace.
fn captured(scratch: &Scratch, patterns: &str) -> PathBuf {
    let script = format!(
        r#"{BOTH_RANKS}
"$FLOWTRACE" capture -i lo -o run.db 2> log & capture=$!
until grep -q capturing log; do sleep 0.01; done
both {patterns}
kill -TERM $capture; wait $capture"#
    );
    succeeds(scratch, 1, &script);
    scratch.join("run.db")
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
    let error = succeeds(&scratch, 1, script);
    let trace = scratch.join("run.db");
    let sql = "SELECT SUM(out_bytes) FROM flows WHERE proto = 'tcp' AND bytes > 0";
    assert_eq!(number(&trace, sql), 5001, "{error}");
    let sql = "SELECT SUM(back_bytes) FROM flows WHERE proto = 'tcp' AND bytes > 0";
    assert_eq!(number(&trace, sql), 5000);
    assert_eq!(number(&trace, BY_THEIR_RANKS), 1);
}

#[test]
fn the_kernel_reports_short_connections_too() {
    if !need_lab() {
        return;
    }
    let scratch = Scratch::new();
    let trace = captured(&scratch, "--bytes 1000 --iterations 100 --compute-us 1");
    // An independent check: the kernel's counters equal the captured bytes.
    for (side, bytes) in [("src", 100_001), ("dst", 100_000)] {
        let sql = format!(
            "SELECT MAX(bytes_acked) FROM flow_samples JOIN flows USING (flow_id)
             WHERE bytes > 0 AND side = '{side}'"
        );
        let acknowledged = number(&trace, &sql);
        // SYN and FIN count as one each if they were acknowledged.
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

/// The last counters that the kernel reports for a connection belong to that connection, even if the next one
/// over the same ports has begun by then.
#[test]
fn connections_over_the_same_ports_have_their_own_samples() {
    let has_python = std::process::Command::new("python3").arg("-V").output();
    if !need_lab() || has_python.is_err() {
        eprintln!("skipped: no lab, or no python3");
        return;
    }
    let scratch = Scratch::new();
    // The side that closes first keeps the address for a while (TIME_WAIT): here the server.
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
    let error = succeeds(&scratch, 1, script);
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
    // Some seconds long, because without a process tracer the owners are polled.
    let trace = captured(&scratch, "--bytes 1000 --iterations 40 --compute-us 100000");
    assert_eq!(number(&trace, BY_THEIR_RANKS), 1);
}

/// However a capture ends, the owners of connections that were known are in its trace.
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
    let error = succeeds(&scratch, 1, &script);
    assert_eq!(
        number(&scratch.join("run.db"), BY_THEIR_RANKS),
        1,
        "{error}"
    );
}
