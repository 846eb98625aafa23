//! One ring of the kernel, and the thread that serves it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use io_uring::squeue::Entry128;
use io_uring::types::Fixed;
use io_uring::{IoUring, cqueue, opcode};
use nix::errno::Errno;
use zerocopy::IntoBytes;

use super::entry::{Entry, Received};
use super::mail::{Kept, Mailbox};
use crate::fs::protocol::abi::{RingCommand, ring};
use crate::fs::protocol::buffer::Outgoing;
use crate::fs::protocol::device::{KernelDevice, Serve};
use crate::fs::protocol::notify;
use crate::fs::protocol::reply::{Carrier, Late, Reply, Then};
use crate::fs::protocol::request;

/// Number of commands that can wait to be submitted. There is one, and more only after late answers.
const COMMANDS: u32 = 8;
/// The files of a ring.
const DEVICE: Fixed = Fixed(0);
const WAKE: Fixed = Fixed(1);
/// Marks the completion that announces mail; others are marked with their entry.
const MAIL: u64 = u64::MAX;

/// A ring, through which one thread serves one queue.
pub(super) struct Ring {
    io: IoUring<Entry128, cqueue::Entry>,
    queue: u16,
    /// Bytes for data in each entry.
    payload: usize,
    entries: Vec<Entry>,
    completed: VecDeque<Completion>,
    mailbox: Arc<Mailbox>,
    device: Arc<KernelDevice>,
    /// The first error while the mount existed.
    failure: Option<Errno>,
}

/// A request whose answer comes later.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    entry: usize,
    node: u64,
}

/// Completion of a command by the kernel.
#[derive(Clone, Copy, Debug)]
struct Completion {
    mark: u64,
    result: Result<(), Errno>,
}

impl Ring {
    /// A ring for `queue` of the mount of `device`. It works in the thread that offers it.
    pub(super) fn new(
        device: &Arc<KernelDevice>,
        queue: u16,
        payload: usize,
        mailbox: Arc<Mailbox>,
    ) -> io::Result<Ring> {
        let mut builder = IoUring::<Entry128, cqueue::Entry>::builder();
        // Work for this thread waits until the thread does it, instead of interrupting it.
        builder.setup_single_issuer().setup_defer_taskrun();
        let io = builder.setup_r_disabled().build(COMMANDS)?;
        let files = [device.as_fd().as_raw_fd(), mailbox.wake().as_raw_fd()];
        io.submitter().register_files(&files)?;
        Ok(Ring {
            io,
            queue,
            payload,
            entries: Vec::new(),
            completed: VecDeque::new(),
            mailbox,
            device: Arc::clone(device),
            failure: None,
        })
    }

    /// Offers the ring to the kernel.
    ///
    /// # Errors
    /// If the kernel does not take it.
    pub(super) fn offer(&mut self) -> io::Result<()> {
        self.io.submitter().register_enable_rings()?;
        self.mailbox.own();
        self.await_mail()?;
        self.add()?;
        self.submit()?;
        self.collect();
        match self.completed.iter().find_map(|done| done.result.err()) {
            Some(errno) => Err(errno.into()),
            None => Ok(()),
        }
    }

    /// Serves until the mount is gone.
    ///
    /// # Errors
    /// An error before that.
    pub(super) fn serve(&mut self, server: &dyn Serve) -> io::Result<()> {
        let mut outgoing = Outgoing::new(0);
        loop {
            let Some(Completion { mark, result }) = self.completed.pop_front() else {
                self.wait()?;
                continue;
            };
            // Submits answers now, so that none waits until the next request is served.
            self.submit()?;
            let waiting = if mark == MAIL {
                self.mailbox.woken();
                self.await_mail()?;
                None
            } else {
                let index = mark as usize;
                self.entries[index].given_back();
                match result {
                    Ok(()) => self.serve_one(index, server, &mut outgoing)?,
                    // The mount is going away, which the device reports.
                    Err(Errno::ENOTCONN | Errno::ECONNABORTED | Errno::ECANCELED) => None,
                    Err(errno) => {
                        self.failure = Some(errno);
                        None
                    }
                }
            };
            if self.read_mail(waiting)? {
                return self.failure.map_or(Ok(()), |errno| Err(errno.into()));
            }
        }
    }

    /// Serves the request in an entry. Returns the entry if the answer comes later.
    fn serve_one(
        &mut self,
        index: usize,
        server: &dyn Serve,
        outgoing: &mut Outgoing,
    ) -> io::Result<Option<Waiting>> {
        let entry = &mut self.entries[index];
        let Some(Received { message, space }) = entry.receive() else {
            self.commit(index, -(Errno::EIO as i32), 0)?;
            return Ok(None);
        };
        let mut node = 0;
        let is_apart = space.is_none();
        let mut answer = Answer {
            space: space.map_or(Space::Apart(outgoing), Space::There),
            state: State::Due,
            then: None,
            mailbox: &self.mailbox,
            entry: index,
        };
        match request::parse(message) {
            Ok((header, body)) => {
                node = header.nodeid;
                let reply = Reply::new(&mut answer, header.unique);
                server.serve(&header, body, reply);
            }
            Err(request::Malformed) => answer.state = State::Sent(-(Errno::EIO as i32), 0),
        }
        let Answer { state, then, .. } = answer;
        match state {
            State::Sent(error, length) => {
                if is_apart {
                    entry.fill(outgoing.body(length));
                }
                self.commit(index, error, length)?;
            }
            // No answer is expected, but the kernel expects the entry.
            State::Due => self.commit(index, 0, 0)?,
            State::Later => return Ok(Some(Waiting { entry: index, node })),
        }
        if let Some(then) = then {
            self.submit()?;
            then();
        }
        Ok(None)
    }

