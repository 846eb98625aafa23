//! What other programs make of the exports of a hand-made trace.

use std::path::{Path, PathBuf};
use std::process::Command;

mod support;

#[path = "../profiler/tests/support/montage.rs"]
mod montage;

use support::{flowtrace, shared};

fn sample() -> tempfile::TempDir {
    let (directory, path) = montage::montage_file(4, false);
    let trace = flowtrace_schema::Trace::open(&path).unwrap();
    let rules = flowtrace_profiler::rules::infer(&trace).unwrap();
    drop(trace);
    flowtrace_schema::store_rules(&path, rules).unwrap();
    directory
}

fn export(directory: &Path, format: &str, more: &[&str]) -> Vec<u8> {
    let output = flowtrace(directory, &[&["export", "trace.db", format], more].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{format}: {said}");
    output.stdout
}

fn json(directory: &Path, format: &str) -> serde_json::Value {
    serde_json::from_slice(&export(directory, format, &[])).unwrap()
}

/// Runs a validator of `../shared` on files; it is skipped, loudly, where a program or package that it needs
/// is missing.
fn validate(script: &str, options: &[&str], files: &[PathBuf]) {
    let Some(script) = shared(&format!("validators/{script}")) else {
        return;
    };
    let output = Command::new("/usr/bin/python3")
        .arg(&script)
        .args(options)
        .args(files)
        .output();
    let Ok(output) = output else {
        return support::skip("no /usr/bin/python3");
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.code() {
        Some(0) => {}
        Some(2) => support::skip(&format!("{}: {said}", script.display())),
        _ => panic!(
            "{}: {said}{}",
            script.display(),
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}

#[test]
fn graphs_are_the_same_in_every_format() {
    let directory = sample();
    for by in ["process", "rule", "twins"] {
        let write = |format: &str, ending: &str| {
            let path = directory.path().join(format!("{by}.{ending}"));
            std::fs::write(&path, export(directory.path(), format, &["--by", by])).unwrap();
            path
        };
        let cytoscape = write("cytoscape", "cyjs");
        let text = std::fs::read_to_string(&cytoscape).unwrap();
        let graph: serde_json::Value = serde_json::from_str(&text).unwrap();
        let count = |what: &str| graph["elements"][what].as_array().unwrap().len();
        let (nodes, edges) = (count("nodes"), count("edges"));
        let gml = std::fs::read_to_string(write("gml", "gml")).unwrap();
        assert_eq!(gml.matches("\n  node [").count(), nodes);
        assert_eq!(gml.matches("\n  edge [").count(), edges);
        assert!(gml.is_ascii());
        write("graphml", "graphml");
        write("dot", "dot");
        // One format at a time, so that one missing package does not hide the others.
        for ending in ["cyjs", "gml", "graphml", "dot"] {
            let (nodes, edges) = (nodes.to_string(), edges.to_string());
            validate(
                "graph_check.py",
                &["--nodes", &nodes, "--edges", &edges],
                &[directory.path().join(format!("{by}.{ending}"))],
            );
        }
    }
}

#[test]
fn wfformat_is_valid_and_has_the_dependencies_of_the_data() {
    let directory = sample();
    let path = directory.path().join("run.json");
    std::fs::write(&path, export(directory.path(), "wfformat", &[])).unwrap();
    validate(
        "wfformat_check.py",
        &["--own-only", "--strict"],
        std::slice::from_ref(&path),
    );
    let instance = json(directory.path(), "wfformat");
    let tasks = instance["workflow"]["specification"]["tasks"]
        .as_array()
        .unwrap();
    let of = |name: &str| -> Vec<&serde_json::Value> {
        tasks.iter().filter(|task| task["name"] == name).collect()
    };
    assert_eq!((of("mProject").len(), of("mDiffFit").len()), (4, 3));
    let parents: Vec<&str> = of("mDiffFit")[0]["parents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p.as_str().unwrap().split('_').next().unwrap())
        .collect();
    assert_eq!(parents, ["mMakeHdr", "mProject", "mProject"]);
    assert_eq!(
        export(directory.path(), "wfformat", &[]),
        std::fs::read(&path).unwrap()
    );
}

/// Slices of one track nest, and arrows go forward in time.
#[test]
fn chrome_slices_nest() {
    let directory = sample();
    let trace = json(directory.path(), "chrome");
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |phase: &str| {
        events
            .iter()
            .filter(|e| e["ph"] == phase)
            .collect::<Vec<_>>()
    };
    let number = |e: &serde_json::Value, key: &str| e[key].as_f64().unwrap();
    let slices = of("X");
    assert!(slices.len() > 20);
    for a in &slices {
        for b in slices.iter().filter(|b| b["tid"] == a["tid"]) {
            let (a0, b0) = (number(a, "ts"), number(b, "ts"));
            let (a1, b1) = (a0 + number(a, "dur"), b0 + number(b, "dur"));
            let is_apart = a1 <= b0 + 1e-3 || b1 <= a0 + 1e-3;
            let is_nested = a0 <= b0 && b1 <= a1 + 1e-3 || b0 <= a0 && a1 <= b1 + 1e-3;
            assert!(is_apart || is_nested, "{a} {b}");
        }
    }
    let (starts, ends) = (of("s"), of("f"));
    assert!(!starts.is_empty());
    assert_eq!(starts.len(), ends.len());
    for start in starts {
        let end = ends.iter().find(|end| end["id"] == start["id"]).unwrap();
        assert!(number(start, "ts") <= number(end, "ts"));
    }
}

/// The packets of a protobuf trace: (field, bytes) of each, by the wire format alone.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first < 0x80 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let (number, content): (u64, &[u8]) = match key & 7 {
            0 => (varint(&mut bytes), &[]),
            1 => {
                let (value, rest) = bytes.split_at(8);
                bytes = rest;
                (0, value)
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                (0, value)
            }
            other => panic!("wire type {other}"),
        };
        found.push((key >> 3, number, content));
    }
    found
}

#[test]
fn perfetto_slices_open_and_close() {
    let directory = sample();
    let bytes = export(directory.path(), "perfetto", &[]);
    let packets = fields(&bytes);
    assert!(packets.iter().all(|p| p.0 == 1));
    let mut open: std::collections::BTreeMap<u64, i64> = Default::default();
    let mut tracks = 0;
    for (_, _, packet) in packets {
        let packet = fields(packet);
        assert!(packet.iter().any(|f| f.0 == 10), "a sequence");
        tracks += packet.iter().filter(|f| f.0 == 60).count();
        for event in packet.iter().filter(|f| f.0 == 11) {
            let event = fields(event.2);
            let get = |field: u64| event.iter().find(|f| f.0 == field).unwrap().1;
            let depth = open.entry(get(11)).or_default();
            *depth += if get(9) == 1 { 1 } else { -1 };
            assert!(*depth >= 0);
        }
    }
    assert_eq!(
        tracks,
        1 + open.len(),
        "the run, and a track of each process"
    );
    assert!(open.values().all(|&depth| depth == 0));
}

#[test]
fn every_view_is_a_csv_file() {
    let directory = sample();
    let output = flowtrace(
        directory.path(),
        &["export", "trace.db", "csv", "-o", "tables"],
    );
    assert_eq!(output.status.code(), Some(0));
    for view in flowtrace_schema::doc::views() {
        let file = directory.path().join(format!("tables/{}.csv", view.name));
        let text = std::fs::read_to_string(&file).unwrap();
        let header = text.lines().next().unwrap();
        let columns: Vec<&str> = view.columns.iter().map(|c| c.0.as_str()).collect();
        assert_eq!(header, columns.join(","), "{}", view.name);
    }
    let nowhere = flowtrace(directory.path(), &["export", "trace.db", "csv"]);
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("-o DIR"));
}

#[test]
fn parts_of_the_graph() {
    let directory = sample();
    let nodes = |options: &[&str]| -> Vec<String> {
        let text = export(directory.path(), "cytoscape", options);
        let graph: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let label = |node: &serde_json::Value| {
            let label = node["data"]["label"].as_str().unwrap();
            label.split(['\n', ' ']).next().unwrap().to_owned()
        };
        let nodes = graph["elements"]["nodes"].as_array().unwrap();
        let mut labels: Vec<String> = nodes.iter().map(label).collect();
        labels.sort();
        labels
    };
    let all = nodes(&[]).len();
    assert_eq!(nodes(&["--file", "mosaic.png"]), ["mViewer", "mosaic.png"]);
    assert_eq!(
        nodes(&["--between", "corrections.tbl", "out/corr/t00.fits"]),
        ["corrections.tbl", "mBackground", "t00.fits"]
    );
    let above = nodes(&["--ancestors-of", "mosaic.fits"]);
    assert!(
        above.contains(&"mProject".into()) && !above.contains(&"mViewer".into()),
        "{above:?}"
    );
    let below = nodes(&["--descendants-of", "mBgModel"]);
    assert!(
        below.contains(&"mosaic.png".into()) && !below.contains(&"mDiffFit".into()),
        "{below:?}"
    );
    assert_eq!(nodes(&["--rule", "mView*"]).len(), 3);
    assert!(nodes(&["--within", "0..0.02"]).len() < 6);
    assert_eq!(
        nodes(&["--process", "1"]).len(),
        all,
        "make is the root of all"
    );
    assert_eq!(nodes(&["--reduce"]).len(), all);
    let edges = |options: &[&str]| {
        let text = export(directory.path(), "cytoscape", options);
        let graph: serde_json::Value = serde_json::from_slice(&text).unwrap();
        graph["elements"]["edges"].as_array().unwrap().len()
    };
    assert!(edges(&["--reduce"]) < edges(&[]));
    for wrong in [
        &["--file", "nothing*"][..],
        &["--within", "3..1"],
        &["--by", "colour"],
    ] {
        let output = flowtrace(
            directory.path(),
            &[&["export", "trace.db", "dot"], wrong].concat(),
        );
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}

/// A script that takes the number of lines of a file into a variable, and writes it into another; at its
/// end it counts what there is, with which nothing else has to do.
fn script_with_answers() -> tempfile::TempDir {
    use flowtrace_schema::Direction::{Read, Write};
    let directory = tempfile::tempdir().unwrap();
    let mut s = montage::Script::new(&directory.path().join("trace.db"), "t.sh");
    let shell = s.root(("/bin/bash", &["bash", "t.sh"]), 0);
    let sort = s.program(shell, "sort", (10, 50), 0);
    let wc = s.program(shell, "wc", (60, 80), 0);
    let ls = s.program(shell, "ls", (110, 120), 0);
    for (child, (from, to)) in [(wc, (60, 80)), (ls, (110, 120))] {
        let pipe = s.pipe();
        s.holds(child, pipe, Write, (from, to), None);
        s.holds(shell, pipe, Read, (from - 1, to + 1), None);
    }
    let mut file = |name: &str, at| {
        s.file(
            &format!("/w/{name}"),
            flowtrace_schema::FileKind::File,
            10,
            at,
        )
    };
    let (script, sorted, count) = (file("list", 5), file("sorted", 20), file("count", 90));
    s.create(shell, script, 1, 10, 5);
    s.read(sort, script, 1, 10, 20);
    s.create(sort, sorted, 1, 10, 30);
    s.read(wc, sorted, 1, 10, 70);
    s.create(shell, count, 1, 2, 90);
    s.end(shell, 130, Some(0), None, 20);
    s.finish(131, 0);
    directory
}

#[test]
fn a_script_that_takes_an_answer_is_two_versions_and_loses_no_lineage() {
    let directory = script_with_answers();
    let graph = |options: &[&str]| -> (Vec<String>, String) {
        let ask = [
            "dag",
            "trace.db",
            "--by",
            "process",
            "--format",
            "cytoscape",
        ];
        let answer = flowtrace(directory.path(), &[&ask[..], options].concat());
        assert_eq!(answer.status.code(), Some(0));
        let graph: serde_json::Value = serde_json::from_slice(&answer.stdout).unwrap();
        let nodes = graph["elements"]["nodes"].as_array().unwrap().iter();
        let name = |node: &serde_json::Value| {
            let data = &node["data"];
            match data["path"].as_str() {
                Some(path) => path.to_owned(),
                None => format!("{} {}", data["rule"].as_str().unwrap(), data["version"]),
            }
        };
        let mut names: Vec<String> = nodes.map(name).collect();
        names.sort();
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        (names, said)
    };
    let (names, said) = graph(&["--ancestors-of", "count"]);
    let all = [
        "/w/count",
        "/w/list",
        "/w/sorted",
        "sort null",
        "t.sh 1",
        "t.sh 2",
        "wc null",
    ];
    assert_eq!(names, all);
    assert!(!said.contains("incomplete"), "{said}");
    // What came last is the source of nothing.
    assert_eq!(graph(&["--descendants-of", "ls"]).0, ["ls null", "t.sh 3"]);
    let (names, said) = graph(&[]);
    assert_eq!(names.len(), all.len() + 2);
    assert!(!said.contains("left out"), "{said}");

    let text = flowtrace(directory.path(), &["dag", "trace.db", "--format", "text"]).stdout;
    let text = String::from_utf8(text).unwrap();
    let shape = "t.sh [1/3] → sort → wc → t.sh [2/3] → ls → t.sh [3/3]";
    assert_eq!(text.lines().next(), Some(shape), "{text}");

    let path = directory.path().join("run.json");
    std::fs::write(&path, export(directory.path(), "wfformat", &[])).unwrap();
    let strict = ["--own-only", "--strict"];
    validate("wfformat_check.py", &strict, std::slice::from_ref(&path));
    let instance = json(directory.path(), "wfformat");
    let tasks = &instance["workflow"]["specification"]["tasks"];
    let ids: Vec<&str> = tasks
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), 6, "{ids:?}");
    assert!(ids.iter().any(|id| id.ends_with(":3")), "{ids:?}");
}

