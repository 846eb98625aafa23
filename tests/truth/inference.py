#!/usr/bin/env python3
"""Holds what `flowtrace network` says of real runs against what these print: the example `patterns` on network
namespaces as hosts, every topology, by turns and by exchange, with and without a loaded rank.

    tests/truth/inference.py [--flowtrace BIN] [--patterns BIN] [--hosts 4,8] [--iterations N] [--bytes N] [--loads N] [--only-loads] [--busy]
                             [--loaded N] [--phases] [--slow-link MBIT] [--keep DIR]

Passes when every topology is named right, iteration rates are within 2 %, periods within 5 %, message counts within 1 %,
no unloaded run is accused and no wrong rank named. With --loaded 2 two ranks are loaded at a time, each by a factor of its own; with --phases
the loaded programs go through super-phases. With --slow-link the link of one host is slow, which no process shall be blamed for. Pairs in which other work held ranks up, which slept for longer than they were told to,
are run again. In a tree messages go one way, so that ranks run ahead of each other as far as
buffers reach, and what a rank wrote leaves when the receiver takes it: rates and periods must lie within what the ranks say there. How many loaded ranks were named, and of these how often the range
held the slowdown against the run before without the load, is printed. In runs with loads ranks compute asleep, as with
processors of their own; with --busy in busy loops, which on fewer processors than hosts take turns. Two runs of a pair differ by what
else the machine does: where that is not idle, `chrt -r 1 tests/truth/inference.py --only-loads` keeps it out of the ranks' way.
"""
import argparse
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = {"bus": ["bus"], "ring": ["ring"], "tree": ["reduction tree"], "all-to-all": ["all-to-all"],
         "mesh:4": ["bus"], "mesh:8": ["bus"], "torus:4": ["ring"], "torus:8": ["ring"], "mesh:2x2": ["2×2 mesh"],
         "mesh:4x2": ["2×4 mesh"], "torus:4x2": ["2×4 torus"], "mesh:2x2x2": ["2×2×2 mesh"], "torus:2x2x2": ["2×2×2 mesh"],
         # In two dimensions it is a ring.
         "hypercube": ["3-D hypercube", "ring"]}
TOPOLOGIES = {4: ["bus", "ring", "mesh:4", "torus:4", "mesh:2x2", "hypercube", "tree", "all-to-all"],
              8: ["bus", "ring", "mesh:8", "torus:8", "mesh:4x2", "torus:4x2", "mesh:2x2x2", "hypercube", "tree", "all-to-all"]}
# Pairs of runs that other work held up are run again, so often at most.
MOST_TRIES = 5
PHASES = {4: "ring,all-to-all", 8: "bus,hypercube,all-to-all"}


