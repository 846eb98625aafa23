#!/usr/bin/env python3
"""Who sent data to whom through pipes: the arrows of `flowtrace dag` against the bytes that strace sees go in and out.

Each script runs twice, by flowtrace and by strace; pairs of command lines are compared. An arrow that no byte went along is
one too many; bytes without an arrow are one missing."""
import argparse
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
FLOWTRACE = os.path.abspath(os.environ.get("FLOWTRACE", os.path.join(HERE, "../../target/release/flowtrace")))

# Scripts of bash; what is random or timed is not in them.
SCRIPTS = {
    "loop": "for i in 1 2 3; do /bin/echo $i; done | while read k; do expr $k + 10; done > f",
    "xargs": "seq 4 | xargs -n1 sh -c 'expr $0 + 10' > f",
    "xargs parallel": "seq 6 | xargs -n1 -P2 sh -c 'expr $0 + 10 > f$0'",
    "answers": "seq 5 | while read k; do x=$(expr $k + 10); echo $x; done > f",
    "answers piped": "seq 5 | while read k; do x=$(echo $k | tr 1-5 a-e); echo $x; done | sort > f",
    "head": "seq 100000 | head -n 3 > f",
    "first line, rest": "seq 1000 | { read x; sort -r; } > f",
    "shares": "seq 100 | { dd bs=1 count=10 status=none > a; cat > b; }",
    "tee": "seq 1000 | tee >(wc -l > a) | tail -n 1 > b; wait",
    "two loops": "seq 4 | while read a; do echo $a; expr $a + 1; done | while read b; do expr $b + 10; done > f",
    "nested loops": "seq 3 | while read a; do seq $a | while read b; do expr $a + $b; done; done | sort -n > f",
    "inner ssh-like": "seq 5 | while read a; do cat < /dev/null; date +%Y > /dev/null; echo $a; done | wc -l > f",
    "child eats all": "seq 5 | while read a; do cat > rest; done; wc -l rest > f",
    "substitution": "diff <(seq 5) <(seq 6 | cat) | wc -l > f || true",
    "group": "{ seq 5; echo x; seq 3; } | sort | uniq -c > f",
    "long": "seq 200000 | gzip | gunzip | sort -rn | head -n 100 | awk '{s+=$1} END {print s}' > f",
    "fifo": "mkfifo q; seq 1000 > q & wc -l < q > f; wait",
    "background": "seq 1000 | sort > a & seq 500 | sort -r > b & wait; cat a b | wc -l > f",
    "find": "mkdir d; touch d/a d/b d/c; find d -type f | while read f; do gzip $f; done; ls d | wc -l > f",
    "find big": "mkdir d; for i in $(seq 40); do seq $i > d/$i; done; find d -type f | sort | while read f; do sha1sum $f; done > f",
    "script": "printf 'while read k; do expr $k + 10; done\\n' > w.sh; seq 3 | bash w.sh > f; seq 4 | bash w.sh > g",
    "python": "seq 9 | python3 -c 'import sys, subprocess\nfor l in sys.stdin: subprocess.run([\"expr\", l.strip(), \"+\", \"1\"])' > f",
    "python pipes": "python3 -c 'import subprocess as s\np = s.Popen([\"sort\"], stdin=s.PIPE, stdout=s.PIPE)\nprint(len(p.communicate(b\"b\\na\\n\")[0]))' > f",
    "captured": "python3 -c 'import subprocess as s\ns.run(\"sort -r | tee sorted | wc -l\", shell=True, input=b\"b\\na\\n\" * 9000, capture_output=True)'",
    "captured errors": "python3 -c 'import subprocess as s\nprint(s.run(\"ls nowhere; seq 30 | tail -n 3\", shell=True, capture_output=True).stdout)' > f",
    "make": "printf 'all: a b\\na b:\\n\\tseq 9 | sort -r | tee $@ | wc -l > $@.n\\n' > Makefile; make -s -j2",
    "sed": "for n in a b; do echo $n; done | sed s/a/x/ | while read n; do echo $n > $n.txt; done; cat *.txt | wc > f",
    "stderr": "{ ls nowhere; seq 3; } 2>&1 | cat > f",
    "only stderr": "{ seq 3 > /dev/null; ls nowhere; } 2>&1 >/dev/null | cat > f",
    "coprocess": "coproc bc -q 2>/dev/null; echo 1+1 >&${COPROC[1]}; read x <&${COPROC[0]}; echo $x > f",
    "mapfile": "mapfile -t a < <(seq 5); for i in ${a[@]}; do expr $i; done > f",
    "here": "for i in 1 2; do cat <<< $i; done | sort > f",
    "line, exec": "seq 3 | { read x; exec expr $x + 1; } > f",
    "file in loop": "seq 9 > in; seq 3 | while read k; do read x < in; expr $k + $x; done > f",
    "stdin unread": "seq 3 | { expr 1 + 1; expr 2 + 2; sleep 0.1; } > f",
}
# Where arrows may be too many, as docs/dag.md says; the first not with the calls of the kernel layer.
DOUBTFUL = {"only stderr", "stdin unread"}


