#!/usr/bin/env python3
"""Files outside the traced directories against the same files inside: the arrows of `flowtrace dag` must be the same.

Made-up scripts whose shells and programs open files for each other run twice. Once all their files are traced, so
that every read and write is seen; then half of them lie outside, where only opens are, and what programs move through descriptors
they were given. Paths are equal in both runs. Prints what differs; exit status 1 when anything does."""
import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
FLOWTRACE = os.path.abspath(os.environ.get("FLOWTRACE", os.path.join(HERE, "../../target/release/flowtrace")))
PYTHON = sys.executable
CHILD = "import subprocess; "

# `A` and `B` are files that are there, `OUT` is made, and `ALSO` where it is named.
LINES = [
    "sort A > OUT",
    "{ sort A; uniq B; } > OUT",
    "{ uniq; } < A > OUT",
    "{ echo hi; tac A; } > OUT",
    "( sort A | uniq ) > OUT",
    "exec 3> OUT; sort A >&3; uniq B >&3; exec 3>&-",
    "while read x; do echo $x; done < A > OUT",
    "sort A > OUT; tac B >> OUT",
    'sh -c "sort A; true" > OUT',
    "sort < A | tee OUT > ALSO",
    "cp A OUT.tmp; mv OUT.tmp OUT",
    "cp A OUT; sed -i s/1/2/ OUT",
    "sort -o OUT A",
    "dd if=A of=OUT bs=4 2> /dev/null",
    "gzip -c A | gunzip > OUT",
    "echo A B | xargs cat > OUT",
    "echo A B | xargs -n1 sort > OUT",
    "f() { sort $1; echo x; }; f A > OUT",
    "f() { while read x; do expr $x + 1; done; }; f < A > OUT || true",
    "awk '{print > \"OUT\"}' A",
    "cat > OUT <<END\n$(head -2 A)\nEND",
    "( sort A > OUT & sort B > ALSO & wait )",
    'bash -c "exec sort A" > OUT',
    "timeout 10 nice env LC_ALL=C sort A > OUT",
    "perl -e 'open F, \">\", $ARGV[1]; print F `sort $ARGV[0]`;' A OUT",
    f"{PYTHON} -c \"{CHILD}f=open('OUT','w'); subprocess.run(['sort','A'],stdout=f)\"",
    f"{PYTHON} -c \"{CHILD}f=open('OUT','w+'); subprocess.run(['sort'],stdin=open('A'),stdout=f); f.seek(0); open('ALSO','w').write(f.read())\"",
    f"{PYTHON} -c \"{CHILD}f=open('OUT','w'); f.write(subprocess.check_output(['sort','A'],text=True))\"",
    f"{PYTHON} -c \"import sys; o=open(sys.argv[2],'w'); [o.write(x) for x in open(sys.argv[1])]\" A OUT",
]


def script(dice, outside):
    files, lines = ["in"], []
    for number in range(dice.randint(1, 3), dice.randint(5, 8)):
        line, out = dice.choice(LINES), dice.choice([f"{outside}/f{number}", f"g{number}"])
        made = [out, f"h{number}"] if "ALSO" in line else [out]
        for name, file in [("OUT", out), ("ALSO", f"h{number}"), ("A", dice.choice(files)), ("B", dice.choice(files))]:
            line = re.sub(rf"\b{name}\b", file, line)
        files.extend(made)
        lines.append(line)
    return "\n".join([*lines, f"cat {' '.join(dice.sample(files, min(2, len(files))))} > out", ""])


def arrows(scratch, text, is_traced):
    """Pairs of labels; the parts of a process that is cut are one."""
    shutil.rmtree(scratch)
    job = os.path.join(scratch, "job")
    for directory in [job, os.path.join(scratch, "o")]:
        os.makedirs(directory)
    with open(os.path.join(job, "in"), "w") as file:
        file.writelines(f"{number * 7 % 31}\n" for number in range(40))
    with open(os.path.join(job, "script"), "w") as file:
        file.write(text)
    with tempfile.TemporaryDirectory() as elsewhere:
        trace = os.path.join(elsewhere, "trace.db")
        run = [FLOWTRACE, "run", "-q", "--no-summary", "--dir", scratch if is_traced else job, "-o", trace, "--", "bash", "script"]
        subprocess.run(run, cwd=job, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        dag = [FLOWTRACE, "dag", trace, "--by", "process", "--format", "cytoscape"]
        graph = json.loads(subprocess.run(dag, check=True, capture_output=True).stdout)["elements"]
    names = {}
    for node in graph["nodes"]:
        label = node["data"]["label"].split("\n")[0]
        names[node["data"]["id"]] = re.sub(r" \[\d+/\d+\]$", "", label.rsplit("job/", 1)[-1])
    edges = [edge["data"] for edge in graph["edges"]]
    pairs = {(names[edge["source"]], names[edge["target"]]) for edge in edges if edge["kind"] not in ("fork", "wait")}
    return {pair for pair in pairs if pair[0] != pair[1]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripts", type=int, default=60, metavar="N")
    parser.add_argument("--seed", type=int, default=0, help="of the first script")
    options = parser.parse_args()
    differ = 0
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(options.seed, options.seed + options.scripts):
            text = script(random.Random(seed), os.path.join(scratch, "o"))
            inside, outside = arrows(scratch, text, True), arrows(scratch, text, False)
            if inside != outside:
                differ += 1
                print(f"--- seed {seed}\n{text}")
                for sign, pairs in [("missing outside", inside - outside), ("only outside", outside - inside)]:
                    for pair in sorted(pairs):
                        print(f"  {sign}: {' -> '.join(pair)}")
    print(f"{options.scripts - differ} of {options.scripts} scripts have the same arrows")
    sys.exit(differ > 0)


main()
