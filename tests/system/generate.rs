//! `flowtrace generate`: a traced script comes back as a Makefile and a script whose runs in a copy
//! of the inputs leave the same files, with the same modes.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::process::finish;
use crate::support::{FLOWTRACE, Scratch, need_fuse, need_program, run_in};

mod engines;
mod given;
mod real;

/// A traced run and a fresh copy of what it began with.
struct Traced {
    scratch: Scratch,
    original: PathBuf,
}

fn inputs(directory: &Path) {
    let numbers = |count: u32| (1..=count).map(|n| format!("{n}\n")).collect::<String>();
    fs::write(directory.join("in"), numbers(100)).unwrap();
    fs::write(directory.join("in2"), numbers(50)).unwrap();
    fs::write(directory.join("list"), "a\nb\nc\n").unwrap();
    fs::create_dir(directory.join("d")).unwrap();
}

/// Runs `command` traced in a directory with the inputs and this script.
fn traced(script: &str, options: &[&str], command: &[&str]) -> Option<Traced> {
    if !need_fuse() {
        return None;
    }
    let scratch = Scratch::new();
    let original = scratch.dir("original");
    inputs(&original);
    fs::write(original.join("script"), script).unwrap();
    let mut run = run_in(&original, &scratch.join("trace.db"));
    run.args(options).arg("--").args(command);
    finish(&mut run);
    Some(Traced { scratch, original })
}

impl Traced {
    fn generate(&self, format: &str, options: &[&str]) -> (i32, String) {
        let mut command = Command::new(FLOWTRACE);
        command
            .args(["generate", "--format", format, "-o"])
            .arg(self.scratch.join(format))
            .arg(self.scratch.join("trace.db"))
            .args(options);
        let output = command.output().unwrap();
        (
            output.status.code().unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    }

    fn text(&self, format: &str) -> String {
        fs::read_to_string(self.scratch.join(format)).unwrap()
    }

    fn copy(&self, name: &str) -> PathBuf {
        let copy = self.scratch.dir(name);
        inputs(&copy);
        fs::copy(self.original.join("script"), copy.join("script")).unwrap();
        copy
    }

    /// Generates for make and for bash, runs both in copies, and compares.
    fn comes_back(&self) {
        for (format, program) in [("make", &["make", "-j2", "-f"][..]), ("shell", &["bash"])] {
            let (code, errors) = self.generate(format, &[]);
            assert_eq!(code, 0, "{errors}");
            let copy = self.copy(&format!("copy-{format}"));
            let mut again = Command::new(program[0]);
            again
                .args(&program[1..])
                .arg(self.scratch.join(format))
                .current_dir(&copy);
            finish(&mut again).expect(0);
            assert_eq!(
                listed(&self.original),
                listed(&copy),
                "by {format}:\n{}",
                self.text(format)
            );
            if format == "make" {
                // All that lasts is up to date.
                let mut question = Command::new("make");
                question.arg("-qf").arg(self.scratch.join(format));
                finish(question.current_dir(&copy)).expect(0);
            }
        }
    }
}

/// What another run of make has to do, and nothing else, in the place of the first one.
#[test]
fn make_again_gives_what_the_script_would() {
    let script = "wc -l in > log\nwc -l in2 >> log\nsort -r log > out\nsort in > s; gzip -n s\n";
    let Some(traced) = traced(script, &[], &["bash", "script"]) else {
        return;
    };
    let (code, errors) = traced.generate("make", &[]);
    assert_eq!(code, 0, "{errors}");
    let copy = traced.copy("copy");
    let make = || {
        let mut make = Command::new("make");
        make.args(["-j2", "-f"]).arg(traced.scratch.join("make"));
        finish(make.current_dir(&copy)).expect(0);
    };
    make();
    assert_eq!(contents(&traced.original), {
        let mut made = contents(&copy);
        made.retain(|(name, _)| !name.starts_with(".flowtrace"));
        made
    });
    // A file that was changed in place begins anew when an input of a later change differs.
    fs::write(copy.join("in2"), "1\n2\n3\n").unwrap();
    make();
    let log = fs::read_to_string(copy.join("log")).unwrap();
    assert_eq!(log, "100 in\n3 in2\n");
    assert_eq!(
        fs::read_to_string(copy.join("out")).unwrap(),
        "3 in2\n100 in\n"
    );
    // A result that is gone comes back; a program that does not overwrite does not see the old one.
    fs::remove_file(copy.join("out")).unwrap();
    fs::write(copy.join("in"), "2\n1\n").unwrap();
    make();
    assert_eq!(
        fs::read_to_string(copy.join("out")).unwrap(),
        "3 in2\n2 in\n"
    );
}

/// A writer whose reader needs no more has not failed, also where the input had been so short that it came to its end.
#[test]
fn a_writer_may_be_ended_by_its_reader() {
    let script = "cat in | head -n 3 > first\n{ cat in2; false; } | cat > all || true\n";
    let Some(traced) = traced(script, &[], &["bash", "script"]) else {
        return;
    };
    for (format, program) in [("make", &["make", "-f"][..]), ("shell", &["bash"])] {
        let (code, errors) = traced.generate(format, &[]);
        assert_eq!(code, 0, "{errors}");
        let copy = traced.copy(&format!("copy-{format}"));
        fs::write(copy.join("in"), "y\n".repeat(1 << 20)).unwrap();
        let mut again = Command::new(program[0]);
        again.args(&program[1..]).arg(traced.scratch.join(format));
        finish(again.current_dir(&copy)).expect(0);
        let first = fs::read_to_string(copy.join("first")).unwrap();
        assert_eq!(first, "y\ny\ny\n");
    }
}

/// What is replaced is made anew, although it is there. A listing holds what was there at that moment, also where it is put into the directory that is listed; and what
/// mktemp made has the name that the steps after it were given.
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
    // Out of the directory that is listed.
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

/// In a copy it would change the files of the original.
#[test]
fn what_leaves_files_above_the_root_is_refused() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let outer = scratch.dir("outer");
    let sub = scratch.dir("outer/sub");
    inputs(&outer);
    fs::write(sub.join("script"), "sort ../in > ../res\nwc -l ../in > n\n").unwrap();
    let mut run = run_in(&sub, &scratch.join("trace.db"));
    run.arg("--dir").arg(&outer).args(["--", "bash", "script"]);
    finish(&mut run).expect(0);
    let mut generate = Command::new(FLOWTRACE);
    generate.arg("generate").arg(scratch.join("trace.db"));
    let refused = finish(&mut generate).expect(1).stderr;
    assert!(
        refused.contains("sort_1 cannot be generated: it leaves "),
        "{refused}"
    );
    assert!(!refused.contains("wc_1 cannot"), "{refused}");
}

