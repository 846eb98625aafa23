//! The connections of a collector. Anybody can open one, so connections without the key are limited in number
//! and time, and never use up the places of those with the key.

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most connections at once that have not shown the key, and most that have.
const UNPROVEN: usize = 128;
const PROVEN: usize = 512;
/// Time until a connection must have shown the key, and time for all of its messages.
const PROOF: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(10);

/// The open connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    /// In the order of their begins.
    all: Vec<Entry>,
    next: u64,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    from: IpAddr,
    is_proven: bool,
    stream: Arc<TcpStream>,
}

impl Open {
    /// Closes one connection of a kind if there are more than `most`: the oldest of the address that has the
    /// most, so that many connections from one address cost other addresses nothing.
    fn limit(&mut self, is_proven: bool, most: usize) {
        let of_kind = |entry: &&Entry| entry.is_proven == is_proven;
        let mut by_address: HashMap<IpAddr, usize> = HashMap::new();
        for entry in self.all.iter().filter(of_kind) {
            *by_address.entry(entry.from).or_default() += 1;
        }
        if by_address.values().sum::<usize>() <= most {
            return;
        }
        let count = |entry: &&Entry| by_address[&entry.from];
        // Of equals the last one is taken: in reverse that is the oldest.
        let closed = self.all.iter().rev().filter(of_kind).max_by_key(count);
        if let Some(closed) = closed {
            let number = closed.number;
            // Its thread wakes up, and ends.
            let _ = closed.stream.shutdown(Shutdown::Both);
            self.all.retain(|entry| entry.number != number);
        }
    }
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a new connection, and closes another one that has not shown the key if there are too many.
    ///
    /// # Errors
    /// If the peer is gone already.
    pub(super) fn add(&self, stream: TcpStream) -> io::Result<Connection> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let from = stream.peer_addr()?.ip();
        let stream = Arc::new(stream);
        let mut open = self.open();
        let number = open.next;
        open.next += 1;
        open.all.push(Entry {
            number,
            from,
            is_proven: false,
            stream: Arc::clone(&stream),
        });
        open.limit(false, UNPROVEN);
        drop(open);
        let connections = self.clone();
        Ok(Connection {
            connections,
            number,
            stream,
            opened: Instant::now(),
            patience: PROOF,
        })
    }
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Connection {
    connections: Connections,
    number: u64,
    stream: Arc<TcpStream>,
    opened: Instant,
    /// Time that it has from its begin.
    patience: Duration,
}

impl Connection {
    /// Notes that it has shown the key.
    pub(super) fn proven(&mut self) {
        self.patience = PATIENCE;
        let mut open = self.connections.open();
        let mut entries = open.all.iter_mut();
        if let Some(entry) = entries.find(|entry| entry.number == self.number) {
            entry.is_proven = true;
        }
        open.limit(true, PROVEN);
    }

    /// The stream to write to.
    pub(super) fn writer(&self) -> &TcpStream {
        &self.stream
    }
}

/// Reads bytes that come in time: a peer that sends single bytes gets no more time.
impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.patience.saturating_sub(self.opened.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        (&*self.stream).read(buffer)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut open = self.connections.open();
        open.all.retain(|entry| entry.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Both ends of a connection from an address of the loopback.
    fn pair(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn the_newest_and_those_with_the_key_stay() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connections = Connections::default();
        let mut kept = Vec::new();
        let (_first, server) = pair(&listener);
        let mut first = connections.add(server).unwrap();
        first.proven();
        for _ in 0..UNPROVEN + 40 {
            let (client, server) = pair(&listener);
            kept.push((client, connections.add(server).unwrap()));
        }
        let numbers: Vec<u64> = connections.open().all.iter().map(|e| e.number).collect();
        assert_eq!(numbers.len(), UNPROVEN + 1);
        assert_eq!(numbers[0], 0, "the one with the key");
        assert_eq!(numbers[1], 41, "the oldest without it are closed");
        // A closed one ends at once.
        assert!(matches!(kept[0].1.read(&mut [0]), Ok(0) | Err(_)));
        drop((first, kept));
        assert!(connections.open().all.is_empty());
    }

    #[test]
    fn many_connections_of_one_address_cost_no_other() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (client, _server) = pair(&listener);
        let stream = Arc::new(client);
        let mut open = Open::default();
        for number in 0..=UNPROVEN as u64 {
            open.all.push(Entry {
                number,
                from: [10, 0, 0, if number == 0 { 1 } else { 2 }].into(),
                is_proven: false,
                stream: Arc::clone(&stream),
            });
        }
        open.limit(false, UNPROVEN);
        let numbers: Vec<u64> = open.all.iter().map(|entry| entry.number).collect();
        assert_eq!(numbers[..2], [0, 2], "the oldest of the address with many");
    }
}
