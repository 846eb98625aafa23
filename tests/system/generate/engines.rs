//! Generated workflows run in the engines that they are for, where these are installed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use super::{Traced, contents, traced};
use crate::support::process::finish;

/// The script for every engine: files are read, changed in place, renamed, joined, listed.
const FOR_ENGINES: &str = r#"
sort in > t; mv t fin; cat fin > o
cd d && sort ../in > x 2> err
cd ..
mkdir m
cat in > m/q
cat in >> m/q
mkdir -p deep/er
cp in deep/er/z
cat deep/er/z > zz
sed -i s/1/X/ zz
sort in2 > "a b'c\$d#e%f:g=h"
cp zz '$(date)'
(sort in; sort in2) | wc -l > n
for i in 1 2 3; do sort -r in > s$i & done; wait
cat s1 s2 s3 > together
ls -1 d > listing
mkdir -p tree/empty/er tree/full && cp in tree/full/x
find tree | sort > found
tar cf - --sort=name --mtime=@0 --mode=755 tree list | md5sum > packed
bash -c 'cp -R tree there; mv there other'
"#;

impl Traced {
    /// Runs an engine in a copy of the inputs.
    pub(super) fn by_engine(&self, format: &str, program: &str, arguments: &[&str]) -> PathBuf {
        let (code, errors) = self.generate(format, &[]);
        assert_eq!(code, 0, "{errors}");
        let copy = self.copy(&format!("copy-{format}"));
        let mut engine = Command::new(program);
        engine.args(arguments).arg(self.scratch.join(format));
        engine.env("HOME", self.scratch.dir("home"));
        finish(engine.current_dir(&copy)).expect(0);
        copy
    }
}

/// Returns true if an optional engine is installed; otherwise its test is left out.
pub(super) fn has_engine(program: &str) -> bool {
    let is_there = crate::support::succeeds(program, &["--version"]);
    if !is_there {
        crate::support::skip(&format!("no {program}: pip install {program}"));
    }
    is_there
}

#[test]
fn snakemake_leaves_the_same_files() {
    if !has_engine("snakemake") {
        return;
    }
    let Some(traced) = traced(FOR_ENGINES, &[], &["bash", "script"]) else {
        return;
    };
    let copy = traced.by_engine("snakemake", "snakemake", &["--quiet", "--cores", "2", "-s"]);
    fs::remove_dir_all(copy.join(".snakemake")).unwrap();
    fs::remove_dir_all(copy.join(".flowtrace")).unwrap();
    assert_eq!(contents(&traced.original), contents(&copy));
}

#[test]
fn cwltool_leaves_the_same_files() {
    if !has_engine("cwltool") {
        return;
    }
    if let Some(traced) = traced(FOR_ENGINES, &[], &["bash", "script"]) {
        by_cwltool(&traced);
    }
}

/// Compares the results of cwltool with the original. They are copies, so only names and contents count.
fn by_cwltool(traced: &Traced) {
    // Paths in the document are relative to it.
    let options = [
        "--no-container",
        "--relax-path-checks",
        "--preserve-entire-environment",
    ];
    let (code, errors) = traced.generate("cwl", &[]);
    assert_eq!(code, 0, "{errors}");
    let copy = traced.copy("copy-cwl");
    fs::copy(traced.scratch.join("cwl"), copy.join("w.cwl")).unwrap();
    let mut engine = Command::new("cwltool");
    engine.args(options).arg("w.cwl").current_dir(&copy);
    finish(&mut engine).expect(0);
    // The results of the steps; the inputs are where they were.
    let made = contents(&copy.join("results"));
    let inputs = ["in", "in2", "list", "script"].map(PathBuf::from);
    let mut expected = contents(&traced.original);
    expected.retain(|(name, _)| !inputs.contains(name));
    assert_eq!(expected, made);
}

/// HTCondor's own parsers read the DAG and the submit description of each node, where its Python
/// package is installed; only the program that would run the DAG is a stand-in.
fn read_by_htcondor(traced: &Traced, jobs: usize) {
    let bin = traced.scratch.dir("bin");
    let stand_in = bin.join("condor_dagman");
    fs::write(&stand_in, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&stand_in, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(bin).chain(std::env::split_paths(&path));
    let parse = "import re, sys\ntry:\n import htcondor2\nexcept ImportError:\n sys.exit(77)\n\
                 htcondor2.Submit.from_dag(sys.argv[1], {'force': True})\n\
                 text = open(sys.argv[1]).read()\n\
                 nodes = re.findall(r'^JOB (\\S+) \\{\\n(.*?)^\\}', text, re.M | re.S)\n\
                 jobs = [htcondor2.Submit(body) for _, body in nodes]\n\
                 assert all(job['executable'] == '/bin/bash' and job['arguments'] for job in jobs)\n\
                 open(sys.argv[1] + '.wrong', 'w').write(text.replace('PARENT', 'PARNT'))\n\
                 try:\n htcondor2.Submit.from_dag(sys.argv[1] + '.wrong', {'force': True})\n\
                 except Exception: print(len(jobs))";
    let mut python = Command::new("python3");
    python
        .args(["-W", "ignore", "-c", parse])
        .arg(traced.scratch.join("dagman"))
        .env("PATH", std::env::join_paths(path).unwrap())
        .env("CONDOR_CONFIG", "/dev/null");
    let output = python.output().unwrap();
    if output.status.code() == Some(77) {
        crate::support::skip("no htcondor for python3: pip install htcondor");
        return;
    }
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said.trim(), jobs.to_string(), "{output:?}");
}

