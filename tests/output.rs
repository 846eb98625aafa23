//! A command writes a file in the format that the ending of its name says, or writes nothing.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use flowtrace_schema::{Activity, ChannelKind, Direction, FileKind, Side};

#[path = "support/frames.rs"]
mod frames;
#[path = "../profiler/render/src/hostile.rs"]
mod hostile;
#[path = "../profiler/tests/support/montage.rs"]
mod montage;
mod support;

#[path = "output/escapes.rs"]
mod escapes;

use hostile::HOSTILE;
use montage::Script;
use support::{FLOWTRACE, flowtrace, prints};

/// The trace of a small Montage, with its rules.
fn sample() -> tempfile::TempDir {
    let (directory, path) = montage::montage_file(4, false);
    support::store_rules(&path);
    directory
}

/// XML as a strict parser reads it; Graphviz writes SVG with a document type.
fn xml(text: &str) -> Result<roxmltree::Document<'_>, roxmltree::Error> {
    let options = roxmltree::ParsingOptions {
        allow_dtd: true,
        ..Default::default()
    };
    roxmltree::Document::parse_with_options(text, options)
}

/// Commands that write an answer, with their other arguments: every such command that `--help` names.
const COMMANDS: [&[&str]; 17] = [
    &["summary", "trace.db"],
    &["tree", "trace.db"],
    &["dag", "trace.db"],
    &["export", "trace.db"],
    &["generate", "trace.db"],
    &[
        "check",
        "trace.db",
        "--declared",
        "edges.tsv",
        "--kind",
        "edges",
    ],
    &["compare", "trace.db", "trace.db"],
    &["bottlenecks", "trace.db"],
    &["waits", "trace.db"],
    &["resources", "trace.db"],
    &[
        "ideal",
        "trace.db",
        "--disk-read",
        "100",
        "--disk-write",
        "100",
    ],
    &["report", "trace.db"],
    &["critical-path", "trace.db"],
    &["stats", "trace.db"],
    &["network", "matrix", "packets.db"],
    &["network", "spectrum", "packets.db"],
    &["query", "trace.db", "SELECT upid, command FROM processes"],
];

/// Commands that record, or keep their measurements: each writes one kind of file.
const OF_ONE_KIND: [(&[&str], &str); 7] = [
    (&["run", "true"], ".db, .sqlite, .sqlite3"),
    (&["mount", ".", "."], ".db, .sqlite, .sqlite3"),
    (&["capture"], ".db, .sqlite, .sqlite3"),
    (&["import", "a.pcap"], ".db, .sqlite, .sqlite3"),
    (&["merge", "trace.db"], ".db, .sqlite, .sqlite3"),
    (&["collect", "--key", "key"], ".db, .sqlite, .sqlite3"),
    (&["calibrate"], ".json"),
];

/// File names, some with formats that no command writes.
const FILES: [&str; 33] = [
    "o.txt",
    "o.json",
    "o.jsonl",
    "o.ndjson",
    "o.csv",
    "o.html",
    "o.htm",
    "o.svg",
    "o.SVG",
    "o.png",
    "o.jpg",
    "o.JPEG",
    "o.pdf",
    "o.ps",
    "o.dot",
    "o.gv",
    "o.graphml",
    "o.gml",
    "o.cyjs",
    "o.pftrace",
    "o.pcapng",
    "o.mk",
    "Makefile",
    "Snakefile",
    "o.sh",
    "o.smk",
    "o.cwl",
    "o.dag",
    "o.yaml",
    "o.dax",
    "o.gif",
    "o.xlsx",
    "o.csv.gz",
];