def run(arguments, **options):
    return subprocess.run(arguments, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)


def by_flowtrace(script, job, scratch, run_options):
    trace = os.path.join(scratch, "trace.db")
    done = run([FLOWTRACE, "run", "-q", "--no-summary", *run_options, "-o", trace, "--", "bash", "-c", script], cwd=job)
    out = run([FLOWTRACE, "dag", "--by", "process", "--format", "cytoscape", trace])
    if out.returncode:
        raise SystemExit(f"{done.stderr}{out.stderr}")
    elements = json.loads(out.stdout)["elements"]
    names = {n["data"]["id"]: n["data"].get("command", "").replace("'", "") for n in elements["nodes"]}
    found = set()
    for edge in elements["edges"]:
        edge = edge["data"]
        if edge["kind"] == "pipe":
            found.add((names[edge["source"]], names[edge["target"]]))
    return found


class Life:
    """A process, from its fork to its end: its number may be another one's later."""

    def __init__(self):
        self.name = self.parent = self.forked_by = None
        self.over = False

    def command(self):
        """The last program; of a copy of its parent the program of that when it was made."""
        life, name = self, self.name
        while name is None and life.parent:
            life, name = life.parent, life.forked_by
        return (name or "?").replace("'", "")


def of(lives, pid, is_forked=False):
    """Whose number `pid` is at this line of the log. A fork may be told only after the child has ended."""
    mine = lives.setdefault(pid, [])
    if is_forked and mine and not mine[-1].parent:
        return mine[-1]
    if not mine or mine[-1].over or is_forked:
        mine.append(Life())
    return mine[-1]


def by_strace(script, job, scratch, _):
    """Pairs of commands, for each pipe that a byte went through. Unfinished calls are joined to their ends."""
    log = os.path.join(scratch, "strace")
    calls = "read,write,readv,writev,splice,sendfile,tee,copy_file_range,execve,clone,clone3,fork,vfork"
    run(["strace", "-f", "-yy", "-s4096", "-v", "-e", f"trace={calls}", "-e", "signal=none", "-o", log, "bash", "-c", script], cwd=job)
    lives, begun, sides = {}, {}, {}
    for line in open(log, errors="replace"):
        pid, rest = line.split(None, 1)
        if rest.startswith("+++"):
            of(lives, pid).over = True
            continue
        life = of(lives, pid)
        if rest.rstrip().endswith("<unfinished ...>"):
            begun[pid] = rest.rstrip()[: -len("<unfinished ...>")]
            continue
        if rest.startswith("<..."):
            rest = begun.pop(pid, "") + rest.split("resumed>", 1)[1]
        result = re.search(r"= (-?\d+)(?:<[^>]*>)?(?: .*)?$", rest.rstrip())
        if not result:
            continue
        result = int(result.group(1))
        name = rest.split("(", 1)[0]
        if re.fullmatch(r"v?fork|clone3?", name) and result > 0:
            child = of(lives, str(result), is_forked=True)
            child.parent, child.forked_by = life, life.name
        elif name == "execve" and result == 0:
            words = re.search(r'\[(.*?)\], (?:\[|0x)', rest, re.S)
            life.name = " ".join(json.loads(f"[{re.sub(chr(92)*2 + '([0-7]{1,3})', lambda m: chr(92) + 'u%04x' % int(m.group(1), 8), words.group(1))}]")) if words else "?"
        elif result > 0:
            pipes = re.findall(r"<(?:pipe:\[(\d+)\]|([^<>]*/q))>", rest)
            way = [(life, True)] if name.startswith("read") else [(life, False)]
            if name in ("splice", "sendfile", "tee", "copy_file_range"):
                way = [(life, True), (life, False)]
            for pipe, (who, is_read) in zip(["".join(p) for p in pipes], way):
                sides.setdefault(pipe, (set(), set()))[1 if is_read else 0].add(who)

    found = set()
    for writers, readers in sides.values():
        found |= {(w.command(), r.command()) for w in writers for r in readers if w is not r}
    return found


