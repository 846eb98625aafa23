#!/usr/bin/env python3
"""Synthetic workflows whose true cause is known, traced for real and explained.

    tests/truth/run.py [--flowtrace BIN] [--repeat N] [--load N] [--keep DIR] [CASE…]
    tests/truth/run.py --judge DIR [CASE…]      the traces that --keep left, once more

Prints each case with its true cause, what flowtrace said, and whether that is right. Exit status 1
when less than 95 % are right, or a healthy workflow has a finding. Timing decides, so this is no
part of the short tests.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = {}
V1, V2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"


def case(name, script, **truth):
    """A script, and what is true of it: step, channel and resource of the first cause, a kind of finding,
    or healthy=True for no finding at all. `needs` are commands that have to succeed, `prepare` what
    is done before the run."""
    CASES[name] = (script, truth)


def pipeline(stages, slow, option="-c 10000", blocks=200):
    parts = []
    for at in range(stages):
        own = option if at == slow else "-c 300"
        own += f" -n {blocks}" if at == 0 else ""
        own += " -o" if at == stages - 1 else ""
        parts.append(f"./s{at + 1} {own}")
    return " | ".join(parts)


for length in range(3, 7):
    for place in range(length):
        case(f"slow-{place + 1}-of-{length}", pipeline(length, place), step=f"s{place + 1}", resource=["CPU"])
case("two-slow-stages", "./s1 -n 150 -c 200 | ./s2 -c 10000 | ./s3 -c 200 | ./s4 -c 10500 -o", step="s4", resource=["CPU", "free CPU"])
case("rate-limited-source", pipeline(3, 0, "-s 10000 -c 100"), step="s1", resource=["sleep"])
case("rate-limited-middle", pipeline(3, 1, "-s 10000 -c 100"), step="s2", resource=["sleep"])
case("rate-limited-sink", pipeline(3, 2, "-s 10000 -c 100"), step="s3", resource=["sleep"])
case("slow-branch", "mkfifo f; ./s2 -c 10000 -o < f & ./s1 -n 200 -c 100 | tee f | ./s3 -c 200 -o; wait", step="s2", resource=["CPU"])
case("slow-source-of-two", "mkfifo a b; ./s1 -n 200 -c 10000 > a & ./s2 -n 200 -c 100 > b & cat a b | ./s3 -c 100 -o; wait", step="s1", resource=["CPU"])
case("synced-writes", "./s1 -n 3000 -c 20 | ./s2 -c 20 -o -f data", step="s2", resource=["disk"])
case("copies-in-memory", "dd if=/dev/zero of=a bs=1M count=300 status=none; cat a > b; cat b > c; rm a b c", no_finding="disk")
case("lock-convoy", "for i in 1 2 3 4; do ./s1 -n 60 -c 10000 -o -l lock & done; wait", step="s1", resource=["lock"])
case("lock-that-is-tried-for", "./tries.py 2000 & sleep 0.2; cp tries.py waits.py; ./waits.py 50; wait", step="tries.py", resource=["CPU"], no_finding="sleep")
case("too-many-at-once", "for i in 1 2 3 4 5 6 7 8; do ./s1 -n 60 -c 10000 -o & done; wait", step="s1", resource=["free CPU"])
case("pool-with-work-for-one", "./pool.py 4 160000000", step="pool.py (stage 2 of 2)", resource=["CPU"], finding="cpu")
case("healthy-pool", "./pool.py 2 60000000 60000000", healthy=True)
case("slow-rank-at-a-barrier", "./ranks.py 160 20", step="ranks.py", resource=["CPU"], finding="cpu")
case("balanced-ranks-at-a-barrier", "./ranks.py 100 100", healthy=True)
case("lock-between-processes", "./ranks.py lock 50 50 50", step="ranks.py", finding="lock")
case("straggler", "for i in 40 40 40 200; do ./s1 -n $i -c 10000 -o & done; wait", finding="straggler")
case("false-serialisation", "for i in 1 2 3 4; do ./s1 -n 60 -c 10000 > out$i; done", finding="serial")
case("false-serialisation-of-chains", "for i in 1 2 3; do ./s1 -n 50 -c 10000 > x$i; ./s2 -c 8000 < x$i > y$i; done", finding="serial")
case("long-one-last", "printf '%s\\n' 60 60 60 60 200 | xargs -P 2 -I{} ./s1 -n {} -c 10000 -o", finding="late start")
case("long-one-first", "printf '%s\\n' 200 60 60 60 60 | xargs -P 2 -I{} ./s1 -n {} -c 10000 -o", no_finding="late start")
case("long-chain-last", "printf '%s\\n' 'all: b1 b2 b3 b4 z' 'b%:' '\t./s1 -n 60 -c 10000 > $@' 'y:' '\t./s1 -n 60 -c 10000 > $@' 'z: y' '\t./s2 -c 12000 < y > $@' > Makefile; make -s -j2", finding="late start", needs=["make --version"])
case("chain-among-others", "printf '%s\\n' 'all: z b1 b2' 'b%:' '\t./s1 -n 100 -c 10000 > $@' 'y:' '\t./s1 -n 60 -c 10000 > $@' 'z: y' '\t./s2 -c 12000 < y > $@' > Makefile; make -s -j2", no_finding="late start", needs=["make --version"])
case("true-dependencies", "./s1 -n 60 -c 10000 > a; ./s2 -c 10000 < a > b; ./s3 -c 10000 < b > c", no_finding="serial")
case("waiting-for-a-child", "./s1 -x ./s2 -n 200 -c 10000 -o", step="s2", resource=["CPU"])
case("waiting-for-a-sleeping-child", "./s1 -x ./s2 -n 200 -s 10000 -o", step="s2", resource=["sleep"])
case("first-step-of-three", "./s1 -n 200 -c 10000 > a; ./s2 -c 500 < a > b; ./s3 -c 500 -o < b", step="s1", resource=["CPU"])
case("last-step-of-three", "./s1 -n 200 -c 500 > a; ./s2 -c 500 < a > b; ./s3 -c 10000 -o < b", step="s3", resource=["CPU"])
case("one-of-xargs", "seq 4 | xargs -P 2 -I% ./s1 -n 100 -c 10000 -o", step="s1", resource=["CPU", "free CPU"], healthy=True)
case("healthy-pair", "./s1 -n 200 -c 10000 | ./s2 -c 10000 -o", healthy=True)
case("healthy-side-by-side", "./s1 -n 200 -c 10000 -o & ./s1 -n 200 -c 10000 -o & wait", healthy=True)
case("healthy-jobs-in-turn", "for r in 1 2 3; do ./s1 -n 60 -c 10000 > a$r & ./s1 -n 60 -c 10000 > b$r & wait; done", healthy=True)
case("one-cpu-of-several", "taskset -c 0 sh -c 'for i in 1 2 3 4; do ./s1 -n 60 -c 10000 -o & done; wait'", step="s1", resource=["CPU limit"], finding="cpu limit", needs=["taskset -V", "test $(nproc) -gt 1"])
case("producer-of-the-same-name-as-the-pauses", "(sleep 2; touch done) & while [ ! -e done ]; do sleep 0.1; done", step="sleep", resource=["sleep"], finding="sleep")
case("stages-behind-a-wrapper", "./wrap.py ./s1 -n 200 -c 300 | ./wrap.py ./s1 -c 10000 | ./wrap.py ./s1 -c 300 -o", step="s1 (stage 2 of 3)", resource=["CPU"])
case(
    "slow-network",
    # Frames of 64 KB, as lo has them, never fit into the bucket.
    "ip link set lo mtu 1500 up && tc qdisc add dev lo root tbf rate 8mbit burst 20kb latency 400ms && "
    "{ ./s2.py & ./s1.py; wait; }",
    private_network=True,
    resource=["network"],
    needs=["tc -V", "ip -V", "unshare -n true"],
)
case(
    "slow-network-before-a-quick-link",
    "ip link set lo mtu 1500 up && tc qdisc add dev lo root tbf rate 20mbit burst 20kb latency 400ms && "
    "{ ./link.py receive 47112 & ./link.py pass 47111 47112 & ./link.py send 47111; wait; }",
    private_network=True,
    # Three quarters of the bytes go through the first of two links that share the rate.
    channel=["link.py (stage 1 of 3) → link.py (stage 2 of 3)", "link.py (stage 2 of 3) → link.py (stage 3 of 3)"],
    resource=["network"],
    needs=["tc -V", "ip -V", "unshare -n true"],
)
case(
    "more-than-fits-into-memory",
    "./s1 -n 60 -o -m big -p 1000",
    prepare="head -c 400M /dev/zero > big; sync big; dd if=big iflag=nocache count=0 status=none",
    memory="64M",
    step="s1",
    resource=["memory"],
    needs=["test -w /sys/fs/cgroup/memory/cgroup.procs || grep -q memory /sys/fs/cgroup/cgroup.controllers"],
)

SENDER = """#!/usr/bin/python3
import socket, time
for _ in range(100):
    try:
        s = socket.create_connection(("127.0.0.1", 47110)); break
    except OSError:
        time.sleep(0.05)
