//! The agent of one machine.

use std::io;
use std::net::{TcpStream, ToSocketAddrs, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{asked_to_end, frame, totals};
use crate::agent::Agent;
use crate::key::{Key, random};
use crate::wire::LONGEST;
use flowtrace_tracer::clock::Clock;
use flowtrace_tracer::host::Sources;

/// Longest sleep: a signal is noticed by then.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// Timeout of the reliable channel.
const PATIENCE: Duration = Duration::from_secs(10);

/// Settings of an agent.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Address of the collector, `HOST:PORT`.
    pub to: String,
    /// The shared key.
    pub key: Key,
    /// Time to watch; `None`: until a signal.
    pub length: Option<Duration>,
    /// Name of this machine; `None`: its node name.
    pub name: Option<String>,
}

/// Result of an agent.
#[derive(Clone, Debug, Default)]
pub struct AgentReport {
    /// Samples sent in the last session.
    pub sent: u64,
    /// Reason why the last totals did not reach the collector; `None`: they did.
    pub not_final: Option<String>,
    /// True if the collector ended it.
    pub is_stopped: bool,
}

/// Watches this machine until a signal.
///
/// # Errors
/// When there is no socket, or the address cannot be resolved.
pub fn run(options: &AgentOptions) -> io::Result<AgentReport> {
    let end = asked_to_end()?;
    watch(options, &end)
}

pub(super) fn watch(options: &AgentOptions, end: &AtomicBool) -> io::Result<AgentReport> {
    let address = options.to.to_socket_addrs()?.next();
    let address = address.ok_or_else(|| io::Error::other("the name has no address"))?;
    let any = if address.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    let (clock, epoch_unix_ns) = Clock::start();
    // Base of the clock of this boot, by which traces recognise it.
    let boot_base_ns = u64::try_from(clock.boot_base_ns()).unwrap_or(0);
    let now = || boot_base_ns.saturating_add(clock.now());
    let host = flowtrace_tracer::session::this_host(epoch_unix_ns);
    let name = options.name.clone().unwrap_or(host.name);
    let boot = host.boot_id.unwrap_or_default();
    let incarnation = u64::try_from(epoch_unix_ns).unwrap_or(0);
    let mut agent = Agent::new(options.key.clone(), &name, &boot, incarnation, random()?);
    let mut sources = Sources::open();
    let started = Instant::now();
    let is_over = || {
        end.load(Ordering::Acquire)
            || options
                .length
                .is_some_and(|length| started.elapsed() >= length)
    };
    let mut buffer = [0; LONGEST + 1];
    while !is_over() && !agent.is_stopped() {
        let nonce = random()?;
        let (out, wait) = agent.poll(now(), || nonce, || totals(&mut sources));
        for bytes in out {
            match socket.send(&bytes) {
                Ok(_) => {}
                // Nobody listens there yet, or no more.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(_) => agent.refused(),
            }
        }
        socket.set_read_timeout(Some(wait.clamp(Duration::from_millis(1), LONGEST_SLEEP)))?;
        if let Ok(length) = socket.recv(&mut buffer) {
            agent.receive(now(), &buffer[..length]);
        }
    }
    let (sent, is_stopped) = (agent.sent(), agent.is_stopped());
    let last = totals(&mut sources);
    let mut conclude = || -> io::Result<()> {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        agent.conclude(now, random()?, &last, |message| {
            frame::write(&mut stream, message)?;
            // An empty frame means that there is no answer.
            frame::read(&mut stream).map(|answer| (!answer.is_empty()).then_some(answer))
        })
    };
    let not_final = conclude().err().map(|error| error.to_string());
    Ok(AgentReport {
        sent,
        not_final,
        is_stopped,
    })
}