def made_up(seed):
    """A script of pipes in pipes, of which each command gives some bytes and reads to the end what it is sent."""
    dice = random.Random(seed)
    count = itertools.count(1)

    def source():
        n = next(count)
        return dice.choice([f"seq {n + dice.randint(3, 60)}", f"printf '%s\\n' a{n} b{n} c{n}", f"{{ echo g{n}; seq {n + 2}; }}",
                            f"for i in {n} 2 3; do /bin/echo $i; done", f"(seq {n + 5} | rev)"])

    def stage(depth):
        n = next(count)
        kinds = [f"sort -k1.{n}", f"sed s/1/{n}/", f"tr 0-9 {n % 10}1-9", f"awk '{{print $1, {n}}}'", f"tee t{n}",
                 f"while read k; do echo $k; expr $k : '.*' + {n}; done", f"xargs -n2 echo {n}", f"(sed s/2/{n}/ | uniq)",
                 f"{{ read first; echo $first; tail -n {n + 1}; }}", f"while read k; do echo \"$k\" | rev | sed s/3/{n}/; done"]
        if depth < 2:
            kinds.append(f"while read k; do x=$({source()} | {stage(depth + 1)} | wc -l); echo $k $x; done")
            kinds.append(f"tee >({stage(depth + 1)} > p{n})")
        return dice.choice(kinds)

    lines = [" | ".join([source()] + [stage(0) for _ in range(dice.randint(1, 3))]) + f" > f{line}" for line in range(dice.randint(1, 2))]
    return "; ".join(lines) + "; wait"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--made-up", type=int, default=0, metavar="N", help="so many scripts that are made up, besides")
    options.add_argument("--seed", type=int, default=1, help="of the first of them")
    mine, run_options = options.parse_known_args()
    scripts = dict(SCRIPTS)
    for seed in range(mine.seed, mine.seed + mine.made_up):
        scripts[f"made up {seed}"] = made_up(seed)
    wrong = 0
    for name, script in scripts.items():
        with tempfile.TemporaryDirectory() as scratch:
            results = []
            for way in (by_flowtrace, by_strace):
                job = os.path.join(scratch, way.__name__)
                os.mkdir(job)
                results.append(way(script, job, scratch, run_options))
        # Quotes and line breaks are written in several ways.
        short = lambda text: " ".join(re.sub(r"\\+[nt]|[^A-Za-z0-9%+*/.-]+", " ", text).split())[:60]
        seen, true = ({(short(a), short(b)) for a, b in pairs} for pairs in results)
        faults = [f"too many: {a} | {b}" for a, b in sorted(seen - true)] + [f"missing: {a} | {b}" for a, b in sorted(true - seen)]
        print(f"{name:18} {len(true):2} pairs", "ok" if not faults else "")
        may = name in DOUBTFUL and not (name == "only stderr" and "--layer" in run_options)
        if faults and name not in SCRIPTS:
            print(f"    {script}")
        for fault in faults:
            print(f"    {fault}", "(known)" if may else "")
        wrong += bool(faults) and not may
    print(f"{len(scripts) - wrong} of {len(scripts)} scripts as strace saw them")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
