#!/usr/bin/env python3
"""How much faster the generated Makefile is than the sequential original: each workflow is traced once as it runs
in sequence, its Makefile generated, and then original and `make -j2` run in turns in fresh copies of the inputs.

    tests/truth/speedup.py [--flowtrace BIN] [--repeat N] [--jobs N] [--shared DIR] [WORKFLOW…]

Prints the time of each pair, the medians, and the median of the pairs' ratios. Exit status 1 when outputs differ, or
a workflow with parallelism was not faster. The figures say something on an otherwise idle machine only; the load
average is printed with them.
"""
import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = os.path.join(HERE, "../system/generate")
# name: (programs, folder of its data in the reference workloads, script here or None: its own run.sh, one job at a time)
WORKFLOWS = {
    "sorts": (["sort"], None, None),
    "mapreduce": (["awk", "python3"], "mapreduce", None),
    "montage": (["mProject", "mDiffFit"], "montage", "montage.sh"),
    "variants": (["bwa", "samtools", "bcftools", "freebayes"], "variant-calling", "variants.sh"),
}
SORTS = """set -e
mkdir out
for i in 1 2 3 4 5 6 7 8; do sort -r -k$((i % 3 + 1)) in/$i > out/$i; done
sort -m -r out/* | md5sum > out/sum
"""


def prepare(name, shared, scratch):
    """The inputs, and the command that runs on them in sequence."""
    _, folder, script = WORKFLOWS[name]
    original = f"{scratch}/original"
    os.mkdir(original)
    if folder is None:
        os.mkdir(f"{original}/in")
        for part in range(1, 9):
            with open(f"{original}/in/{part}", "w") as file:
                for n in range(300_000):
                    x = n * 7919 * part % 1_000_003
                    file.write(f"{x} {x * 31 % 65_521} {x * 17 % 8191}\n")
        with open(f"{scratch}/sorts.sh", "w") as file:
            file.write(SORTS)
        return original, ["bash", f"{scratch}/sorts.sh"]
    subprocess.run([f"{shared}/workloads/{folder}/data.sh", original], check=True, stdout=subprocess.DEVNULL)
    if script is None:
        return original, ["bash", f"{shared}/workloads/{folder}/run.sh", ".", "1"]
    return original, ["bash", f"{SCRIPTS}/{script}"]


def timed(command, source, scratch):
    """Seconds that the command took in a fresh copy of the inputs, and what it left in out/."""
    copy = f"{scratch}/copy"
    shutil.rmtree(copy, ignore_errors=True)
    os.mkdir(copy)
    shutil.copytree(f"{source}/in", f"{copy}/in", symlinks=True)
    os.sync()
    began = time.monotonic()
    subprocess.run(command, cwd=copy, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    took = time.monotonic() - began
    return took, contents(f"{copy}/out")


def contents(directory):
    found = {}
    for at, _, names in os.walk(directory):
        for name in names:
            with open(f"{at}/{name}", "rb") as file:
                found[os.path.relpath(f"{at}/{name}", directory)] = file.read()
    return found


def measure(flowtrace, name, options):
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        original, command = prepare(name, options.shared, scratch)
        pristine = f"{scratch}/pristine"
        shutil.copytree(original, pristine, symlinks=True)
        trace, makefile = f"{scratch}/trace.db", f"{scratch}/Makefile"
        quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([flowtrace, "run", "-q", "-o", trace, "--", *command], cwd=original, **quiet)
        subprocess.run([flowtrace, "generate", trace, "-o", makefile], **quiet)
        expected = contents(f"{original}/out")
        make = ["make", "-s", f"-j{options.jobs}", "-f", makefile]
        plain, made, wrong = [], [], 0
        for pair in range(options.repeat):
            # Who comes first finds the caches otherwise than who comes second.
            for is_make in (pair % 2 == 0, pair % 2 == 1):
                took, left = timed(make if is_make else command, pristine, scratch)
                (made if is_make else plain).append(took)
                wrong += left != expected
            print(f"{name:>10}  pair {pair + 1}: original {plain[-1]:6.2f} s, make -j{options.jobs} {made[-1]:6.2f} s, "
                  f"{plain[-1] / made[-1]:.2f} times as fast", flush=True)
        ratio = statistics.median(a / b for a, b in zip(plain, made))
        print(f"{name:>10}  medians: original {statistics.median(plain):.2f} s, make -j{options.jobs} {statistics.median(made):.2f} s; "
              f"median of the pairs {ratio:.2f} times as fast" + (f"; {wrong} OUTPUTS DIFFER" if wrong else "; same bytes"), flush=True)
        return wrong == 0 and ratio > 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--flowtrace", default=f"{HERE}/../../target/release/flowtrace")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--shared", default=f"{HERE}/../../../shared")
    parser.add_argument("workflows", nargs="*", metavar="WORKFLOW")
    options = parser.parse_args()
    options.shared = os.path.abspath(options.shared)
    good = True
    print("load average {:.1f} {:.1f} {:.1f}, {} processors".format(*os.getloadavg(), os.cpu_count()))
    for name in options.workflows or WORKFLOWS:
        programs, folder, _ = WORKFLOWS[name]
        missing = [program for program in programs if not shutil.which(program)]
        if folder and not os.path.isdir(f"{options.shared}/workloads/{folder}"):
            missing.append("the reference workloads")
        if missing:
            print(f"{name:>10}  left out: no {', '.join(missing)}")
            continue
        good &= measure(os.path.abspath(options.flowtrace), name, options)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
