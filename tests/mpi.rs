//! A program of Open MPI between hosts made of network namespaces: every host receives what the others sent,
//! in the captures of both sides.

use std::path::Path;
use std::process::Command;

#[path = "support/lab.rs"]
mod lab_of_hosts;
mod support;

use lab_of_hosts::{need_lab, run};
use support::{Scratch, checkout, need_root, skip, succeeds};

const HOSTS: usize = 4;

/// Starts a rank on the host that its address names; called as `agent OPTION… HOST WORD…`.
const AGENT: &str = r#"#!/bin/bash
while [ "${1#-}" != "$1" ]; do shift; done
host=h${1##*.}; shift
exec ip netns exec "$host" unshare --uts --ipc sh -c "hostname $host; $*"
"#;

const SCRIPT: &str = r#"
ip addr add 10.9.0.254/24 dev ftbr
for i in $(seq 1 "$HOSTS"); do
  ip netns exec h$i "$FLOWTRACE" capture -i eth0 -o h$i.db 2> h$i.log &
  eval "capture$i=$!"
done
for i in $(seq 1 "$HOSTS"); do until grep -q capturing h$i.log; do sleep 0.01; done; done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$PWD
timeout 90 mpirun --host 10.9.0.1:1,10.9.0.2:1,10.9.0.3:1,10.9.0.4:1 -np 4 --bind-to none \
  --mca plm rsh --mca plm_rsh_agent "$PWD/agent" --mca plm_rsh_no_tree_spawn 1 \
  --mca orte_keep_fqdn_hostnames 1 --mca oob_tcp_if_include 10.9.0.0/24 --mca pml ob1 \
  --mca btl tcp,self --mca btl_tcp_if_include 10.9.0.0/24 --mca mpi_yield_when_idle 1 ./exchange
sleep "$AFTER"
for i in $(seq 1 "$HOSTS"); do eval "kill -TERM \$capture$i"; done
for i in $(seq 1 "$HOSTS"); do eval "wait \$capture$i"; done
"#;

fn number(trace: &Path, sql: &str) -> i64 {
    let db = rusqlite::Connection::open(trace).unwrap();
    db.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn what_ranks_of_open_mpi_send_is_received_in_both_captures() {
    // These programs are not required even with FLOWTRACE_REQUIRE_SYSTEM: the package is large.
    for program in ["mpicc", "mpirun"] {
        if !succeeds("sh", &["-c", &format!("command -v {program}")]) {
            return skip(&format!(
                "no {program} (packages openmpi-bin libopenmpi-dev)"
            ));
        }
    }
    if !need_root() || !need_lab() {
        return;
    }
    let scratch = Scratch::new();
    let built = Command::new("mpicc")
        .args(["-O1", "-o"])
        .arg(scratch.join("exchange"))
        .arg(checkout("tests/programs/exchange.c"))
        .status();
    assert!(built.is_ok_and(|status| status.success()));
    std::fs::write(scratch.join("agent"), AGENT).unwrap();
    assert!(succeeds(
        "chmod",
        &["+x", scratch.join("agent").to_str().unwrap()]
    ));
    let output = run(&scratch, HOSTS, &format!("AFTER=0\n{SCRIPT}"));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    let at = |host: usize| scratch.join(format!("h{host}.db"));
    for a in 1..=HOSTS {
        let lost = "SELECT SUM(dropped) + SUM(unstored) FROM captures";
        assert_eq!(number(&at(a), lost), 0);
        for b in (1..=HOSTS).filter(|b| *b != a) {
            let sent = |what: &str| {
                format!(
                    "SELECT COALESCE(SUM(CASE src WHEN '10.9.0.{a}' THEN out_{what} ELSE back_{what} END), 0)
                     FROM flows WHERE proto = 'tcp' AND bytes > 0 AND (src, dst) IN
                       (VALUES ('10.9.0.{a}', '10.9.0.{b}'), ('10.9.0.{b}', '10.9.0.{a}'))"
                )
            };
            let (there, here) = (
                number(&at(a), &sent("bytes")),
                number(&at(b), &sent("bytes")),
            );
            assert_eq!(there, here, "bytes from {a} to {b}");
            assert_eq!(
                number(&at(a), &sent("packets")),
                number(&at(b), &sent("packets")),
                "packets from {a} to {b}"
            );
            // Twenty rounds of all to all, and the ring.
            let ring = if b == a % HOSTS + 1 { 1_500_000 } else { 0 };
            assert!(there >= 20 * 4000 + ring, "{there} bytes from {a} to {b}");
        }
    }
}
