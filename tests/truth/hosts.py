#!/usr/bin/env python3
"""Traces parallel programs on 4 and on 8 hosts (network namespaces whose monotonic clocks show different times), merges the
traces, and holds every analysis against what the programs say of themselves.

    tests/truth/hosts.py [--flowtrace BIN] [--patterns BIN] [--hosts 4,8] [--only mpi,patterns,mapreduce] [--keep DIR]

  mpi        ranks of Open MPI read a file each, pass messages around a ring, write a file each; one computes more
  patterns   the example `patterns`, packets captured by the traced ranks themselves
  mapreduce  a driver sends mappers and reducers to servers on all hosts over TCP; one part is larger than the others

Every merged trace is also merged again with other boots and wall clocks written into its parts, so that only the packets
tell how the clocks relate: that must recover what is exact in one boot, within the stated error. Exit status 0: all right.
"""
import argparse
import collections
import glob
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import inference  # noqa: E402

# Sums that merging must not change. Files, channels and flows become fewer where several traces saw them.
TOTALS = [
    "SELECT COUNT(*), SUM(duration_ns), SUM(CASE WHEN result > 0 AND op IN ('read', 'write') THEN result END) FROM calls",
    "SELECT COUNT(*), SUM(on_cpu_ns), SUM(user_ns), SUM(sys_ns), SUM(read_bytes), SUM(write_bytes), SUM(wait_ns) FROM processes",
    "SELECT COUNT(*), SUM(read_bytes), SUM(write_bytes), SUM(calls) FROM file_access",
    "SELECT COUNT(*), SUM(duration_ns), SUM(samples) FROM samples",
    "SELECT COUNT(*), SUM(wire_bytes), SUM(payload_bytes) FROM packets",
    "SELECT SUM(out_packets), SUM(out_bytes), SUM(back_packets), SUM(back_bytes) FROM flow_captures",
    "SELECT COUNT(*), SUM(received), SUM(dropped) FROM captures",
    "SELECT COUNT(*), SUM(bytes) FROM channel_ends",
    "SELECT COUNT(*), SUM(value) FROM host_samples",
    "SELECT SUM(value) FROM losses WHERE severity <> 'info'",
    "SELECT COUNT(*) FROM runs", "SELECT COUNT(*) FROM descriptors", "SELECT COUNT(*) FROM environment",
]
# Of no machine in particular.
CAPACITIES = ["--disk-read", "500", "--disk-write", "500", "--network", "1000", "--memory", "5000"]


class Lab(inference.Lab):
    """Hosts whose clocks were started at different times, and an address of the machine itself for mpirun."""

    def __init__(self, hosts):
        super().__init__(hosts)
        subprocess.run("ip addr add 10.9.0.254/24 dev ftbr", shell=True, check=True)

    @staticmethod
    def words(host, *command):
        # Days apart, forwards and a little backwards.
        offset = [0, 86400, -5, 1000, 7, 250000, -3, 60][(host - 1) % 8]
        return ["ip", "netns", "exec", f"h{host}", "unshare", "--uts", "--ipc", "--time", "--monotonic", str(offset), "--fork",
                "sh", "-c", 'hostname "$0"; exec "$@"', f"h{host}", *command]

    def start(self, host, *command, **more):
        return subprocess.Popen(self.words(host, *command), stdin=subprocess.DEVNULL, **more)


class Check:
    def __init__(self, name):
        self.name, self.right, self.wrong = name, 0, []

    def equal(self, what, found, expected):
        self.true(what, found == expected, f"{found} instead of {expected}")

    def true(self, what, is_right, otherwise=""):
        if is_right:
            self.right += 1
        else:
            self.wrong.append(f"{what}: {str(otherwise)[:600]}")

    def close(self):
        print(f"{self.name}: {self.right} right, {len(self.wrong)} wrong", flush=True)
        for line in self.wrong:
            print("  WRONG", line, flush=True)
        return len(self.wrong)


