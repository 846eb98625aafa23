//! Answers that other threads give to requests of a ring.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, ThreadId};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::fs::protocol::reply::Late;

/// Messages to a ring from other threads, and from its own thread while it serves.
#[derive(Debug)]
pub(super) struct Mailbox {
    wake: EventFd,
    /// The thread of the ring. It reads its mail by itself, and need not be woken.
    owner: OnceLock<ThreadId>,
    mail: Mutex<Mail>,
}

/// Messages that have arrived.
#[derive(Debug, Default)]
pub(super) struct Mail {
    /// Answers to requests that are still due.
    pub(super) answers: Vec<Answer>,
    /// The mount is gone.
    pub(super) is_end: bool,
}

/// An answer without a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The entry with the request.
    pub(super) entry: usize,
    /// 0 or a negative errno.
    pub(super) error: i32,
}

/// An entry whose answer comes later.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) entry: usize,
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Mailbox> {
        Ok(Mailbox {
            wake: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            owner: OnceLock::new(),
            mail: Mutex::default(),
        })
    }

    /// Makes the calling thread the one that takes the messages.
    pub(super) fn own(&self) {
        self.owner.get_or_init(|| thread::current().id());
    }

    /// Becomes readable when another thread has put something in.
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// From now on messages wake the ring again.
    pub(super) fn woken(&self) {
        // Fails if nothing woke it.
        let _ = self.wake.read();
    }

    /// Takes the messages that have arrived.
    pub(super) fn take(&self) -> Mail {
        let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *mail)
    }

    /// No more requests come.
    pub(super) fn end(&self) {
        self.put(|mail| mail.is_end = true);
    }

    fn put(&self, put: impl FnOnce(&mut Mail)) {
        put(&mut self.mail.lock().unwrap_or_else(PoisonError::into_inner));
        if self.owner.get() != Some(&thread::current().id()) {
            // Fails only after 2^64 messages.
            let _ = self.wake.write(1);
        }
    }
}

impl Late for Kept {
    fn answer(&self, _unique: u64, error: i32) {
        let entry = self.entry;
        self.mailbox
            .put(|mail| mail.answers.push(Answer { entry, error }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    fn is_awake(mailbox: &Mailbox) -> bool {
        let mut fds = [PollFd::new(mailbox.wake(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
    }

    #[test]
    fn mail_of_other_threads_wakes() {
        let mailbox = Arc::new(Mailbox::new().unwrap());
        mailbox.own();
        let kept = |entry| Kept {
            mailbox: Arc::clone(&mailbox),
            entry,
        };
        kept(2).answer(6, 0);
        assert!(!is_awake(&mailbox));
        let other = kept(3);
        thread::spawn(move || other.answer(8, -4)).join().unwrap();
        assert!(is_awake(&mailbox));
        mailbox.woken();
        assert!(!is_awake(&mailbox));
        let mail = mailbox.take();
        let answers = [(2, 0), (3, -4)].map(|(entry, error)| Answer { entry, error });
        assert_eq!((mail.answers, mail.is_end), (answers.to_vec(), false));
        assert!(mailbox.take().answers.is_empty());
        mailbox.end();
        assert!(mailbox.take().is_end);
    }
}