/// Returns true if the bytes have the format of an ending, in lower case.
fn is(ending: &str, bytes: &[u8]) -> bool {
    let text = std::str::from_utf8(bytes).unwrap_or("");
    let is_json = |text: &str| serde_json::from_str::<serde_json::Value>(text).is_ok();
    let root = |name: &str| {
        xml(text).is_ok_and(|document| document.root_element().tag_name().name() == name)
    };
    // Text for people is not in a format that a program reads.
    let is_prose = !is_json(text) && !text.starts_with('<') && !text.contains(" -> ");
    match ending {
        "txt" => is_prose && text.lines().count() > 0,
        "json" | "cyjs" => is_json(text),
        "jsonl" | "ndjson" => text.lines().count() > 1 && text.lines().all(is_json),
        "csv" => text.contains(',') && text.ends_with("\r\n") && !text.contains("  "),
        "html" | "htm" => text.to_lowercase().starts_with("<!doctype html>"),
        "svg" => root("svg"),
        "png" => bytes.starts_with(b"\x89PNG\r\n"),
        "jpg" | "jpeg" => bytes.starts_with(b"\xff\xd8\xff"),
        "pdf" => bytes.starts_with(b"%PDF-"),
        "ps" => bytes.starts_with(b"%!PS"),
        "dot" | "gv" => text.starts_with("digraph ") && text.ends_with("}\n"),
        "graphml" => root("graphml"),
        "gml" => text.starts_with("graph ["),
        "pftrace" => bytes.first() == Some(&0x0a) && !bytes.is_ascii(),
        "pcapng" => bytes.starts_with(b"\x0a\x0d\x0d\x0a"),
        "mk" | "makefile" => text.contains("\n.ONESHELL:") || text.contains("\nall:"),
        "snakefile" | "smk" => text.contains("rule "),
        "sh" => text.starts_with("#!"),
        "cwl" => is_json(text) && text.contains("cwlVersion"),
        "dag" => text.contains("JOB "),
        "yaml" => text.contains("pegasus"),
        "dax" => root("adag"),
        other => panic!("nothing writes {other}"),
    }
}

fn ending(file: &str) -> String {
    file.rsplit('.').next().unwrap().to_lowercase()
}

/// Writes a capture with two connections between hosts.
fn packets(directory: &Path) {
    std::fs::write(directory.join("a.pcap"), frames::talk(600)).unwrap();
    support::prints(directory, &["import", "-q", "a.pcap", "-o", "packets.db"]);
}

#[test]
fn the_ending_of_the_file_is_its_format_or_is_refused() {
    let directory = sample();
    packets(directory.path());
    std::fs::write(directory.path().join("edges.tsv"), "in/t00.fits\tout/x\n").unwrap();
    let has_graphviz = support::need_program("dot");
    let out = directory.path().join("out");
    for command in COMMANDS {
        let mut made = BTreeSet::new();
        let mut said_to_be_made = BTreeSet::new();
        for file in FILES {
            let _ = std::fs::remove_dir_all(&out);
            std::fs::create_dir(&out).unwrap();
            let file = format!("out/{file}");
            let done = flowtrace(directory.path(), &[command, &["-o", &file]].concat());
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            let path = directory.path().join(&file);
            let ending = ending(&file).replace("out/", "");
            if path.is_file() {
                // Status 1: the answer has findings.
                assert!(
                    matches!(done.status.code(), Some(0 | 1)),
                    "{command:?} {file}: {said}"
                );
                let bytes = std::fs::read(&path).unwrap();
                assert!(is(&ending, &bytes), "{command:?} wrote {file}: {said}");
                made.insert(ending);
                continue;
            }
            let names_formats = said.contains("; it makes .") || said.contains("--format");
            // The csv export is a directory, and the message says so.
            if path.is_dir() {
                assert!(said.contains("views in out/o.csv"), "{command:?}: {said}");
                made.insert(ending);
                continue;
            }
            // The trace has nothing of that kind: no packets, or no record of the files before the run.
            let begins = said.contains("does not say what the programs began with");
            let is_without = said.contains("there are no ") || begins;
            assert!(
                is_without || done.status.code() == Some(2),
                "{command:?} {file}: {said}"
            );
            assert_eq!(
                std::fs::read_dir(&out).unwrap().count(),
                0,
                "{command:?} {file}"
            );
            if is_without {
                continue;
            }
            if let Some((_, list)) = said.split_once("; it makes ") {
                let list = list.lines().next().unwrap().split(", ");
                said_to_be_made.extend(list.map(|name| name.trim_start_matches('.').to_owned()));
            } else if has_graphviz {
                assert!(names_formats, "{command:?} {file}: {said}");
            }
        }
        assert!(
            made.len() > 1 || matches!(command[0], "check" | "generate"),
            "{command:?}: {made:?}"
        );
        if has_graphviz && !made.is_empty() && command[..] != ["network", "spectrum", "packets.db"]
        {
            let missing: Vec<&String> = made.difference(&said_to_be_made).collect();
            assert!(
                missing.is_empty(),
                "{command:?} makes {missing:?}, and does not say so"
            );
            let of_these = |name: &&String| FILES.iter().any(|file| ending(file) == **name);
            // There are no packets in that trace.
            let wrong: Vec<&String> = said_to_be_made
                .difference(&made)
                .filter(of_these)
                .filter(|name| command[0] != "export" || *name != "pcapng")
                .collect();
            assert!(wrong.is_empty(), "{command:?} says that it makes {wrong:?}");
        }
    }
}

