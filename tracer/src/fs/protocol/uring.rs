//! Requests over io_uring (`Documentation/filesystems/fuse/fuse-io-uring.rst`).
//!
//! The kernel has a queue of requests for each CPU and puts a request into the queue of the CPU from which it
//! comes. A thread that stays on that CPU takes it, so no other CPU has to wake up; and an answer and the
//! wait for the next request are one system call. Forgets, interrupts and notifications still use the device.
//!
//! A thread lends the kernel one entry, which is memory for one message, so a request comes only to a thread
//! that waits for one. There are several threads for each queue, because a slow call must not delay the
//! requests of others. An entry whose answer comes later is replaced by a new one, so any number of callers
//! can wait for locks.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::device::{KernelDevice, Serve};
use crate::cpus;

mod entry;
mod mail;
mod parameter;
mod ring;

use mail::Mailbox;
pub use parameter::IoUring;
pub(crate) use parameter::is_on;
use ring::Ring;

/// Threads for the queue of one CPU. The kernel prefers the one that waited last, so the others cost nothing
/// as long as it answers quickly.
const THREADS_PER_QUEUE: usize = 2;
/// Smallest read-ahead of the kernel in bytes, for which an entry must have space.
const READ_AHEAD: usize = 128 << 10;

/// Threads with a ring each, for every queue, that do not serve yet.
pub(crate) struct Rings(Vec<Idle>);

/// A thread that waits for its server.
struct Idle {
    go: Sender<Arc<dyn Serve>>,
    begun: Receiver<io::Result<()>>,
    serving: Serving,
}

/// A thread that serves.
struct Serving {
    thread: JoinHandle<io::Result<()>>,
    mailbox: Arc<Mailbox>,
}

/// Threads that serve until [`Running::end`].
pub(crate) struct Running {
    threads: Vec<Serving>,
    refusal: Option<io::Error>,
}

impl Rings {
    /// Rings for the mount of `device`, with at most `largest` bytes of data in a message. They are made
    /// before the kernel is asked for them: once it has granted them it waits for all of them.
    ///
    /// # Errors
    /// If io_uring is not available to this process, or threads cannot be made.
    pub(crate) fn new(device: &Arc<KernelDevice>, largest: usize) -> io::Result<Rings> {
        let queues = u16::try_from(cpus::possible()?).map_err(io::Error::other)?;
        let numbers = (0..queues).flat_map(|queue| (0..THREADS_PER_QUEUE).map(move |n| (queue, n)));
        let idle = |(queue, number)| Idle::new(device, largest.max(READ_AHEAD), queue, number);
        numbers.map(idle).collect::<io::Result<_>>().map(Rings)
    }

    /// Offers the rings to the kernel and serves the requests.
    pub(crate) fn start(self, server: &Arc<dyn Serve>) -> Running {
        for idle in &self.0 {
            // Fails only if the thread has ended, which is found out next.
            let _ = idle.go.send(Arc::clone(server));
        }
        let mut running = Running {
            threads: Vec::new(),
            refusal: None,
        };
        for idle in self.0 {
            let gone = |_| Err(io::Error::other("a thread of a ring ended too early"));
            if let Err(error) = idle.begun.recv().unwrap_or_else(gone) {
                running.refusal.get_or_insert(error);
            }
            running.threads.push(idle.serving);
        }
        running
    }
}

impl Running {
    /// The reason why the kernel did not take the rings, if it did not. It uses the device instead then.
    pub(crate) fn refusal(&self) -> Option<&io::Error> {
        self.refusal.as_ref()
    }

    /// Ends the threads of a mount that is gone.
    ///
    /// # Errors
    /// The error of one of them.
    pub(crate) fn end(self) -> io::Result<()> {
        for serving in &self.threads {
            serving.mailbox.end();
        }
        let mut result = Ok(());
        for serving in self.threads {
            let panicked = |_| Err(io::Error::other("a thread of a ring panicked"));
            result = result.and(serving.thread.join().unwrap_or_else(panicked));
        }
        result
    }
}

impl Idle {
    fn new(
        device: &Arc<KernelDevice>,
        largest: usize,
        queue: u16,
        number: usize,
    ) -> io::Result<Idle> {
        let mailbox = Arc::new(Mailbox::new()?);
        let mut ring = Ring::new(device, queue, largest, Arc::clone(&mailbox))?;
        let (go, wait) = channel::<Arc<dyn Serve>>();
        let (begin, begun) = channel();
        let work = move || {
            let Ok(server) = wait.recv() else {
                // The kernel did not take the rings.
                return Ok(());
            };
            stay_on(queue);
            let offered = ring.offer();
            let is_taken = offered.is_ok();
            // Fails only if no thread waits for the result.
            let _ = begin.send(offered);
            if is_taken {
                ring.serve(&*server)
            } else {
                Ok(())
            }
        };
        let thread = thread::Builder::new()
            .name(format!("fs-ring-{queue}-{number}"))
            .spawn(work)?;
        let serving = Serving { thread, mailbox };
        Ok(Idle { go, begun, serving })
    }
}

/// Keeps this thread on a CPU. If it may not run there, it serves from another one.
fn stay_on(cpu: u16) {
    let mut set = CpuSet::new();
    let _ = set
        .set(usize::from(cpu))
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
}