/// All that wrote into one file outside are; where the output of the run itself went does not matter.
#[test]
fn what_writes_outside_through_an_inherited_descriptor_is_refused() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let (directory, outside) = (scratch.dir("job"), scratch.dir("outside"));
    inputs(&directory);
    let script = format!(
        "{{ sort in; cat in2; }} > {}; wc -l in; sort in > out",
        outside.join("x").display()
    );
    fs::write(directory.join("script"), script).unwrap();
    let mut run = run_in(&directory, &scratch.join("trace.db"));
    run.args(["--", "bash", "script"]);
    run.stdout(fs::File::create(outside.join("log")).unwrap());
    assert!(run.status().unwrap().success());
    let mut generate = Command::new(FLOWTRACE);
    generate.arg("generate").arg(scratch.join("trace.db"));
    let refused = finish(&mut generate).expect(1).stderr;
    let steps: Vec<_> = refused
        .lines()
        .filter_map(|line| {
            line.strip_prefix("flowtrace: ")?
                .split_once(" cannot be generated")
        })
        .map(|(step, _)| step)
        .collect();
    assert_eq!(steps, ["sort_1", "cat_1"], "{refused}");
}

/// A file where the machine has its own belongs to the workflow that makes it: a copy would overwrite that
/// of the original. What is there already is read like any other.
#[test]
fn what_makes_files_of_the_machine_is_refused() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let (directory, packages) = (scratch.dir("job"), scratch.dir("venv/site-packages"));
    inputs(&directory);
    fs::write(packages.join("old.py"), "1\n").unwrap();
    let script = "cp in $P/new.py; sort -r $P/new.py > out; sort $P/old.py > copy\n\
                  { cat in2; : > $P/empty.py; } | wc -l > n\necho x > $P/own.py\n";
    let script = script.replace("$P", packages.to_str().unwrap());
    fs::write(directory.join("script"), script).unwrap();
    let mut run = run_in(&directory, &scratch.join("trace.db"));
    finish(run.args(["--", "bash", "script"])).expect(0);
    let mut generate = Command::new(FLOWTRACE);
    generate.arg("generate").arg(scratch.join("trace.db"));
    let refused = finish(&mut generate).expect(1).stderr;
    for (step, file) in [
        ("cp_1", "new.py"),
        ("script_1", "empty.py"),
        ("script_2", "own.py"),
    ] {
        let path = packages.join(file);
        let reason = format!("{step} cannot be generated: it wrote {}", path.display());
        assert!(refused.contains(&reason), "{reason}\n{refused}");
    }
    assert!(!refused.contains("sort_2 cannot"), "{refused}");
}

