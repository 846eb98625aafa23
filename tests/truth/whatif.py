#!/usr/bin/env python3
"""Predictions against reality: every step of small real workflows is slowed, and how long the run then takes
is compared with what `flowtrace critical-path --what-if STEP=FACTOR` said before.

    tests/truth/whatif.py [--flowtrace BIN] [--repeat N] [CASE…]

Steps sleep, so that they take what they are told to on a machine of any speed; one case computes for a
given time of processor. Prints each prediction with the truth; exit status 1 when one is off by more than
10 %. Timing decides, so this is no part of the short tests.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT = 0.10
BURN = f"""#!{sys.executable}
import sys, time
while time.process_time() < float(sys.argv[1]):
    pass
"""
POOL = """import os, subprocess, {module}
def work(step):
    subprocess.run(["./" + step, os.environ[step]])
if __name__ == "__main__":
    with {pool} as pool:
        list(pool.map(work, ["a", "b", "b"]))
"""
STAGE = """import os, sys, time
for item in (range(8) if "{step}" == "a" else sys.stdin):
    time.sleep(float(os.environ["{step}"]))
    print(item, flush=True)
"""
MAKEFILE = """all: d
d: a1 b1 c1
	./d $${d}; touch $@
a1:
	./a $${a}; touch $@
b1:
	./b $${b}; touch $@
c1: b1
	./c $${c}; touch $@
"""
CASES = {
    # name: (command, {step: seconds}, {slowed: factor, …})
    "chain": ("./a $a; ./b $b; ./c $c", {"a": 0.6, "b": 1.0, "c": 0.5}),
    "side-by-side": ("./a $a & ./b $b & ./c $c & wait; ./d $d", {"a": 0.8, "b": 1.2, "c": 0.7, "d": 0.5}),
    "nested": ("sh -c './a $a; ./b $b' & sh -c './c $c' & wait", {"a": 0.6, "b": 0.7, "c": 1.1}),
    "xargs": ("printf '%s\\n' ./a $a ./b $b ./b $b ./c $c | xargs -P 4 -n 2 sh -c '\"$0\" \"$1\"'", {"a": 0.8, "b": 1.0, "c": 0.6}),
    "make": ("make -s -j3", {"a": 1.2, "b": 0.6, "c": 0.5, "d": 0.4}),
    "pipeline": ("{ ./a $a; echo x; } | { cat; ./b $b; } | { cat; ./c $c; } > out", {"a": 0.8, "b": 0.7, "c": 0.5}),
    "loop": ("for i in 1 2 3 4 5; do ./a $a; echo $i; done | cat > out", {"a": 0.4}),
    "loops": ("for i in 1 2 3 4; do ./a $a; echo $i; done | while read -r i; do ./b $b; done", {"a": 0.4, "b": 0.2}),
    "backlog": ("for i in 1 2 3 4 5 6 7 8; do ./a $a; echo $i; done | while read -r i; do ./b $b; done | cat > out", {"a": 0.1, "b": 0.2}),
    "backlog of three": ("for i in 1 2 3 4 5 6 7 8; do ./a $a; echo $i; done | while read -r i; do ./b $b; echo $i; done"
                         " | while read -r i; do ./c $c; done", {"a": 0.1, "b": 0.15, "c": 0.3}),
    "backlog of programs": (f"a=$a {sys.executable} a.py | b=$b {sys.executable} b.py | sort > out", {"a": 0.1, "b": 0.2}),
    "polling": ("(./a $a; ./b $b; touch done) & until [ -e done ]; do sleep 0.05; done; ./c $c; wait", {"a": 0.6, "b": 0.5, "c": 0.4}),
    "threads": (f"{sys.executable} threads.py", {"a": 1.6, "b": 0.6}),
    "processes": (f"{sys.executable} processes.py", {"a": 1.6, "b": 0.6}),
    "pool": (f"{sys.executable} pool.py", {"a": 1.6, "b": 0.6}),
    "computing": ("./a $a; ./b $b & ./c $c; wait", {"a": 0.8, "b": 1.0, "c": 0.6}),
}


def write(path, text, mode=0o644):
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)


def prepare(directory, name):
    for step in CASES[name][1]:
        write(f"{directory}/{step}.py", STAGE.format(step=step))
        if name == "computing":
            write(f"{directory}/{step}", BURN, 0o755)
        else:
            shutil.copy(shutil.which("sleep"), f"{directory}/{step}")
    write(f"{directory}/Makefile", MAKEFILE)
    futures = "concurrent.futures"
    write(f"{directory}/threads.py", POOL.format(module=futures, pool=futures + ".ThreadPoolExecutor(2)"))
    write(f"{directory}/processes.py", POOL.format(module=futures, pool=futures + ".ProcessPoolExecutor(2)"))
    write(f"{directory}/pool.py", POOL.format(module="multiprocessing", pool="multiprocessing.Pool(2)"))


def record(flowtrace, name, times, directory):
    prepare(directory, name)
    trace = directory + ".db"
    environment = {**os.environ, **{step: str(t) for step, t in times.items()}}
    command = [flowtrace, "run", "-q", "--force", "-o", trace, "--", "bash", "-c", CASES[name][0]]
    subprocess.run(command, cwd=directory, env=environment, check=True, stdout=subprocess.DEVNULL)
    return trace


def path(flowtrace, trace, *options):
    command = [flowtrace, "critical-path", trace, "--format", "json", *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def rule(name, step):
    return f"{step}.py" if name == "backlog of programs" else step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--flowtrace", default=f"{HERE}/../../target/release/flowtrace")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    options = parser.parse_args()
    flowtrace = os.path.abspath(options.flowtrace)
    worst, wrong = 0.0, 0
    print(f"{'case':>19} {'slowed':>8} {'before':>8} {'predicted':>9} {'truth':>8}  error")
    for name in options.cases or CASES:
        times = CASES[name][1]
        for _ in range(options.repeat):
            with tempfile.TemporaryDirectory() as scratch:
                os.mkdir(f"{scratch}/base")
                base = record(flowtrace, name, times, f"{scratch}/base")
                before = path(flowtrace, base)["length_ns"] / 1e9
                for step in times:
                    for factor in (2, 0.5):
                        where = f"{scratch}/{step}-{factor}"
                        os.mkdir(where)
                        predicted = path(flowtrace, base, "--what-if", f"{rule(name, step)}={factor}")["what_if_ns"] / 1e9
                        slowed = record(flowtrace, name, {**times, step: times[step] * factor}, where)
                        truth = path(flowtrace, slowed)["length_ns"] / 1e9
                        error = predicted / truth - 1
                        worst = max(worst, abs(error))
                        wrong += abs(error) > LIMIT
                        mark = "" if abs(error) <= LIMIT else "  WRONG"
                        print(f"{name:>19} {step + ' ×' + str(factor):>8} {before:7.2f}s {predicted:8.2f}s {truth:7.2f}s "
                              f"{error:+6.1%}{mark}", flush=True)
    print(f"worst error {worst:.1%}; {wrong} over {LIMIT:.0%}")
    sys.exit(wrong > 0)


main()
