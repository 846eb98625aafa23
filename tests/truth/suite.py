#!/usr/bin/env python3
"""Random workflows whose true cause is known: is the first line right, and does the change gain what was promised?

    tests/truth/suite.py [--flowtrace BIN] [--seed N] [--count N] [--keep DIR] [NAME…]
    tests/truth/suite.py --judge DIR [NAME…]        the traces that --keep left, once more

Each case of families.py is traced and explained. Where it has a change, the workflow runs without tracing before and after
it, in turns, and the difference of the medians is compared with what the first finding promised. Exit status 1 when fewer
than 95 % of the first lines are right, a healthy run has a finding, or fewer than 80 % of the promises are within 15 %.
NAME is the begin of a case's name. Timing decides: nothing else should run, and this is no part of the short tests.
"""
import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import families

HERE = os.path.dirname(os.path.abspath(__file__))
RIGHT, PROMISES, WITHIN = 0.95, 0.80, 0.15


@contextlib.contextmanager
def directory(stage):
    """An empty directory with the programs of the cases."""
    with tempfile.TemporaryDirectory(prefix="flowtrace-truth-", dir="/var/tmp") as scratch:
        for at in range(1, 7):
            shutil.copy(stage, f"{scratch}/s{at}")
        for program, text in families.PROGRAMS.items():
            with open(f"{scratch}/{program}", "w") as file:
                file.write(text)
            os.chmod(f"{scratch}/{program}", 0o755)
        yield scratch


def run(script, scratch, rate, before=()):
    """Runs a script, in a network namespace with a shaped loopback interface where it has a rate; seconds."""
    command = [*before, "sh", "case.sh"]
    with open(f"{scratch}/case.sh", "w") as file:
        file.write(script + "\n")
    if rate:
        # Frames of 64 KB, as lo has them, never fit into the bucket.
        shaped = f"ip link set lo mtu 1500 up && tc qdisc add dev lo root tbf rate {rate}mbit burst 20kb latency 400ms"
        command = ["unshare", "-n", "sh", "-c", f'{shaped} && exec "$@"', "sh", *command]
    began = time.monotonic()
    subprocess.run(command, cwd=scratch, check=True, timeout=120, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - began


def recorded(flowtrace, stage, case, trace, rounds):
    """Traces a case, and measures its change where it has one: seconds before and after."""
    with directory(stage) as scratch:
        run(case["script"], scratch, case["rate"], [flowtrace, "run", "--quiet", "--no-summary", "--force", "-o", trace, "--"])
    if case["changed"] is None or not rounds:
        return None
    times = ([], [])
    for _ in range(rounds):
        for at, (script, rate) in enumerate([(case["script"], case["rate"]), (case["changed"], None)]):
            with directory(stage) as scratch:
                times[at].append(run(script, scratch, rate))
    return [statistics.median(side) for side in times]


def explained(flowtrace, trace):
    done = subprocess.run([flowtrace, "summary", trace, "--format", "json"], check=True, capture_output=True, timeout=300)
    return json.loads(done.stdout)


def judge(case, verdict, duration, times):
    """Whether the first line is right, and by how much the promise is off (None: there is nothing to compare)."""
    findings = verdict["findings"]
    if not case["kinds"]:
        return not findings, None
    why = verdict["why"] or ""
    right = verdict["kind"] in case["kinds"] and all(re.search(word, why) for word in case["words"])
    if times is None or not findings:
        return right, None if times is None else float("inf")
    # Both are shares of the run, which tracing may have made longer.
    gain = 1 - times[1] / times[0]
    promised = findings[0]["saving_ns"] / duration
    return right, promised / gain - 1 if gain > 0 else float("inf")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--flowtrace", default=f"{HERE}/../../target/release/flowtrace")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--count", type=int, default=70)
    parser.add_argument("--rounds", type=int, default=3, help="times that a change is measured; 0: not")
    parser.add_argument("--keep", metavar="DIR", help="directory for the traces")
    parser.add_argument("--judge", metavar="DIR", help="directory with traces of --keep: run nothing")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    flowtrace = os.path.abspath(options.flowtrace)
    judged, promises = [], []
    with tempfile.TemporaryDirectory() as programs:
        stage, kept = f"{programs}/stage", options.judge or options.keep or programs
        os.makedirs(kept, exist_ok=True)
        subprocess.run(["cc", "-O1", "-o", stage, f"{HERE}/stage.c"], check=True)
        for case in families.generate(options.seed, options.count):
            name = case["name"]
            if options.names and not any(name.startswith(begin) for begin in options.names):
                continue
            trace = os.path.abspath(f"{kept}/{name}.db")
            if options.judge:
                if not os.path.exists(f"{trace}.json"):
                    continue
            else:
                lacking = [need for need in case["needs"] if subprocess.run(need, shell=True, capture_output=True).returncode]
                if lacking:
                    print(f"{'left out':8} {name:24} for want of: {lacking[0]}", flush=True)
                    continue
                times = recorded(flowtrace, stage, case, trace, options.rounds)
                with open(f"{trace}.json", "w") as file:
                    json.dump(times, file)
            with open(f"{trace}.json") as file:
                times = json.load(file)
            summary = explained(flowtrace, trace)
            verdict = summary["verdict"]
            right, error = judge(case, verdict, summary["duration_ns"], times)
            judged.append((right, not case["kinds"] and bool(verdict["findings"])))
            promise = ""
            if error is not None:
                promises.append(abs(error) <= WITHIN)
                promise = f" · promise {error:+.0%}{'' if promises[-1] else ' OFF'} of {times[0]:.2f} → {times[1]:.2f} s"
            found = ", ".join(f"{f['kind']} {f['saving_ns'] / 1e9:.2f}" for f in verdict["findings"])
            print(f"{'right' if right else 'WRONG':8} {name:24} {'/'.join(case['kinds']) or 'healthy':16} why: {verdict['why']}"
                  f" · findings: {found or '-'}{promise}", flush=True)
    right, false = sum(one for one, _ in judged), sum(one for _, one in judged)
    kept_promises = sum(promises)
    print(f"\n{right} of {len(judged)} first lines right ({right / max(len(judged), 1):.0%}); {false} healthy runs with a finding; "
          f"{kept_promises} of {len(promises)} promises within {WITHIN:.0%} ({kept_promises / max(len(promises), 1):.0%})")
    good = judged and right >= RIGHT * len(judged) and not false and kept_promises >= PROMISES * len(promises)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
