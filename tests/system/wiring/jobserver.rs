//! The jobserver of make: its tokens are no data.

use std::process::Command;

use super::{Traced, assert_wires, traced};
use crate::support::need_program;
use crate::support::process::finish;

/// Two makes below one share two places for eight jobs of several programs each.
fn recursive() -> Option<Traced> {
    if !need_program("make") {
        return None;
    }
    let script = r#"printf '%s\n' 'all: one two' 'one two:' '	+$(MAKE) -f jobs N=$@' > Makefile
        printf '%s\n' 'all: $(N)1 $(N)2 $(N)3 $(N)4' '%:' '	sleep 0.05; seq 3 | sort > $@' > jobs
        exec make -j2"#;
    traced(&[], &["sh", "-ec", script])
}

fn flowtrace(run: &Traced, arguments: &[&str]) -> serde_json::Value {
    let mut command = Command::new(crate::support::FLOWTRACE);
    command.arg(arguments[0]).arg(run.scratch.join("trace.db"));
    let said = finish(command.args(&arguments[1..])).expect(0);
    serde_json::from_str(&said.stdout_text()).expect("JSON")
}

#[test]
fn tokens_are_no_data_for_anybody() {
    let Some(run) = recursive() else { return };
    let makes: i64 = run
        .trace
        .one("SELECT COUNT(DISTINCT pid) FROM processes WHERE rule = 'make' AND origin = 'exec'");
    assert_eq!(makes, 3, "the one on top and two below");
    assert_wires(&run.trace, &["seq > sort"]);

    let graph = flowtrace(&run, &["export", "cytoscape"]);
    let elements = &graph["elements"];
    let rule = |id: &serde_json::Value| {
        let nodes = elements["nodes"].as_array().unwrap();
        let node = nodes.iter().find(|node| node["data"]["id"] == *id).unwrap();
        node["data"]["rule"].as_str().unwrap_or("").to_owned()
    };
    let edges = elements["edges"].as_array().unwrap();
    let piped: Vec<(String, String)> = edges
        .iter()
        .filter(|edge| edge["data"]["kind"] == "pipe")
        .map(|edge| (rule(&edge["data"]["source"]), rule(&edge["data"]["target"])))
        .collect();
    assert!(!piped.is_empty());
    assert!(
        piped
            .iter()
            .all(|ends| *ends == ("seq".into(), "sort".into())),
        "{piped:?}"
    );

    let waits = flowtrace(&run, &["waits", "--format", "json"]);
    for wait in waits["waits"].as_array().unwrap() {
        let is_of_make = wait["waiter"] == "make" || wait["culprit"] == "make";
        let kind = wait["kind"].as_str().unwrap();
        assert!(!(is_of_make && kind.starts_with("late ")), "{wait}");
    }
}
