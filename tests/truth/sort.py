#!/usr/bin/env python3
"""A sort by parts - split, sort the parts side by side, merge - several times, and what `flowtrace ideal`
says of each run: the same bound and much the same parts of what it took beyond.

    tests/truth/sort.py [--flowtrace BIN] [--megabytes N] [--runs N] [--dir DIR]

Passes when every run's parts sum exactly to the difference, its phases are the script's own by the truth of the
shell's clock, sorting is bound by the processors, and the ratios of the runs to their bound are within
25 % of their median. Capacities are measured in the same directory.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SPREAD = 0.25
SCRIPT = """set -e
date +%s.%N
split -n l/4 big part.
date +%s.%N
for part in part.a?; do sort --parallel=1 -S 256M "$part" -o "$part.sorted" & done
wait
date +%s.%N
sort -m part.*.sorted -o result
date +%s.%N
rm part.*
"""


def fill(path, megabytes):
    """Lines of numbers in no order."""
    numbers = random.Random(1)
    with open(path, "w") as file:
        written = 0
        while written < megabytes * 1_000_000:
            lines = "".join(f"{numbers.getrandbits(50):016d}\n" for _ in range(50_000))
            written += file.write(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--flowtrace", default=f"{HERE}/../../target/release/flowtrace")
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--dir", default="/var/tmp")
    options = parser.parse_args()
    flowtrace = os.path.abspath(options.flowtrace)
    wrong, ratios = [], []
    with tempfile.TemporaryDirectory(dir=options.dir) as scratch:
        data, trace, rates = (f"{scratch}/{name}" for name in ("data", "trace.db", "rates.json"))
        os.mkdir(data)
        fill(f"{data}/big", options.megabytes)
        subprocess.run([flowtrace, "calibrate", "--dir", scratch, "-o", rates], check=True, stdout=subprocess.DEVNULL)
        print(f"{'run':>4} {'measured':>9} {'ideal':>8} {'ratio':>6}  beyond, s")
        for number in range(options.runs):
            command = [flowtrace, "run", "-q", "--force", "--dir", data, "-o", trace, "--", "bash", "-c", SCRIPT]
            said = subprocess.run(command, cwd=data, check=True, capture_output=True, text=True).stdout.split()
            begin, split, sorted_, merged = map(float, said)
            asked = [flowtrace, "ideal", trace, "--capacities", rates, "--format", "json"]
            phases = f"{split - begin:.3f},{sorted_ - begin:.3f}"
            found = json.loads(subprocess.run([*asked, "--phases", phases], check=True, capture_output=True).stdout)["ideal"]
            beyond = found["beyond"]
            if sum(beyond.values()) != found["measured_ns"] - found["ideal_ns"]:
                wrong.append(f"run {number}: the parts do not sum to the difference")
            took = [(p["to"] - p["from"]) / 1e9 for p in found["phases"]]
            truth = [split - begin, sorted_ - split]
            if len(took) < 3 or any(abs(a - b) > 0.5 + 0.05 * b for a, b in zip(took, truth)):
                wrong.append(f"run {number}: phases of {took} s, the shell saw {truth}")
            elif found["phases"][1]["bound"] != "cpu":
                wrong.append(f"run {number}: sorting is bound by {found['phases'][1]['bound']}")
            ratios.append(found["measured_ns"] / found["ideal_ns"])
            parts = ", ".join(f"{name} {ns / 1e9:.1f}" for name, ns in beyond.items() if ns >= 50_000_000)
            print(f"{number:>4} {found['measured_ns'] / 1e9:8.1f}s {found['ideal_ns'] / 1e9:7.1f}s {ratios[-1]:6.2f}  {parts}", flush=True)
    middle = statistics.median(ratios)
    wrong += [f"run {at}: ratio {r:.2f} beside a median of {middle:.2f}" for at, r in enumerate(ratios) if abs(r / middle - 1) > SPREAD]
    print("\n".join(wrong) or f"ratio {middle:.2f}, from {min(ratios):.2f} to {max(ratios):.2f}")
    sys.exit(bool(wrong))


main()
