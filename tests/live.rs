//! A run while it goes on, as `flowtrace live` and `run --live` show it: what the page gets is what SQL says of
//! the same instant.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::ops::Deref;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;

use support::page::{Page, request};
use support::process::{Running, finish, start};
use support::trace::Trace;
use support::{
    FLOWTRACE, PATIENCE, PYTHON, Scratch, checkout, flowtrace, need_fuse, need_program,
    need_python, on_terminal, run_in, skip,
};

mod support;

/// A `flowtrace live` that serves a page.
struct Live {
    running: Running,
    page: Page,
}

impl Deref for Live {
    type Target = Page;
    fn deref(&self) -> &Page {
        &self.page
    }
}

impl Live {
    fn start(trace: &Path) -> Live {
        let begin = Instant::now();
        // It is made at once, complete.
        while !trace.metadata().is_ok_and(|about| about.len() > 8192) {
            assert!(begin.elapsed() < PATIENCE, "there is no trace");
            std::thread::sleep(Duration::from_millis(20));
        }
        let running = start(Command::new(FLOWTRACE).arg("live").arg(trace));
        running.wait_for_output("token=");
        let page = Page::at(&running.stdout_so_far());
        Live { running, page }
    }

    fn end(self) {
        self.running.signal(Signal::SIGTERM);
        self.running.wait(PATIENCE);
    }
}

/// An event: its id and its data.
fn event(lines: &mut impl Iterator<Item = String>) -> (String, Value) {
    let mut id = String::new();
    for line in lines {
        if let Some(rest) = line.strip_prefix("id: ") {
            id = rest.to_owned();
        } else if let Some(data) = line.strip_prefix("data: ") {
            return (id, serde_json::from_str(data).unwrap());
        }
    }
    panic!("the events ended");
}

fn events(live: &Live, more: &str) -> impl Iterator<Item = String> + use<> {
    let mut stream = TcpStream::connect(&live.host).unwrap();
    let path = format!("/events?token={}", live.token);
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {}\r\n{more}\r\n",
        live.host
    )
    .unwrap();
    BufReader::new(stream).lines().map(Result::unwrap)
}

fn upids(rows: &Value) -> BTreeSet<i64> {
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| row["upid"].as_i64().unwrap()).collect()
}

fn fifo(path: &Path) {
    mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
}

/// Fails in two ways, then waits in a pipeline until somebody opens `gate`.
const PIPELINE: &str = "sh -c 'exit 3'; sh -c 'exit 3'
    sh -c 'kill -SEGV $$'
    head -c 300000 /dev/zero > data
    { cat data; cat gate; } | tee copy | wc -c";

/// Compares a state with what SQL says; the run must be at rest.
fn is_as_sql_says(state: &Value, trace: &Path) -> bool {
    let trace = Trace::open(trace);
    let of = |sql: &str| -> BTreeSet<i64> {
        let rows = trace.rows(sql).into_iter();
        rows.map(|row| row[0].parse().unwrap()).collect()
    };
    let head = &state["head"];
    let (read, written): (i64, i64) = (
        trace.one("SELECT COALESCE(SUM(read_bytes), 0) FROM file_access"),
        trace.one("SELECT COALESCE(SUM(write_bytes), 0) FROM file_access"),
    );
    let ended: i64 = trace.one(
        "SELECT COUNT(*) FROM processes WHERE exit_code IS NOT NULL OR exit_signal IS NOT NULL",
    );
    let failed = "SELECT pid FROM processes WHERE exit_code <> 0 OR exit_signal IS NOT NULL";
    let failures = state["failures"]["rows"].as_array().unwrap().iter();
    let count: i64 = failures
        .clone()
        .map(|row| row["count"].as_i64().unwrap())
        .sum();
    let failures: BTreeSet<i64> = failures.map(|row| row["pid"].as_i64().unwrap()).collect();
    upids(&state["running"]["rows"]) == of("SELECT upid FROM processes WHERE end_ns IS NULL")
        && failures.is_subset(&of(failed))
        && count == of(failed).len() as i64
        && head["ended"] == ended
        && head["read_bytes"] == read
        && head["write_bytes"] == written
}