/// The command with which a run ended fails again.
#[test]
fn a_run_that_failed_fails() {
    let script = "set -e\nsort in > o1\nsort nosuch > o2\nsort in2 > o3\n";
    let Some(traced) = traced(script, &[], &["bash", "script"]) else {
        return;
    };
    let (code, errors) = traced.generate("make", &[]);
    assert_eq!(code, 0, "{errors}");
    assert!(
        errors.contains("and with it the run: it fails here too"),
        "{errors}"
    );
    let mut make = Command::new("make");
    make.arg("-f").arg(traced.scratch.join("make"));
    finish(make.current_dir(traced.copy("copy"))).expect(2);
}

/// Names and contents only: CWL stages copies.
fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = listed(directory).into_iter();
    let files = files.filter(|(name, ..)| directory.join(name).is_file());
    files.map(|(name, _, _, data)| (name, data)).collect()
}

/// Names, modes, link counts and contents below a directory.
fn listed(directory: &Path) -> Vec<(PathBuf, u32, u64, Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(at) = left.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(directory).unwrap().to_owned();
            if name == Path::new(".flowtrace") {
                continue;
            }
            let data = fs::symlink_metadata(&path).unwrap();
            let mode = data.permissions().mode();
            if data.is_dir() {
                found.push((name, mode, 0, Vec::new()));
                left.push(path);
            } else {
                found.push((name, mode, data.nlink(), fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// What changes names, modes and directories, and what is joined by them.
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

/// make that begins again, because a file that it includes was made, is one make.
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

/// Here-documents: of a program, of a stage, of several programs of which one leaves it alone and the shell takes a line, and
/// through wrappers that execute something else or start it.
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

/// What the trace does not tell is refused, each with its reason, and the Makefile stops there.
#[test]
fn what_cannot_be_known_is_refused() {
    let script = r#"
A=1 sort < in > variable
printf 'p\nq\n' | xargs -n1 touch
(echo header; cat in) > header
(: > emptied; cat in) > beside
(echo 12345; tr a-z A-Z <<END
abcde
END
) > both
"#;
    let Some(traced) = traced(script, &[], &["bash", "script"]) else {
        return;
    };
    let (code, errors) = traced.generate("make", &[]);
    assert_eq!(code, 1, "{errors}");
    for reason in [
        "sort_1 cannot be generated: sort had another environment than the run",
        "xargs_1 cannot be generated: the shell itself wrote 4 bytes there",
        "cat_1 cannot be generated: the shell itself wrote 7 bytes there",
        "cat_2 cannot be generated: the shell itself made or emptied ",
        "script_1 cannot be generated: the shell itself wrote 6 bytes there",
    ] {
        assert!(errors.contains(reason), "{reason}\n{errors}");
    }
    let mut make = Command::new("make");
    make.arg("-f").arg(traced.scratch.join("make"));
    finish(make.current_dir(traced.copy("copy"))).expect(2);
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
