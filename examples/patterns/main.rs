//! A parallel program that computes nothing: ranks exchange messages over TCP in a pattern, with
//! known sizes, times and imbalance. What it did it prints, so that what is inferred from its
//! packets can be compared with the truth.
//!
//! One process is one rank; all are started with the same arguments but for `--rank`:
//!
//! ```text
//! patterns --rank 0 --hosts 10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4 --pattern ring \
//!   --bytes 20000 --iterations 50 --compute-us 2000 --slow 2:3
//! ```
//!
//! Patterns: `mesh:AxB…`, `torus:AxB…` (any dimensions), `hypercube`, `tree` (to the root),
//! `all-to-all`, `ring`, `bus`. Several after each other, joined by commas, are super-phases that
//! repeat; each lasts `--phase` iterations. `--slow` may be given for several ranks. With `--asleep`
//! computing is waiting for the clock, so that more ranks than processors do not hold each other up.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

mod arguments;
mod pattern;

use arguments::Arguments;

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(reason) => {
            eprintln!("patterns: {reason}");
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("patterns: rank {}: {error}", arguments.rank);
            ExitCode::FAILURE
        }
    }
}

/// A neighbour, and what was sent to it.
struct Peer {
    rank: usize,
    stream: TcpStream,
    messages: u64,
    bytes: u64,
}

fn run(arguments: &Arguments) -> io::Result<()> {
    let mut peers = connect(arguments)?;
    let message = vec![0x5a; arguments.bytes];
    let mut buffer = vec![0; arguments.bytes];
    let mut out = io::stdout().lock();
    for iteration in 0..arguments.iterations {
        let begin = unix_ns();
        let computed = compute(arguments);
        let phase = iteration / arguments.phase % arguments.edges.len();
        for &(from, to) in &arguments.edges[phase] {
            let other = match arguments.rank {
                rank if rank == from => to,
                rank if rank == to => from,
                _ => continue,
            };
            let peer = peers.iter_mut().find(|peer| peer.rank == other);
            let peer = peer.expect("a connection for each edge");
            talk(arguments, peer, (from, to), &message, &mut buffer)?;
        }
        writeln!(
            out,
            "iteration {iteration} begin {begin} end {} compute_ns {}",
            unix_ns(),
            computed.as_nanos()
        )?;
    }
    for peer in &peers {
        writeln!(
            out,
            "sent to {} messages {} bytes {}",
            peer.rank, peer.messages, peer.bytes
        )?;
    }
    out.flush()
}

/// One message over an edge; unless messages go one way in this pattern, one back.
fn talk(
    arguments: &Arguments,
    peer: &mut Peer,
    (from, to): (usize, usize),
    message: &[u8],
    buffer: &mut [u8],
) -> io::Result<()> {
    let is_first = arguments.rank == from;
    if arguments.is_one_way(from, to) {
        return match is_first {
            true => send(peer, message),
            false => peer.stream.read_exact(buffer),
        };
    }
    if arguments.exchange {
        // Both at the same time: whatever does not fit the buffers waits for the other side.
        let mut reading = peer.stream.try_clone()?;
        return thread::scope(|scope| {
            let received = scope.spawn(move || reading.read_exact(buffer));
            send(peer, message)?;
            received.join().expect("the reader does not panic")
        });
    }
    // Edges come in one order for all ranks, and one side of each begins: no circle can wait.
    if is_first {
        send(peer, message)?;
        peer.stream.read_exact(buffer)
    } else {
        peer.stream.read_exact(buffer)?;
        send(peer, message)
    }
}

fn send(peer: &mut Peer, message: &[u8]) -> io::Result<()> {
    peer.stream.write_all(message)?;
    peer.messages += 1;
    peer.bytes += message.len() as u64;
    Ok(())
}

/// Keeps a processor busy, or as long asleep; returns for how long.
fn compute(arguments: &Arguments) -> Duration {
    let begin = Instant::now();
    let mut work = Duration::from_micros(arguments.compute_us);
    let own = |slow: &&(usize, f64)| slow.0 == arguments.rank;
    if let Some((_, factor)) = arguments.slow.iter().find(own) {
        work = work.mul_f64(*factor);
    }
    if arguments.asleep {
        thread::sleep(work);
    }
    let mut sum = 0u64;
    while begin.elapsed() < work {
        sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
    }
    begin.elapsed()
}

/// A connection to each neighbour: the higher rank asks, the lower one listens.
fn connect(arguments: &Arguments) -> io::Result<Vec<Peer>> {
    let rank = arguments.rank;
    let port = |rank: usize| arguments.port + rank as u16;
    let neighbours = arguments.neighbours();
    let listener = TcpListener::bind((arguments.hosts[rank], port(rank)))?;
    let peer = |rank, stream: TcpStream| {
        stream.set_nodelay(true)?;
        Ok::<_, io::Error>(Peer {
            rank,
            stream,
            messages: 0,
            bytes: 0,
        })
    };
    let mut peers = Vec::new();
    for &other in neighbours.iter().filter(|&&other| other < rank) {
        let mut stream = patiently((arguments.hosts[other], port(other)))?;
        stream.write_all(&[rank as u8])?;
        peers.push(peer(other, stream)?);
    }
    for _ in neighbours.iter().filter(|&&other| other > rank) {
        let (mut stream, _) = listener.accept()?;
        let mut who = [0];
        stream.read_exact(&mut who)?;
        peers.push(peer(who[0].into(), stream)?);
    }
    Ok(peers)
}

/// Others may start later.
fn patiently(address: (std::net::IpAddr, u16)) -> io::Result<TcpStream> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match TcpStream::connect(address) {
            Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(10)),
            result => return result,
        }
    }
}

fn unix_ns() -> u128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_nanos()
}
