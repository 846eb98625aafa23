//! Cost of packets: importing a large capture, and capturing many packets a second beside tcpdump.
//!
//! ```text
//! cargo bench --bench packets                        both, at full length
//! cargo bench --bench packets -- import [MEGABYTES]  1000 MB; memory beside that for a tenth of it
//! cargo bench --bench packets -- capture [PACKETS_PER_SECOND] [SECONDS]   300000 for 60 s
//! cargo bench --bench packets -- --quick             whether it runs, not how fast
//! ```
//!
//! Exit status 1: a bar was missed (never with --quick).

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

mod capture;
mod import;
mod process;

/// The program that is measured.
const FLOWTRACE: &str = env!("CARGO_BIN_EXE_flowtrace");

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    if arguments.first().is_some_and(|first| first == "--inside") {
        return capture::inside(&arguments[1..]);
    }
    let is_quick = arguments.iter().any(|argument| argument == "--quick");
    let words: Vec<&str> = arguments
        .iter()
        .map(String::as_str)
        .filter(|argument| *argument != "--quick")
        .collect();
    let number = |at: usize, otherwise: u64| {
        let word = words.get(at).and_then(|word| word.parse().ok());
        word.unwrap_or(otherwise)
    };
    let (all_import, all_capture) = match words.first() {
        None => (true, true),
        Some(&"import") => (true, false),
        Some(&"capture") => (false, true),
        Some(other) => {
            eprintln!("there is no benchmark {other}: import, capture");
            return ExitCode::from(2);
        }
    };
    if let Ok(load) = std::fs::read_to_string("/proc/loadavg") {
        println!("load average before: {}", load.trim());
    }
    let mut holds = true;
    if all_import {
        let megabytes = number(1, if is_quick { 10 } else { 1000 });
        holds &= import::run(megabytes);
    }
    if all_capture {
        let (rate, seconds) = if is_quick { (5_000, 2) } else { (300_000, 60) };
        let at = usize::from(!all_import);
        let (rate, seconds) = match all_import {
            true => (rate, seconds),
            false => (number(at, rate), number(at + 1, seconds)),
        };
        holds &= capture::run(rate, seconds);
    }
    match holds || is_quick {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// A bar: its name, what was measured, and whether that holds.
fn bar(name: &str, measured: &str, holds: bool) -> bool {
    let verdict = if holds { "holds " } else { "MISSED" };
    println!("  {verdict}  {name:44} {measured}");
    holds
}

/// The one number that a query gives.
fn number(trace: &Path, sql: &str) -> Option<u64> {
    let output = Command::new(FLOWTRACE)
        .args(["query", "--format", "csv"])
        .arg(trace)
        .arg(sql)
        .stderr(Stdio::inherit())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().nth(1)?.trim().parse().ok()
}
