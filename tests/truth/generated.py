#!/usr/bin/env python3
"""Made-up scripts against what `flowtrace generate` makes of them: the same files, byte for byte, when steps run in parallel and
each begins after a random delay, so that a missing dependency shows.

    tests/truth/generated.py [--seed N] [--scripts N] [--format make|shell]

Prints each script that comes back otherwise, or that is refused with the reason; exit status 1 when one came back otherwise. The
scripts leave out what is known not to be recorded: what the shell writes itself (its builtin `echo`)."""
import argparse
import itertools
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
FLOWTRACE = os.path.abspath(os.environ.get("FLOWTRACE", os.path.join(HERE, "../../target/release/flowtrace")))
INPUTS = ["in0", "in1", "in2"]
FILTERS = ["sort", "sort -r", "sort -n", "uniq", "tr 1-5 a-e", "sed s/1/x/", "awk '{print $1, NR}'", "head -n 7", "tail -n 5", "rev",
           "grep -v 3", "cut -c1-3", "tac", "nl", "cat -n", "wc"]
DELAYED = '#!/bin/bash\nsleep 0.0$((RANDOM % 9))\nexec /bin/bash "$@"\n'


class Script:
    """A random script that makes files of files."""

    def __init__(self, seed):
        self.dice, self.count = random.Random(seed), itertools.count(1)
        self.files, self.directories, self.lines = list(INPUTS), [], []
        for _ in range(self.dice.randint(4, 12)):
            self.lines.append(self.step())
        gone = self.dice.choice(self.files)
        if gone not in INPUTS and self.dice.random() < 0.4:
            self.lines.append(f"rm {gone}")

    def text(self):
        return "\n".join(self.lines) + "\n"

    def old(self):
        return self.dice.choice(self.files)

    def filtered(self):
        return self.dice.choice(FILTERS)

    def new(self):
        name = f"f{next(self.count)}"
        if self.directories and self.dice.random() < 0.3:
            name = f"{self.dice.choice(self.directories)}/{name}"
        return name

    def step(self):
        old, new, filtered, number = self.old, self.new(), self.filtered, self.dice.randrange(99)
        beside, directory = self.new(), f"d{next(self.count)}"
        made = {
            f"{filtered()} < {old()} > {new}": [new],
            f"cat {old()} {old()} > {new}": [new],
            f"cat {old()} | {filtered()} | {filtered()} > {new}": [new],
            f"sed -i 's/2/{number}/' {old()}": [],
            f"{filtered()} < {old()} > {new}.tmp; mv {new}.tmp {new}": [new],
            f"{filtered()} < {old()} | head -n 20 >> {old()}": [],
            f"{filtered()} < {old()} | tee {new} | {filtered()} > {beside}": [new, beside],
            f"cp {old()} {new}": [new],
            f"mkdir -p {directory}": [],
            f"for i in 1 2 3; do head -n $i {old()}; done > {new}": [new],
            f"gzip -nc {old()} > {new}\ngzip -dc {new} > {beside}": [beside],
            f"ls > {new}": [new],
            f"wc -l {old()} {old()} > {new}": [new],
            f"x=$(wc -l < {old()}); /bin/echo $x lines > {new}": [new],
            f"if grep -q 1 {old()}; then /bin/echo yes; else /bin/echo no; fi > {new}": [new],
            f"python3 -c \"a = open('{old()}').readlines(); open('{new}', 'w').writelines(sorted(a))\"": [new],
            f"diff {old()} {old()} > {new} || true": [new],
            f"{{ cat {old()}; /bin/echo end; head -n 3 {old()}; }} > {new}": [new],
            f"sort -o {new} {old()}": [new],
            f"paste {old()} {old()} | head -n 30 > {new}": [new],
            f"cat > {new} << END\na {number}\n$(head -n 2 {old()})\nEND": [new],
            f"while read l; do /bin/echo \"<$l>\"; done < {old()} > {new}": [new],
            f"{filtered()} < {old()} > {new} & {filtered()} < {old()} > {beside} & wait; cat {new} {beside} > {new}.both": [new, beside],
            f"comm <(sort {old()}) <(sort {old()}) > {new}": [new],
        }
        line = self.dice.choice(list(made))
        self.files += made[line]
        if line.startswith("mkdir"):
            self.directories.append(directory)
        return line


def inputs(directory):
    os.mkdir(directory)
    for name in INPUTS:
        dice = random.Random(name)
        with open(os.path.join(directory, name), "w") as file:
            file.writelines(f"{dice.randrange(1000)} {dice.randrange(9)}\n" for _ in range(40))


def contents(directory):
    """Every file and directory, but the marks of steps that are done."""
    found = {}
    for place, below, files in os.walk(directory):
        below[:] = [name for name in below if name != ".flowtrace"]
        found.update({os.path.relpath(os.path.join(place, name), directory): None for name in below})
        for name in files:
            with open(os.path.join(place, name), "rb") as file:
                found[os.path.relpath(file.name, directory)] = file.read()
    return found


def comes_back(script, form, scratch):
    """None: it does. Else what is wrong, and whether that is a wrong answer rather than none."""
    path = lambda name: os.path.join(scratch, name)
    # Both have the name under which the trace knows it.
    inputs(path("work"))
    with open(path("script"), "w") as file:
        file.write(script)
    with open(path("delayed"), "w") as file:
        file.write(DELAYED)
    os.chmod(path("delayed"), 0o755)
    run = lambda *words: subprocess.run(words, cwd=path("work"), capture_output=True, text=True)
    traced = run(FLOWTRACE, "run", "-q", "--no-summary", "-o", path("trace.db"), "--", "bash", path("script"))
    before = contents(path("work"))
    made = run(FLOWTRACE, "generate", path("trace.db"), "--format", form, "-o", path("made"))
    if made.returncode != 0:
        return made.stderr, False
    os.rename(path("work"), path("original"))
    inputs(path("work"))
    again = run("bash", path("made")) if form == "shell" else run("make", "-s", "-j8", f"SHELL={path('delayed')}", "-f", path("made"))
    after = contents(path("work"))
    other = sorted({name for name, _ in before.items() ^ after.items()})
    if other or (again.returncode == 0) != (traced.returncode == 0):
        return f"exit {again.returncode}, other: {' '.join(other)}\n{again.stderr}", True
    return None


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seed", type=int, default=1, help="of the first script")
    options.add_argument("--scripts", type=int, default=100, help="how many")
    options.add_argument("--format", choices=["make", "shell"], default="make")
    mine = options.parse_args()
    equal, refused, wrong = 0, 0, 0
    for seed in range(mine.seed, mine.seed + mine.scripts):
        script = Script(seed).text()
        with tempfile.TemporaryDirectory() as scratch:
            fault = comes_back(script, mine.format, scratch)
        if fault is None:
            equal += 1
            continue
        said, is_wrong = fault
        wrong += is_wrong
        refused += not is_wrong
        print(f"=== {seed} {'other' if is_wrong else 'refused'}\n{script}--- {said}")
    print(f"{equal} came back as they were, {refused} refused, {wrong} otherwise")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
