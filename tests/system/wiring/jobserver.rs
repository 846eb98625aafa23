//! The jobserver of make: its tokens are no data.

use std::process::Command;

use super::{Traced, assert_wires, traced};
use crate::support::need_program;
use crate::support::process::finish;

/// Two makes below one share two job slots for eight jobs of several programs each.
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

/// Both users of Python's `Queue` have both ends of its pipe open: a fork that closed none, and a worker that
/// was executed and inherited them.
#[test]
fn queues_of_python_are_no_jobservers() {
    if !need_program("python3") {
        return;
    }
    let script = "import multiprocessing as mp, sys, time
def burn(s):
    until = time.process_time() + s
    while time.process_time() < until: pass
def take(queue):
    while queue.get() is not None: pass
if __name__ == '__main__':
    mp.set_start_method(sys.argv[1])
    queue = mp.Queue()
    taker = mp.Process(target=take, args=(queue,))
    taker.start()
    for i in range(6):
        burn(0.1)
        queue.put(i)
    queue.put(None)
    taker.join()
";
    for method in ["fork", "spawn"] {
        // Workers read the program again from its file.
        let line = r#"printf %s "$1" > handing.py; exec python3 handing.py "$2""#;
        let Some(run) = traced(&[], &["sh", "-ec", line, "sh", script, method]) else {
            return;
        };
        let waits = flowtrace(&run, &["waits", "--format", "json"]);
        let of = |kind: &str| -> f64 {
            let waits = waits["waits"].as_array().unwrap().iter();
            let waits = waits.filter(|wait| wait["kind"].as_str().unwrap().starts_with(kind));
            let maker = waits.filter(|wait| kind == "job" || wait["culprit"] == "handing.py");
            maker.map(|wait| wait["ns"].as_f64().unwrap()).sum()
        };
        assert_eq!(of("job"), 0.0, "{method}: {waits:#}");
        assert!(of("late writer") > 300e6, "{method}: {waits:#}");
    }
}
