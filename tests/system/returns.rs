//! Files that one process opens for change and another fills: the dependencies of a result according to
//! `dag`.

use std::collections::BTreeSet;

use crate::support::{PYTHON, Scratch, need_fuse, need_program, need_python, prints, run_in};

/// Traces `script` in a directory that has a file `in`, and returns the first words of the labels above
/// `result`.
fn above(scratch: &Scratch, name: &str, script: &str, result: &str) -> BTreeSet<String> {
    let directory = scratch.dir(name);
    std::fs::write(directory.join("in"), "2\n1\n").unwrap();
    let trace = scratch.join(format!("{name}.db"));
    let mut run = run_in(&directory, &trace);
    run.args(["--", "sh", "-c", script]);
    crate::support::process::finish(&mut run).expect(0);
    let graph = prints(
        &directory,
        &[
            "dag",
            trace.to_str().unwrap(),
            "--ancestors-of",
            result,
            "--by",
            "process",
            "--format",
            "cytoscape",
        ],
    );
    let graph: serde_json::Value = serde_json::from_str(&graph).unwrap();
    let label = |node: &serde_json::Value| {
        let label = node["data"]["label"].as_str().unwrap();
        label.split(['\n', ' ']).next().unwrap().to_owned()
    };
    let nodes = graph["elements"]["nodes"].as_array().unwrap();
    nodes.iter().map(label).collect()
}

fn has(found: &BTreeSet<String>, names: &[&str], script: &str) {
    for name in names {
        assert!(
            found.contains(*name),
            "{name} is missing in {found:?}: {script}"
        );
    }
}

#[test]
fn what_a_child_filled_is_read_back() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let scripts = [
        ": > t; sort in >> t; read x < t; echo $x > out",
        "echo header > t; sort in >> t; while read l; do echo $l; done < t > out",
        "bash -c 'echo header > t; sort in >> t; while read l; do echo $l; done < t > out'",
        "sort in > t; : > t; sort in >> t; read x < t; echo $x > out",
    ];
    for (i, script) in scripts.iter().enumerate() {
        let found = above(&scratch, &format!("shell{i}"), script, "out");
        has(&found, &["in", "sort", "t"], script);
    }
    // A file that gives back only a process's own bytes adds no dependency.
    let own = "sort in > t; echo x > u; read x < u; echo $x > out";
    assert!(!above(&scratch, "own", own, "out").contains("sort"));
    if !need_python("subprocess") {
        return;
    }
    let programs = [
        "import subprocess, tempfile
f = tempfile.NamedTemporaryFile(dir='.')
subprocess.run(['sort', 'in', '-o', f.name])
open('out', 'w').write(open(f.name).read())",
        "import subprocess
f = open('t', 'w+b')
subprocess.run(['sort', 'in'], stdout=f)
f.seek(0)
open('out', 'wb').write(f.read())",
        "import subprocess
open('t', 'w').close()
subprocess.run('sort in > t', shell=True)
open('out', 'w').write(open('t').read())",
    ];
    for (i, program) in programs.iter().enumerate() {
        let script = format!("{PYTHON} -c \"{program}\"");
        let found = above(&scratch, &format!("python{i}"), &script, "out");
        has(&found, &["in", "sort"], program);
    }
}

#[test]
fn files_outside_are_made_by_whom_they_were_opened_for() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let outside = scratch.dir("outside").display().to_string();
    let mut scripts = vec![
        "{ sort in; } > $O/t; cat $O/t > out".to_owned(),
        "exec 3> $O/t; sort in >&3; cat $O/t > out".to_owned(),
        "{ sort in; } > $O/t; { uniq; } < $O/t > out".to_owned(),
        "{ sh -c 'sort in'; echo x; } > $O/t; { env cat; } < $O/t > out".to_owned(),
    ];
    if need_python("subprocess") {
        scripts.extend(
            [
                "with open('$O/t', 'w') as f: subprocess.run(['sort', 'in'], stdout=f)
open('out', 'w').write(open('$O/t').read())",
                "f = open('$O/t', 'w+'); subprocess.run(['sort', 'in'], stdout=f); f.seek(0)
open('out', 'w').write(f.read())",
                "import tempfile
f = tempfile.TemporaryFile(dir='$O'); subprocess.run(['sort', 'in'], stdout=f); f.seek(0)
open('out', 'wb').write(f.read())",
            ]
            .map(|program| format!("{PYTHON} -c \"import subprocess\n{program}\"")),
        );
    }
    for (i, script) in scripts.iter().enumerate() {
        let script = script.replace("$O", &outside);
        let found = above(&scratch, &format!("outside{i}"), &script, "out");
        has(&found, &["in", "sort"], &script);
    }
    if !need_program("parallel") {
        return;
    }
    let script = format!("TMPDIR={outside} parallel --will-cite sort ::: in > out");
    has(
        &above(&scratch, "parallel", &script, "out"),
        &["in", "sort"],
        &script,
    );
}