/// Pegasus' own parser reads the DAX, and HTCondor's the DAG; their engines need services that are not here.
#[test]
fn declared_graphs_are_whole() {
    let Some(traced) = traced(FOR_ENGINES, &[], &["bash", "script"]) else {
        return;
    };
    for format in ["pegasus", "dax", "dagman"] {
        let (code, errors) = traced.generate(format, &[]);
        assert_eq!(code, 0, "{errors}");
    }
    let yaml = traced.text("pegasus");
    let body: String = yaml.lines().filter(|line| !line.starts_with('#')).collect();
    let workflow: serde_json::Value = serde_json::from_str(&body).unwrap();
    let jobs = workflow["jobs"].as_array().unwrap();
    let ids: Vec<&str> = jobs.iter().map(|job| job["id"].as_str().unwrap()).collect();
    for dependency in workflow["jobDependencies"].as_array().unwrap() {
        assert!(ids.contains(&dependency["id"].as_str().unwrap()));
        let children = dependency["children"].as_array().unwrap();
        assert!(!children.is_empty());
        assert!(
            children
                .iter()
                .all(|child| ids.contains(&child.as_str().unwrap()))
        );
    }
    // Every input existed before, or another job makes it.
    let before: Vec<&str> = workflow["replicaCatalog"]["replicas"]
        .as_array()
        .unwrap()
        .iter()
        .map(|replica| replica["lfn"].as_str().unwrap())
        .collect();
    let made = |lfn: &str| {
        let mut uses = jobs.iter().flat_map(|job| job["uses"].as_array().unwrap());
        uses.any(|used| used["lfn"] == lfn && used["type"] != "input")
    };
    for used in jobs.iter().flat_map(|job| job["uses"].as_array().unwrap()) {
        let lfn = used["lfn"].as_str().unwrap();
        assert!(before.contains(&lfn) || made(lfn), "{lfn}");
    }
    let dag = traced.text("dagman");
    assert_eq!(dag.matches("\nJOB ").count(), ids.len());
    read_by_htcondor(&traced, ids.len());
    for line in dag.lines().filter(|line| line.starts_with("PARENT ")) {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(ids.contains(&words[1]) && ids.contains(&words[3]), "{line}");
    }
    let parse = "import sys\ntry:\n import Pegasus.DAX3 as d\nexcept ImportError:\n sys.exit(77)\n\
                 print(len(d.parse(sys.argv[1]).jobs))";
    let mut python = Command::new("python3");
    python
        .args(["-W", "ignore", "-c", parse])
        .arg(traced.scratch.join("dax"));
    let output = python.output().unwrap();
    if output.status.code() == Some(77) {
        crate::support::skip("no pegasus-wms.dax for python3");
        return;
    }
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said.trim(), ids.len().to_string(), "{output:?}");
}

/// Links to files and directories, relative and in full, that are renamed, replaced and removed.
const LINKS: &str = r#"
ln -s ../in d/link
sort d/link > s
ln -s "$PWD/in2" abs
wc -l < abs > n
mkdir m; ln -s m dir; cp in dir/x; cat dir/x > y
ln -s in2 gone; cat gone > g; rm gone
mv abs "new name"; head -n 3 "new name" > h
ln -sfn ../in2 d/link; sort -r d/link > r
rm dir
"#;

#[test]
fn links_come_back() {
    let Some(traced) = traced(LINKS, &[], &["bash", "script"]) else {
        return;
    };
    traced.comes_back();
}

/// CWL has no links: the steps get them, and the results are copies.
#[test]
fn links_are_passed_on_in_cwl() {
    if !has_engine("cwltool") {
        return;
    }
    let Some(traced) = traced(LINKS, &[], &["bash", "script"]) else {
        return;
    };
    by_cwltool(&traced);
}

/// Files in a listed directory that are not in the trace are read when the document is made. A directory that
/// does not exist any more is reported.
#[test]
fn a_missing_listed_directory_is_reported_in_cwl() {
    let script = "ls d > names; sort in > s";
    let Some(traced) = traced(script, &[], &["bash", "script"]) else {
        return;
    };
    let (_, errors) = traced.generate("cwl", &[]);
    assert!(!errors.contains("cannot be read now"), "{errors}");
    fs::rename(traced.original.join("d"), traced.scratch.join("moved")).unwrap();
    let (_, errors) = traced.generate("cwl", &[]);
    assert!(
        errors.contains("/original/d was listed and cannot be read now (No such file"),
        "{errors}"
    );
    // Formats that copy nothing need no message.
    let (_, errors) = traced.generate("make", &[]);
    assert!(!errors.contains("cannot be read now"), "{errors}");
}

/// Processes that serve others over a socket belong to the step that started them, which stays one step.
#[test]
fn a_step_with_a_manager_of_multiprocessing_comes_back() {
    if !has_engine("python3") {
        return;
    }
    let script = r#"
python3 -c "
from multiprocessing import Manager, Process
def work(d, n): d[n] = open('in').read().count(str(n))
with Manager() as manager:
    d = manager.dict()
    processes = [Process(target=work, args=(d, n)) for n in range(3)]
    [p.start() for p in processes]; [p.join() for p in processes]
    open('counts', 'w').write(repr(sorted(d.items())))
"
sort -r counts in > s
"#;
    let Some(traced) = traced(script, &[], &["bash", "script"]) else {
        return;
    };
    assert!(traced.original.join("counts").exists());
    traced.comes_back();
}
