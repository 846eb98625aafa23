//! `flowtrace report` on hand-made traces: the numbers in the file are those of `query`, and no name is
//! interpreted as markup.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use support::{flowtrace, store_rules};

#[path = "../profiler/tests/support/montage.rs"]
mod montage;
mod support;

fn sample() -> tempfile::TempDir {
    let (directory, path) = montage::montage_file(4, false);
    store_rules(&path);
    directory
}

fn report(directory: &Path) -> Value {
    let output = flowtrace(directory, &["report", "trace.db", "--format", "json"]);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The rows of a query as objects.
fn query(directory: &Path, sql: &str) -> Vec<Value> {
    let output = flowtrace(directory, &["query", "trace.db", "--format", "json", sql]);
    assert!(output.status.success(), "{output:?}");
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    rows.as_array().unwrap().clone()
}

fn integers(column: &Value) -> Vec<i64> {
    let list = column.as_array().unwrap();
    list.iter().map(|n| n.as_i64().unwrap_or(-1)).collect()
}

/// A data block of the page, parsed as the browser does.
fn block(page: &str, name: &str) -> Value {
    let start = format!("<script type=\"application/json\" id=\"data-{name}\">");
    let from = page.find(&start).unwrap() + start.len();
    let length = page[from..].find("</script").unwrap();
    serde_json::from_str(&page[from..from + length]).unwrap()
}

#[test]
fn the_sums_of_the_steps_are_those_of_a_query() {
    let directory = sample();
    let report = report(directory.path());
    let rules = &report["rules"];
    let rows = query(
        directory.path(),
        "SELECT rule, COUNT(*) AS images, SUM(origin <> 'fork') AS executions,
           SUM(COALESCE(on_cpu_ns, user_ns + sys_ns, 0)) AS cpu_ns,
           SUM(COALESCE(read_bytes, 0)) AS read_bytes, SUM(duration_ns) AS life_ns,
           SUM(COALESCE(write_bytes, 0)) AS write_bytes
         FROM processes GROUP BY rule",
    );
    assert_eq!(rows.len(), rules["name"].as_array().unwrap().len());
    for row in rows {
        let names = rules["name"].as_array().unwrap();
        let at = names.iter().position(|name| *name == row["rule"]).unwrap();
        for column in [
            "images",
            "executions",
            "cpu_ns",
            "life_ns",
            "read_bytes",
            "write_bytes",
        ] {
            assert_eq!(
                rules[column][at], row[column],
                "{column} of {}",
                row["rule"]
            );
        }
    }
}

#[test]
fn processes_files_and_calls_are_those_of_a_query() {
    let directory = sample();
    let report = report(directory.path());
    assert_eq!(report["waits"]["evidence"], "from totals alone");
    let processes = &report["processes"];
    let rows = query(
        directory.path(),
        "SELECT pid, MIN(start_ns) AS start_ns, MAX(end_ns) AS end_ns FROM processes
         GROUP BY pid ORDER BY MIN(upid)",
    );
    let column = |name: &str| -> Vec<i64> {
        rows.iter()
            .map(|row| row[name].as_i64().unwrap_or(-1))
            .collect()
    };
    for name in ["pid", "start_ns", "end_ns"] {
        assert_eq!(integers(&processes[name]), column(name), "{name}");
    }
    // A process has no bar for the instant between its fork and its exec.
    let bars = query(
        directory.path(),
        "SELECT COUNT(*) AS n FROM processes AS p WHERE origin <> 'fork'
           OR NOT EXISTS (SELECT 1 FROM processes AS q WHERE q.prev_upid = p.upid)",
    );
    let drawn = processes["bars"]["process"].as_array().unwrap().len();
    assert_eq!(bars[0]["n"], drawn);

    let files = &report["files"];
    let rows = query(
        directory.path(),
        "SELECT f.file_id, SUM(a.read_bytes) AS read_bytes, SUM(a.write_bytes) AS write_bytes,
           SUM(a.calls) AS calls FROM file_access AS a JOIN files AS f USING (file_id)
         WHERE f.kind = 'file' GROUP BY f.file_id ORDER BY f.file_id",
    );
    for name in ["file_id", "read_bytes", "write_bytes", "calls"] {
        let expected: Vec<i64> = rows.iter().map(|row| row[name].as_i64().unwrap()).collect();
        assert_eq!(integers(&files[name]), expected, "{name}");
    }

    let rows = query(
        directory.path(),
        "SELECT p.rule AS rule, c.op AS op, COUNT(*) AS calls, SUM(c.result < 0) AS errors,
           SUM(c.duration_ns) AS ns FROM calls AS c LEFT JOIN processes AS p USING (upid)
         GROUP BY 1, 2",
    );
    let calls = report["calls"]["by_op"].as_array().unwrap();
    assert_eq!(rows.len(), calls.len());
    for row in &rows {
        let is_same = |call: &&Value| {
            let rule = call["rule"]
                .as_u64()
                .map(|at| &report["rules"]["name"][at as usize]);
            rule.unwrap_or(&Value::Null) == &row["rule"] && call["op"] == row["op"]
        };
        let call = calls.iter().find(is_same).unwrap();
        for column in ["calls", "errors", "ns"] {
            assert_eq!(call[column], row[column], "{column} of {row}");
        }
    }
    let total: i64 = rows.iter().map(|row| row["calls"].as_i64().unwrap()).sum();
    let over_time: i64 = integers(&report["calls"]["over_time"]["calls"])
        .iter()
        .sum();
    assert_eq!(over_time, total);
}

#[test]
fn the_page_holds_the_same_data_and_fetches_nothing() {
    let directory = sample();
    let output = flowtrace(directory.path(), &["report", "trace.db"]);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("wrote trace.html"), "{said}");
    let page = std::fs::read_to_string(directory.path().join("trace.html")).unwrap();
    let data = report(directory.path());
    for (name, value) in data.as_object().unwrap() {
        assert_eq!(&block(&page, name), value, "{name}");
    }
    // The name of the SVG namespace is the only text that resembles an address.
    let rest = page.replace("http://www.w3.org/2000/svg", "");
    for outside in ["http:", "https:", " src=", "url(\"", "@import", "fetch("] {
        assert!(!rest.contains(outside), "{outside}");
    }
    assert!(page.contains("default-src 'none'"));
    assert!(!page.contains("{{"), "something was not filled in");
    // A second report replaces its own file, but no other file.
    assert!(
        flowtrace(directory.path(), &["report", "trace.db"])
            .status
            .success()
    );
    std::fs::write(directory.path().join("trace.html"), "my own page").unwrap();
    let output = flowtrace(directory.path(), &["report", "trace.db"]);
    assert_eq!(output.status.code(), Some(2));
    let kept = std::fs::read_to_string(directory.path().join("trace.html")).unwrap();
    assert_eq!(kept, "my own page");
}

