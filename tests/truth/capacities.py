#!/usr/bin/env python3
"""Holds what `flowtrace calibrate` measures of a disk against fio, which is asked the same: direct
and synchronous, 4 MB pieces in sequence into a new file that is synced at its end, 4 kB at random.

    tests/truth/capacities.py [--flowtrace BIN] [--dir DIR] [--rounds N]

The two take turns, who is first, too, and the medians of the ratios are taken, for a disk that others use changes all the time.
Passes when all four agree within 10 %.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = {"disk_write": ("write", "4M"), "disk_read": ("read", "4M"),
         "disk_random_read": ("randread", "4k"), "disk_random_write": ("randwrite", "4k")}


PIECES = 256  # a gigabyte: on a fast disk less is over before it has begun


def by_fio(directory, kind, mode, block):
    name = f"{directory}/fio"
    command = ["fio", "--name=x", f"--filename={name}", f"--size={PIECES * 4}M", "--direct=1", "--ioengine=psync",
               f"--rw={mode}", f"--bs={block}", "--output-format=json"]
    if block == "4k":
        command += ["--time_based", "--runtime=1", "--norandommap"]
    if mode == "write":
        command += [f"--fsync={PIECES}", "--fallocate=none"]
        if os.path.exists(name):
            os.remove(name)
    done = subprocess.run(command, check=True, capture_output=True)
    return json.loads(done.stdout)["jobs"][0]["write" if mode.endswith("write") else "read"]["bw_bytes"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--flowtrace", default=f"{HERE}/../../target/release/flowtrace")
    parser.add_argument("--dir", default=".")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if not shutil.which("fio"):
        print("left out: no fio")
        return 0
    scratch = tempfile.mkdtemp(prefix="flowtrace-capacities-", dir=options.dir)
    ours, theirs = {kind: [] for kind in KINDS}, {kind: [] for kind in KINDS}
    try:
        for number in range(options.rounds):
            for who in ("ours", "theirs") if number % 2 else ("theirs", "ours"):
                if who == "theirs":
                    for kind, (mode, block) in KINDS.items():
                        theirs[kind].append(by_fio(scratch, kind, mode, block))
                    continue
                done = subprocess.run([os.path.abspath(options.flowtrace), "calibrate", "--dir", scratch, "--rounds", "1", "--size", str(PIECES * 4),
                                       "-o", f"{scratch}/capacities.json", "--format", "json"], check=True, capture_output=True)
                found = json.loads(done.stdout)
                for kind in KINDS:
                    ours[kind].append(found[kind]["value"])
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    agree = True
    for kind in KINDS:
        a, b = statistics.median(ours[kind]), statistics.median(theirs[kind])
        ratios = [x / y for x, y in zip(ours[kind], theirs[kind])]
        ratio, low, high = statistics.median(ratios), *statistics.quantiles(ratios)[::2]
        agree &= abs(ratio - 1) <= 0.1
        print(f"{kind:18} {a / 1e6:9.1f} MB/s, fio {b / 1e6:9.1f} MB/s: {ratio - 1:+.1%}, middle half {low - 1:+.0%} to {high - 1:+.0%}")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
