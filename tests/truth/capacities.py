#!/usr/bin/env python3
"""Holds what `flowtrace calibrate` measures of a disk against fio, which is asked the same: direct
and synchronous, 4 MB pieces in sequence, 4 kB at random.

    tests/truth/capacities.py [--flowtrace BIN] [--dir DIR] [--rounds N]

The two take turns, and medians are compared, for a disk that others use changes all the time.
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


def by_fio(directory, kind, mode, block):
    command = ["fio", "--name=x", f"--filename={directory}/fio", "--size=256M", "--direct=1", "--ioengine=psync",
               f"--rw={mode}", f"--bs={block}", "--output-format=json"]
    if block == "4k":
        command += ["--time_based", "--runtime=1", "--norandommap"]
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
        for _ in range(options.rounds):
            done = subprocess.run([os.path.abspath(options.flowtrace), "calibrate", "--dir", scratch, "--rounds", "1",
                                   "-o", f"{scratch}/capacities.json", "--format", "json"], check=True, capture_output=True)
            found = json.loads(done.stdout)
            for kind, (mode, block) in KINDS.items():
                ours[kind].append(found[kind]["value"])
                theirs[kind].append(by_fio(scratch, kind, mode, block))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    agree = True
    for kind in KINDS:
        a, b = statistics.median(ours[kind]), statistics.median(theirs[kind])
        spread = (max(theirs[kind]) - min(theirs[kind])) / 2 / b
        agree &= abs(a / b - 1) <= 0.1
        print(f"{kind:18} {a / 1e6:9.1f} MB/s, fio {b / 1e6:9.1f} MB/s ± {spread:.0%}: {a / b - 1:+.1%}")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