class Trace:
    def __init__(self, options, path):
        self.options, self.path = options, path
        self.db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)

    def rows(self, sql, *values):
        return self.db.execute(sql, values).fetchall()

    def one(self, sql, *values):
        return self.rows(sql, *values)[0][0]

    def says(self, *words):
        command, *more = words
        done = subprocess.run([self.options.flowtrace, command, *([more.pop(0)] if command == "network" and more else []), self.path,
                               *more], capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"})
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{words}: {done.stderr}")
        return done.stdout

    def json(self, *words):
        return json.loads(self.says(*words, "--format", "json"))


def merged(options, directory, parts, more=()):
    out = f"{directory}/all.db"
    done = subprocess.run([options.flowtrace, "merge", "-o", out, *more, *parts], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return Trace(options, out), done.stderr


def check_totals(check, options, trace, parts):
    for sql in TOTALS:
        sums = None
        for part in parts:
            row = Trace(options, part).rows(sql)[0]
            sums = row if sums is None else tuple((a or 0) + (b or 0) for a, b in zip(sums, row))
        found = tuple(value or 0 for value in trace.rows(sql)[0])
        check.equal(f"sums of the parts: {sql}", found, tuple(value or 0 for value in sums))


def check_clocks(check, options, directory, parts, trace):
    """Other boots and wall clocks: what packets say of the clocks against what is exact in one boot."""
    if not trace.one("SELECT COUNT(*) FROM packets WHERE flags IS NOT NULL"):
        return
    other = f"{directory}/otherwise"
    os.makedirs(other)
    again = []
    for number, part in enumerate(sorted(parts)):
        copy = f"{other}/{os.path.basename(part)}"
        shutil.copy(part, copy)
        db = sqlite3.connect(copy)
        host = db.execute("SELECT name FROM host").fetchone()[0]
        # A host is a machine, whatever ran there.
        shift = int(re.sub(r"\D", "", host)) * 3_700_000_000
        db.execute("UPDATE host SET boot_id = 'boot of ' || name, epoch_unix_ns = epoch_unix_ns + ?, wall_error_ns = NULL", (shift,))
        db.commit()
        db.close()
        again.append(copy)
    by_packets, said = merged(options, other, again)
    start = "SELECT source, start_ns FROM runs"
    exact = {os.path.basename(source): at for source, at in trace.rows(start)}
    errors = dict(by_packets.rows("SELECT host, clock_error_ns FROM hosts"))
    found = by_packets.rows("SELECT source, start_ns, host FROM runs")
    base_source, base_at, base_host = next(row for row in found if os.path.basename(row[0]) == os.path.basename(again[0]))
    for source, at, host in found:
        name = os.path.basename(source)
        distance = (at - base_at) - (exact[name] - exact[os.path.basename(base_source)])
        if host == base_host:
            bound = 2
        else:
            bound = errors[host]
        check.true(f"clock of {host} by packets", bound is not None and abs(distance) <= bound + 2, f"off by {distance} ns, said {bound}: {said}")
    methods = {row[0] for row in by_packets.rows("SELECT DISTINCT clock_method FROM hosts WHERE host <> ?", base_host)}
    check.equal("clocks related by", methods, {"packets"})


def check_commands(check, trace):
    """What every analysis says of any trace: it answers, and its books are right."""
    for words in (["summary"], ["tree"], ["dag", "--by", "host"], ["dag", "--by", "rule"], ["critical-path"], ["stats"], ["waits"],
                  ["bottlenecks"], ["ideal", *CAPACITIES], ["resources"]):
        try:
            check.true(" ".join(words), trace.says(*words).strip(), "said nothing")
        except RuntimeError as error:
            check.true(" ".join(words), False, error)
    [resources] = trace.json("resources")
    hosts = {row[0] for row in trace.rows("SELECT DISTINCT host FROM runs")}
    names = {host for host, _ in resources["hosts"]}
    sums = [sum(shares) for _, shares in resources["hosts"]]
    check.true("shares of resources", all(abs(total - 1) < 1e-9 for total in sums), sums)
    check.equal("machines of resources", names, hosts)


def connections(trace):
    """Connections that carried data with a process at each end, on two hosts, as (host, host)."""
    return trace.rows("""SELECT MIN(host), MAX(host) FROM channel_ends JOIN processes USING (upid) JOIN channels USING (channel_id)
        WHERE kind = 'tcp' AND used IS NOT 0 GROUP BY channel_id HAVING COUNT(DISTINCT host) = 2""")


def sent(trace, a, b):
    """Payload from one address to another over all flows."""
    return trace.one("""SELECT COALESCE(SUM(CASE src WHEN ? THEN out_bytes ELSE back_bytes END), 0) FROM flows
        WHERE proto = 'tcp' AND (src, dst) IN (VALUES (?, ?), (?, ?))""", a, a, b, b, a)


def run_words(options, traces, *command):
    return [options.flowtrace, "run", "--quiet", "--no-summary", "--net", "--interface", "eth0", "--out-dir", traces, "--", *command]


def mpi(options, lab, directory):
    check = Check(f"{lab.hosts} hosts, mpi")
    if not shutil.which("mpicc") or not shutil.which("mpirun"):
        print("left out: mpi (packages openmpi-bin libopenmpi-dev)")
        return 0
    job, traces = f"{directory}/job", f"{directory}/traces"
    os.makedirs(job)
    os.makedirs(traces)
    program = f"{job}/ranks"
    subprocess.run(["mpicc", "-O1", "-o", program, f"{HERE}/../programs/ranks.c"], check=True)
    for rank in range(lab.hosts):
        with open(f"{job}/in.{rank}", "wb") as out:
            out.write(bytes([rank + 1]) * (100_000 + 1000 * rank))
    agent = f"{directory}/agent"
    with open(agent, "w", encoding="utf-8") as out:
        out.write('#!/bin/bash\nwhile [ "${1#-}" != "$1" ]; do shift; done\nn=${1##*.}; shift\n')
        out.write(f"exec \"{sys.executable}\" \"{HERE}/hosts.py\" --on $n -- \"$@\"\n")
    os.chmod(agent, 0o755)
    slow, iterations, size = lab.hosts - 2, 40, 30_000
    hosts = ",".join(f"10.9.0.{i}:1" for i in range(1, lab.hosts + 1))
    command = ["mpirun", "--host", hosts, "-np", str(lab.hosts), "--bind-to", "none", "--mca", "plm", "rsh",
               "--mca", "plm_rsh_agent", agent, "--mca", "plm_rsh_no_tree_spawn", "1", "--mca", "orte_keep_fqdn_hostnames", "1",
               "--mca", "oob_tcp_if_include", "10.9.0.0/24", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self",
               "--mca", "btl_tcp_if_include", "10.9.0.0/24", "--mca", "mpi_yield_when_idle", "1", "--wdir", job,
               *run_words(options, traces, "./ranks", ".", str(iterations), str(size), "3000", str(slow), "4")]
    done = subprocess.run(command, env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "TMPDIR": directory},
                          capture_output=True, text=True, timeout=570)
    if done.returncode:
        raise RuntimeError(f"mpirun: {done.stdout[-2000:]} {done.stderr[-2000:]}")
    lines = re.findall(r"rank (\d+) host (\S+) read (\d+) computed ([\d.]+) sent (\d+)", done.stdout)
    truth = {int(rank): (host, int(read), float(computed), int(count)) for rank, host, read, computed, count in lines}
    check.equal("ranks that spoke", sorted(truth), list(range(lab.hosts)))
    parts = sorted(glob.glob(f"{traces}/*.db"))
    check.equal("traces", [os.path.basename(part) for part in parts], [f"trace.h{i + 1}.{i}.db" for i in range(lab.hosts)])
    trace, said = merged(options, directory, parts)
    check.true("merge says one boot", "all of one boot: exact" in said, said)
    check_totals(check, options, trace, parts)
    ranks = dict(trace.rows("SELECT CAST(rank AS INTEGER), host FROM runs"))
    check.equal("ranks by host", ranks, {rank: row[0] for rank, row in truth.items()})
    check.equal("jobs", trace.one("SELECT COUNT(DISTINCT job) FROM runs WHERE launcher = 'openmpi'"), 1)
    used = trace.rows("""SELECT host, SUM(a.read_bytes), SUM(a.write_bytes) FROM file_access AS a JOIN files USING (file_id)
        JOIN processes USING (upid) WHERE path GLOB '*/job/in.*' OR path GLOB '*/job/out.*' GROUP BY host""")
    check.equal("bytes of files", sorted(used), sorted((row[0], row[1], size) for row in truth.values()))
    cpu = dict(trace.rows("SELECT host, SUM(on_cpu_ns) / 1e9 FROM processes WHERE exe GLOB '*/ranks' GROUP BY host"))
    for rank, (host, _, computed, _) in truth.items():
        check.true(f"processor time of rank {rank}", cpu.get(host, 0) >= computed * 0.999, f"{cpu.get(host)} below {computed} s")
    for rank, (_, _, _, count) in truth.items():
        a, b = f"10.9.0.{rank + 1}", f"10.9.0.{(rank + 1) % lab.hosts + 1}"
        carried = sent(trace, a, b)
        # Headers of Open MPI, what the gathering sends, and start-up on top.
        check.true(f"bytes {a} to {b}", count <= carried <= count * 1.05 + 20_000, f"{carried} for {count}")
    pairs = {tuple(sorted((f"h{i + 1}", f"h{(i + 1) % lab.hosts + 1}"))) for i in range(lab.hosts)}
    check.true("connections of the ring", pairs <= set(connections(trace)), f"{set(connections(trace))} without {pairs - set(connections(trace))}")
    both = trace.rows("SELECT MIN(captures), COUNT(*) FROM flows WHERE proto = 'tcp' AND bytes > 100000")[0]
    check.equal("flows of the ring, each captured twice", both, (2, lab.hosts))
    ends = trace.one("""SELECT COUNT(*) FROM flows AS f JOIN processes AS a ON a.upid = f.src_upid JOIN processes AS b ON b.upid = f.dst_upid
        WHERE proto = 'tcp' AND bytes > 100000 AND a.host <> b.host AND a.exe GLOB '*/ranks' AND b.exe GLOB '*/ranks'""")
    check.equal("flows with the processes of both ends", ends, lab.hosts)
    topology = trace.json("network", "topology")["answer"][0]
    check.true("topology", "ring" in topology or lab.hosts == 4 and "2×2 mesh" in topology, topology)
    balance = trace.json("network", "balance")["answer"][0]
    accused = re.findall(r"10\.9\.0\.(\d+)", balance.split(" the others up")[0]) if " the others up" in balance else []
    check.true("balance accuses nobody else", accused in ([], [str(slow + 1)]), balance)
    check_commands(check, trace)
    check_clocks(check, options, directory, parts, trace)
    return check.close()


def patterns(options, lab, directory):
    check = Check(f"{lab.hosts} hosts, patterns")
    addresses = ",".join(f"10.9.0.{i}" for i in range(1, lab.hosts + 1))
    for pattern in ["ring", "all-to-all"]:
        here = f"{directory}/{pattern}"
        traces = f"{here}/traces"
        os.makedirs(traces)
        ranks = []
        for i in range(lab.hosts):
            with open(f"{here}/truth.{i}", "w", encoding="utf-8") as out:
                words = run_words(options, traces, options.patterns, "--rank", str(i), "--hosts", addresses, "--pattern", pattern,
                                  "--bytes", "2000", "--iterations", "150", "--compute-us", "3000")
                ranks.append(lab.start(i + 1, *words, stdout=out, cwd=here, env={**os.environ, "SLURM_JOB_ID": "9", "SLURM_PROCID": str(i)}))
        if any(rank.wait(timeout=600) for rank in ranks):
            raise RuntimeError(f"a rank of {pattern} failed")
        truth = inference.Truth(here, lab.hosts)
        parts = sorted(glob.glob(f"{traces}/*.db"))
        check.equal("traces", len(parts), lab.hosts)
        trace, _ = merged(options, here, parts)
        check_totals(check, options, trace, parts)
        wrong, figures = inference.errors(options, trace.path, truth, pattern, 0)
        check.true(f"{pattern}: {', '.join(figures)}", not wrong, f"{'; '.join(wrong)} ({', '.join(figures)})")
        for (a, b), count in truth.sent.items():
            carried = sent(trace, f"10.9.0.{a + 1}", f"10.9.0.{b + 1}")
            # With the byte by which the one that connects says who it is.
            check.true(f"{pattern}: bytes of {a} to {b}", carried - count * 2000 in range(9), f"{carried} for {count * 2000}")
        names = {f"h{i + 1}" for i in range(lab.hosts)}
        crossing = collections.Counter(connections(trace))
        expected = {tuple(sorted((f"h{a + 1}", f"h{b + 1}"))) for (a, b), count in truth.sent.items() if count}
        check.equal(f"{pattern}: connections", set(crossing), expected)
        check.equal(f"{pattern}: hosts", {row[0] for row in trace.rows("SELECT DISTINCT host FROM processes")}, names)
        check_commands(check, trace)
        check_clocks(check, options, here, parts, trace)
    return check.close()


SERVER = r"""
# Runs the command lines that come over TCP, one at a time, and answers with their exit status.
import os, socket, subprocess, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('0.0.0.0', 7000))
s.listen(1)
open('ready.' + sys.argv[1], 'w').close()
c, _ = s.accept()
f = c.makefile('rw')
for line in f:
    print(subprocess.run(['sh', '-c', line]).returncode, file=f, flush=True)
"""

DRIVER = r"""
# Sends each mapper to a host, and when all are done each reducer.
import os, socket, sys, time
hosts, reducers = int(sys.argv[1]), int(sys.argv[2])
talk = []
for i in range(1, hosts + 1):
    deadline = time.monotonic() + 120
    while not os.path.exists(f'ready.{i}'):
        assert time.monotonic() < deadline, i
        time.sleep(0.02)
    talk.append(socket.create_connection((f'10.9.0.{i}', 7000)).makefile('rw'))
def everywhere(lines):
    for i, line in enumerate(lines):
        print(line, file=talk[i % hosts], flush=True)
    assert all(int(talk[i % hosts].readline()) == 0 for i in range(len(lines)))
everywhere([f"python3 map.py part.{i} {reducers}" for i in range(hosts)])
everywhere([f"sort part.*.to.{r} | uniq -c > count.{r}" for r in range(reducers)])
with open('result', 'w') as out:
    for r in range(reducers):
        out.write(open(f'count.{r}').read())
"""

MAPPER = r"""
# Each word of a part goes to the file of its reducer.
import sys
part, reducers = sys.argv[1], int(sys.argv[2])
outs = [open(f'{part}.to.{r}', 'w') for r in range(reducers)]
for line in open(part):
    for word in line.split():
        outs[sum(word.encode()) % reducers].write(word + '\n')
"""


def mapreduce(options, lab, directory):
    check = Check(f"{lab.hosts} hosts, mapreduce")
    job, traces = f"{directory}/job", f"{directory}/traces"
    os.makedirs(job)
    os.makedirs(traces)
    for name, text in (("server.py", SERVER), ("driver.py", DRIVER), ("map.py", MAPPER)):
        with open(f"{job}/{name}", "w", encoding="utf-8") as out:
            out.write(text)
    reducers, slow, counted = 3, 1, collections.Counter()
    for i in range(lab.hosts):
        words = [f"w{(k * 7919 + i) % 997}" for k in range(30_000 * (6 if i == slow else 1))]
        counted.update(words)
        with open(f"{job}/part.{i}", "w", encoding="utf-8") as out:
            out.writelines(" ".join(words[k:k + 10]) + "\n" for k in range(0, len(words), 10))
    environment = {**os.environ, "SLURM_JOB_ID": "11"}
    servers = [lab.start(i + 1, *run_words(options, traces, sys.executable, "server.py", str(i + 1)), cwd=job,
                         env={**environment, "SLURM_PROCID": str(i + 1)}) for i in range(lab.hosts)]
    driver = lab.start(1, *run_words(options, traces, sys.executable, "driver.py", str(lab.hosts), str(reducers)), cwd=job,
                       env={**environment, "SLURM_PROCID": "0"})
    if any(one.wait(timeout=600) for one in [driver, *servers]):
        raise RuntimeError("the driver or a server failed")
    with open(f"{job}/result", encoding="utf-8") as lines:
        result = {word: int(count) for count, word in (line.split() for line in lines)}
    check.equal("the program's own result", result, dict(counted))
    parts = sorted(glob.glob(f"{traces}/*.db"))
    check.equal("traces", len(parts), lab.hosts + 1)
    trace, _ = merged(options, directory, parts)
    check_totals(check, options, trace, parts)
    wrote = trace.rows("""SELECT p.host, f.path FROM file_access AS a JOIN files AS f USING (file_id) JOIN processes AS p USING (upid)
        WHERE a.write_bytes > 0 AND f.path GLOB '*/part.*.to.*'""")
    names = {(host, os.path.basename(path)) for host, path in wrote}
    check.equal("who wrote which piece", names, {(f"h{i + 1}", f"part.{i}.to.{r}") for i in range(lab.hosts) for r in range(reducers)})
    read = trace.rows("""SELECT p.host, f.path FROM file_access AS a JOIN files AS f USING (file_id) JOIN processes AS p USING (upid)
        WHERE a.read_bytes > 0 AND f.path GLOB '*/part.*.to.*'""")
    check.equal("who read which piece", sorted({(host, os.path.basename(path)) for host, path in read}),
                sorted({(f"h{r % lab.hosts + 1}", f"part.{i}.to.{r}") for i in range(lab.hosts) for r in range(reducers)}))
    pieces = sum(os.path.getsize(path) for path in glob.glob(f"{job}/part.*.to.*"))
    moved = trace.rows("""SELECT SUM(a.read_bytes), SUM(a.write_bytes) FROM file_access AS a JOIN files USING (file_id)
        WHERE path GLOB '*/part.*.to.*'""")[0]
    check.equal("bytes of the shuffle, read and written", moved, (pieces, pieces))
    check.equal("one file each over all traces",
                trace.one("SELECT COUNT(*) FROM files WHERE kind = 'file' AND path GLOB '*/part.*.to.*'"), lab.hosts * reducers)
    # Nothing is read before it was written, by clocks that are days apart.
    early = trace.one("""SELECT COUNT(*) FROM calls AS r JOIN calls AS w USING (file_id)
        WHERE r.path GLOB '*/count.*' AND r.op = 'read' AND r.result > 0 AND w.op = 'write' AND w.start_ns > r.start_ns + r.duration_ns""")
    check.equal("reads before writes", early, 0)
    expected = {tuple(sorted(("h1", f"h{i}"))) for i in range(2, lab.hosts + 1)}
    check.equal("connections of the driver", set(connections(trace)), expected)
    dag = trace.says("dag", "--by", "host")
    check.true("dag by host", all(f"h{i + 1}" in dag for i in range(lab.hosts)), dag)
    graph = trace.says("dag", "--format", "graphml", "--by", "process")
    check.true("dag", "part.0.to.0" in graph, "a piece is missing")
    # The servers live all the time: the mappers' end is said.
    begin = trace.one("SELECT MIN(start_ns) FROM processes WHERE command GLOB '*driver.py*'")
    mapped = trace.one("SELECT MAX(end_ns) FROM processes WHERE command GLOB '*map.py part*'")
    first = trace.one("SELECT MIN(start_ns) FROM processes WHERE parent_upid IS NULL")
    ideal = trace.says("ideal", *CAPACITIES, "--phases", str((mapped + 1_000_000 - min(begin, first)) / 1e9))
    # On a busy machine that need not be the one with the larger part; there the machines may end nearly together.
    last = trace.rows("SELECT host, MAX(end_ns) FROM processes WHERE command GLOB '*map.py part*' GROUP BY host ORDER BY 2")
    late = last[-1][1] - sum(end for _, end in last[:-1]) / (len(last) - 1)
    named = re.findall(r"phase 1: (\S+) ended last", ideal)
    is_right = named == [last[-1][0]] or not named and late < 0.1 * (last[-1][1] - min(begin, first))
    check.true("ideal names the machine that mapped longest", is_right, ideal)
    path = trace.says("critical-path")
    check.true("the critical path goes through the larger part", f"part.{slow}" in path, path)
    check_commands(check, trace)
    check_clocks(check, options, directory, parts, trace)
    return check.close()


def main():
    if sys.argv[1:2] == ["--on"]:
        # The remote shell of mpirun.
        words = Lab.words(int(sys.argv[2]), "sh", "-c", " ".join(sys.argv[4:]))
        os.execvp(words[0], words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flowtrace", default=f"{HERE}/../../target/release/flowtrace")
    parser.add_argument("--patterns", default=f"{HERE}/../../target/release/examples/patterns")
    parser.add_argument("--hosts", default="4,8")
    parser.add_argument("--only", default="mpi,patterns,mapreduce")
    parser.add_argument("--keep", help="directory for the traces")
    parser.add_argument("--inside", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.flowtrace, options.patterns = os.path.abspath(options.flowtrace), os.path.abspath(options.patterns)
    if options.inside is None:
        return inference.on_hosts(options)
    lab = Lab(options.inside)
    scratch = os.path.abspath(options.keep) if options.keep else tempfile.mkdtemp(prefix="flowtrace-hosts-")
    wrong = 0
    for name in options.only.split(","):
        directory = f"{scratch}/{options.inside}.{name}"
        os.makedirs(directory)
        try:
            wrong += {"mpi": mpi, "patterns": patterns, "mapreduce": mapreduce}[name](options, lab, directory)
        except (RuntimeError, subprocess.SubprocessError, AssertionError) as error:
            print(f"{options.inside} hosts, {name}: {error}", flush=True)
            wrong += 1
        if not options.keep:
            shutil.rmtree(directory, ignore_errors=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