for _ in range(40): s.sendall(b"x" * 65536)
"""
RECEIVER = """#!/usr/bin/python3
import socket
l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind(("127.0.0.1", 47110)); l.listen(); c, _ = l.accept()
while c.recv(65536): pass
"""
LINK = """#!/usr/bin/python3
import socket, sys, time
def accepted(port):
    l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    l.bind(("127.0.0.1", int(port))); l.listen(); return l.accept()[0]
def connected(port):
    for _ in range(100):
        try: return socket.create_connection(("127.0.0.1", int(port)))
        except OSError: time.sleep(0.05)
what, ports = sys.argv[1], sys.argv[2:]
if what == "receive":
    c = accepted(*ports)
    while c.recv(65536): pass
elif what == "pass":
    c, o = accepted(ports[0]), connected(ports[1])
    while block := c.recv(65536): o.sendall(block[: len(block) // 3])
else:
    o = connected(*ports)
    for _ in range(100): o.sendall(b"x" * 65536)
"""
POOL = """#!/usr/bin/python3
import multiprocessing, sys
def work(turns):
    for _ in range(turns): pass
with multiprocessing.Pool(int(sys.argv[1])) as pool: pool.map(work, map(int, sys.argv[2:]), chunksize=1)
"""
RANKS = """#!/usr/bin/python3
import multiprocessing, sys, time
def compute(ms):
    end = time.process_time() + ms / 1e3
    while time.process_time() < end: pass
def rank(barrier, lock, ms):
    for _ in range(12):
        if lock:
            with lock: compute(ms)
        else:
            compute(ms)
            barrier.wait()
lock = multiprocessing.Lock() if sys.argv[1] == "lock" else None
shares = [int(ms) for ms in sys.argv[1:] if ms != "lock"]
barrier = multiprocessing.Barrier(len(shares))
ranks = [multiprocessing.Process(target=rank, args=(barrier, lock, ms)) for ms in shares]
for one in ranks: one.start()
for one in ranks: one.join()
"""
WRAP = """#!/usr/bin/python3
import json, os, subprocess, sys
os.execv(sys.argv[1], sys.argv[1:])
"""
TRIES = """#!/usr/bin/python3
import fcntl, sys, time
with open("lock", "w") as lock:
    while True:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB); break
        except OSError:
            time.sleep(0.02)
    end = time.process_time() + int(sys.argv[1]) / 1e3
    while time.process_time() < end: pass
"""


def succeeds(command):
    return subprocess.run(command, shell=True, capture_output=True).returncode == 0


class Group:
    """A memory cgroup, where the case wants one; of either version."""

    def __init__(self, limit):
        self.path = None
        if limit:
            first = os.path.isdir(V1)
            self.path = f"{V1 if first else V2}/flowtrace-truth-{os.getpid()}"
            if not first:
                with open(f"{V2}/cgroup.subtree_control", "w") as f:
                    f.write("+memory")
            os.mkdir(self.path)
            with open(f"{self.path}/{'memory.limit_in_bytes' if first else 'memory.max'}", "w") as f:
                f.write(limit)

    def __enter__(self):
        return self.path

    def __exit__(self, *_):
        if self.path:
            os.rmdir(self.path)


def explained(flowtrace, trace):
    """What flowtrace says of a trace: its first cause, its findings."""
    def explain(what):
        done = subprocess.run([flowtrace, what, trace, "--format", "json"], check=True, capture_output=True, timeout=300)
        return json.loads(done.stdout)
    causes = explain("bottlenecks")["causes"]
    return (causes[0] if causes else None), explain("summary")["verdict"]["findings"]


def run(flowtrace, stage, name, keep):
    """Runs a case and says what flowtrace says of it."""
    script, truth = CASES[name]
    scratch = tempfile.mkdtemp(prefix="flowtrace-truth-")
    try:
        for at in range(1, 7):
            shutil.copy(stage, f"{scratch}/s{at}")
        for program, text in (("s1.py", SENDER), ("s2.py", RECEIVER), ("link.py", LINK), ("pool.py", POOL), ("ranks.py", RANKS), ("tries.py", TRIES), ("wrap.py", WRAP)):
            with open(f"{scratch}/{program}", "w") as f:
                f.write(text)
            os.chmod(f"{scratch}/{program}", 0o755)
        with open(f"{scratch}/case.sh", "w") as f:
            f.write(script + "\n")
        if "prepare" in truth:
            subprocess.run(truth["prepare"], shell=True, cwd=scratch, check=True)
        with Group(truth.get("memory")) as group:
            command = ["sh", "case.sh"]
            if group:
                command = ["sh", "-c", f"echo $$ > {group}/cgroup.procs; exec sh case.sh"]
            traced = [flowtrace, "run", "--quiet", "--no-summary", "-o", f"{scratch}/trace.db", "--", *command]
            if truth.get("private_network"):
                traced = ["unshare", "-n", *traced]
            subprocess.run(traced, cwd=scratch, check=False, timeout=300, stdout=subprocess.DEVNULL)
        if keep:
            shutil.copy(f"{scratch}/trace.db", keep)
        return explained(flowtrace, f"{scratch}/trace.db")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def judge(truth, cause, findings):
    """Whether the first answer is the true one."""
    kinds = [finding["kind"] for finding in findings]
    if truth.get("healthy") and kinds:
        return False
    if "step" in truth and (cause is None or cause["step"] != truth["step"]):
        return False
    if "resource" in truth and (cause is None or cause["resource"] not in truth["resource"]):
        return False
    if "channel" in truth and (cause is None or cause["channel"] not in truth["channel"]):
        return False
    if "finding" in truth and (not kinds or kinds[0] != truth["finding"]):
        return False
    return truth.get("no_finding") not in kinds


def shown(truth):
    keys = ("step", "channel", "resource", "finding", "no_finding", "healthy")
    return ", ".join(f"{k} {'/'.join(truth[k]) if isinstance(truth[k], list) else truth[k]}" for k in keys if k in truth)


def rounds(options, flowtrace, tell):
    """Runs the cases, all of them once before any of them again."""
    stage = tempfile.mkdtemp() + "/stage"
    subprocess.run(["cc", "-O1", "-o", stage, f"{HERE}/stage.c"], check=True)
    load = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(options.load)]
    try:
        for at in range(options.repeat):
            for name in options.cases or CASES:
                lacking = [need for need in CASES[name][1].get("needs", []) if not succeeds(need)]
                if lacking:
                    print(f"{'left out':9} {name:32} for want of: {lacking[0]}", flush=True)
                    continue
                keep = options.keep and f"{options.keep}/{name}.{at + 1}.db"
                tell(name, *run(flowtrace, stage, name, keep))
    finally:
        for process in load:
            process.kill()
            process.wait()
        shutil.rmtree(os.path.dirname(stage), ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--flowtrace", default=f"{HERE}/../../target/release/flowtrace")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--load", type=int, default=0, help="busy loops beside")
    parser.add_argument("--keep", help="directory for the traces")
    parser.add_argument("--judge", metavar="DIR", help="directory with traces of --keep: run nothing")
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    unknown = [name for name in options.cases if name not in CASES]
    if unknown:
        sys.exit(f"no case {unknown[0]}; there are: {' '.join(CASES)}")
    flowtrace = os.path.abspath(options.flowtrace)
    right = total = false_findings = 0

    def tell(name, cause, findings):
        nonlocal right, total, false_findings
        truth = CASES[name][1]
        is_right = judge(truth, cause, findings)
        total += 1
        right += is_right
        false_findings += bool(truth.get("healthy") and findings)
        said = f"{cause['step'] or cause['channel']} {cause['resource']} {cause['share']:.0%}" if cause else "no cause"
        found = " ".join(f"{f['kind']}({f['step']})" for f in findings) or "-"
        print(f"{'right' if is_right else 'WRONG':9} {name:32} true: {shown(truth):44} said: {said} · findings: {found}", flush=True)

    if options.judge:
        for trace in sorted(os.listdir(options.judge)):
            name = trace.removesuffix(".db").rpartition(".")[0]
            if name in (options.cases or CASES):
                tell(name, *explained(flowtrace, f"{options.judge}/{trace}"))
    else:
        rounds(options, flowtrace, tell)
    print(f"\n{right} of {total} right ({right / max(total, 1):.0%}), {false_findings} false findings on healthy workflows")
    return 0 if total and right >= 0.95 * total and not false_findings else 1


if __name__ == "__main__":
    sys.exit(main())