    /// Sends the answers that have arrived, and replaces entry `waiting` unless its answer is among them.
    /// Returns true if the mount is gone.
    fn read_mail(&mut self, waiting: Option<Waiting>) -> io::Result<bool> {
        let mail = self.mailbox.take();
        if let Some(Waiting { entry, node }) = waiting
            && mail.answers.iter().all(|answer| answer.entry != entry)
        {
            self.replace(node)?;
        }
        for answer in mail.answers {
            self.commit(answer.entry, answer.error, 0)?;
        }
        Ok(mail.is_end)
    }

    fn await_mail(&mut self) -> io::Result<()> {
        let poll = opcode::PollAdd::new(WAKE, libc::POLLIN as u32);
        self.push(&poll.build().user_data(MAIL).into())
    }

    /// Lends the kernel one more entry.
    fn add(&mut self) -> io::Result<()> {
        self.entries.push(Entry::new(self.payload));
        self.command(self.entries.len() - 1, ring::REGISTER)
    }

    /// Lends the kernel one entry in place of one whose answer comes later.
    ///
    /// The kernel (6.18) checks the queue for waiting requests only when an answer is committed, not when an
    /// entry is added. Other requests may depend on a waiting one, so the kernel is made to send a request
    /// that can be answered at once.
    fn replace(&mut self, node: u64) -> io::Result<()> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        /// The kernel counts its own numbers from 1, and uses odd ones otherwise.
        const OURS: u64 = 1 << 63;
        self.add()?;
        self.submit()?;
        let number = OURS | NUMBER.fetch_add(2, Ordering::Relaxed);
        // Fails only if the mount is gone.
        let _ = notify::make_request(&*self.device, node, number);
        Ok(())
    }

    /// Answers the request in an entry, and lends the entry again.
    fn commit(&mut self, index: usize, error: i32, length: usize) -> io::Result<()> {
        self.entries[index].answer(error, length);
        self.command(index, ring::COMMIT_AND_FETCH)
    }

    fn command(&mut self, index: usize, code: u32) -> io::Result<()> {
        let entry = &mut self.entries[index];
        let command = RingCommand {
            flags: 0,
            commit_id: entry.commit_id(),
            qid: self.queue,
            padding: [0; 6],
        };
        let mut bytes = [0; 80];
        bytes[..size_of::<RingCommand>()].copy_from_slice(command.as_bytes());
        let command = opcode::UringCmd80::new(DEVICE, code)
            .cmd(bytes)
            .addr(Some(entry.lend()))
            .build()
            .user_data(index as u64);
        self.push(&with_two_parts(command))
    }

    #[expect(unsafe_code)]
    fn push(&mut self, command: &Entry128) -> io::Result<()> {
        if self.io.submission().is_full() {
            self.submit()?;
        }
        // SAFETY: the memory that a command names belongs to an entry, which stays as long as it
        // is lent; polling names no memory.
        let pushed = unsafe { self.io.submission().push(command) };
        pushed.map_err(io::Error::other)
    }

    /// Submits the waiting commands, if there are any.
    fn submit(&mut self) -> io::Result<()> {
        while !self.io.submission().is_empty() {
            uninterrupted(self.io.submit())?;
        }
        Ok(())
    }

    /// Submits and waits until something is completed.
    fn wait(&mut self) -> io::Result<()> {
        uninterrupted(self.io.submit_and_wait(1))?;
        self.collect();
        Ok(())
    }

    fn collect(&mut self) {
        let completed = self.io.completion().map(|done| Completion {
            mark: done.user_data(),
            result: match done.result() {
                error if error < 0 => Err(Errno::from_raw(-error)),
                _ => Ok(()),
            },
        });
        self.completed.extend(completed);
    }
}

/// An interrupted call is no failure: the caller checks its state again.
fn uninterrupted(result: io::Result<usize>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// Sets the number of parts at the address of a command to two, which the crate cannot express.
#[expect(unsafe_code)]
fn with_two_parts(mut command: Entry128) -> Entry128 {
    /// Offset of `len` in `struct io_uring_sqe`.
    const LEN: usize = 24;
    // SAFETY: an `Entry128` has the layout of the structure of the kernel, in which any bytes are
    // valid, and is aligned for a `u32` there.
    unsafe { (&raw mut command).byte_add(LEN).cast::<u32>().write(2) };
    command
}

/// The answer to a request of a ring.
struct Answer<'a> {
    space: Space<'a>,
    state: State,
    then: Option<Then>,
    mailbox: &'a Arc<Mailbox>,
    entry: usize,
}

/// Memory for an answer.
enum Space<'a> {
    /// In the entry, where the kernel expects it.
    There(&'a mut [u8]),
    /// Elsewhere, because the request is in the entry.
    Apart(&'a mut Outgoing),
}

#[derive(Clone, Copy)]
enum State {
    Due,
    /// 0 or a negative errno, and the length.
    Sent(i32, usize),
    Later,
}

impl Carrier for Answer<'_> {
    fn capacity(&self) -> usize {
        match &self.space {
            Space::There(space) => space.len(),
            Space::Apart(memory) => memory.capacity(),
        }
    }

    fn body(&mut self, length: usize) -> &mut [u8] {
        match &mut self.space {
            Space::There(space) => &mut space[..length],
            Space::Apart(memory) => memory.body(length),
        }
    }

    fn send(&mut self, _unique: u64, error: i32, length: usize) {
        self.state = State::Sent(error, length);
    }

    fn then(&mut self, then: Then) {
        self.then = Some(then);
    }

    fn later(&mut self) -> Arc<dyn Late> {
        self.state = State::Later;
        Arc::new(Kept {
            mailbox: Arc::clone(self.mailbox),
            entry: self.entry,
        })
    }
}