#[test]
fn a_full_disk_is_named_with_a_remedy() {
    let directory = sample();
    let on_full_disk = |arguments: &[&str]| {
        let mut command = Command::new(FLOWTRACE);
        let full = std::fs::File::options().write(true).open("/dev/full");
        command.args(arguments).current_dir(directory.path());
        let output = command.stdout(full.unwrap()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let sql = "SELECT * FROM processes";
    let cases: [(&str, &[&str]); 5] = [
        ("standard output", &["summary", "trace.db"]),
        ("standard output", &["query", "trace.db", sql]),
        ("standard output", &["export", "trace.db", "chrome"]),
        ("/dev/full", &["report", "trace.db", "-o", "/dev/full"]),
        ("/dev/full", &["tree", "trace.db", "-o", "/dev/full"]),
    ];
    for (output, arguments) in cases {
        let error = on_full_disk(arguments);
        let begin = format!("flowtrace: cannot write {output}: No space left on device");
        assert!(error.starts_with(&begin), "{arguments:?}: {error}");
        assert!(error.contains("\n  hint: free space there"), "{error}");
    }
}

#[test]
fn a_format_that_is_given_decides_whatever_the_ending() {
    let directory = sample();
    let given = ["tree", "trace.db", "--format", "json", "-o", "tree.svg"];
    assert!(flowtrace(directory.path(), &given).status.success());
    let bytes = std::fs::read(directory.path().join("tree.svg")).unwrap();
    assert!(is("json", &bytes));
    let given = ["export", "trace.db", "gml", "-o", "a.json"];
    assert!(flowtrace(directory.path(), &given).status.success());
    assert!(is(
        "gml",
        &std::fs::read(directory.path().join("a.json")).unwrap()
    ));
    // A name without an ending promises no format.
    let written = flowtrace(
        directory.path(),
        &["dag", "trace.db", "-o", "tmp.Ab3dEf9xYz"],
    );
    assert!(written.status.success());
    assert!(is(
        "dot",
        &std::fs::read(directory.path().join("tmp.Ab3dEf9xYz")).unwrap()
    ));
}

#[test]
fn a_dash_is_standard_output() {
    let directory = sample();
    packets(directory.path());
    std::fs::write(directory.path().join("edges.tsv"), "in/t00.fits\tout/x\n").unwrap();
    for command in COMMANDS.iter().filter(|command| command[0] != "report") {
        let alone = flowtrace(directory.path(), command);
        let dash = flowtrace(directory.path(), &[*command, &["-o", "-"]].concat());
        assert_eq!(dash.status.code(), alone.status.code(), "{command:?}");
        assert_eq!(dash.stdout.len(), alone.stdout.len(), "{command:?}");
        assert!(!directory.path().join("-").exists(), "{command:?}");
    }
}

#[test]
fn a_recording_is_not_called_after_another_format() {
    let directory = sample();
    for (command, list) in OF_ONE_KIND {
        for file in ["o.svg", "o.csv", "o.html", "o.pcapng"] {
            let (name, rest) = command.split_first().unwrap();
            let arguments = [&[*name, "-o", file][..], rest].concat();
            let done = flowtrace(directory.path(), &arguments);
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            let code = if *name == "run" { 125 } else { 2 };
            assert_eq!(done.status.code(), Some(code), "{arguments:?}: {said}");
            assert!(
                said.contains(&format!("it makes {list}")),
                "{arguments:?}: {said}"
            );
            assert!(!directory.path().join(file).exists());
        }
    }
}

/// A command that begins to write files must be in the list above.
#[test]
fn no_command_with_a_file_is_left_out() {
    let help = |arguments: &[&str]| {
        let output = Command::new(FLOWTRACE)
            .args(arguments)
            .arg("--help")
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let listed = help(&[]);
    let commands = listed
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next())
        .filter(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
    let tested: BTreeSet<&str> = COMMANDS
        .iter()
        .map(|command| command[0])
        .chain(OF_ONE_KIND.iter().map(|(command, _)| command[0]))
        .collect();
    let mut seen = 0;
    for command in commands.filter(|word| !word.starts_with('-') && *word != "help") {
        // Manual pages are written into a directory.
        if help(&[command]).contains("-o, --output") && command != "man" {
            assert!(tested.contains(command), "{command} is not tested");
            seen += 1;
        }
    }
    assert!(seen >= 20, "{seen} commands");
}

/// Writes the trace `name` of a pipeline of programs whose names, arguments and files are `names`. The first
/// program of each pair waits for the second, which works.
fn pipeline(directory: &Path, name: &str, names: &[String]) {
    let path = directory.join(name);
    let mut script = Script::new(&path, &names.concat());
    let root = script.root(("/bin/sh", &["sh", &names[0]]), 0);
    let mut pipe = script.pipe();
    for (i, name) in names.iter().enumerate() {
        let (begin, end) = (20 + i as u64, 4000 + i as u64);
        let program = format!("/usr/bin/{name}");
        let forked = script.fork(root, ("/bin/sh", &["sh"]), begin);
        let arguments = [name.as_str(), name, "-x"];
        let program = (program.as_str(), &arguments[..]);
        let image = script.exec(forked, 100 + forked, Some(root), program, begin + 1);
        let input = script.file(&format!("/w/{name}.in"), FileKind::File, 1000, begin);
        script.name(input, [b"/w/\xff\xfe<&", name.as_bytes()].concat(), begin);
        let output = script.file(&format!("/w/{name}/out"), FileKind::File, 1000, begin);
        script.read(image, input, 3, 1000, begin + 2);
        script.create(image, output, 3, 1000, begin + 5);
        let life = (begin + 1, end);
        script.holds(image, pipe, Direction::Read, life, Some(true));
        let is_worker = i % 2 == 1;
        let activity = if is_worker {
            (Activity::Running, None)
        } else {
            (Activity::Channel, Some((pipe, Side::Read)))
        };
        script.sample(image, life, activity.0, activity.1);
        pipe = match i % 3 {
            0 => script.channel(ChannelKind::Unix),
            _ => script.pipe(),
        };
        script.holds(image, pipe, Direction::Write, life, Some(true));
        script.end(
            image,
            end,
            Some(0),
            None,
            if is_worker { end - begin } else { 1 },
        );
    }
    script.end(root, 4100, Some(0), None, 3);
    script.finish(4200, 0);
    support::store_rules(&path);
}

fn hostile_names() -> Vec<String> {
    let long = ["<&".repeat(100), "\u{202e}ab ".repeat(5000)];
    HOSTILE
        .iter()
        .map(|name| (*name).into())
        .chain(long)
        .collect()
}

/// Elements that a picture may contain. A name that was interpreted as markup would add others.
const ELEMENTS: [&str; 19] = [
    "svg", "title", "defs", "pattern", "rect", "line", "polyline", "polygon", "path", "ellipse",
    "text", "g", "circle", "graphml", "key", "graph", "node", "edge", "data",
];

#[track_caller]
fn assert_is_sound(what: &[&str], markup: &str) {
    let document = xml(markup).unwrap_or_else(|error| panic!("{what:?}: {error}"));
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        let name = node.tag_name().name();
        if name == "style" {
            // The style of the plots, which contains no name.
            assert_eq!(node.text(), Some(flowtrace_render::plot::DARK), "{what:?}");
            continue;
        }
        assert!(ELEMENTS.contains(&name), "{what:?}: an element {name}");
        let is_number =
            |name: &str| matches!(name, "x" | "y" | "width" | "height" | "points" | "d");
        for attribute in node.attributes().filter(|a| is_number(a.name())) {
            let value = attribute.value();
            assert!(
                !value.contains("NaN") && !value.contains("inf"),
                "{what:?}: {value}"
            );
        }
    }
    let hidden = |c: char| c.is_control() && !matches!(c, '\n' | '\t' | '\r');
    assert!(!markup.contains(hidden), "{what:?}");
}

#[test]
fn every_picture_is_well_formed_whatever_the_names() {
    let directory = tempfile::tempdir().unwrap();
    let names = hostile_names();
    pipeline(directory.path(), "trace.db", &names);
    packets(directory.path());
    let hosts = names.iter().enumerate().map(|(i, name)| {
        let name: String = name.chars().filter(|c| *c != '=').take(200).collect();
        std::fs::copy(
            directory.path().join("a.pcap"),
            directory.path().join(format!("{i}.pcap")),
        )
        .unwrap();
        format!("{name}={i}.pcap")
    });
    let mut import = vec![
        "import".to_owned(),
        "-q".into(),
        "-o".into(),
        "hosts.db".into(),
    ];
    import.extend(hosts.flat_map(|host| ["--host".into(), host]));
    let import: Vec<&str> = import.iter().map(String::as_str).collect();
    prints(directory.path(), &import);

    let has_graphviz = support::need_program("dot");
    let bys = ["process", "twins", "rule", "exe", "dir", "level", "host"];
    let mut commands: Vec<Vec<&str>> = Vec::new();
    for by in bys {
        commands.push(vec!["dag", "trace.db", "--format", "graphml", "--by", by]);
        if has_graphviz {
            commands.push(vec!["dag", "trace.db", "--format", "svg", "--by", by]);
        }
    }
    for of in [
        "latency",
        "request-size",
        "process-bytes",
        "life",
        "file-size",
    ] {
        for kind in ["cdf", "hist"] {
            commands.push(vec![
                "stats", "trace.db", kind, "--of", of, "--format", "svg",
            ]);
        }
    }
    for kind in ["overview", "throughput"] {
        commands.push(vec!["stats", "trace.db", kind, "--format", "svg"]);
    }
    for by in ["rule", "command", "exe", "dir"] {
        commands.push(vec![
            "bottlenecks",
            "trace.db",
            "--format",
            "svg",
            "--by",
            by,
        ]);
    }
    for question in ["topology", "matrix"] {
        for trace in ["packets.db", "hosts.db"] {
            commands.push(vec!["network", question, trace, "--format", "graphml"]);
            if has_graphviz {
                commands.push(vec!["network", question, trace, "--format", "svg"]);
            }
        }
    }
    if has_graphviz {
        commands.push(vec!["tree", "trace.db", "--format", "svg"]);
        commands.push(vec!["tree", "trace.db", "--format", "svg", "--full"]);
    }
    for command in commands {
        assert_is_sound(&command, &prints(directory.path(), &command));
    }
}

/// Names of all elements of a page that parses without any error.
#[track_caller]
fn elements(what: &str, page: &str) -> Vec<String> {
    use html5ever::tendril::TendrilSink;
    use markup5ever_rcdom::{NodeData, RcDom};
    let options = html5ever::ParseOpts {
        tokenizer: html5ever::tokenizer::TokenizerOpts {
            exact_errors: true,
            ..Default::default()
        },
        ..Default::default()
    };
    let dom = html5ever::parse_document(RcDom::default(), options).one(page);
    let errors = dom.errors.borrow();
    assert!(errors.is_empty(), "{what}: {errors:?}");
    let mut names = Vec::new();
    let mut open = vec![dom.document.clone()];
    while let Some(node) = open.pop() {
        if let NodeData::Element { name, .. } = &node.data {
            names.push(name.local.to_string());
        }
        open.extend(node.children.borrow().iter().rev().cloned());
    }
    names
}

#[test]
fn every_page_is_well_formed_whatever_the_names() {
    let directory = tempfile::tempdir().unwrap();
    let names = hostile_names();
    let harmless: Vec<String> = (0..names.len()).map(|i| format!("n{i}")).collect();
    pipeline(directory.path(), "trace.db", &names);
    pipeline(directory.path(), "other.db", &names[3..]);
    pipeline(directory.path(), "harmless.db", &harmless);
    pipeline(directory.path(), "fewer.db", &harmless[3..]);
    let report = |trace| prints(directory.path(), &["report", trace, "-o", "-"]);
    assert_eq!(
        elements("report", &report("trace.db")),
        elements("harmless report", &report("harmless.db")),
        "data of a report is inert"
    );
    let compared = |a, b| {
        let arguments = ["compare", a, b, "--format", "html"];
        String::from_utf8(flowtrace(directory.path(), &arguments).stdout).unwrap()
    };
    let found = elements("compare", &compared("trace.db", "other.db"));
    assert!(
        found.iter().filter(|name| *name == "tr").count() > 10,
        "{found:?}"
    );
    let kinds: BTreeSet<&String> = found.iter().collect();
    let expected = elements("harmless compare", &compared("harmless.db", "fewer.db"));
    assert_eq!(kinds, expected.iter().collect());
}
