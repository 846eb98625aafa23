//! A cluster as `flowtrace collect --live`, `live` and `report` show it: what the page gets is what SQL says.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use agents::Agents;
use flowtrace_monitor::Key;
use flowtrace_schema::HostCounter;
use nix::sys::signal::Signal;
use serde_json::Value;

use support::page::Page;
use support::process::{Running, finish, start};
use support::trace::Trace;
use support::{
    FLOWTRACE, PATIENCE, PYTHON, Scratch, checkout, flowtrace, need_program, need_python,
    on_terminal, skip,
};

#[path = "cluster/agents.rs"]
mod agents;
mod support;

/// Starts a collector that listens at a free port, with its page; returns both, and where it listens.
fn collector(directory: &Path, more: &[&str]) -> (Running, Page, SocketAddr) {
    let mut command = Command::new(FLOWTRACE);
    command.args(["collect", "--live", "--key", "key", "--for", "120"]);
    command.args(["--listen", "127.0.0.1:0"]).args(more);
    let running = start(command.current_dir(directory));
    let page = Page::of(&running);
    let said = running.stderr_so_far();
    let address = said.split_once("listening at ").expect("an address").1;
    let address = address.split(' ').next().unwrap().parse().unwrap();
    (running, page, address)
}

fn nodes(state: &Value) -> &[Value] {
    let rows = state["nodes"]["rows"].as_array();
    rows.map_or(&[], Vec::as_slice)
}

fn node<'a>(state: &'a Value, name: &str) -> &'a Value {
    let mut rows = nodes(state).iter();
    rows.find(|row| row["name"] == name).unwrap_or(&Value::Null)
}

fn has_states(state: &Value, wanted: &[(&str, &str)]) -> bool {
    wanted
        .iter()
        .all(|&(name, wanted)| node(state, name)["state"] == wanted)
}

/// Growth of counters of a node from one sample to another, summed, as SQL says.
fn growth(trace: &Trace, node: &str, counters: &str, (from, to): (i64, i64)) -> i64 {
    let total = |at: i64| -> i64 {
        trace.one(&format!(
            "SELECT COALESCE(SUM(value), 0) FROM (SELECT counter, value, MAX(t_ns) FROM host_samples
             WHERE host = '{node}' AND counter LIKE '{counters}' AND t_ns <= {at} GROUP BY counter)"
        ))
    };
    total(to) - total(from)
}

/// Compares rates of a node with what SQL says of the same time: over the samples of 10 s, or over all of a
/// recording that has ended.
fn has_rates_of_sql(row: &Value, trace: &Trace, is_over: bool) -> bool {
    let name = row["name"].as_str().unwrap();
    let last = row["last_ns"].as_i64().unwrap();
    let since = if is_over { 0 } else { last - 10_000_000_000 };
    let first: i64 = trace.one(&format!(
        "SELECT MIN(t_ns) FROM host_samples WHERE host = '{name}' AND t_ns >= {since}"
    ));
    let growth = |counters: &str| growth(trace, name, counters, (first, last)) as f64;
    let seconds = (last - first) as f64 / 1e9;
    let busy = growth("cpu.%") - growth("cpu.idle") - growth("cpu.io_wait");
    let near = |shown: &Value, sql: f64, least: f64| {
        let shown = shown.as_f64();
        shown.is_some_and(|shown| (shown - sql).abs() <= least)
    };
    let rates = &row["rates"];
    near(&rates["cpu"], busy / growth("cpu.%"), 0.0006)
        && near(
            &rates["net_in"],
            growth("net.%.receive_bytes") / seconds,
            1.0,
        )
        && near(&rates["net_out"], growth("net.%.send_bytes") / seconds, 1.0)
        && near(
            &rates["disk_read"],
            growth("disk.%.read_bytes") / seconds,
            1.0,
        )
        && near(
            &rates["disk_write"],
            growth("disk.%.write_bytes") / seconds,
            1.0,
        )
}

