//! Captures of few packets over a long time, such as those of a connection that is kept alive.

use std::fs;
use std::process::Command;

use crate::frames::{Segment, pcap};
use crate::support::{FLOWTRACE, Scratch, prints};
use crate::{A, B};

/// Memory limit in KiB, more than any answer needs. One step for each millisecond of 218 days would need
/// hundreds of GiB.
const MEMORY: &str = "1500000";

/// Capture of `rounds` questions and answers, evenly distributed over `days` days.
fn keep_alive(rounds: u32, days: u64) -> Vec<u8> {
    let mut frames = Vec::new();
    for round in 0..rounds {
        let part = days * 86_400_000_000_000 / u64::from(rounds);
        let t_ns = 1_600_000_000_000_000_000 + part * u64::from(round);
        let (asked, answered) = (50 * round + 1, 80 * round + 1);
        let ask = Segment {
            ports: (1000, 80),
            seq: asked,
            ack: answered,
            flags: 24,
            payload: 50,
        };
        let answer = Segment {
            ports: (80, 1000),
            seq: answered,
            ack: asked + 50,
            flags: 24,
            payload: 80,
        };
        frames.push((t_ns, ask.frame(A, B)));
        frames.push((t_ns + 10_000_000, answer.frame(B, A)));
    }
    pcap(&frames)
}

#[test]
fn every_question_about_a_sparse_capture_has_an_answer_in_little_memory() {
    for (rounds, days) in [(70, 1), (17, 218)] {
        let scratch = Scratch::new();
        fs::write(scratch.join("s.pcap"), keep_alive(rounds, days)).unwrap();
        prints(&scratch, &["import", "-q", "s.pcap", "-o", "s.db"]);
        let pair = "--from 10.0.0.1 --to 10.0.0.2";
        let mut asked: Vec<String> = [
            "network s.db",
            "network series s.db --by-pair",
            "network series s.db --rate-step 0.001",
            "network series s.db --by-pair -o s.svg",
            "report s.db --force -o s.html",
            "compare s.db s.db",
            "summary s.db",
            "stats s.db",
            "tree s.db",
            "dag s.db",
        ]
        .map(str::to_owned)
        .to_vec();
        for mode in ["default", "thesis"] {
            for question in [
                "overview",
                "flows",
                "peers",
                "matrix",
                "topology",
                "changes",
                "iterations",
                "series",
                "stationary",
                "cdf",
                "trigger",
                "spectrum",
                "peaks",
                "period",
                "components",
                "court",
                "records",
                "balance",
                "bias",
                "multiload",
                "imbalance",
                "messages",
                "decomposition",
                "slowdown",
                "pop",
                "critical-path",
                "state",
                "placement",
                "component",
            ] {
                asked.push(format!("network {question} s.db --mode {mode}"));
            }
            for question in ["latency", "bandwidth"] {
                asked.push(format!("network {question} s.db --mode {mode} {pair}"));
            }
        }
        for question in asked {
            let limited = format!("ulimit -v {MEMORY}; ulimit -c 0; exec \"$0\" {question}");
            let output = Command::new("sh")
                .args(["-c", &limited, FLOWTRACE])
                .current_dir(&*scratch)
                .output()
                .unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{question}: {error}");
        }
    }
}
