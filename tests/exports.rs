//! Other programs load the exports of a hand-made trace.

use std::process::Command;

mod support;

#[path = "support/exported.rs"]
mod exported;
#[path = "../profiler/tests/support/montage.rs"]
mod montage;

use exported::{export, json, sample, validate};
use support::flowtrace;

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
        // One format at a time, so that one missing package does not hide the results of the others.
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

/// Number, integer value and bytes of each field of a protobuf message, by the wire format alone.
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
    // If one table cannot be written, no table is: the earlier files stay.
    let (old, last) = ("tables/calls.csv", "tables/waits.csv");
    std::fs::write(directory.path().join(old), "old").unwrap();
    std::fs::remove_file(directory.path().join(last)).unwrap();
    std::fs::create_dir(directory.path().join(last)).unwrap();
    let files = || std::fs::read_dir(directory.path().join("tables")).unwrap();
    let before = files().count();
    let refused = flowtrace(
        directory.path(),
        &["export", "trace.db", "csv", "-o", "tables", "--force"],
    );
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains(last) && said.contains("nothing of this export was kept"),
        "{said}"
    );
    assert_eq!(files().count(), before);
    let stands = std::fs::read_to_string(directory.path().join(old)).unwrap();
    assert_eq!(stands, "old");
    let nowhere = flowtrace(directory.path(), &["export", "trace.db", "csv"]);
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("-o DIR"));
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

/// A result replaces an earlier result, but never a file that flowtrace did not write.
#[test]
fn a_result_replaces_only_what_flowtrace_wrote() {
    let directory = sample();
    let at = |name: &str| directory.path().join(name);
    let trace = at("trace.db");
    let write = |command: &[&str], options: &[&str]| {
        let (name, rest) = command.split_first().unwrap();
        let mut run = Command::new(env!("CARGO_BIN_EXE_flowtrace"));
        run.arg(name).arg(&trace).args(rest).args(options);
        let output = run.current_dir(directory.path()).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let commands: &[&[&str]] = &[
        &["summary"],
        &["tree"],
        &["dag"],
        &["stats"],
        &["critical-path"],
        &["bottlenecks"],
        &["waits"],
        &["resources"],
        &["report"],
        &["query", "SELECT 1"],
        &["export", "perfetto"],
    ];
    for command in commands {
        std::fs::write(at("mine"), "all my work").unwrap();
        let (code, errors) = write(command, &["-o", "mine"]);
        assert_eq!(code, Some(2), "{command:?}: {errors}");
        assert!(errors.contains("replace this one with --force"), "{errors}");
        assert_eq!(std::fs::read(at("mine")).unwrap(), b"all my work");
        let (code, errors) = write(command, &["-o", "mine", "--force"]);
        assert_eq!(code, Some(0), "{command:?}: {errors}");
        assert_ne!(std::fs::read(at("mine")).unwrap(), b"all my work");
    }
    // One file for each view; all of them or none.
    std::fs::create_dir(at("tables")).unwrap();
    std::fs::write(at("tables/processes.csv"), "all my work").unwrap();
    let (code, _) = write(&["export", "csv"], &["-o", "tables"]);
    assert_ne!(code, Some(0));
    assert_eq!(std::fs::read_dir(at("tables")).unwrap().count(), 1);

    std::fs::write(at("empty"), "").unwrap();
    assert_eq!(write(&["tree"], &["-o", "empty"]).0, Some(0));
    if !has_attributes(&at("empty")) {
        eprintln!("skipped: no extended attributes on this filesystem");
        return;
    }
    assert_eq!(write(&["summary"], &["-o", "empty"]).0, Some(0));
    let mut text = std::fs::read_to_string(at("empty")).unwrap();
    text += "a remark of mine";
    std::fs::write(at("empty"), text).unwrap();
    assert_eq!(write(&["summary"], &["-o", "empty"]).0, Some(2));
}

/// Returns true if a file has the extended attribute by which flowtrace marks its files.
fn has_attributes(path: &std::path::Path) -> bool {
    let mut value = [0u8; 64];
    rustix::fs::getxattr(path, "user.flowtrace.written", &mut value[..]).is_ok()
}