#[test]
fn a_pipeline_that_waits_is_shown_as_sql_says_it_and_becomes_the_report() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let (job, trace) = (scratch.dir("job"), scratch.join("trace.db"));
    fifo(&job.join("gate"));
    let run = start(run_in(&job, &trace).args(["--", "sh", "-c", PIPELINE]));
    let live = Live::start(&trace);
    let named = |state: &Value, row: &Value, name: &str| {
        state["steps"]["name"][row["step"].as_u64().unwrap() as usize] == name
    };
    let state = live.until("wc waits for tee", |state| {
        let rows = state["running"]["rows"].as_array();
        rows.is_some_and(|rows| {
            let row = rows.iter().find(|row| named(state, row, "wc"));
            row.is_some_and(|row| {
                let blockers = row["blockers"].as_array().unwrap();
                row["state"] == "channel" && blockers.iter().any(|one| named(state, one, "tee"))
            })
        }) && is_as_sql_says(state, &trace)
    });
    assert_eq!(state["head"]["state"], "recording");
    let endings: Vec<_> = state["failures"]["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            (
                row["ending"].as_str().unwrap(),
                row["count"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(endings, [("SIGSEGV", 1), ("exit 3", 2)]);
    let edges = state["graph"]["edges"].as_array().unwrap();
    let node = |edge: &Value, end: &str| {
        let place = edge[end].as_u64().unwrap() as usize;
        state["graph"]["nodes"][place]["name"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let pairs: BTreeSet<(String, String)> = edges
        .iter()
        .map(|edge| (node(edge, "from"), node(edge, "to")))
        .collect();
    for (from, to) in [("head", "cat"), ("cat", "tee"), ("tee", "wc")] {
        assert!(
            pairs.contains(&(from.into(), to.into())),
            "{from} to {to}: {pairs:?}"
        );
    }

    // Events: all parts at first, and after a reconnection those that have changed.
    let (id, first) = event(&mut events(&live, ""));
    assert!(first["graph"].is_object() && first["head"].is_object());
    let (_, next) = event(&mut events(&live, &format!("Last-Event-ID: {id}\r\n")));
    assert!(
        next["failures"].is_null() && next["managers"].is_null(),
        "{next:#}"
    );
    let (_, all) = event(&mut events(&live, "Last-Event-ID: other-3\r\n"));
    assert!(all["graph"].is_object());

    File::options().write(true).open(job.join("gate")).unwrap();
    run.wait(PATIENCE).expect(0);
    let log = scratch.join("trace.db-wal");
    assert!(
        !log.exists(),
        "a viewer keeps the trace from becoming one file"
    );
    let report = live.report();
    assert!(report.contains("default-src 'none'"));
    live.end();
}

#[test]
fn only_those_with_the_token_and_the_right_host_are_served() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let (job, trace) = (scratch.dir("job"), scratch.join("trace.db"));
    finish(run_in(&job, &trace).args(["--", "true"])).expect(0);
    let live = Live::start(&trace);
    let ask = |method: &str, path: &str, host: &str| {
        request(
            &live.host,
            &format!("{method} {path} HTTP/1.0\r\nHost: {host}\r\n\r\n"),
        )
        .0
    };
    let (_, port) = live.host.rsplit_once(':').unwrap();
    let with_token = format!("/?token={}", live.token);
    let wrong = format!("/?token={}", "0".repeat(live.token.len()));
    for path in ["/", "/events", "/state", "/report", &wrong, "/?token="] {
        assert_eq!(ask("GET", path, &live.host), 403, "{path}");
    }
    for host in [
        "evil.example",
        &format!("evil.example:{port}"),
        "127.0.0.1:1",
        "",
    ] {
        assert_eq!(ask("GET", &with_token, host), 403, "{host}");
    }
    for host in [live.host.clone(), format!("localhost:{port}")] {
        assert_eq!(ask("GET", &with_token, &host), 200, "{host}");
    }
    assert_eq!(ask("POST", &with_token, &live.host), 405);
    let absent = format!("/other{}", &with_token[1..]);
    assert_eq!(ask("GET", &absent, &live.host), 404);
    live.end();
}

#[test]
fn finished_recipes_of_make_are_counted_and_the_held_one_is_named() {
    if !need_fuse() || !need_program("make") {
        return;
    }
    let scratch = Scratch::new();
    let (job, trace) = (scratch.dir("job"), scratch.join("trace.db"));
    fifo(&job.join("gate"));
    let makefile = "all: a b c held\na b c:\n\techo $@ > $@; sleep 0.2\nheld: a\n\tcat gate\n";
    fs::write(job.join("Makefile"), makefile).unwrap();
    let run = start(run_in(&job, &trace).args(["--", "make", "-j2"]));
    let live = Live::start(&trace);
    let state = live.until("three recipes are done", |state| {
        let manager = &state["managers"][0];
        manager["name"] == "make" && manager["done"] == 3 && is_as_sql_says(state, &trace)
    });
    assert!(
        state["managers"][0]["total"].is_null(),
        "make does not say how many there are"
    );
    assert!(state["managers"][0]["left_ns"].is_null());
    let waits = |state: &Value| {
        let rows = state["running"]["rows"].as_array().unwrap().clone();
        rows.iter()
            .any(|row| row["command"] == "cat gate" && row["state"] != "running")
    };
    live.until("cat waits", waits);
    File::options().write(true).open(job.join("gate")).unwrap();
    run.wait(PATIENCE).expect(0);
    live.end();
}

#[test]
fn the_step_that_limits_a_pipeline_now_is_named_and_marked() {
    if !need_fuse() || !need_program("gzip") {
        return;
    }
    let scratch = Scratch::new();
    let (job, trace) = (scratch.dir("job"), scratch.join("trace.db"));
    let script = "yes | gzip -9 > /dev/null";
    let run = start(run_in(&job, &trace).args(["--", "timeout", "150", "sh", "-c", script]));
    let live = Live::start(&trace);
    let state = live.until("gzip limits it", |state| state["limit"]["name"] == "gzip");
    let limit = &state["limit"];
    assert!(limit["until_ns"].as_i64() <= state["head"]["now_ns"].as_i64());
    assert_eq!(limit["is_channel"], false);
    let nodes = state["graph"]["nodes"].as_array().unwrap();
    let marked: Vec<&Value> = nodes
        .iter()
        .filter(|node| node["is_critical"] == true)
        .collect();
    assert!(
        marked.len() == 1 && marked[0]["name"] == "gzip",
        "{nodes:?}"
    );
    run.signal(Signal::SIGTERM);
    run.wait(PATIENCE);
    live.end();
}

#[test]
fn a_trace_whose_recorder_was_killed_says_so_and_has_a_report() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let (job, trace) = (scratch.dir("job"), scratch.join("trace.db"));
    let run = start(run_in(&job, &trace).args(["--", "sleep", "2.5"]));
    let live = Live::start(&trace);
    live.until("it is recorded", is_shown);
    run.signal(Signal::SIGKILL);
    run.wait(PATIENCE);
    let state = live.until("it was cut short", |state| {
        state["head"]["state"] == "killed" && state["head"]["has_report"] == true
    });
    assert!(
        !state["running"]["rows"].as_array().unwrap().is_empty(),
        "its end is not known"
    );
    assert!(
        live.get("/").1.contains("new EventSource"),
        "the page stays"
    );
    assert!(live.get("/report").1.contains("id=\"data-head\""));
    live.end();
}

#[test]
fn a_run_brings_its_own_page_and_leaves_nothing_behind() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let job = scratch.dir("job");
    fifo(&job.join("gate"));
    let mut command = Command::new(FLOWTRACE);
    command.args(["run", "--live", "--no-summary", "--", "cat", "gate"]);
    let run = start(command.current_dir(&job));
    let page = Page::of(&run);
    let begin = Instant::now();
    while !page.get("/state").1.contains("cat gate") {
        assert!(begin.elapsed() < PATIENCE, "nothing is shown");
        std::thread::sleep(Duration::from_millis(50));
    }
    let opened = File::options().write(true).open(job.join("gate"));
    drop(opened.unwrap());
    // The run ends at once, its page a little later.
    run.wait(PATIENCE).expect(0);
    page.report();
    while TcpStream::connect(&page.host).is_ok() {
        assert!(begin.elapsed() < PATIENCE, "the server stays");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// True once a process is shown; before, nothing of the run may be stored.
fn is_shown(state: &Value) -> bool {
    let rows = state["running"]["rows"].as_array();
    state["head"]["state"] == "recording" && rows.is_some_and(|rows| !rows.is_empty())
}

#[test]
fn a_terminal_gets_a_line_and_a_pipe_none() {
    if !need_fuse() || !need_program("script") {
        return;
    }
    let scratch = Scratch::new();
    let job = scratch.dir("job");
    let run = format!("{FLOWTRACE} run --force --no-summary --progress -o t.db -- sleep 2.5");
    let shown = on_terminal(&job, &run);
    for part in [
        "running",
        "ended",
        "lost nothing",
        "\u{1b}[1;39r",
        "\u{1b}[r",
    ] {
        assert!(shown.contains(part), "{part}: {shown:?}");
    }
    let words: Vec<&str> = run.split(' ').skip(1).collect();
    let output = flowtrace(&job, &words);
    assert!(output.status.success());
    assert!(
        output.stderr.is_empty() && output.stdout.is_empty(),
        "{output:?}"
    );
    // The same on the whole terminal.
    let shown = on_terminal(&job, &format!("{FLOWTRACE} live --text t.db"));
    // Words come one by one, each with its place.
    for part in [
        "sleep",
        "2.5",
        "ended,",
        "the run has ended: flowtrace summary",
    ] {
        assert!(shown.contains(part), "{part}: {shown:?}");
    }
    let refused = flowtrace(&job, &["live", "--text", "t.db"]);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn a_browser_shows_the_run_as_it_goes_on_and_its_report_at_the_end() {
    if !need_fuse() || !need_python("json") {
        return;
    }
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let mut browsers = browsers.iter();
    if !browsers.any(|name| support::succeeds(name, &["--version"])) {
        return skip("no Chromium");
    }
    let scratch = Scratch::new();
    let (job, trace) = (scratch.dir("job"), scratch.join("trace.db"));
    fifo(&job.join("gate"));
    let run = start(run_in(&job, &trace).args(["--", "sh", "-c", PIPELINE]));
    let live = Live::start(&trace);
    let mut browser = Command::new(PYTHON);
    browser.arg("-B").arg(checkout("tests/browser/live.py"));
    browser.arg(live.address());
    browser.args([Path::new(FLOWTRACE), &trace, &job.join("gate")]);
    finish(&mut browser).expect(0);
    run.wait(PATIENCE).expect(0);
    live.end();

    let cut = scratch.join("cut.db");
    let run = start(run_in(&job, &cut).args(["--", "sleep", "2.5"]));
    let live = Live::start(&cut);
    live.until("it is recorded", is_shown);
    run.signal(Signal::SIGKILL);
    run.wait(PATIENCE);
    let mut browser = Command::new(PYTHON);
    browser.arg("-B").arg(checkout("tests/browser/live.py"));
    browser.arg(live.address());
    finish(&mut browser).expect(0);
    live.end();
}
