//! Workflows on several hosts, or that make network namespaces themselves.

use crate::lab_of_hosts::need_lab;
use crate::support::{Scratch, need_program};
use crate::{number, succeeds};

/// Two hosts, each with its own recording; the recordings are then merged into one trace.
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
    let error = succeeds(&scratch, 2, script);
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
    // Ten messages each way, and the number of the rank that connected.
    let between = rows.iter().filter(|row| sum(row) >= 400_001);
    assert_eq!(between.count(), 1, "{peers}");
}

/// Datagrams of a socket without an address, and connections that nobody accepts: the processes that make
/// them are known, in every namespace and however short their lives.
#[test]
fn senders_without_an_address_are_named() {
    if !need_lab() || !need_program("python3") {
        return;
    }
    let scratch = Scratch::new();
    let script = r#"
mkdir w
cat > w/once.py <<'END'
import socket, sys
port = int(sys.argv[1])
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    socket.socket(family, socket.SOCK_DGRAM).sendto(b"x" * 100, (address, port))
    try: socket.create_connection((address, port + 1))
    except ConnectionRefusedError: pass
END
cat > w/again.py <<'END'
import socket, time
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for port in 7100, 7200:
    sender.sendto(b"x" * 100, ("127.0.0.1", port))
    time.sleep(1.5)
END
cd w
"$FLOWTRACE" run -q --net -o ../run.db -- sh -c '
  python3 once.py 7000
  unshare -n sh -c "ip link set lo up; python3 once.py 7010"
  exec python3 again.py'
"#;
    let error = succeeds(&scratch, 1, script);
    let trace = scratch.join("run.db");
    for (port, flows, by) in [
        (7000, 2, "once.py 7000"),
        (7001, 2, "once.py 7000"),
        (7010, 2, "once.py 7010"),
        (7011, 2, "once.py 7010"),
        (7100, 1, "again.py"),
        (7200, 1, "again.py"),
    ] {
        let sql = format!(
            "SELECT COUNT(DISTINCT flow_id) FROM flows JOIN flow_owners USING (flow_id)
             JOIN processes USING (upid) WHERE dport = {port} AND side = 'src'
             AND evidence = 'calls' AND command LIKE '%{by}'"
        );
        assert_eq!(number(&trace, &sql), flows, "{port}: {error}");
    }
    let sql = "SELECT COUNT(*) FROM flow_owners JOIN flows USING (flow_id)
               WHERE dport BETWEEN 7000 AND 7200";
    assert_eq!(number(&trace, sql), 10, "{error}");
}

/// Programs on all hosts use the same port and bind it to no address: each host's end belongs to its own
/// program, not to its peer.
#[test]
fn datagrams_between_equal_ports_have_the_owner_of_each_host() {
    if !need_lab() || !need_program("python3") {
        return;
    }
    let scratch = Scratch::new();
    let script = r#"
cat > peer.py <<'END'
import socket, sys, time
mine = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
mine.bind(("0.0.0.0", 5000))
mine.settimeout(20)
first = sys.argv[2] == "first"
for n in range(10):
    if first: mine.sendto(b"x" * 100, (sys.argv[1], 5000))
    mine.recvfrom(2000)
    if not first: mine.sendto(b"y" * 100, (sys.argv[1], 5000))
END
on() { # on HOST PEER WHICH
  mkdir w$1
  cd w$1
  exec ip netns exec h$1 unshare --uts sh -c 'hostname "$0"; exec "$@"' host$1 \
    "$FLOWTRACE" run -q --net -o ../h$1.db -- python3 ../peer.py 10.9.0.$2 $3
}
(on 2 1 second) & second=$!
until ip netns exec h2 ss -Hlun 'sport = 5000' | grep -q .; do sleep 0.05; done
(on 1 2 first)
wait $second
"$FLOWTRACE" merge -q -o all.db h1.db h2.db
"#;
    let error = succeeds(&scratch, 2, script);
    for (host, side) in [(1, "src"), (2, "dst")] {
        let trace = scratch.join(format!("h{host}.db"));
        let owned = |side: &str| {
            let sql = format!(
                "SELECT COUNT(*) FROM flow_owners JOIN flows USING (flow_id)
                 WHERE proto = 'udp' AND dport = 5000 AND side LIKE '{side}'"
            );
            number(&trace, &sql)
        };
        assert_eq!((owned(side), owned("%")), (1, 1), "host {host}: {error}");
    }
    let sql = "SELECT COUNT(*) FROM flows JOIN processes AS a ON a.upid = src_upid
               JOIN processes AS b ON b.upid = dst_upid
               WHERE dport = 5000 AND a.host = 'host1' AND b.host = 'host2' AND packets = 20";
    assert_eq!(number(&scratch.join("all.db"), sql), 1, "{error}");
}

#[test]
fn namespaces_that_a_workflow_makes_are_captured_too() {
    if !need_lab() {
        return;
    }
    let scratch = Scratch::new();
    let script = r#"
mkdir w
cat > w/workflow <<'END'
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
  wait'
END
cd w; "$FLOWTRACE" run -q --net -o ../run.db -- bash workflow"#;
    let error = succeeds(&scratch, 1, script);
    let trace = scratch.join("run.db");
    let flows = |condition: &str, what: &str| {
        number(
            &trace,
            &format!("SELECT {what} FROM flows WHERE proto = 'tcp' AND bytes > 0 AND {condition}"),
        )
    };
    // Between two namespaces: both ends captured equal packets, and both processes are known.
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
    // Inside one namespace.
    let inside = "src = '127.0.0.1'";
    assert_eq!(flows(inside, "out_bytes"), 5001);
    assert_eq!(flows(inside, "back_bytes"), 5000);
    let sql = "SELECT COUNT(DISTINCT namespace) FROM captures WHERE namespace IS NOT NULL";
    assert!(number(&trace, sql) >= 3);
}
