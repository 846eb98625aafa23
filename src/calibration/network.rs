//! The network: streams of bytes over TCP for a while, counted by the receivers; from one machine to another,
//! or from each of several to all others at once, as a shuffle moves them (Krevat et al.).

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_millis(1000);
/// A shuffle takes longer, for its streams do not begin at the same time.
const SHUFFLE: Duration = Duration::from_millis(3000);
const PIECE: usize = 256 << 10;
/// First bytes of a connection, so that foreign connections are refused: a stream to count, or the peers to
/// send to.
const RATE: &[u8; 16] = b"flowtrace rate 2";
const SEND: &[u8; 16] = b"flowtrace send 2";
/// The answer: nothing is sent to a peer that does not expect it.
const HERE: &[u8; 16] = b"flowtrace here 2";
const TIMEOUT: Duration = Duration::from_secs(10);
/// Connections at once, and bytes of a list of peers.
const CONNECTIONS: usize = 1024;
const LONGEST_LIST: usize = 32 << 10;

/// Bytes per second from one process of this machine to another thread of it.
pub(super) fn loopback() -> io::Result<f64> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    let server = std::thread::spawn(move || answer(listener.accept()?.0));
    let rate = send(connect(&address.to_string(), RATE)?, LONG);
    let _ = server.join();
    rate
}

/// Bytes per second to a peer that runs [`serve`].
pub(super) fn to(peer: &str) -> io::Result<f64> {
    send(connect(peer, RATE)?, LONG)
}

/// Rates between several machines that all sent to each other at once.
#[derive(Debug)]
pub(super) struct Shuffled {
    /// Bytes per second from the first to the second; of a machine to itself, 0.
    pub(super) rates: Vec<Vec<f64>>,
}

impl Shuffled {
    /// Bytes per second that a machine sent and received.
    pub(super) fn of(&self, node: usize) -> (f64, f64) {
        let received = self.rates.iter().map(|row| row[node]).sum();
        (self.rates[node].iter().sum(), received)
    }
}

/// Lets every peer, each of which runs [`serve`], send to all others at once.
///
/// # Errors
/// If one of them cannot be reached, or cannot reach another one; with both names.
pub(super) fn shuffle(peers: &[String]) -> io::Result<Shuffled> {
    let one = |at: usize| -> io::Result<Vec<f64>> {
        let of = |peer: &str, error: &dyn std::fmt::Display| {
            io::Error::other(format!("{peer}: {error}"))
        };
        let others = peers.iter().enumerate().filter(|(other, _)| *other != at);
        let others: Vec<&str> = others.map(|(_, peer)| peer.as_str()).collect();
        let ask = || -> io::Result<Vec<f64>> {
            let mut stream = connect(&peers[at], SEND)?;
            let list = others.join("\n");
            let length = u32::try_from(list.len()).map_err(io::Error::other)?;
            stream.write_all(&length.to_le_bytes())?;
            stream.write_all(list.as_bytes())?;
            stream.set_read_timeout(Some(SHUFFLE + 2 * TIMEOUT))?;
            let mut rates = vec![0; 8 * others.len()];
            stream.read_exact(&mut rates)?;
            let rates = rates.chunks_exact(8).map(|bytes| {
                let mut rate = [0; 8];
                rate.copy_from_slice(bytes);
                f64::from_le_bytes(rate)
            });
            Ok(rates.collect())
        };
        let mut rates = ask().map_err(|error| of(&peers[at], &error))?;
        for (rate, other) in rates.iter().zip(&others) {
            if !rate.is_finite() || *rate <= 0.0 {
                return Err(of(&peers[at], &format!("it cannot send to {other}")));
            }
        }
        rates.insert(at, 0.0);
        Ok(rates)
    };
    let rates = std::thread::scope(|scope| {
        let one = &one;
        let all: Vec<_> = (0..peers.len())
            .map(|at| scope.spawn(move || one(at)))
            .collect();
        let ended = all.into_iter().map(std::thread::ScopedJoinHandle::join);
        ended
            .map(|rates| rates.unwrap_or_else(|_| Err(io::Error::other("a thread failed"))))
            .collect::<io::Result<Vec<_>>>()
    })?;
    Ok(Shuffled { rates })
}

/// Answers measurements until the process ends. `report` is called with a line for each.
pub(crate) fn serve(address: &str, report: &mut (dyn FnMut(&str) + Send)) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    report(&format!(
        "waiting at {}; Ctrl-C ends that",
        listener.local_addr()?
    ));
    let connected = Arc::<AtomicUsize>::default();
    let (heard, said) = std::sync::mpsc::channel::<String>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for line in said {
                report(&line);
            }
        });
        answers(&listener, &connected, &move |line: String| {
            let _ = heard.send(line);
        })
    })
}

