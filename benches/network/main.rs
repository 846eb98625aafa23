//! Cost of network inference: every question about ten million packets, and looking on while they come.
//!
//! ```text
//! cargo bench --bench network                                        both, at full length
//! cargo bench --bench network -- whole [PACKETS [PROGRAM [QUESTION]]]       10000000, all of them
//! cargo bench --bench network -- watch [PACKETS_PER_SECOND [SECONDS [PROGRAM]]]  50000 for 60 s, all of them
//! cargo bench --bench network -- write PROGRAM PACKETS FILE                 the trace alone
//! cargo bench --bench network -- --quick                             whether it runs, not how fast
//! ```
//!
//! Exit status 1: a bar was missed (never with --quick).

use std::process::ExitCode;

#[path = "../packets/process.rs"]
#[allow(dead_code)]
mod process;
mod programs;
mod recording;
mod watch;
mod whole;

use programs::Program;

/// The program that is measured.
const FLOWTRACE: &str = env!("CARGO_BIN_EXE_flowtrace");

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let given = words.len();
    words.retain(|word| word != "--quick");
    let is_quick = words.len() < given;
    let word = |at: usize| words.get(at).map(String::as_str);
    let number =
        |at: usize, otherwise: u64| word(at).and_then(|w| w.parse().ok()).unwrap_or(otherwise);
    let program =
        |at: usize| word(at).and_then(|name| Program::ALL.into_iter().find(|p| p.name() == name));
    let mut holds = true;
    match word(0) {
        None | Some("whole" | "watch") => {}
        Some("write") => {
            let (Some(program), Some(path)) = (program(1), word(3)) else {
                eprintln!(
                    "which program (ring, torus, server), how many packets, into which file?"
                );
                return ExitCode::from(2);
            };
            recording::whole(path.as_ref(), program, number(2, 1_000_000));
            return ExitCode::SUCCESS;
        }
        Some(other) => {
            eprintln!("there is no benchmark {other}: whole, watch, write");
            return ExitCode::from(2);
        }
    }
    if word(0) != Some("watch") {
        let packets = number(1, if is_quick { 20_000 } else { 10_000_000 });
        for each in Program::ALL {
            if program(2).is_none_or(|only| only == each) {
                holds &= whole::run(each, packets, word(3));
            }
        }
    }
    if word(0) != Some("whole") {
        let (rate, seconds) = if is_quick { (5_000, 5) } else { (50_000, 60) };
        let (rate, seconds) = (number(1, rate), number(2, seconds));
        println!("watching {rate} packets/s for {seconds} s:");
        for each in Program::ALL {
            if program(3).is_some_and(|only| only != each) {
                continue;
            }
            for options in [&["overview"][..], &["overview", "--last", "5"], &["matrix"]] {
                holds &= watch::run(each, rate, seconds, options);
            }
        }
    }
    match holds || is_quick {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
