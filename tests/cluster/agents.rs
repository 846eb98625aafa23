//! Agents made of the real protocol, each with a socket and a name of its own, all in one thread.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flowtrace_monitor::Key;
use flowtrace_monitor::agent::Agent;

/// Totals of a machine, by its number and the time since the agents began.
pub(crate) type Totals = fn(usize, Duration) -> Vec<(u8, u64)>;

struct Simulated {
    agent: Agent,
    socket: UdpSocket,
    due: Duration,
}

/// Agents that run until this is dropped. They never send last totals.
pub(crate) struct Agents {
    ended: Arc<AtomicBool>,
    running: Option<JoinHandle<()>>,
}

impl Agents {
    /// Starts agents with the names `n0`, `n1` and so on.
    pub(crate) fn start(count: usize, key: &Key, collector: SocketAddr, totals: Totals) -> Agents {
        let ended = Arc::<AtomicBool>::default();
        let simulated = |number: usize| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(collector).unwrap();
            socket.set_nonblocking(true).unwrap();
            let mut nonce = [0; 16];
            nonce[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
            Simulated {
                agent: Agent::new(key.clone(), &format!("n{number}"), "boot", 1, nonce),
                socket,
                // They do not all begin at once.
                due: Duration::from_millis(number as u64 * 500 / count as u64),
            }
        };
        let mut agents: Vec<Simulated> = (0..count).map(simulated).collect();
        let is_over = Arc::clone(&ended);
        let running = thread::spawn(move || {
            let began = Instant::now();
            while !is_over.load(Ordering::Acquire) {
                for (number, one) in agents.iter_mut().enumerate() {
                    one.step(began, |elapsed| totals(number, elapsed));
                }
                thread::sleep(Duration::from_millis(5));
            }
        });
        Agents {
            ended,
            running: Some(running),
        }
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        if let Some(running) = self.running.take() {
            // A failure of the agents shows in the trace.
            let _ = running.join();
        }
    }
}

impl Simulated {
    fn step(&mut self, began: Instant, totals: impl Fn(Duration) -> Vec<(u8, u64)>) {
        let now = |elapsed: Duration| elapsed.as_nanos() as u64 + 1_000_000_000;
        let mut buffer = [0; 600];
        while let Ok(length) = self.socket.recv(&mut buffer) {
            self.agent.receive(now(began.elapsed()), &buffer[..length]);
            self.due = self.due.min(began.elapsed());
        }
        // The totals of a sample are those of its time, however long the thread waits for a CPU.
        let at = began.elapsed();
        if self.due > at {
            return;
        }
        let (out, wait) = self.agent.poll(now(at), || [7; 16], || totals(at));
        for bytes in out {
            // What is lost is counted.
            let _ = self.socket.send(&bytes);
        }
        self.due = began.elapsed() + wait.clamp(Duration::from_millis(1), Duration::from_secs(1));
    }
}
