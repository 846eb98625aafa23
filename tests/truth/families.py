"""Families of synthetic workflows with random parameters, each with its true cause and, where there is one, the change
that removes it. `generate(seed, count)` yields the same cases for the same seed.

A case is a dict:
    name, script   how it is called, and what `sh` runs in an empty directory with s1..s6 (tests/truth/stage.c)
    kinds          kinds of cause that the first line may name; none for a healthy run
    words          regular expressions that the first line must match
    changed        the script after the change that the finding proposes; None: nothing is measured
    prepare        commands to run once before
    rate           Mbit/s of the loopback interface in a network namespace of its own; `changed` runs without it
    needs          commands that must succeed, or the case is left out
"""
import random

# One step that limits a pipeline takes so long, seconds; whatever else there is takes a part of it.
SECONDS = (1.2, 2.2)


def case(name, script, kinds=(), words=(), changed=None, **more):
    return {"name": name, "script": script, "kinds": list(kinds), "words": list(words), "changed": changed,
            "prepare": None, "rate": None, "needs": [], **more}


def stages(rng, length, slow, seconds):
    """Options of the stages of a pipeline in which one takes `seconds` and the others a small part of it."""
    cost = rng.randrange(4000, 12000)
    blocks = int(seconds * 1e6 / cost)
    costs = [cost if at == slow else rng.randrange(100, cost // 6) for at in range(length)]
    return blocks, costs


def pipeline_of(blocks, costs, twice=None, option="-c"):
    parts = []
    for at, cost in enumerate(costs):
        last = " -o" if at == len(costs) - 1 else ""
        own = f"./s{at + 1} {option if at == twice or option == '-c' else '-c'} {cost}{last}"
        if at == 0:
            parts.append(f"{{ {own} -n {blocks // 2} & {own} -n {blocks - blocks // 2}; wait; }}" if twice == 0 and option == "-c"
                         else f"{own} -n {blocks}")
        elif twice == at and option == "-c":
            parts.append(f"{{ {own} <&3 & {own} <&3; wait; }} 3<&0")
        else:
            parts.append(own)
    return " | ".join(parts)


def cpu_stage(rng, place=None):
    length = rng.randrange(3, 7)
    slow = {"source": 0, "sink": length - 1}.get(place, rng.randrange(1, length - 1))
    blocks, costs = stages(rng, length, slow, rng.uniform(*SECONDS))
    return case(f"cpu-{place or 'stage'}", pipeline_of(blocks, costs), ["cpu"], [rf"^s{slow + 1}\b"],
                pipeline_of(blocks, costs, slow))


def source(rng):
    return cpu_stage(rng, "source")


def sink(rng):
    return cpu_stage(rng, "sink")


def sleeper(rng):
    length = rng.randrange(3, 6)
    slow = rng.randrange(length)
    blocks, costs = stages(rng, length, slow, rng.uniform(*SECONDS))
    awake = [0 if at == slow else cost for at, cost in enumerate(costs)]
    return case("sleep", pipeline_of(blocks, costs, slow, "-s"), ["sleep"], [rf"^s{slow + 1}\b"], pipeline_of(blocks, awake))


def storage(rng):
    blocks, light = rng.randrange(1500, 3500), rng.randrange(10, 60)
    bytes_ = rng.choice([4096, 16384, 65536])
    if rng.random() < 0.5:
        script = f"./s1 -n {blocks} -b {bytes_} -c {light} | ./s2 -b {bytes_} -c {light} -o -f data"
        return case("storage", script, ["disk"], [r"^s2\b"], script.replace(" -f data", ""))
    script = f"./s1 -n {blocks} -b {bytes_} -c {light} -o -f data"
    return case("storage", script, ["disk"], [r"^s1\b"], script.replace(" -f data", ""))


def network(rng):
    rate = rng.choice([5, 8, 12, 20, 30])
    size = int(rate * 1e6 / 8 * rng.uniform(1.5, 2.5))
    needs = ["tc -V", "ip -V", "unshare -n true"]
    if rng.random() < 0.5:
        script, words = f"./receive.py 47110 & ./send.py 47110 {size}; wait", r"send\.py → receive\.py"
    else:
        script = f"./receive.py 47110 & ./pass.py 47111 47110 & ./send.py 47111 {size}; wait"
        words = r"(send\.py → pass\.py|pass\.py → receive\.py)"
    return case("network", script, ["network"], [words], script, rate=rate, needs=needs)


def lock(rng):
    workers, cost = rng.randrange(2, 6), rng.randrange(3000, 9000)
    blocks = int(rng.uniform(1.5, 2.4) * 1e6 / cost / workers)
    run = f"for i in $(seq {workers}); do ./s1 -n {blocks} -c {cost} -o -l {{}} & done; wait"
    return case("lock", run.format("guard"), ["lock"], [r"\bguard\b"], run.format("guard$i"))


def flock(rng):
    workers, pause = rng.randrange(2, 7), rng.uniform(0.02, 0.08)
    turns = max(3, int(rng.uniform(1.5, 2.5) / pause / workers))
    run = f"for i in $(seq {workers}); do sh -c 'for k in $(seq {turns}); do flock {{}} sleep {pause:.3f}; done' turn $i & done; wait"
    return case("lock-of-shells", run.format("guard"), ["lock"], [r"\bguard\b"], run.format("guard$1"))


def straggler(rng):
    workers, times = rng.randrange(4, 9), rng.uniform(4, 9)
    blocks = int(rng.uniform(15, 30))
    long, cost = int(blocks * times), rng.randrange(5000, 10000)
    sizes = [blocks] * (workers - 1) + [long]
    rng.shuffle(sizes)
    even = [sum(sizes) // workers] * workers
    way = rng.randrange(2)

    def script(sizes):
        if way == 0:
            return "".join(f"./s1 -n {size} -c {cost} > out{at} & " for at, size in enumerate(sizes)) + "wait"
        lines = " ".join(f"'{size} out{at}'" for at, size in enumerate(sizes))
        return f"printf '%s\\n' {lines} | xargs -P {workers} -L 1 ./s2 -c {cost} -o -n"
    if way == 0:
        return case("straggler", script(sizes), ["straggler"], [rf"(out{sizes.index(long)}\b|-n {long}\b)"], script(even))
    return case("straggler", script(sizes), ["straggler"], [rf"\b{long}\b"], script(even))


def order(rng):
    count, cost, way = rng.randrange(3, 7), rng.randrange(4000, 9000), rng.randrange(3)
    sizes = [int(rng.uniform(0.3, 0.6) * 1e6 / cost) for _ in range(count)]
    if way == 0:
        steps = [f"./s1 -n {size} -c {cost} > out{at}" for at, size in enumerate(sizes)]
        lines = " ".join(f'"{step}"' for step in steps)
        return case("order", "; ".join(steps), ["serial"], [r"\bs1\b"], f"printf '%s\\n' {lines} | xargs -P 2 -d '\\n' -n 1 sh -c")
    if way == 1:
        chains = [f"./s1 -n {size} -c {cost} > x{at}; ./s2 -c {cost // 2} < x{at} > y{at}" for at, size in enumerate(sizes)]
        lines = " ".join(f'"{chain}"' for chain in chains)
        return case("order-of-chains", "; ".join(chains), ["serial"], [r"\bs1\b"], f"printf '%s\\n' {lines} | xargs -P 2 -d '\\n' -n 1 sh -c")
    rules = "".join(f"out{at}:\\n\\t./s1 -n {size} -c {cost} > $@\\n" for at, size in enumerate(sizes))
    targets = " ".join(f"out{at}" for at in range(count))
    make = f"printf 'all: {targets}\\n{rules}' > Makefile; make -s"
    return case("order-of-make", make, ["serial"], [r"\bs1\b"], make + " -j2", needs=["make --version"])


def late_start(rng):
    cost = rng.randrange(4000, 9000)
    short = int(rng.uniform(0.25, 0.45) * 1e6 / cost)
    sizes = [short] * (2 * rng.randrange(2, 4))
    long = int(short * rng.uniform(2.5, 4))
    if rng.random() < 0.5:
        def script(sizes):
            lines = " ".join(str(size) for size in sizes)
            return f"printf '%s\\n' {lines} | xargs -P 2 -I% ./s1 -n % -c {cost} -o"
        return case("late-start", script(sizes + [long]), ["late start"], [r"\bs1\b"], script([long] + sizes))

    def make(first, last):
        rules = "".join(f"b{at}:\\n\\t./s1 -n {size} -c {cost} > $@\\n" for at, size in enumerate(sizes))
        return (f"printf 'all: {first} {' '.join(f'b{at}' for at in range(len(sizes)))} {last}\\n{rules}"
                f"z:\\n\\t./s2 -n {long} -c {cost} > $@\\n' > Makefile; make -s -j2")
    return case("late-start-of-make", make("", "z"), ["late start"], [r"\bs2\b"], make("z", ""), needs=["make --version"])


def oversubscription(rng):
    workers, cost = rng.randrange(5, 11), rng.randrange(4000, 10000)
    blocks = int(rng.uniform(0.4, 0.6) * 1e6 / cost)
    if rng.random() < 0.5:
        return case("oversubscription", f"for i in $(seq {workers}); do ./s1 -n {blocks} -c {cost} -o & done; wait", ["free CPU"], [r"^s1\b"])
    return case("oversubscription", f"seq {workers} | xargs -P {workers} -I% ./s1 -n {blocks} -c {cost} -o", ["free CPU"], [r"^s1\b"])


def server(rng):
    cost = rng.uniform(4, 10)
    count = int(rng.uniform(*SECONDS) * 1000 / cost)
    kind = rng.choice(["unix", "tcp"])
    return case(f"server-{kind}", f"./serve.py {kind} {cost:.2f} & ./ask.py {kind} {count} 0.2; wait", ["cpu"], [r"^serve\.py\b"])


def healthy(rng):
    cost, way = rng.randrange(4000, 10000), rng.randrange(6)
    blocks = int(rng.uniform(1.0, 1.8) * 1e6 / cost)
    few = max(20, blocks // 4)
    if way == 0:
        return case("healthy-pair", f"./s1 -n {blocks} -c {cost} | ./s2 -c {cost} -o")
    if way == 1:
        return case("healthy-side-by-side", f"./s1 -n {blocks} -c {cost} -o & ./s1 -n {blocks} -c {cost} -o & wait")
    if way == 2:
        return case("healthy-xargs", f"seq {2 * rng.randrange(3, 6)} | xargs -P 2 -I% ./s1 -n {few} -c {cost} -o")
    if way == 3:
        count = 2 * rng.randrange(3, 6)
        rules = "".join(f"b{at}:\\n\\t./s1 -n {few} -c {cost} > $@\\n" for at in range(count))
        return case("healthy-make", f"printf 'all: {' '.join(f'b{at}' for at in range(count))}\\n{rules}' > Makefile; make -s -j2",
                    needs=["make --version"])
    if way == 4:
        turns = rng.randrange(150, 300) * 1_000_000
        return case("healthy-pool", f"./pool.py 2 {' '.join([str(turns)] * 2)}")
    return case("healthy-rounds", f"for r in 1 2 3; do ./s1 -n {few} -c {cost} > a$r & ./s1 -n {few} -c {cost} > b$r & wait; done")


# How many of a hundred cases each is.
FAMILIES = [
    (cpu_stage, 12), (source, 7), (sink, 7), (sleeper, 7), (storage, 6), (network, 8), (lock, 7), (flock, 6),
    (straggler, 9), (order, 9), (late_start, 6), (oversubscription, 5), (server, 5), (healthy, 12),
]

PROGRAMS = {
    "send.py": """#!/usr/bin/python3
import socket, sys, time
for _ in range(100):
    try:
        s = socket.create_connection(("127.0.0.1", int(sys.argv[1]))); break
    except OSError:
        time.sleep(0.02)
left = int(sys.argv[2])
while left > 0:
    left -= s.send(b"x" * min(left, 65536))
""",
    "receive.py": """#!/usr/bin/python3
import socket, sys
l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind(("127.0.0.1", int(sys.argv[1]))); l.listen(); c, _ = l.accept()
while c.recv(65536): pass
""",
    "pass.py": """#!/usr/bin/python3
import socket, sys, time
l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind(("127.0.0.1", int(sys.argv[1]))); l.listen(); c, _ = l.accept()
for _ in range(100):
    try:
        s = socket.create_connection(("127.0.0.1", int(sys.argv[2]))); break
    except OSError:
        time.sleep(0.02)
while data := c.recv(65536): s.sendall(data)
""",
    "serve.py": """#!/usr/bin/python3
import os, socket, sys, time
l = socket.socket(socket.AF_UNIX) if sys.argv[1] == "unix" else socket.socket()
l.bind("server.sock" if sys.argv[1] == "unix" else ("127.0.0.1", 47112)); l.listen(); c, _ = l.accept()
while c.recv(100):
    end = time.process_time() + float(sys.argv[2]) / 1e3
    while time.process_time() < end: pass
    c.sendall(b"y" * 100)
""",
    "ask.py": """#!/usr/bin/python3
import socket, sys, time
for _ in range(200):
    try:
        s = socket.socket(socket.AF_UNIX) if sys.argv[1] == "unix" else socket.socket()
        s.connect("server.sock" if sys.argv[1] == "unix" else ("127.0.0.1", 47112)); break
    except OSError:
        time.sleep(0.02)
for _ in range(int(sys.argv[2])):
    end = time.process_time() + float(sys.argv[3]) / 1e3
    while time.process_time() < end: pass
    s.sendall(b"x" * 100); s.recv(100)
""",
    "pool.py": """#!/usr/bin/python3
import multiprocessing, sys
def work(turns):
    for _ in range(turns): pass
with multiprocessing.Pool(int(sys.argv[1])) as pool: pool.map(work, map(int, sys.argv[2:]), chunksize=1)
""",
}


def generate(seed, count):
    """`count` cases, spread over the families by their weights, in the order of the families."""
    total = sum(weight for _, weight in FAMILIES)
    done = share = 0
    for family, weight in FAMILIES:
        share += weight
        until = round(count * share / total)
        for at in range(done, until):
            one = family(random.Random(f"{seed}/{family.__name__}/{at - done}"))
            one["name"] = f"{one['name']}.{at - done + 1}"
            yield one
        done = until
