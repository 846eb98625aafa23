//! A live capture: a thread for each interface, which copies headers out of its ring, one that asks for the
//! sockets behind the flows, and one that makes rows of all that. The first never wait for the last: packets
//! that it cannot take are counted.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use flowtrace_schema::{HostId, Recorder};

use super::interfaces::Interface;
use super::ring::{self, Ring};
use super::senders::Senders;
use super::sockets::Sockets;
use super::sockets::holders::Holders;
use crate::clock::Clock;
use flowtrace_net::filter::Filter;
use flowtrace_net::sink::Sink;

mod batch;
mod message;
mod namespaces;
mod owners;
mod reader;
mod rows;

use batch::Spares;
pub use message::LiveReport;
use message::Message;
pub(crate) use namespaces::Namespaces;
use reader::{Common, Reader};
use rows::Rows;

/// Batches that wait for their rows, which limits the memory of a capture: 1 MiB each.
const BATCHES: usize = 48;
/// Name of the thread that makes rows.
const ROWS: &str = "packets";

/// Interfaces and packets to capture.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// The interfaces.
    pub interfaces: Vec<Interface>,
    /// Bytes of each packet that are read.
    pub snap_length: u32,
    /// Selection of the packets.
    pub filter: Filter,
    /// True if the owners of flows are looked up among all processes, because no process tracer reports them.
    pub owners: bool,
}

impl Default for LiveOptions {
    fn default() -> Self {
        LiveOptions {
            interfaces: Vec::new(),
            // Ethernet, a tag, IPv6 and TCP with all options: 118.
            snap_length: 128,
            filter: Filter::default(),
            owners: false,
        }
    }
}

/// An interface that is not captured.
#[derive(Clone, Debug)]
pub struct Refused {
    /// Its name.
    pub interface: String,
    /// Reason why not.
    pub reason: String,
}

/// A capture that goes on.
#[derive(Debug)]
pub struct Live {
    stop: Arc<AtomicBool>,
    readers: Vec<JoinHandle<()>>,
    sockets: Option<JoinHandle<()>>,
    namespaces: Arc<Namespaces>,
    sender: SyncSender<Message>,
    rows: Option<JoinHandle<LiveReport>>,
}

impl Live {
    /// Captures from now on: when this returns, packets are being taken.
    pub fn start(
        options: &LiveOptions,
        host: HostId,
        clock: Clock,
        recorder: &Recorder,
    ) -> (Live, Vec<Refused>) {
        let sink = Sink::filtered(recorder, options.filter.clone());
        let (sender, messages) = sync_channel(BATCHES);
        let wanted = Arc::<AtomicBool>::default();
        let spares = Spares::default();
        let senders = (!options.owners).then(Arc::<Senders>::default);
        let wants = (Arc::clone(&wanted), senders.clone());
        let rows = Rows::new(sink, clock, recorder, wants, spares.clone());
        let rows = thread::Builder::new()
            .name(ROWS.into())
            .spawn(move || rows.run(&messages));
        let stop = Arc::new(AtomicBool::new(false));
        let common = Common {
            host,
            clock,
            snap_length: options.snap_length,
            sender: sender.clone(),
            spares,
            captures: Arc::new(AtomicU32::new(0)),
            senders: senders.clone(),
        };
        let (mut readers, mut refused) = (Vec::new(), Vec::new());
        for interface in &options.interfaces {
            match read(options, interface, &common, &stop) {
                Ok(thread) => readers.push(thread),
                Err(error) => refused.push(Refused {
                    interface: interface.name.clone(),
                    reason: ring::reason(&error),
                }),
            }
        }
        // A capture goes on without the state of sockets.
        let sockets = || {
            let holders = options.owners.then(|| Holders::new(host, clock, recorder));
            let sockets = Sockets::open(clock, holders, senders, wanted)?;
            let (sender, stop) = (sender.clone(), Arc::clone(&stop));
            let report = move |observed| {
                let _ = sender.send(Message::Sockets(observed, host.0));
            };
            let thread = thread::Builder::new().name("sockets".into());
            thread.spawn(move || sockets.follow(&stop, report))
        };
        let live = Live {
            sockets: if readers.is_empty() {
                None
            } else {
                sockets().ok()
            },
            stop,
            readers,
            namespaces: Namespaces::new(common, options.filter.clone(), recorder),
            sender,
            rows: rows.ok(),
        };
        (live, refused)
    }

    /// True if anything is captured.
    pub fn is_capturing(&self) -> bool {
        !self.readers.is_empty()
    }

    /// Access for capturing in other network namespaces, too.
    pub(crate) fn namespaces(&self) -> Arc<Namespaces> {
        Arc::clone(&self.namespaces)
    }

    /// Ends the capture, with every packet that was there at the call.
    pub fn stop(self) -> LiveReport {
        self.stop.store(true, Ordering::Release);
        self.namespaces.stop();
        for thread in self.readers.into_iter().chain(self.sockets) {
            let _ = thread.join();
        }
        let _ = self.sender.send(Message::End);
        let report = self.rows.map(|rows| rows.join().unwrap_or_default());
        report.unwrap_or_default()
    }
}

/// The thread that reads one interface of our own namespace.
fn read(
    options: &LiveOptions,
    interface: &Interface,
    common: &Common,
    stop: &Arc<AtomicBool>,
) -> io::Result<JoinHandle<()>> {
    let ring = Ring::open(interface, options.snap_length, &options.filter)?;
    let name = (namespaces::inode("self"), common.host.0);
    let mut reader = Reader::new(common.clone(), ring, Arc::clone(stop), name);
    reader.begin(interface);
    thread::Builder::new()
        .name(format!("capture-{}", interface.name))
        .spawn(move || reader.run(|| false))
}

/// Tries to capture packets here.
///
/// # Errors
/// The reason, in words.
pub fn check() -> Result<(), String> {
    let loopback = Interface::named("lo");
    loopback
        .and_then(|loopback| Ring::open(&loopback, 128, &Filter::default()).map(drop))
        .map_err(|error| ring::reason(&error))
}