class Lab:
    """Hosts h1… with addresses 10.9.0.1… on one bridge, in namespaces of this process alone."""

    def __init__(self, hosts, slow_mbit=None):
        self.hosts = hosts
        run = lambda line: subprocess.run(line, shell=True, check=True)
        run("ip link set lo up && ip link add ftbr type bridge forward_delay 0 stp_state 0 && ip link set ftbr up")
        for i in range(1, hosts + 1):
            run(f"ip netns add h{i} && ip link add port{i} type veth peer name eth0 netns h{i} && ip link set port{i} master ftbr up"
                f" && ip -n h{i} addr add 10.9.0.{i}/24 dev eth0 && ip -n h{i} link set lo up && ip -n h{i} link set eth0 up")

        if slow_mbit:
            # Host 2 behind a bridge of its own, so that its capture sees what it sends before the slow link does.
            run("ip link set port2 nomaster && ip link add ftbr2 type bridge forward_delay 0 stp_state 0 && ip link set ftbr2 up"
                " && ip link set port2 master ftbr2 && ip link add slow2 type veth peer name slow1 && ip link set slow2 master ftbr2 up"
                " && ip link set slow1 master ftbr up")
            for port in ("slow1", "slow2"):
                run(f"tc qdisc add dev {port} root tbf rate {slow_mbit}mbit burst 3000 latency 1s")

    def at(self, host, name, *command, **more):
        inside = ["ip", "netns", "exec", f"h{host}", "unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', name]
        return subprocess.Popen([*inside, *command], stdin=subprocess.DEVNULL, **more)


def record(options, lab, directory, arguments):
    """Runs the pattern between captures of all hosts; the trace of them all."""
    os.makedirs(directory)
    with open(f"{directory}/arguments", "w", encoding="utf-8") as out:
        print(*arguments, file=out)
    captures = []
    for i in range(1, lab.hosts + 1):
        captures.append(lab.at(i, f"host{i}", options.flowtrace, "capture", "-i", "eth0", "-o", f"{directory}/h{i}.db",
                               stderr=subprocess.PIPE))
    for capture in captures:
        while b"capturing" not in capture.stderr.readline():
            if capture.poll() is not None:
                sys.exit("a capture ended at once")
    addresses = ",".join(f"10.9.0.{i}" for i in range(1, lab.hosts + 1))
    ranks = []
    for i in range(lab.hosts):
        with open(f"{directory}/truth.{i}", "w", encoding="utf-8") as out:
            ranks.append(lab.at(i + 1, f"host{i + 1}", options.patterns, "--rank", str(i), "--hosts", addresses, *arguments, stdout=out))
    if any(rank.wait(timeout=600) for rank in ranks):
        sys.exit(f"a rank failed: {arguments}")
    for capture in captures:
        capture.send_signal(signal.SIGTERM)
    for capture in captures:
        capture.communicate(timeout=120)
    trace = f"{directory}/all.db"
    each = [f"{directory}/h{i}.db" for i in range(1, lab.hosts + 1)]
    subprocess.run([options.flowtrace, "merge", "-q", "-o", trace, *each], check=True)
    return trace


class Truth:
    def __init__(self, directory, hosts):
        self.sent, begins, computed = {}, [], []
        for rank in range(hosts):
            own = []
            with open(f"{directory}/truth.{rank}", encoding="utf-8") as lines:
                for words in (line.split() for line in lines):
                    if words[0] == "iteration":
                        own.append(int(words[3]) / 1e9)
                        computed.append((rank, int(words[7]) / 1e9))
                    elif words[0] == "sent":
                        self.sent[rank, int(words[2])] = int(words[4])
            begins.append(own)
        # Without the first iteration, in which ranks wait for those that started later.
        self.iterations = [(own[-1] - own[1]) / (len(own) - 2) for own in begins]
        self.iteration = statistics.median(self.iterations)
        self.whole = self.iteration * len(begins[0])
        self.computed = [statistics.mean(took for of, took in computed if of == rank) for rank in range(hosts)]

    def is_held_up(self, compute_s, factors):
        """Whether a rank computed asleep for a tenth longer than it was told to: it was woken late, for others had the processors."""
        return any(took > 1.1 * compute_s * factors.get(rank, 1.0) for rank, took in enumerate(self.computed))


def ask(options, trace, question):
    done = subprocess.run([options.flowtrace, "network", question, trace, "--format", "json"], check=True, capture_output=True)
    return json.loads(done.stdout)


UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def seconds(value, unit):
    return float(value.replace(" ", "")) * UNITS[unit]


def accused(balance):
    line = balance["answer"][0]
    if " the others up: " not in line or line.startswith("cannot"):
        return []
    return sorted(int(host) - 1 for host in re.findall(r"10\.9\.0\.(\d+)", line.split(" the others up")[0]))


def cost(balance):
    found = re.search(r"that cost ([\d.]+)(?: (\S+))? to ([\d.]+) (\S+) of", " ".join(balance["answer"]))
    if not found:
        return None
    low, unit, high, last = found.groups()
    return seconds(low, unit or last), seconds(high, last)


def outside(value, low, high):
    """By how much a value lies outside of an interval, as a share of its nearer end; 0: it lies within."""
    return value / low - 1 if value < low else value / high - 1 if value > high else 0.0


def errors(options, trace, truth, pattern, phase):
    """What is wrong, as a list of texts, and the figures."""
    wrong, figures = [], []
    if not phase:
        topology = ask(options, trace, "topology")["answer"][0]
        names = [name.strip(" :") for name in re.split(r"\(the same graph:|,|\)|: \d", topology)]
        if not any(name in names for name in NAMES[pattern]):
            wrong.append(f"topology {topology}")
    rate = ask(options, trace, "iterations")["rows"]
    errors_of_rates = []
    for row in rate:
        if not row["rate_per_s"]:
            continue
        # Where messages go one way, between the sender's own and the receiver's.
        ends = [truth.iterations[int(row[side].rsplit(".", 1)[1]) - 1] for side in (("src", "dst") if pattern == "tree" else ("src",))]
        errors_of_rates.append(outside(1 / row["rate_per_s"], min(ends), max(ends)))
    error = statistics.median(errors_of_rates) if errors_of_rates else None
    if not phase:
        figures.append("rate " + ("none" if error is None else f"{error:+.1%}"))
        if error is None or abs(error) > 0.02:
            wrong.append("rate")
    period = ask(options, trace, "period")
    found = re.match(r"period ([\d.]+) (\S+)", period["answer"][0]) if period["answer"] else None
    lengths = [length * (phase or 1) for length in truth.iterations]
    if pattern == "tree":
        error = outside(seconds(*found.groups()), min(lengths), max(lengths)) if found else None
    else:
        error = min((seconds(*found.groups()) / length - 1 for length in (min(lengths), truth.iteration * (phase or 1), max(lengths))),
                    key=abs) if found else None
    figures.append("period " + ("none" if error is None else f"{error:+.1%}"))
    if error is None or abs(error) > 0.05:
        wrong.append("period")
    counted = {}
    for row in ask(options, trace, "messages")["rows"]:
        ends = [int(row[side].rsplit(".", 1)[1]) - 1 for side in ("src", "dst")]
        counted[tuple(ends)] = row["messages"]
    # The first byte of a connection is a message of its own.
    worst = max(abs(counted.get(pair, 0) - (pair[0] > pair[1]) - n) / n for pair, n in truth.sent.items() if n)
    figures.append(f"messages {worst:.1%}")
    if worst > 0.01:
        wrong.append("messages")
    return wrong, figures


class Tally:
    """What the verdicts on loaded runs and their twins came to."""

    def __init__(self):
        self.named = self.partly = self.misnamed = self.unsure = self.inside = self.narrow = self.falsely = self.held_up = 0

    def judge(self, ranks, who, price, truth):
        self.named += who == ranks
        self.unsure += not who
        self.partly += bool(who) and who != ranks and set(who) < set(ranks)
        self.misnamed += not set(who) <= set(ranks)
        if who == ranks and price is not None:
            self.inside += price[0] <= truth <= price[1]
            # ± 30 % of the middle.
            self.narrow += price[1] - price[0] <= 0.3 * (price[1] + price[0])

    def __str__(self):
        return (f"{self.named} named ({self.inside} with the cost in the range, {self.narrow} ranges within ± 30 %), {self.partly} in part, "
                f"{self.misnamed} wrongly, {self.unsure} not told; without load {self.falsely} accused"
                f"{f'; {self.held_up} pairs held up by other work' if self.held_up else ''}")


def loads(options, hosts, plain, one, done):
    """Pairs of runs without and with loads; how many were accused that should not be."""
    draw = random.Random(options.seed)
    patterns = [PHASES[hosts]] if options.phases else [name for name in TOPOLOGIES[hosts] if name != "tree"]
    accused_wrongly = 0
    for way in ["turns", "exchange"]:
        tally = Tally()
        for _ in range(options.loads):
            pattern = draw.choice(patterns)
            arguments = ["--pattern", pattern, *plain, *(["--exchange"] if way == "exchange" else []), *([] if options.busy else ["--asleep"])]
            if options.phases:
                arguments += ["--phase", "8"]
            ranks = sorted(draw.sample(range(hosts), options.loaded))
            factors = {rank: round(1 + draw.uniform(0.3, 1.0), 2) for rank in ranks}
            slow = [f"{rank}:{factor}" for rank, factor in factors.items()]
            for _ in range(MOST_TRIES):
                trace, base, first = one(arguments)
                alone = accused(ask(options, trace, "balance"))
                trace, loaded, directory = one([*arguments, *(word for each in slow for word in ("--slow", each))])
                balance = ask(options, trace, "balance")
                done(first)
                done(directory)
                compute_s = options.compute_us / 1e6
                if options.busy or not (base.is_held_up(compute_s, {}) or loaded.is_held_up(compute_s, factors)):
                    break
                tally.held_up += 1
            who, price = accused(balance), cost(balance)
            tally.falsely += bool(alone)
            truth = max(0.0, loaded.whole - base.whole)
            tally.judge(ranks, who, price, truth)
            said = "none" if price is None else f"{price[0]:.3f} to {price[1]:.3f} s"
            print(f"{hosts} hosts {pattern:12} {way:8} ranks {' '.join(slow)}: cost {truth:.3f} s, {said}: {balance['answer'][0][:110]}"
                  f"{f'; without load {alone}' if alone else ''}", flush=True)
        print(f"{hosts} hosts, {way}: of {options.loads} loads {tally}", flush=True)
        accused_wrongly += tally.falsely + tally.misnamed
    return accused_wrongly


def on_hosts(options):
    """This script again for each number of hosts, in namespaces of its own; other than 0: one failed."""
    failed = 0
    for hosts in options.hosts.split(","):
        setup = "mount -t tmpfs tmpfs /run && mkdir -p /run/netns && exec \"$@\""
        again = [sys.executable, os.path.abspath(sys.argv[0]), *sys.argv[1:], "--inside", hosts]
        failed |= subprocess.run(["unshare", "-nm", "sh", "-c", setup, "sh", *again], check=False).returncode
    return failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--flowtrace", default=f"{HERE}/../../target/release/flowtrace")
    parser.add_argument("--patterns", default=f"{HERE}/../../target/release/examples/patterns")
    parser.add_argument("--hosts", default="4,8")
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--compute-us", type=int, default=3000)
    parser.add_argument("--bytes", type=int, default=2000)
    parser.add_argument("--loads", type=int, default=10, help="pairs of runs without and with a load, by number of hosts and way")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only-loads", action="store_true", help="no topologies")
    parser.add_argument("--loaded", type=int, default=1, help="ranks that are loaded at a time")
    parser.add_argument("--phases", action="store_true", help="loads in programs of super-phases")
    parser.add_argument("--slow-link", type=float, metavar="MBIT", help="the link of host 2 carries so much")
    parser.add_argument("--busy", action="store_true", help="loads compute in busy loops, not asleep")
    parser.add_argument("--keep", help="directory for the traces")
    parser.add_argument("--inside", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.flowtrace, options.patterns = os.path.abspath(options.flowtrace), os.path.abspath(options.patterns)
    if options.inside is None:
        return on_hosts(options)
    return inside(options, options.inside)


def inside(options, hosts):
    lab = Lab(hosts, options.slow_link)
    scratch = options.keep or tempfile.mkdtemp(prefix="flowtrace-inference-")
    plain = ["--bytes", str(options.bytes), "--iterations", str(options.iterations), "--compute-us", str(options.compute_us)]
    runs, right, false_alarms, number = 0, 0, 0, 0

    def one(arguments):
        nonlocal number
        number += 1
        directory = f"{scratch}/{hosts}.{number}"
        trace = record(options, lab, directory, arguments)
        return trace, Truth(directory, hosts), directory

    def done(directory):
        if not options.keep:
            shutil.rmtree(directory)

    cases = [(pattern, way, 0) for pattern in TOPOLOGIES[hosts] for way in ([], ["--exchange"])]
    if options.only_loads:
        cases = []
    cases += [] if options.only_loads else [(PHASES[hosts], way, 8 * len(PHASES[hosts].split(","))) for way in ([], ["--exchange"])]
    for pattern, way, phase in cases:
        more = ["--phase", "8"] if phase else []
        trace, truth, directory = one(["--pattern", pattern, *plain, *more, *way])
        wrong, figures = errors(options, trace, truth, pattern, phase)
        balance = ask(options, trace, "balance")
        if accused(balance):
            false_alarms += 1
            wrong.append("accused: " + balance["answer"][0])
        runs, right = runs + 1, right + (not wrong)
        print(f"{hosts} hosts {pattern:24} {'exchange' if way else 'turns':8} {', '.join(figures):48} {'; '.join(wrong) or 'ok'}", flush=True)
        done(directory)
    false_alarms += loads(options, hosts, plain, one, done)
    print(f"{hosts} hosts: {right} of {runs} runs right; {false_alarms} accused wrongly", flush=True)
    if not options.keep:
        shutil.rmtree(scratch)
    return int(right < runs or false_alarms > 0)


if __name__ == "__main__":
    sys.exit(main())
