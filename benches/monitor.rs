//! What does watching cost: the collector, and the machines that are watched?
//!
//!     cargo bench --bench monitor                          both
//!     cargo bench --bench monitor -- collector 1000 30     as many agents, for so many seconds
//!     cargo bench --bench monitor -- agent 20 2            so many pairs of jobs of so many seconds
//!
//! *collector*: agents made of the real protocol, each with a socket and a name of its own, in one process; the real
//! `flowtrace collect` in another, whose CPU time counts. Two thirds of the counters of a machine change between
//! samples, once a second. All must end exact. The bar: 20 % of a CPU.
//!
//! *agent*: a job that computes, as much work each time, with a real `flowtrace agent` beside it and without, in turns; which of
//! a pair comes first alternates. The slowdown is the median over pairs of the ratio of their CPU times (of the job and of
//! all that the agent used: on a machine with a CPU to spare its time is not the job's, on a full one it is). And a job that is
//! bound by the network: it sends over one connection through a link of 1 Gbit/s that the agent's datagrams share, with the agent and with
//! the agent stopped, in turns: the median of what the rate loses. The link is the loopback of a network namespace of the bench's own, held
//! to that rate by the kernel (tc-tbf(8)); this part needs root, ip and tc. The bar: 0.5 % of either.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use flowtrace_monitor::Key;
use flowtrace_monitor::agent::Agent;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rusqlite::Connection;