/// With the trace of the working directory, and a program `xdg-open` that notes what it is to open.
#[test]
fn open_shows_the_page_or_says_why_not() {
    let directory = sample();
    let programs = directory.path().join("bin");
    std::fs::create_dir(&programs).unwrap();
    let open = || {
        let mut command = Command::new(support::FLOWTRACE);
        command.current_dir(directory.path()).env("PATH", &programs);
        let output = command.args(["report", "--open"]).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), errors)
    };
    let (code, errors) = open();
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("there is no xdg-open here"), "{errors}");
    assert!(directory.path().join("trace.html").exists());
    let script = "#!/bin/sh\necho \"$1\" > opened\n";
    std::fs::write(programs.join("xdg-open"), script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(programs.join("xdg-open"), mode).unwrap();
    let (code, errors) = open();
    assert_eq!(code, Some(0), "{errors}");
    let opened = std::fs::read_to_string(directory.path().join("opened")).unwrap();
    assert_eq!(
        Path::new(opened.trim()),
        directory.path().join("trace.html")
    );
    let nothing = flowtrace(directory.path(), &["report", "--open", "-o", "-"]);
    assert_eq!(nothing.status.code(), Some(2));
}

/// Commands that read a trace read trace.db unless another one is named.
#[test]
fn the_trace_of_the_working_directory_is_the_default() {
    let directory = sample();
    for arguments in [
        &["summary"][..],
        &["tree"],
        &["dag", "--by", "rule"],
        &["stats"],
        &["stats", "rules"],
        &["waits"],
        &["bottlenecks"],
        &["critical-path"],
        &["resources"],
        &["query"],
        &["query", "SELECT COUNT(*) FROM processes"],
        &["export", "wfformat"],
    ] {
        let named = [&arguments[..1], &["trace.db"], &arguments[1..]].concat();
        let (short, named) = (
            flowtrace(directory.path(), arguments),
            flowtrace(directory.path(), &named),
        );
        assert!(short.status.success(), "{arguments:?}: {short:?}");
        assert_eq!(short.stdout, named.stdout, "{arguments:?}");
    }
    std::fs::remove_file(directory.path().join("trace.db")).unwrap();
    let none = flowtrace(directory.path(), &["summary"]);
    let errors = String::from_utf8(none.stderr).unwrap();
    assert!(errors.contains("flowtrace run -- COMMAND"), "{errors}");
}

