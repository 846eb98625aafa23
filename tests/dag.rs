//! `flowtrace dag` on hand-made traces: the part of the graph that is drawn, its names, and refused options.

mod support;

#[path = "support/exported.rs"]
mod exported;
#[path = "../profiler/tests/support/montage.rs"]
mod montage;

use exported::{export, json, sample, validate};
use support::flowtrace;

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
    // The last parts of a path are enough.
    let by_end = nodes(&["--file", "corr/t00.fits"]);
    assert_eq!(by_end, nodes(&["--file", "out/corr/t00.fits"]));
    assert!(by_end.contains(&"t00.fits".into()), "{by_end:?}");
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

/// Trace of a script that takes the number of lines of a file into a variable and writes it into another
/// file. At its end it takes the output of `ls`, on which nothing depends.
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
    // The last command is the source of nothing.
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

/// A program is used before and after another one. That makes two groups of one rule, and each group reports
/// its own unread files.
#[test]
fn groups_of_a_rule_count_their_own_files() {
    let directory = tempfile::tempdir().unwrap();
    let mut s = montage::Script::new(&directory.path().join("trace.db"), "t.sh");
    let shell = s.root(("/bin/dash", &["sh", "t.sh"]), 0);
    let mut between = None;
    for (part, begin, count) in [("a", 10, 3), ("b", 60, 2)] {
        let mut made = Vec::new();
        for at in begin..begin + count {
            let tee = s.program(shell, "tee", (at, at + 5), 0);
            if let Some(before) = between {
                s.read(tee, before, 1, 10, at + 1);
            }
            for name in ["log", "out"] {
                let path = format!("/w/{part}/{name}.{at}");
                let file = s.file(&path, flowtrace_schema::FileKind::File, 10, at);
                s.create(tee, file, 1, 10, at + 2);
                made.push(file);
            }
        }
        let cat = s.program(shell, "cat", (begin + 20, begin + 30), 0);
        for outs in made.chunks(2) {
            s.read(cat, outs[1], 1, 10, begin + 21);
        }
        let path = format!("/w/all.{part}");
        let all = s.file(&path, flowtrace_schema::FileKind::File, 10, begin + 22);
        s.create(cat, all, 1, 10, begin + 25);
        between = Some(all);
    }
    s.end(shell, 130, Some(0), None, 20);
    s.finish(131, 0);
    let text = flowtrace(directory.path(), &["dag", "trace.db", "--format", "text"]).stdout;
    let text = String::from_utf8(text).unwrap();
    for line in [
        "tee ×3: nothing → a/log.* ×3, a/out.* ×3",
        "tee ×2: all.a → b/log.* ×2, b/out.* ×2",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

/// Only the newest version of a file has the size that the file had when last seen.
#[test]
fn versions_that_were_replaced_have_no_size() {
    let directory = tempfile::tempdir().unwrap();
    let mut s = montage::Script::new(&directory.path().join("trace.db"), "t.sh");
    let shell = s.root(("/bin/dash", &["sh", "t.sh"]), 0);
    let list = s.file("/w/list", flowtrace_schema::FileKind::File, 5000, 10);
    let first = s.program(shell, "first", (10, 20), 0);
    s.create(first, list, 1, 10, 15);
    let reader = s.program(shell, "reader", (30, 40), 0);
    s.read(reader, list, 1, 10, 35);
    let second = s.program(shell, "second", (50, 60), 0);
    s.call(
        second,
        list,
        flowtrace_schema::Op::Write,
        None,
        Some(4990),
        55,
    );
    s.end(shell, 130, Some(0), None, 20);
    s.finish(131, 0);
    let sizes = |by: &str| -> Vec<Option<i64>> {
        let text = export(directory.path(), "cytoscape", &["--by", by]);
        let graph: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let nodes = graph["elements"]["nodes"].as_array().unwrap().iter();
        let files = nodes.filter(|node| !node["data"]["path"].is_null());
        let mut sizes: Vec<_> = files
            .map(|node| node["data"]["size_bytes"].as_i64())
            .collect();
        sizes.sort_unstable();
        sizes
    };
    for by in ["process", "rule", "twins"] {
        assert_eq!(sizes(by), [None, Some(5000)], "{by}");
    }
    let instance = json(directory.path(), "wfformat");
    let files = &instance["workflow"]["specification"]["files"];
    let sizes: Vec<_> = files
        .as_array()
        .unwrap()
        .iter()
        .map(|file| {
            (
                file["sizeInBytes"].as_i64(),
                file["flowtrace"]["sizeIsKnown"].as_bool(),
            )
        })
        .collect();
    assert_eq!(sizes, [(Some(0), Some(false)), (Some(5000), Some(true))]);
}

/// `mv x.tmp x` does not change the origin of a file, by whichever name it is requested.
#[test]
fn a_renamed_file_has_its_ancestors() {
    let directory = tempfile::tempdir().unwrap();
    let mut s = montage::Script::new(&directory.path().join("trace.db"), "t.sh");
    let shell = s.root(("/bin/dash", &["sh", "t.sh"]), 0);
    let mut file = |name: &str, at| {
        s.file(
            &format!("/w/{name}"),
            flowtrace_schema::FileKind::File,
            10,
            at,
        )
    };
    let (made, copy, other) = (file("x.tmp", 10), file("y", 50), file("d/x", 70));
    let seq = s.program(shell, "seq", (10, 20), 0);
    s.create(seq, made, 1, 10, 15);
    s.name_end(made, "/w/x.tmp", 30);
    s.name(made, "/w/x", 30);
    let cat = s.program(shell, "cat", (40, 60), 0);
    s.read(cat, made, 1, 10, 45);
    s.create(cat, copy, 1, 10, 50);
    let tee = s.program(shell, "tee", (65, 80), 0);
    s.create(tee, other, 1, 10, 70);
    s.end(shell, 130, Some(0), None, 20);
    s.finish(131, 0);
    let above = |name: &str| -> Vec<String> {
        let ask = ["--by", "process", "--ancestors-of", name];
        let text = export(directory.path(), "cytoscape", &ask);
        let graph: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let nodes = graph["elements"]["nodes"].as_array().unwrap().iter();
        let label = |node: &serde_json::Value| node["data"]["label"].as_str().map(String::from);
        let mut labels: Vec<String> = nodes.filter_map(label).collect();
        labels
            .iter_mut()
            .for_each(|label| label.truncate(label.find(['\n', ' ']).unwrap_or(label.len())));
        labels.sort();
        labels
    };
    assert_eq!(above("y"), ["cat", "seq", "x", "y"]);
    for name in ["x.tmp", "/w/x.tmp", "./x", "./x.tmp"] {
        assert_eq!(above(name), ["seq", "x"], "{name}");
    }
    assert_eq!(above("x"), ["seq", "tee", "x", "x"]);
}

/// The recording begins before the command. Times in options and output count from the start of the command.
#[test]
fn times_count_from_the_start_of_the_command() {
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
    // The first bin has the 10 bytes at 1 s.
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
    // Each command accepts the names that the other one prints.
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

/// Nodes and edges of a trace's graph in Cytoscape JSON.
fn graph(directory: &std::path::Path, options: &[&str]) -> [Vec<serde_json::Value>; 2] {
    let ask = [&["dag", "trace.db", "--format", "cytoscape"], options].concat();
    let answer = flowtrace(directory, &ask);
    let said = String::from_utf8_lossy(&answer.stderr).into_owned();
    assert_eq!(answer.status.code(), Some(0), "{said}");
    let graph: serde_json::Value = serde_json::from_slice(&answer.stdout).unwrap();
    ["nodes", "edges"].map(|what| {
        let all = graph["elements"][what].as_array().unwrap();
        all.iter().map(|one| one["data"].clone()).collect()
    })
}

/// Source and target of an edge; an edge that leads back is stored the other way round.
fn leads(edge: &serde_json::Value) -> (&str, &str) {
    let [from, to] = ["source", "target"].map(|end| edge[end].as_str().unwrap());
    if edge["dir"] == "back" {
        (to, from)
    } else {
        (from, to)
    }
}

/// mProject reads 2 MB in 20 calls of 0.1 ms each and works for 900 ms: that is 1 GB/s.
#[test]
fn a_rate_is_over_the_time_in_calls() {
    let directory = sample();
    let [nodes, edges] = graph(directory.path(), &["--by", "process"]);
    let input = nodes
        .iter()
        .find(|n| n["path"] == "/w/in/t00.fits")
        .unwrap();
    let read = edges.iter().find(|e| e["source"] == input["id"]).unwrap();
    assert_eq!(read["kind"], "read");
    assert_eq!(
        (&read["bytes"], &read["latency_ns"]),
        (&2_000_000.into(), &2_000_000.into())
    );
    assert_eq!(read["bytes_per_s"], 1_000_000_000);
    assert_eq!(read["label"], "2.0 MB\n1.0 GB/s");
    // The numbers of all four processes of a rule together: bytes and times are summed.
    let [_, edges] = graph(directory.path(), &["--by", "rule"]);
    let all = edges.iter().find(|e| e["bytes"] == 8_000_000).unwrap();
    assert_eq!(all["bytes_per_s"], 1_000_000_000);
    // A file that grows a second time at the end of a run was not written slowly.
    for edge in edges.iter().filter(|edge| edge["bytes"] != 0) {
        let rate = edge["bytes_per_s"].as_i64();
        assert!(rate.is_none_or(|rate| rate > 100_000), "{edge}");
    }
}

/// The processes in red are exactly those that `critical-path` names. One path leads through them: at most
/// one edge into each of them, all of them connected.
#[test]
fn one_critical_path_is_marked() {
    let directory = sample();
    let answer = flowtrace(
        directory.path(),
        &["critical-path", "trace.db", "--format", "json"],
    );
    let path: serde_json::Value = serde_json::from_slice(&answer.stdout).unwrap();
    let upids = path["steps"].as_array().unwrap().iter();
    let upids: std::collections::BTreeSet<i64> =
        upids.map(|s| s["upid"].as_i64().unwrap()).collect();
    for by in ["process", "rule", "twins"] {
        let [nodes, edges] = graph(directory.path(), &["--by", by]);
        let is_on = |what: &&serde_json::Value| what["on_critical_path"] == 1;
        let on: Vec<&str> = nodes
            .iter()
            .filter(is_on)
            .map(|n| n["id"].as_str().unwrap())
            .collect();
        if by == "process" {
            let own = |node: &&serde_json::Value| {
                let upids_of = node["upids"].as_str().unwrap_or("").split(' ');
                let mut upids_of = upids_of.filter_map(|upid| upid.parse::<i64>().ok());
                upids_of.any(|upid| upids.contains(&upid))
            };
            let is_process = |node: &&serde_json::Value| node["type"] == "process";
            for node in nodes.iter().filter(is_process) {
                assert_eq!(own(&node), is_on(&node), "{node}");
            }
        }
        let steps: Vec<(&str, &str)> = edges.iter().filter(is_on).map(leads).collect();
        assert!(
            steps.len() + 1 >= on.len() && steps.len() <= on.len(),
            "{by}: {steps:?} {on:?}"
        );
        assert!(
            steps
                .iter()
                .all(|(from, to)| on.contains(from) && on.contains(to)),
            "{by}"
        );
        // All red nodes are connected.
        let mut reached = std::collections::BTreeSet::from([on[0]]);
        for _ in 0..on.len() {
            for (from, to) in &steps {
                if reached.contains(from) || reached.contains(to) {
                    reached.extend([from, to]);
                }
            }
        }
        assert_eq!(reached.len(), on.len(), "{by}: {steps:?}");
        assert!(
            edges
                .iter()
                .filter(|e| e["kind"] == "wait")
                .all(|e| e["constraint"] == 0)
        );
    }
}

/// make started awk and reads a file that awk wrote. The fork is drawn from make to awk, and the order is
/// that of the data.
#[test]
fn a_fork_against_the_data_is_drawn_as_such() {
    let directory = sample();
    let [nodes, edges] = graph(directory.path(), &["--by", "process"]);
    let forks: Vec<_> = edges.iter().filter(|e| e["kind"] == "fork").collect();
    let processes = nodes.iter().filter(|n| n["type"] == "process").count();
    assert_eq!(forks.len(), processes - 1, "everybody but make was forked");
    let id = |rule: &str| {
        nodes.iter().find(|n| n["rule"] == rule).unwrap()["id"]
            .as_str()
            .unwrap()
    };
    let fork = forks
        .iter()
        .find(|e| leads(e) == (id("make"), id("awk")))
        .unwrap();
    assert_eq!(
        (&fork["constraint"], &fork["dir"]),
        (&0.into(), &"back".into())
    );
    let dot = flowtrace(directory.path(), &["dag", "trace.db", "--by", "process"]);
    let dot = String::from_utf8(dot.stdout).unwrap();
    let line = format!("  {} -> {} [", id("awk"), id("make"));
    let line = dot
        .lines()
        .find(|l| l.starts_with(&line) && l.contains("fork"))
        .unwrap();
    assert!(
        line.contains("style=dotted, dir=back") && line.contains("constraint=false"),
        "{line}"
    );
}

#[test]
fn the_width_of_lines_is_by_bytes_or_by_rate() {
    let directory = sample();
    let picture = |options: &[&str]| {
        let answer = flowtrace(directory.path(), &[&["dag", "trace.db"], options].concat());
        (
            answer.status.code(),
            String::from_utf8(answer.stdout).unwrap(),
        )
    };
    let (_, bytes) = picture(&[]);
    let (_, rate) = picture(&["--width", "rate"]);
    assert!(bytes.contains("line width: bytes moved"));
    assert!(rate.contains("line width: bytes per second"));
    // 2 MB, and 1 GB/s: 3.3 and 4 decades above the thinnest line.
    let widths = |dot: &str| {
        let line = dot
            .lines()
            .find(|l| l.contains(" -> ") && l.contains("2.0 MB"))
            .unwrap();
        line.split("penwidth=").nth(1).unwrap()[..3].to_owned()
    };
    assert_eq!(
        (widths(&bytes).as_str(), widths(&rate).as_str()),
        ("2.8", "4.0")
    );
    assert_eq!(
        picture(&["--width", "rate", "--format", "graphml"]).0,
        Some(2)
    );
}

/// A machine is one node, with whatever its processes exchanged.
#[test]
fn a_machine_is_one_node() {
    let directory = sample();
    let [nodes, edges] = graph(directory.path(), &["--by", "host"]);
    let hosts: Vec<_> = nodes.iter().filter(|n| n["type"] == "rule").collect();
    assert_eq!((hosts.len(), &hosts[0]["count"]), (1, &20.into()));
    // Files from and to other machines are drawn; files made and used on one machine are counted.
    assert!(
        hosts[0]["label"]
            .as_str()
            .unwrap()
            .contains("files of its own")
    );
    assert!(nodes.len() > 3 && edges.len() == nodes.len() - 1);
}

/// Two jobs that exchange files are one node each, and the edge with less data leads back.
#[test]
fn a_job_is_one_node() {
    use flowtrace_schema::FileKind::File;
    let directory = tempfile::tempdir().unwrap();
    let mut s = montage::Script::new(&directory.path().join("trace.db"), "run");
    let run = s.root(("/bin/sh", &["sh", "run"]), 0);
    let mut files = Vec::new();
    for (at, job, bytes) in [(10, "a", 500), (30, "b", 100), (50, "a", 0)] {
        let step = s.program(run, &format!("step{at}"), (at, at + 10), 0);
        s.variable(step, "JOB", job);
        if let Some(&before) = files.last() {
            s.read(step, before, 1, 100, at + 1);
        }
        let file = s.file(&format!("/w/f{at}"), File, bytes, at + 5);
        s.create(step, file, 1, bytes.max(1), at + 5);
        files.push(file);
    }
    s.end(run, 70, Some(0), None, 20);
    s.finish(71, 0);
    let [nodes, edges] = graph(directory.path(), &["--by", "env:JOB"]);
    let jobs = nodes.iter().filter(|n| n["type"] == "rule");
    let mut jobs: Vec<_> = jobs
        .map(|n| (n["rule"].as_str().unwrap(), n["count"].as_i64().unwrap()))
        .collect();
    jobs.sort_unstable();
    assert_eq!(jobs, [("?", 1), ("a", 2), ("b", 1)]);
    let back: Vec<_> = edges.iter().filter(|e| e["dir"] == "back").collect();
    assert_eq!(back.len(), 1, "{edges:?}");
    assert!(back[0]["kind"] != "fork");
}
