//! A parallel run: every rank has its own trace, and all of them are merged into one.

use std::process::Command;

use crate::support::process::finish;
use crate::support::trace::Trace;
use crate::support::{
    FLOWTRACE, PYTHON, Scratch, need_fuse, need_program, need_root, skip, succeeds,
};

#[test]
fn every_rank_has_a_file_and_all_become_one() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let job = scratch.dir("job");
    let traces = scratch.dir("traces");
    // The second rank reads what the first one wrote.
    for (rank, script) in [("0", "echo one > data"), ("1", "cat data"), ("1", "true")] {
        let mut run = Command::new(FLOWTRACE);
        run.args(["run", "--quiet", "--no-summary", "--out-dir"])
            .arg(&traces)
            .args(["--", "sh", "-c", script])
            .env("OMPI_COMM_WORLD_RANK", rank)
            .env("PMIX_NAMESPACE", "job-7")
            .current_dir(&job);
        finish(&mut run).expect(0);
    }
    let mut names: Vec<String> = std::fs::read_dir(&traces)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names[0].ends_with(".0.db"), "{names:?}");
    assert!(
        names[1].ends_with(".1.2.db") && names[2].ends_with(".1.db"),
        "{names:?}"
    );
    let mut merge = Command::new(FLOWTRACE);
    merge.args(["merge", "-o", "../all.db"]).args(&names);
    let said = finish(merge.current_dir(&traces)).expect(0).stderr;
    assert!(said.contains("all of one boot: exact"), "{said}");
    let merged = Trace::open_complete(&scratch.join("all.db"));
    let ranks: String = merged.one("SELECT GROUP_CONCAT(job || ' ' || rank, ', ') FROM runs");
    assert_eq!(ranks, "job-7 0, job-7 1, job-7 1");
    let ordered: i64 = merged.one(
        "SELECT COUNT(*) FROM runs AS a JOIN runs AS b ON b.run_id = a.run_id + 1
         WHERE b.start_ns > a.start_ns",
    );
    assert_eq!(ordered, 1, "the names are in another order than the runs");
    let moved: String = merged.one(
        "SELECT GROUP_CONCAT(DISTINCT r.rank || ' ' || a.relation) FROM file_access AS a
         JOIN files AS f USING (file_id) JOIN processes AS p USING (upid)
         JOIN runs AS r USING (run_id)
         WHERE f.path LIKE '%/job/data' AND a.relation <> 'none'",
    );
    assert_eq!(
        moved, "0 create,1 read",
        "one file, written by one rank and read by the other"
    );
    let files: i64 =
        merged.one("SELECT COUNT(*) FROM files WHERE path LIKE '%/job/data' AND kind = 'file'");
    assert_eq!(files, 1);
}

/// Programs on the hosts: one asks, the others answer and write a file.
const TALK: &str = r#"
import os, socket, sys, time
what, names = sys.argv[1], sys.argv[2:]
if what == 'serve':
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(('0.0.0.0', 7000))
    s.listen(1)
    open('ready-' + names[0], 'w').close()
    c, _ = s.accept()
    with open('served-' + names[0], 'w') as f:
        f.write(c.recv(1000).decode())
    c.sendall(b'done')
    c.recv(1)
else:
    for name in names:
        deadline = time.monotonic() + 60
        while not os.path.exists('ready-' + name):
            assert time.monotonic() < deadline, name
            time.sleep(0.02)
        c = socket.create_connection(('10.77.0.' + name, 7000))
        c.sendall(b'hello ' + name.encode())
        assert c.recv(10) == b'done'
        assert open('served-' + name).read() == 'hello ' + name
        c.close()
"#;

/// Four hosts as namespaces, three of them with other monotonic clocks; rank 1 sends requests to the others.
const HOSTS: &str = r#"
set -eu
flowtrace=$1 job=$2 traces=$3 python=$4
mount -t tmpfs none /run
mkdir /run/netns
ip link add lan type bridge forward_delay 0
ip link set lan up
for i in 1 2 3 4; do
  ip netns add "ft$i"
  ip link add "port$i" type veth peer name eth0 netns "ft$i"
  ip link set "port$i" master lan up
  ip -n "ft$i" addr add "10.77.0.$i/24" dev eth0
  ip -n "ft$i" link set lo up
  ip -n "ft$i" link set eth0 up
done
on() {
  ip netns exec "ft$1" unshare --uts --ipc sh -c "hostname ft$1; cd '$job'; SLURM_JOB_ID=5 \
    SLURM_PROCID=$1 exec unshare --time --monotonic $2 --fork '$flowtrace' run --quiet \
    --no-summary --out-dir '$traces' -- '$python' talk.py $3"
}
on 2 100000 'serve 2' & b=$!
on 3 -10 'serve 3' & c=$!
on 4 5 'serve 4' & d=$!
on 1 0 'ask 2 3 4'
wait $b
wait $c
wait $d
"#;

#[test]
fn four_hosts_become_one_trace_with_their_connections_and_clocks_joined() {
    let needs_time = || succeeds("unshare", &["--time", "--monotonic", "5", "--fork", "true"]);
    if !need_root() || !need_fuse() || !need_program("ip") {
        return;
    }
    if !needs_time() {
        return skip("no time namespaces");
    }
    let scratch = Scratch::new();
    let (job, traces) = (scratch.dir("job"), scratch.dir("traces"));
    std::fs::write(job.join("talk.py"), TALK).unwrap();
    let mut hosts = Command::new("unshare");
    hosts.args([
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]);
    hosts.args(["bash", "-c", HOSTS, "hosts"]);
    hosts.arg(FLOWTRACE).arg(&job).arg(&traces).arg(PYTHON);
    finish(&mut hosts).expect(0);
    let mut merge = Command::new(FLOWTRACE);
    merge.args(["merge", "-o"]).arg(scratch.join("all.db"));
    for host in 1..=4 {
        merge.arg(traces.join(format!("trace.ft{host}.{host}.db")));
    }
    let said = finish(&mut merge).expect(0).stderr;
    assert!(said.contains("with 4 runs on 4 hosts"), "{said}");
    assert!(said.contains("all of one boot: exact"), "{said}");
    let merged = Trace::open_complete(&scratch.join("all.db"));
    let across: i64 = merged.one(
        "SELECT COUNT(*) FROM (
           SELECT channel_id FROM channels JOIN channel_ends USING (channel_id)
           JOIN processes USING (upid) WHERE kind = 'tcp' AND used IS NOT 0
           GROUP BY channel_id HAVING COUNT(DISTINCT host) = 2)",
    );
    assert_eq!(across, 3, "connections with a process at each end");
    // Each answer was written before it was read, though the clocks are days apart.
    let wrong: i64 = merged.one(
        "SELECT COUNT(*) FROM calls AS r JOIN calls AS w USING (file_id)
         WHERE r.path LIKE '%/served-_' AND r.op = 'read' AND w.op = 'write' AND r.result > 0
           AND w.start_ns > r.start_ns + r.duration_ns",
    );
    assert_eq!(wrong, 0);
    let moved: i64 = merged.one(
        "SELECT COUNT(DISTINCT w.host) FROM file_access AS a JOIN file_access AS b USING (file_id)
         JOIN files USING (file_id) JOIN processes AS w ON w.upid = a.upid
         JOIN processes AS r ON r.upid = b.upid
         WHERE path LIKE '%/served-_' AND a.relation = 'create' AND b.relation = 'read'
           AND r.host = 'ft1'",
    );
    assert_eq!(moved, 3, "one file each, written there and read here");
}