/// The recording begins before the command; what people read and type counts from the command.
#[test]
fn moments_count_from_the_start_of_the_command() {
    let second = 1000;
    let directory = tempfile::tempdir().unwrap();
    let mut s = montage::Script::new(&directory.path().join("trace.db"), "t.sh");
    let shell = s.root(("/bin/bash", &["bash", "t.sh"]), 5 * second);
    let early = s.program(shell, "early", (6 * second, 7 * second), 0);
    let late = s.program(shell, "late", (8 * second, 9 * second), 0);
    for (child, name, at) in [(early, "one", 6), (late, "two", 8)] {
        let kind = flowtrace_schema::FileKind::File;
        let file = s.file(&format!("/w/{name}"), kind, 10, at * second);
        s.create(child, file, 1, 10, at * second);
    }
    s.end(shell, 10 * second, Some(0), None, 20);
    s.finish(10 * second, 0);
    let say = |arguments: &[&str]| {
        let answer = flowtrace(directory.path(), arguments);
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert_eq!(answer.status.code(), Some(0), "{said}");
        String::from_utf8(answer.stdout).unwrap()
    };
    let line = |text: &str, of: &str| -> String {
        let found = text.lines().find(|line| line.ends_with(of));
        found.unwrap_or_else(|| panic!("{of} in {text}")).to_owned()
    };
    let tree = say(&["tree", "trace.db"]);
    assert!(
        line(&tree, " late").trim_start().starts_with("3.0 s"),
        "{tree}"
    );
    let path = say(&["critical-path", "trace.db", "--full"]);
    assert!(
        line(&path, " late").trim_start().starts_with("3.0 s"),
        "{path}"
    );
    // Of the first bin the 10 bytes at 1 s.
    let bins = say(&["stats", "trace.db", "throughput", "--bins", "2"]);
    let first = bins.lines().nth(2).unwrap().trim_start().to_owned();
    assert!(first.starts_with("0 s"), "{bins}");
    let stored = say(&[
        "stats",
        "trace.db",
        "throughput",
        "--format",
        "csv",
        "--bins",
        "2",
    ]);
    assert!(
        stored.lines().nth(1).unwrap().starts_with("5000000000,"),
        "{stored}"
    );
    // What one prints the other understands.
    let part = say(&["dag", "trace.db", "--within", "2.9..3.1", "--by", "process"]);
    assert!(
        part.contains("/w/two") && !part.contains("/w/one"),
        "{part}"
    );
}

