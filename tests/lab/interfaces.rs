//! Interfaces that go down or are deleted. The tests wait for an interface that was just set up: until the
//! kernel has noticed its carrier, it drops outgoing packets before any capture could see them.

use crate::lab_of_hosts::need_lab;
use crate::support::Scratch;
use crate::{number, succeeds};

/// Packets after an interface was down are captured, too. While it is down, no thread polls in a loop: that
/// took a whole CPU.
#[test]
fn an_interface_may_go_down_and_come_back() {
    if !need_lab() {
        return;
    }
    let scratch = Scratch::new();
    let script = r#""$FLOWTRACE" capture -q -i lo -o down.db -- bash -c '
            echo one > /dev/udp/127.0.0.1/9
            ip link set lo down
            sleep 2
            cat /proc/$PPID/stat > stat
            ip link set lo up
            echo three > /dev/udp/127.0.0.1/9'"#;
    succeeds(&scratch, 1, script);
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

/// The capture of an interface that is deleted ends there, and is not reported as whole.
#[test]
fn an_interface_that_is_deleted_is_reported() {
    if !need_lab() {
        return;
    }
    let scratch = Scratch::new();
    let script = r#"ip link add gone type veth peer name other && ip addr add 10.77.0.1/24 dev gone
        ip link set gone up && ip link set other up
        ip neigh add 10.77.0.2 lladdr 02:00:00:00:00:01 dev gone
        until ip link show gone | grep -q "state UP"; do sleep 0.01; done
        "$FLOWTRACE" capture -i gone -o gone.db -- bash -c '
            echo one > /dev/udp/10.77.0.2/9
            ip link del gone
            sleep 1'"#;
    let error = succeeds(&scratch, 1, script);
    assert!(error.contains("lost: packets of gone after"), "{error}");
    let trace = scratch.join("gone.db");
    let lost = "SELECT COALESCE(SUM(value), 0) FROM losses WHERE counter = 'interface_gone'";
    assert_eq!(number(&trace, lost), 1);
    let span = "SELECT (to_ns - from_ns) / 1000000 FROM captures";
    assert!((0..600).contains(&number(&trace, span)), "{error}");
}

/// In a namespace that a workflow makes, one ring serves all interfaces. The capture of a deleted interface
/// ends there, too, and a later interface of the same name gets another capture.
#[test]
fn an_interface_that_is_deleted_in_a_namespace_is_reported() {
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
  until ip link show gone | grep -q "state UP"; do sleep 0.01; done
}
make; echo one > /dev/udp/10.77.0.2/9; ip link del gone
sleep 1
make; echo three > /dev/udp/10.77.0.2/10; sleep 0.5
END
mkdir w
(cd w && "$FLOWTRACE" run -q --net -o ../run.db -- unshare -n bash ../inside)
"$FLOWTRACE" summary run.db > summary
"#;
    let error = succeeds(&scratch, 1, script);
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
    let ended = "SELECT value FROM losses WHERE counter = 'interface_ended' AND severity = 'info'";
    assert_eq!(number(&trace, ended), 2, "{error}");
    let summary = std::fs::read_to_string(scratch.join("summary")).unwrap();
    assert!(
        summary.contains("2 × interfaces that were deleted"),
        "{summary}"
    );
}
