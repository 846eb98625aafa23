//! `flowtrace collect` and `flowtrace agent` as programs, over the loopback.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn flowtrace(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowtrace"));
    command.args(arguments).current_dir(directory);
    command
}

/// Starts a collector that listens at a free port; returns it with its address.
fn collector(
    directory: &Path,
    more: &[&str],
) -> (Child, BufReader<std::process::ChildStderr>, String) {
    let arguments = [
        "collect",
        "--key",
        "key",
        "--listen",
        "127.0.0.1:0",
        "--for",
        "120",
    ];
    let mut child = flowtrace(directory, &[&arguments[..], more].concat())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let address = loop {
        let mut line = String::new();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended");
        if let Some(rest) = line.strip_prefix("flowtrace: listening at ") {
            break rest.split(' ').next().unwrap().to_owned();
        }
    };
    (child, said, address)
}

#[test]
fn last_totals_are_exact_and_the_trace_names_the_machine() {
    let directory = tempfile::tempdir().unwrap();
    let (mut collector, mut said, address) =
        collector(directory.path(), &["--until", "1", "--rate", "20"]);
    let agent = flowtrace(
        directory.path(),
        &[
            "agent", "--to", &address, "--key", "key", "--for", "2", "--name", "n1",
        ],
    )
    .output()
    .unwrap();
    let text = String::from_utf8(agent.stderr).unwrap();
    assert!(agent.status.success(), "{text}");
    assert!(text.contains("and the last totals to"), "{text}");
    assert!(collector.wait().unwrap().success());
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    assert!(
        text.contains("1 machine watched, last totals of 1 exact"),
        "{text}"
    );
    let sql = "SELECT host, final, sessions FROM nodes";
    let rows = flowtrace(
        directory.path(),
        &["query", "nodes.db", sql, "--format", "csv"],
    )
    .output()
    .unwrap();
    let rows = String::from_utf8(rows.stdout).unwrap();
    let rows: Vec<&str> = rows.lines().collect();
    assert_eq!(rows, ["host,final,sessions", "n1,1,1"]);
    // The machine of the collector is not one of the watched machines.
    let trace = flowtrace_schema::Trace::open(&directory.path().join("nodes.db")).unwrap();
    let machines = trace.machines().unwrap();
    let names: Vec<&str> = machines.iter().map(|host| host.host.as_str()).collect();
    assert_eq!(
        (names.as_slice(), trace.hosts().unwrap().len()),
        (&["n1"][..], 2)
    );
    let explained = |arguments: &[&str]| {
        let output = flowtrace(directory.path(), arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = explained(&["stats", "nodes.db", "machines"]);
    assert!(
        text.contains("1 watched machine together: 20.0 samples a second"),
        "{text}"
    );
    let svg = explained(&["stats", "nodes.db", "machines", "--format", "svg"]);
    for title in ["n1: CPU", "n1: memory", "n1: disks", "n1: network"] {
        assert!(svg.contains(title), "{title}: {svg}");
    }
    let page = explained(&["report", "nodes.db", "--format", "json", "-o", "-"]);
    let page: serde_json::Value = serde_json::from_str(&page).unwrap();
    let node = &page["machine"]["hosts"][0];
    assert_eq!(node["name"], "n1");
    assert_eq!(node["watched"]["is_final"], true);
    assert!(node["t_ns"].as_array().unwrap().len() > 2);
    let pictures = page["pictures"]["machines"].as_array().unwrap();
    assert!(pictures[0]["svg"].as_str().unwrap().contains("n1: CPU"));
}

#[test]
fn an_agent_is_stopped_by_the_collector_and_only_what_was_chosen_is_stored() {
    let directory = tempfile::tempdir().unwrap();
    let (mut collector, _said, address) = collector(
        directory.path(),
        &[
            "--until",
            "1",
            "--rate",
            "20",
            "--counters",
            "cpu,disk.busy",
        ],
    );
    let mut controls = collector.stdin.take().unwrap();
    let arguments = ["agent", "--to", &address, "--key", "key", "--name", "n1"];
    let mut agent = flowtrace(directory.path(), &arguments)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // An agent that is not known yet cannot be stopped, so the order is repeated until it is known.
    let ended = loop {
        // A collector that has the last totals has ended.
        let _ = writeln!(controls, "stop n1");
        if let Some(status) = agent.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(std::time::Duration::from_millis(500));
    };
    let mut text = String::new();
    agent
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert!(
        ended.success() && text.contains("ended by the collector"),
        "{text}"
    );
    assert!(collector.wait().unwrap().success());
    let sql = "SELECT DISTINCT counter FROM host_samples WHERE counter NOT LIKE 'cpu.%'";
    let arguments = ["query", "nodes.db", sql, "--format", "csv"];
    let rows = flowtrace(directory.path(), &arguments).output().unwrap();
    let rows = String::from_utf8(rows.stdout).unwrap();
    assert_eq!(
        rows.lines().collect::<Vec<_>>(),
        ["counter", "disk.all.busy"]
    );
    let wrong = flowtrace(
        directory.path(),
        &["collect", "--key", "key", "--counters", "gpu"],
    )
    .output()
    .unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn without_the_right_key_nothing_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let missing = flowtrace(
        directory.path(),
        &["agent", "--to", "127.0.0.1:1", "--key", "none"],
    )
    .output()
    .unwrap();
    assert_eq!(missing.status.code(), Some(2));
    let (mut collector, _said, address) = collector(directory.path(), &["--until", "1"]);
    let other = "0123456789abcdef0123456789abcdef";
    std::fs::write(directory.path().join("other"), other).unwrap();
    let arguments = ["agent", "--to", &address, "--key", "other", "--for", "1"];
    let open = flowtrace(directory.path(), &arguments).output().unwrap();
    assert_eq!(open.status.code(), Some(2), "others can read it");
    use std::os::unix::fs::PermissionsExt;
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(directory.path().join("other"), private).unwrap();
    let refused = flowtrace(directory.path(), &arguments).output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(
        text.contains("did not reach") && text.contains("hint: "),
        "{text}"
    );
    let end = nix::sys::signal::Signal::SIGTERM;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(collector.id() as i32), end).unwrap();
    assert!(
        collector.wait().unwrap().success(),
        "ended by a signal, with nobody heard"
    );
}

/// Totals that were acknowledged survive the collector, so an agent may end after the acknowledgement.
#[test]
fn acknowledged_totals_survive_the_death_of_the_collector() {
    let directory = tempfile::tempdir().unwrap();
    let (mut collector, _said, address) = collector(directory.path(), &["--rate", "0.1"]);
    let arguments = [
        "agent", "--to", &address, "--key", "key", "--for", "1", "--name", "n1",
    ];
    let agent = flowtrace(directory.path(), &arguments).output().unwrap();
    collector.kill().unwrap();
    collector.wait().unwrap();
    let text = String::from_utf8(agent.stderr).unwrap();
    assert!(agent.status.success(), "{text}");
    let sql = "SELECT host, final, (SELECT COUNT(*) > 10 FROM host_samples AS s WHERE s.host = n.host) AS all_there
               FROM nodes AS n";
    let rows = flowtrace(
        directory.path(),
        &["query", "nodes.db", sql, "--format", "csv"],
    )
    .output()
    .unwrap();
    let text = String::from_utf8(rows.stdout).unwrap();
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(rows, ["host,final,all_there", "n1,1,1"]);
}
