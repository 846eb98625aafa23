//! `flowtrace collect`: gathers what agents send into one trace.

use std::io::{BufRead, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use flowtrace_profiler::text::units;
use flowtrace_schema::HostCounter;
use flowtrace_tracer::monitor::Key;
use flowtrace_tracer::monitor::collector::Rates;
use flowtrace_tracer::monitor::service::{
    self, CollectError, CollectOptions, CollectReport, Control, NodeState,
};

use super::agent::key_failure;
use super::run::failure;
use crate::failure::{Failure, USAGE};
use crate::output;

/// Longest time between samples, seconds.
const SLOWEST: f64 = 3600.0;

/// Collect what agents on many machines send into one trace, and show it while they run
///
/// Machines are put on this machine's clock by round trips, with the error stated. What is missing
/// is filled in between its neighbours and marked. While it runs, lines on standard input change
/// the rate: 'rate 5' for all machines, 'rate n3 0.1' for one.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  flowtrace collect -o nodes.db --key ~/.flowtrace.key
  flowtrace query nodes.db 'SELECT host, confidence, final FROM nodes'

Exit status: 0 every machine's last totals are exact; 1 some did not send them; 2 wrong use.")]
pub(crate) struct Args {
    /// Trace file to write
    #[arg(short, long, default_value = "nodes.db")]
    output: PathBuf,
    /// Replace an older trace
    #[arg(long)]
    force: bool,
    /// File with the key that agents and the collector share; made when there is none
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Address to listen at, for datagrams (UDP) and last totals (TCP)
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:4790")]
    listen: SocketAddr,
    /// Samples a second of every machine
    #[arg(long, value_name = "HZ", default_value_t = 1.0)]
    rate: f64,
    /// Most samples a second of all machines together; with more they are slowed down
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    most: u32,
    /// End after so many seconds, instead of by a signal
    #[arg(long = "for", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    length: Option<u64>,
    /// End when so many machines have sent their last totals
    #[arg(long, value_name = "N", default_value_t = 0)]
    until: usize,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(args: &Args) -> super::Outcome {
    let period_ms = period(args.rate)
        .ok_or_else(|| Failure::usage(format!("--rate {}: from 0.0003 to 100", args.rate)))?;
    if Key::make(&args.key).map_err(key_failure)? && !args.quiet {
        eprintln!(
            "flowtrace: made the key {}; copy it to every machine",
            args.key.display()
        );
    }
    let options = CollectOptions {
        output: output::resolved(&args.output),
        replace: args.force,
        listen: args.listen,
        key: Key::read(&args.key).map_err(key_failure)?,
        rates: Rates {
            period_ms,
            most_per_second: args.most,
            ..Rates::default()
        },
        length: args.length.map(Duration::from_secs),
        until_final: args.until,
    };
    let lines = lines_of_input();
    let mut controls = || lines.try_iter().filter_map(|line| control(&line)).collect();
    let shows = !args.quiet && std::io::stderr().is_terminal();
    let mut drawn = 0;
    let mut show = |nodes: &[NodeState]| {
        if shows {
            let text = table(nodes, output::width_of(std::io::stderr()));
            eprint!("{}{text}", "\x1b[F\x1b[K".repeat(drawn));
            let _ = std::io::stderr().flush();
            drawn = text.lines().count();
        }
    };
    let mut begun = |at: SocketAddr| {
        if !args.quiet {
            eprintln!("flowtrace: listening at {at} for agents");
        }
    };
    let collected = service::collect(&options, &mut begun, &mut show, &mut controls);
    let report = collected.map_err(|error| match error {
        CollectError::Store(error) => failure(error).with_code(USAGE),
        error @ CollectError::Socket { .. } => {
            Failure::usage(error.to_string()).hint("name another address with --listen")
        }
    })?;
    if let Some(error) = &report.summary.write_error {
        eprintln!(
            "flowtrace: cannot write {}: {error}",
            options.output.display()
        );
    }
    if !args.quiet {
        eprint!("{}", ending(&report, &options));
    }
    let is_exact = report.nodes.iter().all(|node| node.is_final);
    Ok(ExitCode::from(u8::from(!is_exact)))
}

fn period(hertz: f64) -> Option<u32> {
    let is_sound = hertz.is_finite() && hertz <= 100.0 && hertz * SLOWEST >= 1.0;
    is_sound.then(|| (1000.0 / hertz).round() as u32)
}

/// The lines of standard input, read by a thread of its own.
fn lines_of_input() -> Receiver<String> {
    let (sender, receiver) = channel();
    // Without such a thread the rate stays as it is.
    let _ = std::thread::Builder::new()
        .name("controls".into())
        .spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
    receiver
}

/// `rate HZ` or `rate NAME HZ`.
fn control(line: &str) -> Option<Control> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let found = match words[..] {
        ["rate", hertz] => hertz
            .parse()
            .ok()
            .and_then(period)
            .map(|p| Control::Period(None, p)),
        ["rate", node, hertz] => {
            let period = hertz.parse().ok().and_then(period);
            period.map(|p| Control::Period(Some(node.into()), p))
        }
        [] => return None,
        _ => None,
    };
    if found.is_none() {
        eprintln!("flowtrace: not understood: {line}; say 'rate HZ' or 'rate NAME HZ'");
    }
    found
}

/// A line per machine: what it did between its last two samples.
fn table(nodes: &[NodeState], width: usize) -> String {
    const LINES: usize = 40;
    let mut text = format!(
        "{:<20} {:>6} {:>6} {:>9} {:>9} {:>9} {:>9} {:>6} {:>8}\n",
        "machine", "cpu", "iowait", "read/s", "write/s", "in/s", "out/s", "came", "clock ±"
    );
    for node in nodes.iter().take(LINES) {
        let rate = |counter: HostCounter| rate(node, &[counter]);
        let bytes = |counter| {
            rate(counter).map_or_else(|| "?".into(), |per_second| units::bytes(per_second as i64))
        };
        let cores = |of: &[HostCounter]| {
            let busy = self::rate(node, of).map(|per_second| per_second / 1e9);
            busy.map_or_else(|| "?".into(), |cores| format!("{cores:.2}"))
        };
        let line = format!(
            "{:<20} {:>6} {:>6} {:>9} {:>9} {:>9} {:>9} {:>5.0}% {:>8}{}",
            units::shorten(&units::plain(&node.status.name), 20),
            cores(&[
                HostCounter::CpuUser,
                HostCounter::CpuNice,
                HostCounter::CpuSystem
            ]),
            cores(&[HostCounter::CpuIoWait]),
            bytes(HostCounter::DiskReadBytes),
            bytes(HostCounter::DiskWriteBytes),
            bytes(HostCounter::NetReceiveBytes),
            bytes(HostCounter::NetSendBytes),
            100.0 * node.status.confidence(),
            units::duration(node.status.present_error_ns as i64),
            match (node.status.is_final, node.silent_ns) {
                (true, _) => "  ended".to_owned(),
                (false, silent) if silent > 15_000_000_000 => {
                    format!("  silent for {}", units::duration(silent as i64))
                }
                _ => String::new(),
            }
        );
        text.push_str(&line.chars().take(width).collect::<String>());
        text.push('\n');
    }
    if nodes.len() > LINES {
        text.push_str(&format!("+{} more\n", nodes.len() - LINES));
    }
    text
}

/// By how much these totals grew in a second, together.
fn rate(node: &NodeState, counters: &[HostCounter]) -> Option<f64> {
    let (before, apart_ns) = node.before.as_ref().filter(|(_, apart_ns)| *apart_ns > 0)?;
    let value = |totals: &[(u8, u64)], counter: HostCounter| {
        totals
            .iter()
            .find(|(other, _)| usize::from(*other) == counter as usize)
            .map(|(_, v)| *v)
    };
    let mut sum = 0;
    for &counter in counters {
        sum += value(&node.totals, counter)?.saturating_sub(value(before, counter)?);
    }
    Some(sum as f64 * 1e9 / *apart_ns as f64)
}

fn ending(report: &CollectReport, options: &CollectOptions) -> String {
    let shown = output::shown(&options.output).display();
    let nodes = &report.nodes;
    let exact = nodes.iter().filter(|node| node.is_final).count();
    let (received, expected) = nodes
        .iter()
        .fold((0u64, 0u64), |(received, expected), node| {
            (
                received + node.received,
                expected.saturating_add(node.expected),
            )
        });
    let mut text = format!(
        "flowtrace: {} watched, last totals of {exact} exact; {} of {} came\n",
        units::counted(nodes.len() as i64, "machine", "machines"),
        units::count(received as i64),
        units::counted(expected as i64, "sample", "samples"),
    );
    if report.refused > 0 {
        text.push_str(&format!(
            "  {} refused: of strangers, repeated, or of an older session\n",
            units::counted(report.refused as i64, "message", "messages")
        ));
    }
    text.push_str(&format!(
        "  trace   {shown} · next: flowtrace query {shown} \"SELECT * FROM nodes\"\n"
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_understood() {
        assert_eq!(control("rate 2"), Some(Control::Period(None, 500)));
        assert_eq!(
            control(" rate n3 0.1 "),
            Some(Control::Period(Some("n3".into()), 10_000))
        );
        for wrong in [
            "rate",
            "rate x",
            "rate 0",
            "rate inf",
            "rate 1000",
            "stop",
            "",
        ] {
            assert_eq!(control(wrong), None, "{wrong}");
        }
    }
}