#[test]
fn who_opens_for_change_and_only_reads_is_a_reader() {
    if !need_fuse() || !need_python("mmap") {
        return;
    }
    let scratch = Scratch::new();
    let python = |program: &str| format!("sort in > t; {PYTHON} -c \"{program}\"");
    let programs = [
        "open('out', 'wb').write(open('t', 'r+b').read())",
        "open('t', 'rb').read(); open('out', 'wb').write(open('t', 'r+b').read())",
        // Stores through a mapping are not seen.
        "import mmap; f = open('t', 'r+b'); open('out', 'wb').write(mmap.mmap(f.fileno(), 0)[:])",
    ];
    for (i, program) in programs.iter().enumerate() {
        let script = python(program);
        let found = above(&scratch, &format!("reads{i}"), &script, "out");
        has(&found, &["in", "sort", "t", "python3"], program);
    }
    let stored = python("import mmap; f = open('t', 'r+b'); mmap.mmap(f.fileno(), 0)[0:1] = b'9'");
    let found = above(&scratch, "stores", &format!("{stored}; cat t > out"), "out");
    has(&found, &["in", "sort", "t", "python3", "cat"], &stored);
    let touched = python("open('t', 'r+b').read()") + "; touch t; cat t > out";
    let found = above(&scratch, "touched", &touched, "out");
    has(&found, &["in", "sort", "t", "cat"], &touched);
    assert!(
        !found.contains("touch") && !found.contains("python3"),
        "{found:?}"
    );
}

#[test]
fn a_query_depends_on_what_filled_the_database() {
    if !need_fuse() || !need_program("sqlite3") {
        return;
    }
    let script = "sqlite3 db.sq 'create table t(a);' '.import in t'
        sqlite3 db.sq 'select * from t' > out";
    let found = above(&Scratch::new(), "query", script, "out");
    has(&found, &["in", "db.sq", "sqlite3"], script);
}

/// The report, the levels and the graph of rules have the same order.
#[test]
fn what_came_of_an_answer_is_above_it_everywhere() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    // The time that a program used before an exec may be a tick too large.
    let script = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done
        sort in > o; echo more >> o; n=$(wc -l < o); echo $n > count; cat count > copy";
    let found = above(&scratch, "job", script, "copy");
    has(&found, &["sort", "wc", "cat"], script);
    let trace = scratch.join("job.db");
    let json = |arguments: &[&str]| -> serde_json::Value {
        let mut all = vec![arguments[0], trace.to_str().unwrap()];
        all.extend(&arguments[1..]);
        serde_json::from_str(&prints(&scratch, &all)).unwrap()
    };
    let report = json(&["report", "-o", "-", "--format", "json"]);
    let nodes = report["graph"]["nodes"].as_array().unwrap();
    let shell = nodes
        .iter()
        .filter(|node| node["name"].as_str().unwrap().starts_with("sh -c ["));
    let versions: Vec<_> = shell
        .map(|node| (&node["is_whole"], node["cpu_ns"].as_i64().unwrap() > 0))
        .collect();
    assert!(versions.len() > 1, "{nodes:?}");
    let is_last = |at: usize| at + 1 == versions.len();
    for (at, version) in versions.iter().enumerate() {
        assert_eq!(*version, (&false.into(), is_last(at)), "{versions:?}");
    }
    assert_eq!(report["graph"]["cycle_edges"], 0, "no data is left out");
    let levels = json(&["stats", "levels", "--format", "json"]);
    let names: Vec<&str> = levels
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["phase"].as_str().unwrap())
        .collect();
    let of = |rule: &str| names.iter().position(|name| name.contains(rule));
    assert!(of("wc") < of("cat") && of("sort") < of("wc"), "{names:?}");
}
