//! The network: a stream of bytes over TCP for a while, counted by who receives it.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_millis(1000);
const PIECE: usize = 256 << 10;
/// What the sender begins with, so that nobody else's connection is counted.
const HELLO: &[u8; 16] = b"flowtrace rate 1";
const TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes per second from one process of this machine to another thread of it.
pub(super) fn loopback() -> io::Result<f64> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    let server = std::thread::spawn(move || answer(&listener));
    let rate = send(TcpStream::connect(address)?);
    let _ = server.join();
    rate
}

/// Bytes per second to a peer that runs [`serve`].
pub(super) fn to(peer: &str) -> io::Result<f64> {
    let address = peer.to_socket_addrs()?.next();
    let address = address.ok_or_else(|| io::Error::other("no such host"))?;
    send(TcpStream::connect_timeout(&address, TIMEOUT)?)
}

/// Answers measurements until the process ends. `tell` hears of each.
pub(crate) fn serve(address: &str, tell: &mut dyn FnMut(&str)) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    tell(&format!(
        "waiting at {}; Ctrl-C ends that",
        listener.local_addr()?
    ));
    loop {
        match answer(&listener) {
            Ok(bytes) => tell(&format!(
                "received {}",
                flowtrace_profiler::text::units::bytes(bytes as i64)
            )),
            Err(error) => tell(&format!("a measurement failed: {error}")),
        }
    }
}

/// Receives one stream and says how many bytes it had.
fn answer(listener: &TcpListener) -> io::Result<u64> {
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut hello = [0; HELLO.len()];
    stream.read_exact(&mut hello)?;
    if &hello != HELLO {
        return Err(io::Error::other("that was no flowtrace"));
    }
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

fn send(mut stream: TcpStream) -> io::Result<f64> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(HELLO)?;
    let buffer = vec![7; PIECE];
    let begin = Instant::now();
    while begin.elapsed() < LONG {
        stream.write_all(&buffer)?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    // The answer comes when all of it has arrived.
    let mut count = [0; 8];
    stream.read_exact(&mut count)?;
    Ok(u64::from_le_bytes(count) as f64 / begin.elapsed().as_secs_f64())
}