#[test]
fn what_cannot_be_is_refused() {
    let directory = sample();
    for (wrong, why) in [
        (
            &["dag", "--within", "100..200"][..],
            "the processes lived from",
        ),
        (
            &["dag", "--between", "mosaic.png", "t00.fits"],
            "no data leads",
        ),
        (
            &["dag", "--rule", "mAdd", "--file", "pimages.tbl"],
            "at once",
        ),
        (&["dag", "--format", "text", "--by", "process"], "no shape"),
        (
            &["dag", "--format", "text", "--max-nodes", "3"],
            "--max-nodes",
        ),
        (
            &["export", "csv", "--rule", "mAdd", "-o", "tables"],
            "are for graphs",
        ),
        (&["stats", "cdf", "--only", "nosuch"], "nothing is called"),
    ] {
        let mut arguments = vec![wrong[0], "trace.db"];
        arguments.extend(&wrong[1..]);
        let output = flowtrace(directory.path(), &arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {said}");
        assert!(said.contains(why), "{wrong:?}: {said}");
    }
    let shape = |by: &str| {
        let arguments = ["dag", "trace.db", "--format", "text", "--by", by];
        flowtrace(directory.path(), &arguments).stdout
    };
    assert_ne!(shape("level"), shape("rule"));
}

#[test]
fn the_ending_of_the_output_decides_its_format() {
    let directory = sample();
    for (name, begin) in [
        ("a.graphml", "<?xml"),
        ("a.gml", "graph ["),
        ("a.cyjs", "{"),
        ("a.dot", "digraph"),
    ] {
        let done = flowtrace(directory.path(), &["dag", "trace.db", "-o", name]);
        assert_eq!(done.status.code(), Some(0));
        let text = std::fs::read_to_string(directory.path().join(name)).unwrap();
        assert!(text.starts_with(begin), "{name}: {}", &text[..40]);
    }
}

#[test]
fn rules_are_named_by_a_file() {
    let directory = sample();
    std::fs::write(
        directory.path().join("names"),
        "# names\nreproject: mProject *\nbackground: mB*\n",
    )
    .unwrap();
    let arguments = ["dag", "trace.db", "--format", "text", "--rules", "names"];
    let output = flowtrace(directory.path(), &arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    let shape = text.lines().next().unwrap();
    assert!(
        shape.contains("4 × reproject → ") && shape.contains("4 × background"),
        "{shape}"
    );
}

#[test]
fn pictures_need_graphviz_and_say_so() {
    let directory = sample();
    let output = Command::new(env!("CARGO_BIN_EXE_flowtrace"))
        .args(["dag", "trace.db", "--format", "svg"])
        .current_dir(directory.path())
        .env("PATH", "/nowhere")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("not installed") && said.contains("hint: "),
        "{said}"
    );
    if Command::new("dot").arg("-V").output().is_err() {
        return support::skip("dot is not installed");
    }
    let svg = flowtrace(directory.path(), &["dag", "trace.db", "--format", "svg"]).stdout;
    assert!(String::from_utf8(svg).unwrap().contains("</svg>"));
    let arguments = [
        "stats", "trace.db", "cdf", "--of", "life", "--format", "png",
    ];
    let png = flowtrace(directory.path(), &arguments).stdout;
    assert_eq!(&png[1..4], b"PNG");
}