const FLOWTRACE: &str = env!("CARGO_BIN_EXE_flowtrace");
const COLLECTOR_BAR_PERCENT: f64 = 20.0;
const AGENT_BAR_PERCENT: f64 = 0.5;
/// Bytes of one write of the job that sends.
const BLOCK: usize = 1 << 16;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let number = |at: usize, otherwise: u64| {
        let word = words.get(at).and_then(|word| word.parse().ok());
        word.unwrap_or(otherwise)
    };
    let what = words.first().map_or("both", String::as_str);
    let mut done = Vec::new();
    if matches!(what, "both" | "collector") {
        done.push(collector(number(1, 1000) as usize, number(2, 30)));
    }
    if matches!(what, "both" | "agent") {
        let numbers = if what == "agent" { (1, 2) } else { (9, 9) };
        let (pairs, seconds) = (number(numbers.0, 20), number(numbers.1, 2));
        done.push(beside_computing(pairs, seconds));
        done.push(behind_a_link(pairs, seconds));
    }
    if what == BEHIND {
        done.push(beside_sending(number(1, 20), number(2, 2)));
    }
    let mut code = ExitCode::SUCCESS;
    for one in done {
        match one {
            Ok(true) => {}
            Ok(false) => code = ExitCode::FAILURE,
            Err(message) => {
                eprintln!("monitor: {message}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// A collector of its own, with where it listens.
struct Collecting {
    child: Child,
    said: BufReader<std::process::ChildStderr>,
    address: SocketAddr,
}

impl Collecting {
    fn ended(mut self) {
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

fn collecting(directory: &Path, until: usize) -> Result<Collecting, String> {
    let mut child = Command::new(FLOWTRACE)
        .args([
            "collect",
            "--force",
            "--key",
            "key",
            "--listen",
            "127.0.0.1:0",
        ])
        .args(["--until", &until.to_string()])
        .current_dir(directory)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot run flowtrace: {e}"))?;
    let mut said = BufReader::new(child.stderr.take().ok_or("no output")?);
    let mut line = String::new();
    loop {
        line.clear();
        if said.read_line(&mut line).map_err(|e| e.to_string())? == 0 {
            return Err("the collector ended at once".into());
        }
        if let Some(rest) = line.strip_prefix("flowtrace: listening at ") {
            let address = rest.split(' ').next().and_then(|word| word.parse().ok());
            let address = address.ok_or("no address")?;
            return Ok(Collecting {
                child,
                said,
                address,
            });
        }
    }
}

/// One of the agents of the bench.
struct Simulated {
    agent: Agent,
    socket: UdpSocket,
    due: Duration,
    totals: Vec<(u8, u64)>,
}

fn collector(count: usize, seconds: u64) -> Result<bool, String> {
    let scratch = tempfile::tempdir().map_err(|e| e.to_string())?;
    let mut collecting = collecting(scratch.path(), count)?;
    let key = Key::read(&scratch.path().join("key")).map_err(|e| e.to_string())?;
    let (files, _) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)
        .map_err(|e| e.to_string())?;
    if files < count as u64 + 100 {
        return Err(format!("{count} agents need ulimit -n {}", count + 100));
    }
    let began = Instant::now();
    let now = || began.elapsed().as_nanos() as u64 + 1_000_000_000;
    let mut agents = Vec::new();
    for number in 0..count {
        let socket = UdpSocket::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
        socket
            .connect(collecting.address)
            .map_err(|e| e.to_string())?;
        socket.set_nonblocking(true).map_err(|e| e.to_string())?;
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
        agents.push(Simulated {
            agent: Agent::new(key.clone(), &format!("node{number}"), "boot", 1, nonce),
            socket,
            // They do not all begin at once.
            due: Duration::from_millis(number as u64 * 1000 / count.max(1) as u64),
            totals: (0..COUNTERS).map(|counter| (counter, 1_000_000)).collect(),
        });
    }
    let pid = collecting.child.id();
    let warm = Duration::from_secs(5);
    let mut from = None;
    let mut buffer = [0; 600];
    while began.elapsed() < warm + Duration::from_secs(seconds) {
        if from.is_none() && began.elapsed() >= warm {
            let sent: u64 = agents.iter().map(|one| one.agent.sent()).sum();
            from = Some((Instant::now(), cpu_seconds(pid)?, sent));
        }
        for one in &mut agents {
            while let Ok(length) = one.socket.recv(&mut buffer) {
                one.agent.receive(now(), &buffer[..length]);
                one.due = one.due.min(began.elapsed());
            }
            if one.due > began.elapsed() {
                continue;
            }
            let totals = &mut one.totals;
            let (out, wait) = one.agent.poll(
                now(),
                || [7; 16],
                || {
                    for (counter, value) in totals.iter_mut() {
                        *value += if *counter % 3 == 0 {
                            0
                        } else {
                            4096 + u64::from(*counter)
                        };
                    }
                    totals.clone()
                },
            );
            for bytes in out {
                let _ = one.socket.send(&bytes);
            }
            one.due =
                began.elapsed() + wait.clamp(Duration::from_millis(1), Duration::from_secs(1));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let (from, cpu, sent_before) = from.ok_or("too short")?;
    let took = from.elapsed().as_secs_f64();
    let cpu = cpu_seconds(pid)? - cpu;
    let used = cpu / took * 100.0;
    // On a machine that is too busy for the bench they send less than they would.
    let sent = agents.iter().map(|one| one.agent.sent()).sum::<u64>() - sent_before;
    let each = cpu * 1e6 / sent.max(1) as f64;
    for one in &mut agents {
        let mut stream = TcpStream::connect(collecting.address).map_err(|e| e.to_string())?;
        let last = one.totals.clone();
        let concluded = one.agent.conclude(now, [9; 16], &last, |message| {
            stream.write_all(&(message.len() as u16).to_le_bytes())?;
            stream.write_all(message)?;
            let mut length = [0; 2];
            stream.read_exact(&mut length)?;
            let mut answer = vec![0; usize::from(u16::from_le_bytes(length))];
            stream.read_exact(&mut answer)?;
            Ok((!answer.is_empty()).then_some(answer))
        });
        concluded.map_err(|e| format!("last totals: {e}"))?;
    }
    let status = collecting.child.wait().map_err(|e| e.to_string())?;
    let mut rest = String::new();
    let _ = collecting.said.read_to_string(&mut rest);
    let figures = || -> rusqlite::Result<(i64, i64, i64, i64)> {
        let db = Connection::open(scratch.path().join("nodes.db"))?;
        db.query_row(
            "SELECT COUNT(*), SUM(final), SUM(received), (SELECT COUNT(*) FROM host_samples) FROM nodes",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
        )
    };
    let (nodes, exact, samples, rows) =
        figures().map_err(|e| format!("cannot read the trace: {e}"))?;
    let is_good = used <= COLLECTOR_BAR_PERCENT && exact == count as i64 && status.success();
    println!(
        "{nodes} agents, {samples} samples ({rows} rows), {exact} with exact last totals: collector {used:.1} % of a CPU ({}: {COLLECTOR_BAR_PERCENT} %) at {:.0} samples a second, {each:.0} µs each",
        if is_good { "met" } else { "missed" },
        sent as f64 / took
    );
    Ok(is_good)
}

/// Counters of a simulated machine, as many as a machine has.
const COUNTERS: u8 = 40;

/// CPU time of a process so far.
fn cpu_seconds(pid: u32) -> Result<f64, String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|e| e.to_string())?;
    let rest = text.rsplit_once(')').ok_or("no such process")?.1;
    let mut fields = rest.split_whitespace().skip(11);
    let mut ticks = || fields.next().and_then(|word| word.parse::<f64>().ok());
    let (user, system) = (ticks().ok_or("no time")?, ticks().ok_or("no time")?);
    Ok((user + system) / 100.0)
}

/// A job: how long it took, and its CPU time, seconds.
type Cost = (f64, f64);

/// The word by which the bench calls itself in a namespace of its own.
const BEHIND: &str = "behind-a-link";
const LINK: &str =
    "ip link set lo mtu 1500 up && tc qdisc add dev lo root tbf rate 1gbit burst 64kb latency 5ms";

fn beside_computing(pairs: u64, seconds: u64) -> Result<bool, String> {
    let scratch = tempfile::tempdir().map_err(|e| e.to_string())?;
    let collecting = collecting(scratch.path(), 0)?;
    let watched_at = (collecting.address, scratch.path());
    let amount = calibrated(compute, seconds)?;
    let (mut times, mut cpus) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        let mut both = [(0.0, 0.0); 2];
        for turn in 0..2 {
            let is_watched = (turn + pair) % 2 == 1;
            let watched = is_watched.then_some(watched_at);
            both[usize::from(is_watched)] = one_job(compute, amount, watched)?;
        }
        let [plain, watched] = both;
        times.push(watched.0 / plain.0 - 1.0);
        cpus.push(watched.1 / plain.1 - 1.0);
    }
    let time = median(&mut times) * 100.0;
    let is_good = judged("computing, CPU time", pairs, seconds, &mut cpus);
    println!("  its duration {time:+.2} %");
    collecting.ended();
    Ok(is_good)
}

/// [`beside_sending`] in a network namespace whose one link has a rate.
fn behind_a_link(pairs: u64, seconds: u64) -> Result<bool, String> {
    let bench = std::env::current_exe().map_err(|e| e.to_string())?;
    let status = Command::new("unshare")
        .args(["--net", "sh", "-c", &format!("{LINK} && exec \"$@\""), "sh"])
        .arg(bench)
        .args([BEHIND, &pairs.to_string(), &seconds.to_string()])
        .status()
        .map_err(|e| format!("cannot run unshare: {e}"))?;
    Ok(status.success())
}

fn beside_sending(pairs: u64, seconds: u64) -> Result<bool, String> {
    let scratch = tempfile::tempdir().map_err(|e| e.to_string())?;
    let collecting = collecting(scratch.path(), 0)?;
    let (mut lost, rate) = sending(pairs, seconds, (collecting.address, scratch.path()))?;
    let is_good = judged("sending, rate", pairs, seconds, &mut lost);
    println!("  {:.1} MB/s through the link", rate / 1e6);
    collecting.ended();
    Ok(is_good)
}

/// Prints what a job loses by an agent, and whether that is below the bar.
fn judged(what: &str, pairs: u64, seconds: u64, lost: &mut [f64]) -> bool {
    let middle = median(lost) * 100.0;
    let is_met = middle <= AGENT_BAR_PERCENT;
    println!(
        "a job that is {what}, {pairs} pairs of {seconds} s: {middle:+.2} % ({}: {AGENT_BAR_PERCENT} %); middle half {:+.2} to {:+.2} %",
        if is_met { "met" } else { "missed" },
        lost[lost.len() / 4] * 100.0,
        lost[lost.len() * 3 / 4] * 100.0
    );
    is_met
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// How much work takes about so long.
fn calibrated(job: fn(u64) -> std::io::Result<()>, seconds: u64) -> Result<u64, String> {
    let mut amount = 1;
    loop {
        let began = Instant::now();
        job(amount).map_err(|e| e.to_string())?;
        let took = began.elapsed().as_secs_f64();
        if took > 0.2 {
            return Ok((amount as f64 * seconds as f64 / took) as u64);
        }
        amount *= 2;
    }
}

fn own_seconds(who: UsageWho) -> f64 {
    let Ok(usage) = getrusage(who) else {
        return f64::NAN;
    };
    [usage.user_time(), usage.system_time()]
        .iter()
        .map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 * 1e-6)
        .sum()
}

/// An agent that has begun.
fn watching(address: SocketAddr, directory: &Path) -> Result<Child, String> {
    let to = address.to_string();
    let child = Command::new(FLOWTRACE)
        .args(["agent", "--quiet", "--key", "key", "--to", &to])
        .current_dir(directory)
        .spawn()
        .map_err(|e| format!("cannot run flowtrace: {e}"))?;
    // Its beginning is no part of watching.
    std::thread::sleep(Duration::from_millis(1500));
    Ok(child)
}

fn one_job(
    job: fn(u64) -> std::io::Result<()>,
    amount: u64,
    watched: Option<(SocketAddr, &Path)>,
) -> Result<Cost, String> {
    let agent = match watched {
        None => None,
        Some((address, directory)) => {
            let child = watching(address, directory)?;
            Some((cpu_seconds(child.id())?, child))
        }
    };
    let (began, cpu) = (Instant::now(), own_seconds(UsageWho::RUSAGE_SELF));
    job(amount).map_err(|e| e.to_string())?;
    let took = began.elapsed().as_secs_f64();
    let mut used = own_seconds(UsageWho::RUSAGE_SELF) - cpu;
    if let Some((before, mut child)) = agent {
        used += cpu_seconds(child.id())? - before;
        let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM);
        let _ = child.wait();
    }
    Ok((took, used))
}

fn compute(amount: u64) -> std::io::Result<()> {
    let mut x = 1u64;
    for _ in 0..amount {
        for _ in 0..1_000_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
        std::hint::black_box(x);
    }
    Ok(())
}

/// Sends over one connection, in turns with the agent and with it stopped. What the rates lose by it, of every pair, and the median
/// rate with it, bytes a second.
fn sending(
    pairs: u64,
    seconds: u64,
    (address, directory): (SocketAddr, &Path),
) -> Result<(Vec<f64>, f64), String> {
    let error = |e: std::io::Error| e.to_string();
    let listener = TcpListener::bind("127.0.0.1:0").map_err(error)?;
    let to = listener.local_addr().map_err(error)?;
    let receiver = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        let mut buffer = vec![0; BLOCK];
        while stream.read(&mut buffer)? > 0 {}
        Ok(())
    });
    let mut stream = TcpStream::connect(to).map_err(error)?;
    let block = vec![0u8; BLOCK];
    let mut rate = |seconds: u64| -> Result<f64, String> {
        let (began, mut sent) = (Instant::now(), 0.0);
        while began.elapsed() < Duration::from_secs(seconds) {
            stream.write_all(&block).map_err(error)?;
            sent += BLOCK as f64;
        }
        Ok(sent / began.elapsed().as_secs_f64())
    };
    let mut child = watching(address, directory)?;
    let pid = Pid::from_raw(child.id() as i32);
    rate(seconds)?;
    let (mut lost, mut watched) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        let mut rates = [0.0; 2];
        for turn in 0..2 {
            let is_watched = (turn + pair) % 2 == 1;
            let signal = match is_watched {
                true => Signal::SIGCONT,
                false => Signal::SIGSTOP,
            };
            kill(pid, signal).map_err(|e| e.to_string())?;
            rates[usize::from(is_watched)] = rate(seconds)?;
        }
        lost.push(rates[0] / rates[1] - 1.0);
        watched.push(rates[1]);
    }
    let _ = kill(pid, Signal::SIGCONT);
    let _ = kill(pid, Signal::SIGTERM);
    let _ = child.wait();
    drop(stream);
    let _ = receiver.join();
    Ok((lost, median(&mut watched)))
}
