use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::agent::{AgentOptions, watch};
use super::collect::{CollectOptions, Listening, gather};
use super::*;
use crate::collector::Rates;
use crate::key::Key;
use crate::wire::Counters;

/// A real agent and a real collector over the loopback: the last totals are in the trace, and they
/// are those of the machine.
#[test]
fn an_agent_and_a_collector_over_real_sockets() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("nodes.db");
    let listening = Listening::at("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listening.address().unwrap();
    let key = Key::new(b"a key of a test, long enough");
    let options = CollectOptions {
        output: output.clone(),
        replace: false,
        listen: address,
        key: key.clone(),
        rates: Rates {
            period_ms: 50,
            counters: Counters::named(["cpu", "tasks.switches"]).unwrap(),
            ..Rates::default()
        },
        // An upper bound; the run ends with the last totals.
        length: Some(Duration::from_secs(120)),
        until_final: 2,
    };
    let agent = |name: &str| AgentOptions {
        to: address.to_string(),
        key: key.clone(),
        length: None,
        name: Some(name.into()),
    };
    let never = AtomicBool::new(false);
    let (seen, end) = (AtomicBool::new(false), AtomicBool::new(false));
    let report = std::thread::scope(|scope| {
        let agents = ["n1", "n2"].map(|name| {
            // The collector ends the other one.
            let (options, end) = (agent(name), if name == "n1" { &end } else { &never });
            scope.spawn(move || watch(&options, end))
        });
        let mut show = |nodes: &[NodeState]| {
            if nodes.len() == 2 && nodes.iter().all(|node| node.status.received >= 3) {
                seen.store(true, Ordering::Release);
                end.store(true, Ordering::Release);
            }
        };
        let mut controls = || match seen.load(Ordering::Acquire) {
            true => vec![Control::Stop(Some("n2".into()))],
            false => Vec::new(),
        };
        let report = gather(&options, &listening, &never, &mut show, &mut controls).unwrap();
        end.store(true, Ordering::Release);
        for (agent, is_second) in agents.into_iter().zip([false, true]) {
            let report = agent.join().unwrap().unwrap();
            assert_eq!(report.is_stopped, is_second);
            assert_eq!(report.not_final, None);
            assert!(report.sent >= 3);
        }
        report
    });
    assert!(seen.load(Ordering::Acquire), "both were heard");
    assert_eq!(report.nodes.len(), 2);
    assert!(
        report
            .nodes
            .iter()
            .all(|node| node.is_final && node.sessions == 1),
        "{report:?}"
    );
    let db = rusqlite::Connection::open(&output).unwrap();
    let one = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(
        one("SELECT COUNT(*) FROM nodes WHERE final = 1 AND received >= 3"),
        2
    );
    assert_eq!(
        one("SELECT COUNT(*) FROM hosts WHERE clock_method = 'exchange' AND clock_error_ns > 0"),
        2
    );
    // They share a kernel with the collector, so that the true relation is known.
    let truth = "SELECT COUNT(*) FROM host AS n JOIN host AS c ON c.host_id = 1 WHERE n.host_id > 1
                 AND abs(n.monotonic_ns - c.monotonic_ns) <= n.clock_error_ns + 1000000";
    assert_eq!(one(truth), 2);
    assert!(one("SELECT COUNT(*) FROM host_samples WHERE counter = 'tasks.switches'") >= 4);
    let switches = one("SELECT MAX(value) FROM host_samples WHERE counter = 'tasks.switches'");
    assert!(switches > 0);
    let others = "SELECT COUNT(*) FROM host_samples
                  WHERE counter NOT LIKE 'cpu.%' AND counter <> 'tasks.switches'";
    assert_eq!(one(others), 0);
}

#[test]
fn an_agent_with_another_key_reports_it_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let listening = Listening::at("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listening.address().unwrap();
    let options = CollectOptions {
        output: directory.path().join("nodes.db"),
        replace: false,
        listen: address,
        key: Key::new(b"the key of the collector"),
        rates: Rates::default(),
        length: None,
        until_final: 0,
    };
    let end = AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        let unknown = scope.spawn(|| {
            let options = AgentOptions {
                to: address.to_string(),
                key: Key::new(b"another key"),
                length: Some(Duration::from_millis(200)),
                name: None,
            };
            let report = watch(&options, &AtomicBool::new(false));
            end.store(true, Ordering::Release);
            report.unwrap()
        });
        let report = gather(&options, &listening, &end, &mut |_| {}, &mut Vec::new).unwrap();
        let unknown = unknown.join().unwrap();
        assert!(unknown.not_final.unwrap().contains("key"));
        report
    });
    assert!(report.nodes.is_empty());
    assert!(report.refused > 0);
}

/// Connections without the key, silent or a byte at a time, do not stop an agent from sending its last
/// totals.
#[test]
fn silent_connections_keep_no_agent_out() {
    let directory = tempfile::tempdir().unwrap();
    let listening = Listening::at("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listening.address().unwrap();
    let key = Key::new(b"a key of a test, long enough");
    let options = CollectOptions {
        output: directory.path().join("nodes.db"),
        replace: false,
        listen: address,
        key: key.clone(),
        rates: Rates::default(),
        length: Some(Duration::from_secs(120)),
        until_final: 1,
    };
    let never = AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        let agent = scope.spawn(move || {
            let mut silent: Vec<TcpStream> = Vec::new();
            for number in 0..300 {
                let mut stream = TcpStream::connect(address).unwrap();
                if number % 2 == 0 {
                    // The begin of a message. The connection may be closed already.
                    let _ = stream.write_all(&[100]);
                }
                silent.push(stream);
            }
            let options = AgentOptions {
                to: address.to_string(),
                key,
                length: Some(Duration::from_millis(100)),
                name: Some("n1".into()),
            };
            let report = watch(&options, &AtomicBool::new(false)).unwrap();
            drop(silent);
            report
        });
        let report = gather(&options, &listening, &never, &mut |_| {}, &mut Vec::new).unwrap();
        assert_eq!(agent.join().unwrap().not_final, None);
        report
    });
    assert!(report.nodes.iter().all(|node| node.is_final), "{report:?}");
    assert_eq!(report.nodes.len(), 1);
}

#[test]
fn this_machine_has_totals() {
    let started = Instant::now();
    let found = totals(&mut Sources::open());
    assert!(found.len() > 10, "{found:?}");
    assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0));
    assert!(started.elapsed() < Duration::from_secs(60));
}
