//! Capturing datagrams on the loopback of a network namespace of its own, by tcpdump and by
//! flowtrace, one after the other.

use std::net::UdpSocket;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use crate::process::{Process, Used};
use crate::{FLOWTRACE, bar, number};

/// As large as flowtrace's own ring, KiB.
const TCPDUMP_BUFFER: &str = "16384";

pub(crate) fn run(rate: u64, seconds: u64) -> bool {
    let flags = match nix::unistd::geteuid().is_root() {
        true => "-n",
        false => "-Urn",
    };
    let own = std::env::current_exe().expect("this program has a name");
    let status = Command::new("unshare")
        .args([flags, "sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""])
        .arg(own)
        .args(["--inside".to_owned(), rate.to_string(), seconds.to_string()])
        .status();
    match status {
        Ok(status) if status.code() == Some(77) => {
            println!("capture is left out: no tcpdump");
            true
        }
        Ok(status) => status.success(),
        Err(error) => {
            println!("capture is left out: cannot run unshare: {error}");
            true
        }
    }
}

/// What one capturer made of the traffic.
struct Outcome {
    sent: u64,
    dropped: u64,
    used: Used,
    bytes: u64,
}

pub(crate) fn inside(arguments: &[String]) -> ExitCode {
    let number_of = |at: usize| arguments.get(at).and_then(|word| word.parse().ok());
    let (Some(rate), Some(seconds)) = (number_of(0), number_of(1)) else {
        return ExitCode::from(2);
    };
    let Some(theirs) = tcpdump(rate, seconds) else {
        return ExitCode::from(77);
    };
    let ours = flowtrace(rate, seconds);
    println!("capture of {rate} packets/s for {seconds} s on loopback:");
    println!(
        "             sent packets    per second      dropped   CPU a packet   bytes a packet"
    );
    for (name, outcome) in [("tcpdump", &theirs), ("flowtrace", &ours)] {
        println!(
            "  {name:9} {:14} {:13} {:12} {:11.0} ns {:16.1}",
            outcome.sent,
            outcome.sent / seconds.max(1),
            outcome.dropped,
            outcome.used.cpu_s / outcome.sent as f64 * 1e9,
            outcome.bytes as f64 / outcome.sent as f64
        );
    }
    let cpu = ours.used.cpu_s / ours.sent as f64 * 1e6;
    let bytes = ours.bytes as f64 / ours.sent as f64;
    let drops = format!("{}, tcpdump {}", ours.dropped, theirs.dropped);
    let holds = [
        bar(
            "no more drops than tcpdump",
            &drops,
            ours.dropped <= theirs.dropped,
        ),
        bar(
            "<= 1 µs of CPU a packet, to the database",
            &format!("{cpu:.2} µs"),
            cpu <= 1.0,
        ),
        bar(
            "<= 60 bytes/packet",
            &format!("{bytes:.1} bytes"),
            bytes <= 60.0,
        ),
    ];
    match holds.iter().all(|holds| *holds) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn tcpdump(rate: u64, seconds: u64) -> Option<Outcome> {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let file = scratch.path().join("tcpdump.pcap");
    Command::new("tcpdump").arg("--version").output().ok()?;
    let mut process = Process::start(
        Command::new("tcpdump")
            .args([
                "-n",
                "-i",
                "lo",
                "-s",
                "128",
                "-B",
                TCPDUMP_BUFFER,
                "-Z",
                "root",
                "-w",
            ])
            .arg(&file),
    );
    let mut said = process.wait_for("listening");
    let sent = send(rate, seconds);
    // It hands over what is not full only after a second.
    std::thread::sleep(Duration::from_secs(2));
    process.interrupt();
    let mut text = String::new();
    let _ = std::io::Read::read_to_string(&mut said, &mut text);
    let used = process.end();
    let line = text
        .lines()
        .find(|line| line.contains("dropped by kernel"))?;
    let dropped = line.split_whitespace().next()?.parse().ok()?;
    Some(Outcome {
        sent,
        dropped,
        used,
        bytes: file.metadata().map_or(0, |m| m.len()),
    })
}

fn flowtrace(rate: u64, seconds: u64) -> Outcome {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let trace = scratch.path().join("trace.db");
    let mut process = Process::start(
        Command::new(FLOWTRACE)
            .args(["capture", "-i", "lo", "-o"])
            .arg(&trace),
    );
    let said = process.wait_for("capturing");
    let sent = send(rate, seconds);
    process.interrupt();
    let used = process.end();
    drop(said);
    let stored = number(&trace, "SELECT COUNT(*) FROM packets").unwrap_or(0);
    let lost = "SELECT SUM(dropped) + SUM(unstored) FROM captures";
    let dropped = number(&trace, lost).unwrap_or(u64::MAX);
    assert!(used.succeeded);
    assert!(
        stored + dropped >= sent,
        "{stored} stored and {dropped} dropped of {sent}"
    );
    Outcome {
        sent,
        dropped,
        used,
        bytes: trace.metadata().map_or(0, |m| m.len()),
    }
}

/// Sends datagrams from two threads, for one alone reaches some 250 000 a second; how many.
fn send(rate: u64, seconds: u64) -> u64 {
    std::thread::scope(|scope| {
        let halves = [rate / 2, rate - rate / 2];
        let senders = halves.map(|rate| scope.spawn(move || send_from_one(rate, seconds)));
        let sent = senders.map(|sender| sender.join().expect("a sender does not panic"));
        sent.into_iter().sum()
    })
}

/// Sends datagrams to a socket that nobody reads, in groups a millisecond apart; how many.
fn send_from_one(rate: u64, seconds: u64) -> u64 {
    let sink = UdpSocket::bind("127.0.0.1:0").expect("loopback is up");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback is up");
    let to = sink.local_addr().expect("it is bound");
    socket.connect(to).expect("it can be sent to");
    let payload = [7_u8; 64];
    let (begin, mut sent) = (Instant::now(), 0);
    loop {
        let elapsed = begin.elapsed();
        if elapsed >= Duration::from_secs(seconds) {
            return sent;
        }
        let due = (elapsed.as_nanos() * u128::from(rate) / 1_000_000_000) as u64;
        while sent < due {
            if socket.send(&payload).is_ok() {
                sent += 1;
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