/// Compares the numbers of samples with what SQL says; no sample may come meanwhile.
fn has_samples_of_sql(state: &Value, trace: &Trace) -> bool {
    let sql = "SELECT host, received, expected, final, COALESCE(clock_error_ns, 0)
               FROM nodes JOIN hosts USING (host)";
    let rows = trace.rows(sql);
    let all = &state["nodes"]["all"];
    let text = |value: &Value| value.as_i64().unwrap_or(0).to_string();
    let is_same = |row: &Vec<String>| {
        let shown = node(state, &row[0]);
        let watched = &shown["watched"];
        let is_final = watched["is_final"] == true;
        let of = [&watched["received"], &watched["sent"]].map(text);
        of == row[1..3]
            && row[3] == i32::from(is_final).to_string()
            && row[4] == text(&shown["clock_error_ns"])
    };
    rows.len() as u64 == all["nodes"].as_u64().unwrap_or(0)
        && rows.iter().all(is_same)
        && all["received"] == trace.one::<i64>("SELECT SUM(received) FROM nodes")
        && all["sent"] == trace.one::<i64>("SELECT SUM(expected) FROM nodes")
}

/// A data block of a report.
fn block(page: &str, name: &str) -> Value {
    let begin = format!("id=\"data-{name}\">");
    let rest = page.split_once(&begin).expect("the block").1;
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn three_agents_are_shown_as_sql_says_and_one_that_is_killed_is_silent() {
    let scratch = Scratch::new();
    let trace = scratch.join("nodes.db");
    let (collector, page, address) = collector(&scratch, &["--rate", "5"]);
    let agents = ["n1", "n2", "n3"].map(|name| {
        let mut agent = Command::new(FLOWTRACE);
        agent.args(["agent", "--key", "key", "--name", name]);
        start(
            agent
                .args(["--to", &address.to_string()])
                .current_dir(&*scratch),
        )
    });
    let [killed, second, third] = agents;
    let state = page.until("three report, as SQL says", |state| {
        let names = ["n1", "n2", "n3"];
        let is_fit = |name: &&str| {
            let row = node(state, name);
            row["watched"]["received"].as_i64() >= Some(10) && row["rates"]["cpu"].is_number()
        };
        names.iter().all(is_fit)
            && nodes(state)
                .iter()
                .all(|row| has_rates_of_sql(row, &Trace::open(&trace), false))
    });
    assert_eq!(state["nodes"]["all"]["reporting"], 3, "{state:#}");
    assert_eq!(state["nodes"]["all"]["samples_per_second"], 15.0);
    assert_eq!(state["head"]["sees_processes"], false);
    // Fewer than four are not compared.
    assert!(
        nodes(&state)
            .iter()
            .all(|row| row["why"] == Value::Array(Vec::new()))
    );

    killed.signal(Signal::SIGKILL);
    killed.wait(PATIENCE);
    let state = page.until("the killed one is silent", |state| {
        has_states(
            state,
            &[("n1", "silent"), ("n2", "reporting"), ("n3", "reporting")],
        )
    });
    assert_eq!(nodes(&state)[0]["name"], "n1", "it is the first one");
    assert!(nodes(&state)[0]["quiet_ns"].as_i64() >= Some(5_000_000_000));
    assert!(
        nodes(&state)[0]["rates"]["cpu"].is_null(),
        "it has no rate now"
    );
    for agent in [second, third] {
        agent.signal(Signal::SIGTERM);
        agent.wait(PATIENCE).expect(0);
    }
    page.until("the others have ended, as SQL says", |state| {
        has_states(state, &[("n1", "silent"), ("n2", "ended"), ("n3", "ended")])
            && has_samples_of_sql(state, &Trace::open(&trace))
    });

    collector.signal(Signal::SIGTERM);
    collector.wait(PATIENCE).expect(1);
    let report = page.report();
    let shown = serde_json::json!({ "nodes": block(&report, "nodes") });
    assert!(has_states(
        &shown,
        &[("n1", "cut"), ("n2", "ended"), ("n3", "ended")]
    ));
    let trace = Trace::open(&trace);
    assert!(has_samples_of_sql(&shown, &trace), "{shown:#}");
    let resources = flowtrace(&scratch, &["resources", "nodes.db", "--format", "json"]);
    let resources: Value = serde_json::from_slice(&resources.stdout).unwrap();
    let resources = resources[0]["hosts"].as_array().unwrap();
    assert_eq!(resources.len(), 3);
    for row in nodes(&shown) {
        assert!(has_rates_of_sql(row, &trace, true), "{row:#}");
        let mut of = resources.iter().filter(|of| of[0] == row["name"]);
        assert_eq!(row["parts"], of.next().expect("its time by resource")[1]);
    }
}

/// Machines of four CPUs that are 80 % busy; n7 computes less, and n0 receives what the others send.
fn totals(number: usize, elapsed: Duration) -> Vec<(u8, u64)> {
    let of = |per_second: f64| (elapsed.as_secs_f64() * per_second) as u64;
    let busy = if number == 7 { 0.1 } else { 0.8 };
    let received = if number == 0 { 99e6 } else { 2e6 };
    [
        (HostCounter::CpuUser, of(4e9 * busy)),
        (HostCounter::CpuIdle, of(4e9 * (1.0 - busy))),
        (HostCounter::DiskReadBytes, of(3e6 + 1e4 * number as f64)),
        (HostCounter::DiskWriteBytes, of(1e6)),
        (HostCounter::NetReceiveBytes, of(received)),
        (HostCounter::NetSendBytes, of(5e6)),
    ]
    .map(|(counter, value)| (counter as u8, value))
    .to_vec()
}

#[test]
fn of_two_hundred_agents_those_unlike_the_others_are_named() {
    const COUNT: usize = 200;
    let scratch = Scratch::new();
    let trace = scratch.join("nodes.db");
    let (collector, page, address) = collector(&scratch, &["--rate", "1"]);
    let key = Key::read(&scratch.join("key")).unwrap();
    let agents = Agents::start(COUNT, &key, address, totals);
    let state = page.until("two are unlike the others, as SQL says", |state| {
        let all = &state["nodes"]["all"];
        all["reporting"] == COUNT
            && all["differing"] == 2
            && nodes(state)
                .iter()
                .take(9)
                .all(|row| has_rates_of_sql(row, &Trace::open(&trace), false))
    });
    for (name, wanted) in [("n7", "CPU lower than"), ("n0", "network in higher than")] {
        let why = node(&state, name)["why"][0].as_str().unwrap_or_default();
        assert!(why.starts_with(wanted), "{name}: {why}");
    }
    let names: Vec<&str> = nodes(&state)
        .iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), COUNT);
    assert!(
        names[..2].contains(&"n0") && names[..2].contains(&"n7"),
        "{:?}",
        &names[..2]
    );
    assert_eq!(names[2..6], ["n1", "n2", "n3", "n4"]);

    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let has_browser = browsers
        .iter()
        .any(|name| support::succeeds(name, &["--version"]));
    if need_python("json") && has_browser {
        let mut browser = Command::new(PYTHON);
        browser.arg("-B").arg(checkout("tests/browser/nodes.py"));
        browser
            .arg(page.address())
            .args([Path::new(FLOWTRACE), &trace]);
        browser.arg(collector.pid().to_string());
        if let Some(pictures) = std::env::var_os("FLOWTRACE_TEST_PICTURES") {
            browser.arg(pictures);
        }
        // It ends the collector.
        finish(&mut browser).expect(0);
    } else {
        skip("no Chromium");
        collector.signal(Signal::SIGTERM);
    }
    drop(agents);
    collector.wait(PATIENCE).expect(1);
    if need_program("script") {
        let shown = on_terminal(&scratch, &format!("{FLOWTRACE} live --text nodes.db"));
        // Words come one by one, each with its place.
        for part in ["unlike", "n7", "lower", "+16"] {
            assert!(shown.contains(part), "{part}: {shown:?}");
        }
    }
}
