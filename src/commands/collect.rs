//! `flowtrace collect`: collects the samples of agents in one trace.

use std::cell::RefCell;
use std::io::{BufRead, IsTerminal};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use flowtrace_monitor::Key;
use flowtrace_monitor::collector::Rates;
use flowtrace_monitor::service::{
    self, CollectError, CollectOptions, CollectReport, Control, NodeState,
};
use flowtrace_monitor::wire::Counters;
use flowtrace_render::units;

use super::agent::key_failure;
use super::live;
use crate::failure::{Failure, USAGE};
use crate::{conclude, output};

mod screen;

use screen::Screen;

/// Longest time between samples, seconds.
const SLOWEST: f64 = 3600.0;

/// Collect the samples of agents on many machines in one trace, and show them while they run
///
/// Machines are put on this machine's clock by round trips, with the error stated. Missing samples are filled
/// in between their neighbours and marked. On a terminal all machines are shown while they run, and keys
/// change their rates and stop their agents; else lines on standard input do: 'rate 5' for all machines,
/// 'rate n3 0.1' for one, 'stop' and 'stop n3'.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  flowtrace collect -o nodes.db --key ~/.flowtrace.key
  flowtrace collect -o nodes.db --key ~/.flowtrace.key --live
  flowtrace collect -o nodes.db --key ~/.flowtrace.key --counters cpu,net,disk.busy
  flowtrace query nodes.db 'SELECT host, confidence, final FROM nodes'

Exit status: 0 every machine's last totals are exact; 1 some did not send them, or the trace could not be
written; 2 wrong use.")]
pub(crate) struct Args {
    /// Trace file to write
    #[arg(short, long, default_value = "nodes.db", value_parser = output::ending::only(output::ending::TRACE))]
    output: PathBuf,
    /// Remove an older trace, instead of keeping it as FILE.old
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
    /// Counters to collect, by kind (cpu, tasks, memory, swap, disk, net, pressure) or name (disk.read_bytes)
    /// [default: all]
    #[arg(long, value_name = "NAMES", value_parser = counters)]
    counters: Option<Counters>,
    /// Most samples a second of all machines together; with more they are slowed down
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    most: u32,
    /// End after so many seconds, instead of by a signal
    #[arg(long = "for", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    length: Option<u64>,
    /// End when so many machines have sent their last totals
    #[arg(long, value_name = "N", default_value_t = 0)]
    until: usize,
    /// Serve a page that shows the machines while they run, as flowtrace live does; its address is printed
    #[arg(long)]
    live: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(args: &Args) -> crate::failure::Outcome {
    let period_ms = period(args.rate)
        .ok_or_else(|| Failure::usage(format!("--rate {}: from 0.0003 to 100", args.rate)))?;
    if Key::make(&args.key).map_err(key_failure)? && !args.quiet {
        message!(
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
            counters: args.counters.unwrap_or_default(),
            ..Rates::default()
        },
        length: args.length.map(Duration::from_secs),
        until_final: args.until,
    };
    let shows = !args.quiet && std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    // Threads begin after the signals were blocked, or the signals would go to them.
    let (lines, screen) = (RefCell::new(None), RefCell::new(None));
    let mut controls = || match (lines.borrow_mut().as_mut(), screen.borrow_mut().as_mut()) {
        (_, Some(screen)) => Screen::keys(screen),
        (Some(lines), None) => Receiver::try_iter(lines)
            .filter_map(|line: String| control(&line))
            .collect(),
        (None, None) => Vec::new(),
    };
    let mut show = |nodes: &[NodeState]| {
        if let Some(screen) = screen.borrow_mut().as_mut() {
            Screen::show(screen, nodes);
        }
    };
    let mut begun = |at: SocketAddr| {
        if !args.quiet {
            message!("flowtrace: listening at {at} for agents");
        }
        let page = match args.live {
            true => live::companion::page(&options.output),
            false => None,
        };
        match shows.then(|| Screen::open(page)).flatten() {
            Some(opened) => *screen.borrow_mut() = Some(opened),
            None => *lines.borrow_mut() = Some(lines_of_input()),
        }
    };
    let collected = service::collect(&options, &mut begun, &mut show, &mut controls);
    drop(screen);
    let report = collected.map_err(|error| match error {
        CollectError::Store(error) => Failure::from(error).with_code(USAGE),
        error @ CollectError::Socket { .. } => {
            Failure::usage(error.to_string()).hint("name another address with --listen")
        }
    })?;
    if let Some(error) = &report.summary.write_error {
        message!(
            "flowtrace: cannot write {}: {error}",
            options.output.display()
        );
    }
    if !args.quiet {
        if let Some(kept) = &report.summary.kept {
            conclude::say_kept(kept);
        }
        message!("{}", ending(&report, &options));
    }
    // Samples that are not in the trace are not exact, even if an agent sent them.
    let is_exact =
        report.summary.write_error.is_none() && report.nodes.iter().all(|node| node.is_final);
    Ok(ExitCode::from(u8::from(!is_exact)))
}

fn counters(text: &str) -> Result<Counters, String> {
    Counters::named(text.split(',').map(str::trim)).map_err(|name| {
        format!("there is no counter {name}; flowtrace query TRACE 'SELECT DISTINCT counter FROM host_samples' names them")
    })
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

/// `rate HZ`, `rate NAME HZ`, `stop` or `stop NAME`.
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
        ["stop"] => Some(Control::Stop(None)),
        ["stop", node] => Some(Control::Stop(Some(node.into()))),
        [] => return None,
        _ => None,
    };
    if found.is_none() {
        message!(
            "flowtrace: not understood: {line}; say 'rate HZ', 'rate NAME HZ', 'stop' or 'stop NAME'"
        );
    }
    found
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
            "  {} refused: not signed with the key, repeated, or of an older session\n",
            units::counted(report.refused as i64, "message", "messages")
        ));
    }
    text.push_str(&format!(
        "  trace   {shown} · next: flowtrace stats {shown} machines, flowtrace report {shown}"
    ));
    text
}

#[cfg(test)]
mod tests {
    use flowtrace_schema::HostCounter;

    use super::*;

    #[test]
    fn counters_are_chosen_by_kind_and_by_name() {
        let chosen = counters("cpu, disk.busy").unwrap();
        let has = |counter: HostCounter| chosen.has(counter as u8);
        assert!(
            has(HostCounter::CpuUser) && has(HostCounter::CpuSteal) && has(HostCounter::DiskBusy)
        );
        assert!(!has(HostCounter::DiskReads) && !has(HostCounter::NetSendBytes));
        assert!(Counters::default().has(HostCounter::NetSendBytes as u8));
        assert!(counters("cpu,gpu").unwrap_err().contains("gpu"));
    }

    #[test]
    fn rates_are_understood() {
        assert_eq!(control("rate 2"), Some(Control::Period(None, 500)));
        assert_eq!(
            control(" rate n3 0.1 "),
            Some(Control::Period(Some("n3".into()), 10_000))
        );
        assert_eq!(control("stop"), Some(Control::Stop(None)));
        assert_eq!(control("stop n3"), Some(Control::Stop(Some("n3".into()))));
        for wrong in [
            "rate",
            "rate x",
            "rate 0",
            "rate inf",
            "rate 1000",
            "stop n1 n2",
            "",
        ] {
            assert_eq!(control(wrong), None, "{wrong}");
        }
    }
}
