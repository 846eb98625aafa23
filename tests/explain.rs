//! The commands that explain a trace, on a hand-made one. `FLOWTRACE_BLESS=1` rewrites the files
//! in `tests/golden/`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};

#[path = "../profiler/tests/support/montage.rs"]
mod montage;
mod support;

fn flowtrace(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowtrace"))
        .args(arguments)
        .current_dir(directory)
        .env_remove("COLUMNS")
        .output()
        .unwrap()
}

fn sample() -> tempfile::TempDir {
    let (directory, path) = montage::montage_file(4, false);
    support::store_rules(&path);
    directory
}

fn golden(name: &str, arguments: &[&str]) {
    let directory = sample();
    let output = flowtrace(directory.path(), arguments);
    let text = format!(
        "$ flowtrace {}\n{}--- stderr, exit {}\n{}",
        arguments.join(" "),
        String::from_utf8(output.stdout).unwrap(),
        output.status.code().unwrap(),
        String::from_utf8(output.stderr).unwrap()
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if std::env::var_os("FLOWTRACE_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == text,
        "{} differs; if that is right: FLOWTRACE_BLESS=1 cargo test --test explain\n{text}",
        path.display()
    );
}

#[test]
fn summary() {
    // The size of the file depends on SQLite's layout, so the line with it is left out.
    let directory = sample();
    let output = flowtrace(directory.path(), &["summary", "trace.db"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let kept: String = text
        .lines()
        .filter(|l| !l.starts_with("  trace "))
        .map(|l| format!("{l}\n"))
        .collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/summary.txt");
    if std::env::var_os("FLOWTRACE_BLESS").is_some() {
        std::fs::write(&path, &kept).unwrap();
    }
    assert_eq!(kept, std::fs::read_to_string(&path).unwrap_or_default());
    assert!(text.ends_with("next: flowtrace report\n"), "{text}");
}

#[test]
fn summary_as_json() {
    golden("summary.json", &["summary", "trace.db", "--format", "json"]);
}

#[test]
fn tree() {
    golden("tree.txt", &["tree", "trace.db"]);
}

#[test]
fn full_tree() {
    golden("tree-full.txt", &["tree", "trace.db", "--full"]);
}

/// Command lines requested in full are not cut, even in a pipe.
#[test]
fn full_lines_have_the_whole_command() {
    for command in ["tree", "critical-path"] {
        let directory = sample();
        let output = flowtrace(directory.path(), &[command, "trace.db", "--full"]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.contains('…'), "{text}");
    }
    let directory = sample();
    let tree = flowtrace(directory.path(), &["tree", "trace.db", "--full"]).stdout;
    let whole = "mProject -X in/t00.fits out/proj out/region.hdr\n";
    assert!(String::from_utf8(tree).unwrap().contains(whole));
}

#[test]
fn dag_by_rule() {
    golden("rules.dot", &["dag", "trace.db", "--by", "rule"]);
}

#[test]
fn dag_by_process() {
    golden("processes.dot", &["dag", "trace.db"]);
}

#[test]
fn critical_path() {
    golden("critical-path.txt", &["critical-path", "trace.db"]);
}

#[test]
fn critical_path_as_csv() {
    golden(
        "critical-path.csv",
        &["critical-path", "trace.db", "--format", "csv"],
    );
}

#[test]
fn stats() {
    golden("stats.txt", &["stats", "trace.db"]);
}

#[test]
fn stats_of_levels_as_csv() {
    golden(
        "levels.csv",
        &["stats", "trace.db", "levels", "--format", "csv"],
    );
}

#[test]
fn every_table_has_every_format() {
    let directory = sample();
    for table in [
        "overview",
        "calls",
        "rules",
        "levels",
        "cdf",
        "hist",
        "sequentiality",
        "throughput",
        "failed",
        "unread",
        "rereads",
        "could-be-pipe",
    ] {
        for format in ["text", "json", "csv"] {
            let output = flowtrace(
                directory.path(),
                &["stats", "trace.db", table, "--format", format],
            );
            assert_eq!(output.status.code(), Some(0), "{table} as {format}");
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(text.ends_with('\n'), "{table} as {format}: {text}");
            if format == "json" {
                serde_json::from_str::<serde_json::Value>(&text).unwrap();
            }
        }
    }
    let plot = |table: &str, options: &[&str]| {
        let arguments = ["stats", "trace.db", table, "--format", "svg"];
        flowtrace(directory.path(), &[&arguments[..], options].concat())
    };
    let of_lives = &["--of", "life"][..];
    for (table, options) in [
        ("cdf", of_lives),
        ("hist", of_lives),
        ("calls", &[]),
        ("throughput", &[]),
    ] {
        let svg = String::from_utf8(plot(table, options).stdout).unwrap();
        assert!(svg.contains("<polyline") && svg.ends_with("</svg>\n"));
    }
    assert_eq!(plot("unread", &[]).status.code(), Some(2));
    // An option that means nothing for a table is refused, not ignored.
    for wrong in [
        &["stats", "trace.db", "rules", "--of", "life"][..],
        &["stats", "trace.db", "calls", "--by", "file"],
        &["stats", "trace.db", "overview", "--bins", "3"],
    ] {
        let status = flowtrace(directory.path(), wrong).status;
        assert_eq!(status.code(), Some(2), "{wrong:?}");
    }
}

/// The CPU time of a rule is the same number in every command, and the total is the sum of these.
#[test]
fn rules_have_the_same_cpu_everywhere() {
    let directory = sample();
    let json = |arguments: &[&str]| -> serde_json::Value {
        let output = flowtrace(directory.path(), arguments);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let by_name = |rows: &serde_json::Value, name: &str| -> BTreeMap<String, i64> {
        let rows = rows.as_array().unwrap().iter();
        let cpu = rows.map(|row| (row[name].as_str().unwrap().into(), row["cpu_ns"].as_i64()));
        cpu.filter_map(|(name, ns)| Some((name, ns.filter(|&ns| ns > 0)?)))
            .collect()
    };
    let summary = json(&["summary", "trace.db", "--format", "json"]);
    let summary = by_name(&summary["rules"], "rule");
    let mut stats = json(&["stats", "trace.db", "rules", "--format", "json"]);
    let rows = stats.as_array_mut().unwrap();
    let total = rows.pop().unwrap();
    assert_eq!(total["is_total"], 1);
    assert!(rows.iter().all(|row| row["is_total"] == 0), "{rows:?}");
    assert_eq!(total["cpu_ns"].as_i64(), Some(summary.values().sum()));
    assert_eq!(by_name(&stats, "phase"), summary);
}

/// The files that `stats unread` lists are those that `summary` counts.
#[test]
fn unread_files_are_those_of_the_summary() {
    let directory = sample();
    let json = |arguments: &[&str]| -> serde_json::Value {
        let arguments = [arguments, &["--format", "json"]].concat();
        serde_json::from_slice(&flowtrace(directory.path(), &arguments).stdout).unwrap()
    };
    let listed = json(&["stats", "trace.db", "unread"]);
    let listed = listed.as_array().unwrap();
    let summary = json(&["summary", "trace.db"]);
    assert_eq!(summary["never_read_files"], listed.len());
    let bytes: i64 = listed
        .iter()
        .map(|f| f["write_bytes"].as_i64().unwrap())
        .sum();
    assert_eq!(summary["never_read_bytes"], bytes);
    assert!(bytes > 0);
}

#[test]
fn tree_as_a_picture() {
    golden("tree.dot", &["tree", "trace.db", "--format", "dot"]);
}

#[test]
fn the_longest_chain_of_the_tree() {
    let directory = sample();
    let output = flowtrace(directory.path(), &["tree", "trace.db", "--format", "json"]);
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = rows.as_array().unwrap();
    let chain: Vec<_> = rows
        .iter()
        .filter(|row| row["on_longest_chain"] == true)
        .collect();
    assert_eq!(chain.len(), 2);
    assert_eq!(chain[1]["parent"], chain[0]["id"]);
    let life = |row: &serde_json::Value| {
        row["end_ns"].as_i64().unwrap() - row["start_ns"].as_i64().unwrap()
    };
    let siblings = rows.iter().filter(|row| row["parent"] == chain[0]["id"]);
    assert_eq!(siblings.map(life).max(), Some(life(chain[1])));
    // Equal processes share a line of the folded tree.
    let of = |rule: &str| -> Vec<&serde_json::Value> {
        let rows = rows.iter().filter(|row| row["rule"] == rule);
        rows.map(|row| &row["group"]).collect()
    };
    assert_eq!(of("mProject").len(), 4);
    assert!(of("mProject").windows(2).all(|pair| pair[0] == pair[1]));
    assert_ne!(of("mProject")[0], of("mImgtbl")[0]);
}

#[test]
fn a_prediction() {
    let directory = sample();
    let run = |change: &str| {
        let arguments = ["critical-path", "trace.db", "--what-if", change];
        flowtrace(directory.path(), &arguments)
    };
    let text = String::from_utf8(run("mProject=0.5").stdout).unwrap();
    assert!(text.contains("what if      mProject × 0.5: "), "{text}");
    for wrong in ["mNothing=0.5", "mProject", "mProject=x", "mProject=-1"] {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong}");
    }
    assert_eq!(run("m*=0.5").status.code(), Some(0));
    let twice = [
        "critical-path",
        "trace.db",
        "--what-if",
        "mAdd=2",
        "--what-if",
        "mAdd=3",
    ];
    assert_eq!(flowtrace(directory.path(), &twice).status.code(), Some(2));
}

#[test]
fn query() {
    let sql =
        "SELECT rule, origin, COUNT(*) AS n FROM processes GROUP BY 1, 2 ORDER BY 3, 2 LIMIT 4";
    golden("query.txt", &["query", "trace.db", sql]);
}

#[test]
fn query_without_sql() {
    golden("views.txt", &["query", "trace.db"]);
}

#[test]
fn a_wrong_query_says_why_and_what_to_do() {
    golden(
        "query-error.txt",
        &["query", "trace.db", "SELECT nothing FROM processes"],
    );
}

#[test]
fn a_query_makes_no_value_of_any_size() {
    let directory = sample();
    let output = flowtrace(
        directory.path(),
        &["query", "trace.db", "SELECT length(zeroblob(100000000))"],
    );
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("string or blob too big"), "{error}");
    assert_eq!(output.status.code(), Some(2), "{error}");
}

/// Number of nodes and edges of a GraphML file, by counting its elements.
fn graphml_counts(text: &str) -> (usize, usize) {
    (
        text.matches("<node ").count(),
        text.matches("<edge ").count(),
    )
}

/// Number of nodes and edges of our DOT output: nodes have a shape, edges an arrow.
fn dot_counts(text: &str) -> (usize, usize) {
    let lines = || text.lines().map(str::trim_start);
    let edges = lines()
        .filter(|l| l.split(" [").next().is_some_and(|l| l.contains(" -> ")))
        .count();
    (lines().filter(|l| l.contains(" [shape=")).count(), edges)
}

#[test]
fn both_formats_have_the_same_graph_and_the_same_bytes_each_time() {
    let directory = sample();
    for options in [
        &["--by", "process"][..],
        &["--by", "rule"],
        &["--by", "process", "--max-nodes", "9"],
    ] {
        let write = |format: &str| {
            let arguments = [&["dag", "trace.db", "--format", format], options].concat();
            String::from_utf8(flowtrace(directory.path(), &arguments).stdout).unwrap()
        };
        let (dot, graphml) = (write("dot"), write("graphml"));
        assert_eq!(dot, write("dot"));
        assert_eq!(graphml, write("graphml"));
        assert_eq!(dot_counts(&dot), graphml_counts(&graphml));
        assert_eq!(
            dot.contains("+"),
            options.len() == 4,
            "what was cut is counted in a node"
        );
        by_graphviz(&dot);
        by_networkx(&graphml);
    }
}

/// Runs another program with a text as its input; `None`, with a message, if there is no such program.
fn foreign(program: &str, arguments: &[&str], input: &str) -> Option<String> {
    use std::io::Write;
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("skipped: {program} is not installed, so nobody else has read this graph");
        return None;
    };
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("No module named") {
        eprintln!("skipped: {errors}");
        return None;
    }
    assert!(
        output.status.success() && errors.is_empty(),
        "{program}: {errors}"
    );
    Some(String::from_utf8(output.stdout).unwrap())
}

fn by_graphviz(dot: &str) {
    if let Some(counts) = foreign("gc", &["-n", "-e"], dot) {
        let mut counts = counts
            .split_whitespace()
            .map(|n| n.parse::<usize>().unwrap_or(0));
        assert_eq!(
            (counts.next().unwrap(), counts.next().unwrap()),
            dot_counts(dot)
        );
    }
}

fn by_networkx(graphml: &str) {
    let script = "import networkx as n, sys; g = n.parse_graphml(sys.stdin.read()); \
                  print(len(g), g.size(), n.is_directed_acyclic_graph(g))";
    if let Some(found) = foreign("/usr/bin/python3", &["-c", script], graphml) {
        let (nodes, edges) = graphml_counts(graphml);
        assert_eq!(found.trim(), format!("{nodes} {edges} True"));
    }
}

#[test]
fn hostile_names_stay_inside_their_strings() {
    use flowtrace_schema::FileKind;
    let directory = tempfile::tempdir().unwrap();
    let mut script = montage::Script::new(&directory.path().join("trace.db"), "x");
    let long = "y".repeat(100_000);
    let root = script.root(
        ("/bin/x", &["x", "\"]; evil \\", "\u{1b}[2J", &long, "a\\"]),
        0,
    );
    for (i, name) in ["/w/\"; <b>&", "/w/tail\\", "/w/new\nline", "/w/\u{202e}exe"]
        .iter()
        .enumerate()
    {
        let file = script.file(name, FileKind::File, 1, 0);
        script.read(root, file, 1, i as u64, 1);
    }
    script.finish(10, 0);
    for by in ["process", "rule"] {
        let write = |format: &str| {
            let arguments = ["dag", "trace.db", "--by", by, "--format", format];
            String::from_utf8(flowtrace(directory.path(), &arguments).stdout).unwrap()
        };
        let (dot, graphml) = (write("dot"), write("graphml"));
        assert_eq!(dot_counts(&dot), graphml_counts(&graphml));
        assert!(!dot.contains('\u{1b}') && !graphml.contains('\u{1b}'));
        by_graphviz(&dot);
        by_networkx(&graphml);
    }
}

#[test]
fn an_output_file_is_whole_or_not_there() {
    let directory = sample();
    let run = |arguments: &[&str]| flowtrace(directory.path(), arguments);
    let refused = run(&["tree", "trace.db", "-o", "trace.db"]);
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(
        String::from_utf8_lossy(&refused.stderr),
        "flowtrace: cannot write trace.db: it is the trace itself\n  hint: name another file with -o\n"
    );
    let failed = run(&[
        "query",
        "trace.db",
        "SELECT upid, abs(-9223372036854775807 - 1) FROM processes",
        "-o",
        "out.csv",
    ]);
    assert_eq!(failed.status.code(), Some(2));
    assert!(
        run(&[
            "query",
            "trace.db",
            "SELECT 1 AS one",
            "--format",
            "csv",
            "-o",
            "out.csv"
        ])
        .status
        .success()
    );
    assert_eq!(
        std::fs::read(directory.path().join("out.csv")).unwrap(),
        b"one\r\n1\r\n"
    );
    let names = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(names, 2, "no partial file is left");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let directory = sample();
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n";
    let mut child = Command::new(env!("CARGO_BIN_EXE_flowtrace"))
        .args(["query", "trace.db", sql, "--format", "csv"])
        .current_dir(directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

/// Trace of a workflow with wrappers that exec a program at once, a script that works before it execs,
/// subshells that never exec, and a fork that does nothing.
fn wrapped(path: &Path) {
    use flowtrace_schema::FileKind;
    let mut s = montage::Script::new(path, "sh run.sh");
    let run = ("/bin/sh", &["sh", "run.sh"][..]);
    let root = s.root(run, 0);
    let mut at = 10;
    let mut made = s.file("/w/in", FileKind::File, 100, 0);
    for i in 0..3 {
        let job = s.job(root, ("/bin/cat", &["cat", "x"]), at, at + 50);
        s.read(job, made, 1, 100, at + 10);
        made = s.file(&format!("/w/o{i}"), FileKind::File, 100, at + 20);
        s.create(job, made, 1, 100, at + 20);
        at += 60;
    }
    for _ in 0..2 {
        let subshell = s.fork(root, run, at);
        let inner = s.fork(subshell, run, at + 1);
        s.end(inner, at + 5, Some(0), None, 1);
        s.end(subshell, at + 8, Some(0), None, 1);
        at += 10;
    }
    let forked = s.fork(root, run, at);
    let pid = 100 + forked;
    let script = ("/bin/bash", &["bash", "./w.sh"][..]);
    let script = s.exec(forked, pid, Some(root), script, at + 1);
    s.read(script, made, 2, 100, at + 5);
    let sleep = ("/bin/sleep", &["sleep", "1"][..]);
    let sleep = s.exec_after(script, pid, Some(root), sleep, (at + 300, 250));
    s.end(sleep, at + 400, Some(0), None, 1);
    s.end(root, at + 410, Some(0), None, 5);
    s.finish(at + 420, 0);
}

/// Every command counts processes, execs, and processes of a step in the same way (docs/statistics.md).
#[test]
fn every_command_counts_the_same() {
    use serde_json::Value;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.db");
    wrapped(&path);
    support::store_rules(&path);
    let says = |arguments: &[&str]| support::prints(directory.path(), arguments);
    let json = |arguments: &[&str]| serde_json::from_str::<Value>(&says(arguments)).unwrap();
    let query = |sql: &str| -> i64 {
        let found = json(&["query", "trace.db", sql, "--json"]);
        found[0]["n"].as_i64().unwrap()
    };
    let processes = query("SELECT COUNT(*) AS n FROM processes WHERE prev_upid IS NULL");
    let execs = query("SELECT COUNT(*) AS n FROM processes WHERE origin = 'exec'");
    // The script, three jobs, two subshells with one job each in them, and the script that becomes sleep.
    assert_eq!((processes, execs), (9, 9));
    type Counts = BTreeMap<String, i64>;
    let add = |counts: &mut Counts, name: &Value, n: i64| {
        if n > 0 {
            *counts.entry(name.as_str().unwrap().to_owned()).or_default() += n;
        }
    };

    let summary = json(&["summary", "trace.db", "--json"]);
    assert_eq!(
        (summary["processes"].as_i64(), summary["execs"].as_i64()),
        (Some(processes), Some(execs))
    );

    let tree = json(&["tree", "trace.db", "--json"]);
    let (mut of_tree, mut executions) = (Counts::new(), Counts::new());
    for process in tree.as_array().unwrap() {
        let images = process["images"].as_array().unwrap();
        add(&mut of_tree, &images.last().unwrap()["rule"], 1);
    }
    assert_eq!(of_tree.values().sum::<i64>(), processes);
    let rows = json(&[
        "query",
        "trace.db",
        "SELECT rule FROM processes WHERE origin <> 'fork'",
        "--json",
    ]);
    for row in rows.as_array().unwrap() {
        add(&mut executions, &row["rule"], 1);
    }

    for table in ["rules", "levels"] {
        let stats = json(&["stats", "trace.db", table, "--json"]);
        let (mut of_stats, mut total) = (Counts::new(), None);
        for row in stats.as_array().unwrap() {
            match row["is_total"].as_i64() {
                Some(1) => total = row["processes"].as_i64(),
                _ => add(
                    &mut of_stats,
                    &row["phase"],
                    row["processes"].as_i64().unwrap(),
                ),
            }
        }
        assert_eq!(total, Some(processes), "{table}");
        assert_eq!(of_stats.values().sum::<i64>(), processes, "{table}");
        if table == "rules" {
            assert_eq!(of_stats, of_tree);
        } else {
            let dag = says(&["dag", "trace.db", "--by", "level"]);
            let drawn = (0..100).filter(|n| dag.contains(&format!("\"level {n}")));
            assert_eq!(of_stats.len(), drawn.count(), "{of_stats:?}\n{dag}");
        }
    }

    let report = json(&["report", "trace.db", "--format", "json", "-o", "-"]);
    assert_eq!(
        report["head"]["facts"]["processes"].as_i64(),
        Some(processes)
    );
    assert_eq!(report["head"]["facts"]["execs"].as_i64(), Some(execs));
    let (mut of_report, mut executed) = (Counts::new(), Counts::new());
    let rules = &report["rules"];
    for (i, name) in rules["name"].as_array().unwrap().iter().enumerate() {
        add(
            &mut of_report,
            name,
            rules["processes"][i].as_i64().unwrap(),
        );
        add(
            &mut executed,
            name,
            rules["executions"][i].as_i64().unwrap(),
        );
    }
    assert_eq!(of_report, of_tree);
    assert_eq!(executed, executions);
    let mut of_summary = Counts::new();
    for rule in summary["rules"].as_array().unwrap() {
        add(
            &mut of_summary,
            &rule["rule"],
            rule["processes"].as_i64().unwrap(),
        );
    }
    assert_eq!(of_summary, of_tree);
}

#[test]
fn steps_stand_on_the_levels_of_their_processes() {
    let directory = sample();
    let rows = support::prints(
        directory.path(),
        &["stats", "trace.db", "levels", "--format", "csv"],
    );
    let shape = support::prints(directory.path(), &["dag", "trace.db", "--format", "text"]);
    let step = |line: &str| line.trim().split_once("  ")?.0.parse::<usize>().ok();
    let deepest = shape.lines().filter_map(step).max().unwrap();
    // The first line has the names of the columns, the last one the totals.
    assert_eq!(deepest + 1, rows.lines().count() - 2, "{shape}{rows}");
}
