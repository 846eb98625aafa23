//! Scripts that leave the same files when they run, as generated, in a copy of the inputs.

use std::fs;
use std::process::Command;

use super::{listed, traced};
use crate::support::need_program;
use crate::support::process::finish;

/// Commands that change names, modes and directories, and commands that depend on those.
const NAMES: &str = r#"
sort in > t; mv t fin; cat fin > o
cd d && sort ../in > x 2> err
cd ..
: > empty
ln o o2
rm -f nothing
chmod 600 o
mkdir m
cat in > m/q
cat in >> m/q
mkdir -p deep/er
cp in deep/er/z
mv deep moved
cat moved/er/z > zz
sed -i s/1/X/ zz
ls -1 d > listing
rm m/q
umask 027
mkdir private; cp in private/x
(umask 077; cp in2 private/y)
sort in > all
sort in2 > "a b'c\$d#e%f:g=h"
sort in2 > 'new
line'
cp all '$(date)'
cp -- all ./-dash
"#;

/// Commands joined by the shell.
const JOINED: &str = r#"
(sort -r in; cat in2) | wc -l > n
(sort in; sort in2) > both
{ sort in; sort in2; } > braces
(cd d; sort ../in; sort ../in2) | sort -u > unique
first() { sort in | head -n 3; }
first > three
first | tail -n 1 > third
sort in 2>&1 | cat > merged
for i in 1 2 3; do sort -r in > s$i & done; wait
cat s1 s2 s3 > together
lines=$(wc -l < in2)
head -n $lines in > heads
grep nothing in > none
cat list | xargs -I{} cp in c_{}
xargs -n1 touch < list
tee copy1 copy2 < in > /dev/null
printf 'kept\n' > written
cat written > used
for i in $(seq 3); do echo $i; done > counted
sort -r counted > backwards
sort "$PWD/in" > absolute
"#;

#[test]
fn names_come_back() {
    for shell in ["sh", "bash"] {
        if let Some(traced) = traced(NAMES, &[], &[shell, "script"]) {
            traced.comes_back();
            let text = traced.text("make");
            let original = traced.original.to_str().unwrap();
            assert!(!text.contains(original), "names the original:\n{text}");
            assert!(text.contains(".DEFAULT_GOAL := all-steps"), "{text}");
        }
    }
}

#[test]
fn joined_commands_come_back() {
    for shell in ["sh", "bash"] {
        if let Some(traced) = traced(JOINED, &[], &[shell, "script"]) {
            traced.comes_back();
            let text = traced.text("make");
            let original = traced.original.to_str().unwrap();
            assert!(!text.contains(original), "names the original:\n{text}");
        }
    }
}

#[test]
fn what_make_ran_comes_back() {
    let script = "all: out\n\t@true\n%.sorted: %\n\tsort $< > $@\nout: in.sorted in2.sorted\n\
                  \tcat $^ | sort > $@\n\techo done >> $@\n";
    if need_program("make")
        && let Some(traced) = traced(script, &[], &["make", "-j2", "-f", "script"])
    {
        traced.comes_back();
    }
}

/// A make that starts again, because a file that it includes was made, is one make.
#[test]
fn what_make_ran_after_it_began_again_comes_back() {
    let script = "all: out\ninclude more\nmore: in\n\tsort in > kept\n\techo 'out: kept; sort -r kept > out' > more\n";
    if !need_program("make") {
        return;
    }
    let Some(traced) = traced(script, &[], &["make", "-s", "-f", "script"]) else {
        return;
    };
    let (code, errors) = traced.generate("make", &[]);
    assert_eq!(code, 0, "{errors}");
    let text = traced.text("make");
    assert!(!text.contains("# make_1"), "{text}");
    assert!(text.contains("sort -r kept > out"), "{text}");
}