#[test]
fn hostile_names_stay_names() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.db");
    let evil = "</script><script>document.title='owned'</script><!--";
    let mut s = montage::Script::new(&path, &format!("sh -c '{evil}'"));
    let root = s.root(("/bin/sh", &["sh", "-c", evil]), 0);
    let job = s.job(
        root,
        (evil, &[evil, "\"'&<b>", "\u{202e}\u{2028}\u{1b}[31m"]),
        1,
        90,
    );
    let file = s.file(
        &format!("/w/{evil}\u{fffd}\"'.txt"),
        flowtrace_schema::FileKind::File,
        5,
        2,
    );
    s.create(job, file, 1, 5, 3);
    s.end(root, 100, Some(0), None, 1);
    s.finish(101, 0);
    store_rules(&path);
    let output = flowtrace(directory.path(), &["report", "trace.db", "-o", "-"]);
    assert!(output.status.success(), "{output:?}");
    let page = String::from_utf8(output.stdout).unwrap();
    // The page has as many elements as one with harmless names: no name became an element.
    let harmless = sample();
    let other = flowtrace(harmless.path(), &["report", "trace.db", "-o", "-"]);
    let other = String::from_utf8(other.stdout).unwrap();
    for tag in ["<script", "</script", "<!--", "<title"] {
        assert_eq!(
            page.matches(tag).count(),
            other.matches(tag).count(),
            "{tag}"
        );
    }
    let written = directory.path().join("hostile.html");
    std::fs::write(&written, &page).unwrap();
    if need_browser() {
        in_browser("opens.py", &[&written]);
    }
    let data = report(directory.path());
    let texts = data["processes"]["texts"].as_array().unwrap();
    let command = texts
        .iter()
        .find(|text| text.as_str().unwrap().contains("<b>"))
        .unwrap();
    assert!(!command.as_str().unwrap().contains(['\u{202e}', '\u{1b}']));
    for (name, value) in data.as_object().unwrap() {
        assert_eq!(&block(&page, name), value, "{name}");
    }
}

#[test]
fn a_recording_cut_short_has_a_page_too() {
    let (directory, _) = montage::montage_file(3, true);
    let report = report(directory.path());
    assert_eq!(report["head"]["facts"]["is_cut_short"], true);
    let ends = report["processes"]["bars"]["end_ns"].as_array().unwrap();
    assert!(ends.iter().all(Value::is_i64));
}

/// Returns true if the distribution's browser is here: only a browser can show the behaviour of a page.
fn need_browser() -> bool {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &&str| std::env::split_paths(&path).any(|d| d.join(name).is_file());
    let found = names.iter().any(is_there) && Path::new(support::PYTHON).exists();
    if !found {
        support::skip("no Chromium, or no Python to drive it");
    }
    found
}

fn in_browser(script: &str, arguments: &[&Path]) {
    let output = Command::new(support::PYTHON)
        .arg("-B")
        .arg(support::checkout("tests/browser").join(script))
        .args(arguments)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    eprint!("{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_browser_shows_the_numbers_and_filters_them() {
    if !need_browser() {
        return;
    }
    let directory = sample();
    let page = directory.path().join("trace.html");
    let written = flowtrace(directory.path(), &["report", "trace.db"]);
    assert!(written.status.success(), "{written:?}");
    let binary = Path::new(env!("CARGO_BIN_EXE_flowtrace"));
    in_browser(
        "report.py",
        &[binary, &directory.path().join("trace.db"), &page],
    );
}

/// A driver that starts very many short processes of a few steps, each with files of its own.
fn large(directory: &Path, processes: u64) {
    let path = directory.join("trace.db");
    let mut s = montage::Script::new(&path, "make -j100");
    let make = s.root(("/usr/bin/make", &["make", "-j100"]), 0);
    for n in 0..processes {
        let at = 1 + n / 100;
        let rule = ["align", "sort", "merge", "plot", "pack"][(n / 7 % 5) as usize];
        let job = s.job(
            make,
            (&format!("/usr/bin/{rule}"), &[rule, &format!("in/{n}")]),
            at,
            at + 4 + n % 5,
        );
        let input = s.file(
            &format!("/w/in/{n}"),
            flowtrace_schema::FileKind::File,
            100,
            at,
        );
        let output = s.file(
            &format!("/w/out/{n}"),
            flowtrace_schema::FileKind::File,
            100,
            at,
        );
        s.read(job, input, 1, 100, at);
        s.create(job, output, 1, 100, at);
    }
    let end = 20 + processes / 100;
    s.end(make, end, Some(0), None, 10);
    s.finish(end + 1, 0);
    store_rules(&path);
}

/// 100 000 processes: the page stays small, and a browser shows it soon. Long form only.
#[test]
#[ignore = "takes a minute"]
fn a_run_of_100_000_processes_has_a_page_of_bounded_size() {
    let directory = tempfile::tempdir().unwrap();
    large(directory.path(), 100_000);
    let begin = std::time::Instant::now();
    let written = flowtrace(directory.path(), &["report", "trace.db"]);
    assert!(written.status.success(), "{written:?}");
    eprintln!("written in {:.1} s", begin.elapsed().as_secs_f64());
    let page = directory.path().join("trace.html");
    let size = page.metadata().unwrap().len();
    assert!(size < 6_000_000, "{size} bytes");
    eprintln!("{size} bytes");
    if need_browser() {
        in_browser("opens.py", &[&page, Path::new("10")]);
    }
}
