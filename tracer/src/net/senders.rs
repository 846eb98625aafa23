//! Sockets of a workflow that have no address yet, or none any more, when a call reports them: the kernel
//! gives a datagram socket that is neither bound nor connected its port with the first datagram, and takes
//! back the port of a connection that was not answered.
//!
//! Datagram sockets are known by their cookie from the call that makes them; the kernel's reports on all
//! sockets, and on the end of each, have their ports. Connections are read when the call returns.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowtrace_net::flows::Unanswered;
use flowtrace_schema::Upid;

use crate::proc::channels::sockets;
use crate::proc::observer::{Observer, Tracee};
use crate::proc::topology::{Call, CallKind};
use crate::proc::tracepoints::Called;

/// Most connections whose flows are still to be found; more are not reported.
const MOST_UNANSWERED: usize = 1 << 14;

/// Facts about such sockets, for finding their flows.
#[derive(Debug, Default)]
pub(crate) struct Senders(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    makers: HashMap<NonZeroU64, Maker>,
    unanswered: Vec<Unanswered>,
}

/// Maker of a socket, and time of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Maker {
    pub(crate) upid: Upid,
    pub(crate) t_ns: i64,
}

impl Senders {
    /// True if there are sockets of which the maker is known.
    pub(crate) fn has_makers(&self) -> bool {
        !self.known().makers.is_empty()
    }

    /// Maker of the socket with this cookie.
    pub(crate) fn maker(&self, cookie: NonZeroU64) -> Option<Maker> {
        self.known().makers.get(&cookie).copied()
    }

    /// Forgets a socket that is closed, or known otherwise.
    pub(crate) fn forget(&self, cookie: NonZeroU64) {
        self.known().makers.remove(&cookie);
    }

    /// The connections without an answer since the last call, of calls that returned before `until_ns`.
    pub(crate) fn unanswered(&self, until_ns: i64) -> Vec<Unanswered> {
        let all = &mut self.known().unanswered;
        let due = all.partition_point(|one| one.to_ns < until_ns);
        all.drain(..due).collect()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Observes the calls, in stops that are made anyway but for one: `socket` for datagrams.
pub(crate) struct Watch {
    senders: Arc<Senders>,
    /// Calls whose return is waited for, by thread.
    pending: HashMap<u32, Pending>,
}

#[derive(Clone, Copy, Debug)]
enum Pending {
    Made,
    Bind(i32),
    Connect {
        fd: i32,
        /// Place of the address that the call is to reach, and its length.
        to: (u64, u64),
        from_ns: i64,
    },
}

impl Watch {
    pub(crate) fn new(senders: Arc<Senders>) -> Watch {
        Watch {
            senders,
            pending: HashMap::new(),
        }
    }

    /// Notes that the socket has an address now, by which it is known as a channel.
    fn named(&self, tracee: Tracee, fd: i32) {
        if self.senders.has_makers()
            && let Some(cookie) = sockets::cookie(tracee.pid, fd)
        {
            self.senders.forget(cookie);
        }
    }

    fn failed(&self, tracee: Tracee, fd: i32, to: SocketAddr, (from_ns, to_ns): (i64, i64)) {
        let Some(local) = sockets::local_address(tracee.pid, fd) else {
            return;
        };
        let mut known = self.senders.known();
        if known.unanswered.len() < MOST_UNANSWERED {
            known.unanswered.push(Unanswered {
                upid: tracee.upid,
                port: local.port(),
                to,
                from_ns,
                to_ns,
            });
        }
    }
}

impl Observer for Watch {
    fn called(&mut self, tracee: Tracee, call: Call, now: u64) -> bool {
        let [fd, address, length, ..] = call.arguments;
        let fd = fd as i32;
        let pending = match call.kind {
            CallKind::Socket => Pending::Made,
            CallKind::Bind => Pending::Bind(fd),
            CallKind::Connect => Pending::Connect {
                fd,
                to: (address, length),
                from_ns: now as i64,
            },
            _ => return false,
        };
        self.pending.insert(tracee.tid, pending);
        true
    }

    fn returned(&mut self, tracee: Tracee, result: i64, now: u64) {
        let Some(pending) = self.pending.remove(&tracee.tid) else {
            return;
        };
        match pending {
            Pending::Made if result >= 0 => {
                if let Some(cookie) = sockets::cookie(tracee.pid, result as i32) {
                    let maker = Maker {
                        upid: tracee.upid,
                        t_ns: now as i64,
                    };
                    self.senders.known().makers.insert(cookie, maker);
                }
            }
            Pending::Bind(fd) | Pending::Connect { fd, .. } if result >= 0 => {
                self.named(tracee, fd);
            }
            Pending::Connect { fd, to, from_ns } if is_in_vain(result) => {
                if let Some(to) = sockets::address_at(tracee.tid, to) {
                    self.failed(tracee, fd, to, (from_ns, now as i64));
                }
            }
            _ => {}
        }
    }

    fn reported(&mut self, tracee: Tracee, called: &Called, now: u64) {
        let [domain, kind, ..] = called.call.arguments.map(|argument| argument as i32);
        match called.call.kind {
            CallKind::Socket
                if [libc::AF_INET, libc::AF_INET6].contains(&domain)
                    && kind & KIND_OF_SOCKET == libc::SOCK_DGRAM =>
            {
                self.pending.insert(tracee.tid, Pending::Made);
            }
            CallKind::Bind | CallKind::Connect => {
                let fd = called.call.arguments[0] as i32;
                self.pending.insert(tracee.tid, Pending::Bind(fd));
            }
            _ => return,
        }
        self.returned(tracee, called.result, now);
    }

    fn ended(&mut self, tracee: Tracee, _now: u64) {
        self.pending.remove(&tracee.tid);
    }
}

/// Mask of the kind in the second argument of socket(2); the rest are flags (`SOCK_TYPE_MASK` of
/// linux/net.h).
const KIND_OF_SOCKET: i32 = 0xf;

/// True if a connection was asked for and refused or not answered. A connection that is still being made is a
/// channel.
fn is_in_vain(result: i64) -> bool {
    let errors = [
        libc::ECONNREFUSED,
        libc::ETIMEDOUT,
        libc::ECONNRESET,
        libc::EHOSTUNREACH,
        libc::ENETUNREACH,
    ];
    errors.iter().any(|error| result == -i64::from(*error))
}