/// Here-documents of a program, of a stage, of several programs of which one does not read it and the shell
/// reads a line, and through wrappers that exec another program or start one.
#[test]
fn here_documents_come_back() {
    let script = r#"
n=3
cat > conf <<END
[it's] "$n" \\ %d $(echo sub)

	last
END
tr a-z A-Z <<'END' | sort > upper
$b \n
a
END
{ expr 1 + 1; read line; sort; } > rest <<END
first
c
b
END
env sh -c 'nice sort -r' > wrapped <<END
x
y
END
wc -l < conf > lines
"#;
    for shell in ["sh", "bash"] {
        if let Some(traced) = traced(script, &[], &[shell, "script"]) {
            traced.comes_back();
        }
    }
    let word = "sort <<< 'a b c' > here\n";
    if let Some(traced) = traced(word, &[], &["bash", "script"]) {
        traced.comes_back();
    }
}

/// A file that is replaced is made anew although it exists. A listing has the names of its time, even if it
/// is written into the listed directory. A file of mktemp has the name that the later steps were given.
#[test]
fn what_was_listed_and_random_names_come_back() {
    let script = "sort -r in2 > list; sort list > z; sort in > a.up; cp in2 b.up; mv a.up c.up\nls > list\nfind . -name '*.up' | sort > found\n\
                  rm b.up\nT=$(mktemp -d ./tmp.XXXXXX); F=$(mktemp ./f.XXXXXX)\nsort -r in > \"$T/x 1\"\n\
                  sort in2 > $F; cat \"$T\"/x* $F > joined\nrm -r $T $F\n";
    let Some(traced) = traced(script, &[], &["bash", "script"]) else {
        return;
    };
    let (code, errors) = traced.generate("make", &[]);
    assert_eq!(code, 0, "{errors}");
    assert!(errors.contains("had its name from mktemp"), "{errors}");
    // Outside of the listed directory.
    let copy = traced.copy("copy");
    let mut make = Command::new("make");
    make.args(["-j4", "-f"]).arg(traced.scratch.join("make"));
    make.arg(format!("STEPS={}", traced.scratch.join("steps").display()));
    finish(make.current_dir(&copy)).expect(0);
    assert_eq!(
        listed(&traced.original),
        listed(&copy),
        "{}",
        traced.text("make")
    );
}

/// Variables that were recorded by name are set again.
#[test]
fn recorded_variables_come_back() {
    let script = "A=one sh -c 'printf %s \"$A\" > out; sort in >> out'\n";
    if let Some(traced) = traced(script, &["--env", "A"], &["bash", "script"]) {
        traced.comes_back();
        assert!(traced.text("make").contains("A=one sh -c"));
    }
}

/// Programs look for modules in one directory, compile one there, and leave files there, all at the same
/// time. Each of them is a step of its own, because it needs the source and not the files of the others.
#[test]
fn pythons_in_one_directory_come_back() {
    let script = r#"
printf 'def twice(x): return 2 * x\n' > helper.py
cat > one.py << END
import sys, time, helper
time.sleep(0.3)
for part in "ab":
    with open(sys.argv[1] + part, "w") as out: out.write(helper.twice(part))
END
for i in 1 2 3; do python3 one.py o$i & done
wait
cat o1a o1b o2a o2b o3a o3b > all
"#;
    if !need_program("python3") {
        return;
    }
    let command = ["env", "-u", "PYTHONDONTWRITEBYTECODE", "bash", "script"];
    let Some(traced) = traced(script, &[], &command) else {
        return;
    };
    let (code, errors) = traced.generate("make", &["--ignore-environment"]);
    assert_eq!(code, 0, "{errors}");
    let text = traced.text("make");
    assert!(!errors.contains("at the same time"), "{errors}{text}");
    assert!(!text.contains("__pycache__"), "{text}");
    for step in 1..=3 {
        let target = format!("o{step}a o{step}b &:");
        let mut lines = text.lines().filter(|line| line.starts_with(&target));
        assert!(
            lines.any(|line| line.contains(" helper.py")),
            "{target}\n{text}"
        );
    }
    let copy = traced.copy("copy");
    let mut make = Command::new("make");
    make.args(["-j3", "-f"]).arg(traced.scratch.join("make"));
    finish(make.current_dir(&copy)).expect(0);
    assert_eq!(fs::read(copy.join("all")).unwrap(), b"aabbaabbaabb");
}