/// Answers every connection, each in a thread of its own, because a machine sends and receives at once.
fn answers(
    listener: &TcpListener,
    connected: &Arc<AtomicUsize>,
    report: &(impl Fn(String) + Clone + Send + 'static),
) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept()?;
        let (connected, report) = (Arc::clone(connected), report.clone());
        if connected.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS {
            connected.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        std::thread::spawn(move || {
            match answer(stream) {
                Ok(bytes) if bytes > 0 => report(format!(
                    "received {}",
                    flowtrace_render::units::bytes(bytes as i64)
                )),
                Ok(_) => report("sent to the others".into()),
                Err(error) => report(format!("a measurement failed: {error}")),
            }
            connected.fetch_sub(1, Ordering::AcqRel);
        });
    }
}

/// Receives one stream and answers with the number of its bytes, or sends to the named peers; returns the
/// bytes received.
fn answer(mut stream: TcpStream) -> io::Result<u64> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut hello = [0; RATE.len()];
    stream.read_exact(&mut hello)?;
    match &hello {
        RATE => {
            stream.write_all(HERE)?;
            let mut buffer = vec![0; PIECE];
            let mut bytes = 0;
            loop {
                match stream.read(&mut buffer)? {
                    0 => break,
                    n => bytes += n as u64,
                }
            }
            stream.write_all(&bytes.to_le_bytes())?;
            Ok(bytes)
        }
        SEND => {
            stream.write_all(HERE)?;
            let mut length = [0; 4];
            stream.read_exact(&mut length)?;
            let length = u32::from_le_bytes(length) as usize;
            if length > LONGEST_LIST {
                return Err(io::Error::other("the list of peers is too long"));
            }
            let mut list = vec![0; length];
            stream.read_exact(&mut list)?;
            let list = String::from_utf8(list).map_err(io::Error::other)?;
            for rate in send_to_all(&list) {
                stream.write_all(&rate.to_le_bytes())?;
            }
            Ok(0)
        }
        _ => Err(io::Error::other(
            "the other end was no flowtrace of this version",
        )),
    }
}

/// Sends to all peers of a list at once; bytes per second to each, not a number if that failed.
fn send_to_all(list: &str) -> Vec<f64> {
    std::thread::scope(|scope| {
        let peers: Vec<_> = list
            .lines()
            .map(|peer| scope.spawn(move || send(connect(peer, RATE)?, SHUFFLE)))
            .collect();
        let rates = peers.into_iter().map(std::thread::ScopedJoinHandle::join);
        rates
            .map(|rate| rate.map_or(f64::NAN, |rate| rate.unwrap_or(f64::NAN)))
            .collect()
    })
}

/// A connection to a peer that has answered as one.
fn connect(peer: &str, hello: &[u8; 16]) -> io::Result<TcpStream> {
    let address = peer.to_socket_addrs()?.next();
    let address = address.ok_or_else(|| io::Error::other("no such host"))?;
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(hello)?;
    let mut here = [0; HERE.len()];
    stream.read_exact(&mut here)?;
    match &here == HERE {
        true => Ok(stream),
        false => Err(io::Error::other(
            "no flowtrace of this version answers there",
        )),
    }
}

fn send(mut stream: TcpStream, long: Duration) -> io::Result<f64> {
    let buffer = vec![7; PIECE];
    let begin = Instant::now();
    while begin.elapsed() < long {
        stream.write_all(&buffer)?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    // The answer comes when all bytes have arrived.
    let mut count = [0; 8];
    stream.read_exact(&mut count)?;
    Ok(u64::from_le_bytes(count) as f64 / begin.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_three_sends_to_all_others_at_once() {
        let peers: Vec<String> = (0..3)
            .map(|_| {
                let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
                let address = listener.local_addr().unwrap().to_string();
                std::thread::spawn(move || answers(&listener, &Arc::default(), &|_| ()));
                address
            })
            .collect();
        let begun = Instant::now();
        let found = shuffle(&peers).unwrap();
        assert!(
            begun.elapsed() < 3 * SHUFFLE,
            "at once, not one after another"
        );
        for node in 0..3 {
            let (sent, received) = found.of(node);
            assert_eq!(found.rates[node][node], 0.0);
            assert!(sent > 0.0 && received > 0.0, "{found:?}");
        }
        let sums = (0..3).map(|node| found.of(node));
        let (sent, received) = sums.fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1));
        assert!((sent - received).abs() < sent * 1e-9);
    }

    #[test]
    fn nothing_is_sent_to_who_is_no_flowtrace() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let other = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut hello = [0; 16];
            stream.read_exact(&mut hello).unwrap();
            stream.write_all(b"220 mail.example").unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap();
            rest.len()
        });
        assert!(send_to_all(&address)[0].is_nan());
        assert_eq!(other.join().unwrap(), 0);
    }
}
