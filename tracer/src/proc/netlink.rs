//! Netlink sockets, as far as the two sources of events need them (netlink(7)), and the framing of their
//! messages.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, NetlinkAddr, bind, recvfrom, send, setsockopt, sockopt};

/// `NLMSG_ERROR`: the answer to a request, 0 or a negative errno.
pub(crate) const ERROR: u16 = 2;
/// `NLM_F_REQUEST`.
pub(crate) const REQUEST: u16 = 1;
/// `NLM_F_ACK`: an answer is wanted in any case.
pub(super) const ACKNOWLEDGE: u16 = 4;

/// Most bytes that the kernel may queue for us; the memory is used only while the queue is read too slowly.
/// An event takes less than 1 KiB.
const QUEUE_BYTES: usize = 64 << 20;

/// A socket to one family of the kernel. No call on it waits.
#[derive(Debug)]
pub(crate) struct Socket {
    descriptor: OwnedFd,
}

/// Result of reading the queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A datagram of the kernel of this length.
    Bytes(usize),
    /// A datagram of another sender, or a notice that messages were dropped: there may be more in the queue.
    Nothing,
    /// The queue is empty.
    Empty,
}

impl Socket {
    /// A socket of `protocol` (`NETLINK_*`) that receives what is sent to `groups`, with the
    /// longest queue that this process may have.
    pub(crate) fn open(protocol: i32, groups: u32) -> io::Result<Socket> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the call touches no memory; what it returns is a descriptor of our own.
        #[expect(unsafe_code)]
        let descriptor = unsafe {
            let descriptor = Errno::result(libc::socket(libc::AF_NETLINK, kind, protocol))?;
            OwnedFd::from_raw_fd(descriptor)
        };
        bind(descriptor.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
        // Only CAP_NET_ADMIN goes beyond net.core.rmem_max; without it that limit is what we get.
        let _ = setsockopt(&descriptor, sockopt::RcvBuf, &QUEUE_BYTES);
        let _ = setsockopt(&descriptor, sockopt::RcvBufForce, &QUEUE_BYTES);
        Ok(Socket { descriptor })
    }

    #[cfg(test)]
    pub(super) fn shorten_queue(&self, bytes: usize) {
        setsockopt(&self.descriptor, sockopt::RcvBufForce, &bytes)
            .or_else(|_| setsockopt(&self.descriptor, sockopt::RcvBuf, &bytes))
            .unwrap();
    }

    pub(crate) fn send(&self, message: &[u8]) -> io::Result<()> {
        send(self.descriptor.as_raw_fd(), message, MsgFlags::empty())?;
        Ok(())
    }

    /// Takes one datagram out of the queue. Datagrams of other senders than the kernel are ignored.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        match recvfrom::<NetlinkAddr>(self.descriptor.as_raw_fd(), buffer) {
            Ok((length, Some(sender))) if sender.pid() == 0 => Ok(Received::Bytes(length)),
            // The queue was full; `dropped` returns the number of drops.
            Ok(_) | Err(Errno::ENOBUFS | Errno::EINTR) => Ok(Received::Nothing),
            Err(Errno::EAGAIN) => Ok(Received::Empty),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Datagrams that the kernel dropped so far because the queue was full: `SK_MEMINFO_DROPS`
    /// of `SO_MEMINFO` (since Linux 4.12), an exact count.
    pub(super) fn dropped(&self) -> u64 {
        let mut info = [0_u32; 9];
        let mut length = size_of_val(&info) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes to `info`.
        #[expect(unsafe_code)]
        let result = unsafe {
            libc::getsockopt(
                self.descriptor.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                info.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if result == 0 {
            info[libc::SK_MEMINFO_DROPS as usize].into()
        } else {
            0
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// One message to send: the header (`struct nlmsghdr`), then `body`.
pub(crate) fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length = HEADER + body.len();
    let mut bytes = Vec::with_capacity(length);
    bytes.extend((length as u32).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    // Sequence number and sender: the kernel wants neither.
    bytes.extend([0; 8]);
    bytes.extend(body);
    bytes
}

/// An attribute to send (`struct nlattr`), padded.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = ATTRIBUTE_HEADER + value.len();
    let mut bytes = Vec::with_capacity(aligned(length));
    bytes.extend((length as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(aligned(length), 0);
    bytes
}

const HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;
/// Flags in the type of an attribute: `NLA_F_NESTED`, `NLA_F_NET_BYTEORDER`.
const ATTRIBUTE_FLAGS: u16 = 0xc000;

/// A message received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) body: &'a [u8],
}

/// The messages of a datagram, up to the first that is cut short.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32_at(bytes, 0)? as usize;
        let kind = u16_at(bytes, 4)?;
        let body = bytes.get(HEADER..length)?;
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some(Message { kind, body })
    })
}

/// The attributes of a message by type, up to the first that is cut short.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & !ATTRIBUTE_FLAGS;
        let value = bytes.get(ATTRIBUTE_HEADER..length)?;
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

fn at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    at(bytes, offset).map(u16::from_ne_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    at(bytes, offset).map(u32::from_ne_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    at(bytes, offset).map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_framed_is_found_again() {
        let body = [attribute(1, b"odd"), attribute(0x8002, b"even")].concat();
        let datagram = [message(7, REQUEST, &body), message(8, 0, b"x")].concat();
        let found: Vec<_> = messages(&datagram).collect();
        assert_eq!(found[0].kind, 7);
        assert_eq!(
            attributes(found[0].body).collect::<Vec<_>>(),
            [(1, &b"odd"[..]), (2, &b"even"[..])]
        );
        assert_eq!(
            found[1],
            Message {
                kind: 8,
                body: b"x"
            }
        );
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn lengths_that_cannot_be_end_the_datagram() {
        let whole = message(7, 0, b"four");
        for length in [0_u32, 15, 21, u32::MAX] {
            let mut datagram = whole.clone();
            datagram[..4].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(messages(&datagram).count(), 0, "{length}");
        }
        for cut in 0..whole.len() {
            assert_eq!(messages(&whole[..cut]).count(), 0, "{cut}");
        }
        for length in [0_u16, 3, 9, u16::MAX] {
            let mut bytes = attribute(1, b"four");
            bytes[..2].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(attributes(&bytes).count(), 0, "{length}");
        }
    }
}
