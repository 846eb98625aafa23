//! Family, addresses and peer of sockets of other processes.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use flowtrace_schema::Text;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, SockaddrLike,
    SockaddrStorage, UnixAddr, getpeername, getsockname, getsockopt, socket, sockopt,
};
use nix::unistd::{read, write};

use super::super::pidfd::PidFd;
use super::super::topology::some_at;

/// Transport of an Internet socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

/// Kind of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Socket {
    /// A connected UNIX socket, or a bound one that others send to.
    Unix {
        /// Inode of the socket at the other end; `None` until it is accepted, and when it is
        /// gone.
        peer: Option<u64>,
        /// Path of either end.
        name: Option<Text>,
        /// True if the path is its own: it is the server's end.
        serves: bool,
    },
    /// An Internet socket that has an address.
    Internet {
        transport: Transport,
        local: SocketAddr,
        peer: Option<SocketAddr>,
    },
    /// A socket without a connection so far: it listens, or nothing is known of it.
    Idle,
    /// No channel between processes: netlink, packets.
    Other,
}

/// The socket that is descriptor `fd` of process `pid`. It is read through a duplicate, which is closed at
/// once (pidfd_getfd(2), Linux 5.6). `None`: no duplicate can be had.
pub(crate) fn query(pid: u32, fd: i32, inode: u64) -> Option<Socket> {
    let duplicate = duplicate(pid, fd)?;
    let local: SockaddrStorage = getsockname(duplicate.as_raw_fd()).ok()?;
    let peer: Option<SockaddrStorage> = getpeername(duplicate.as_raw_fd()).ok();
    let kind = getsockopt(&duplicate, sockopt::SockType).ok()?;
    let listens = getsockopt(&duplicate, sockopt::AcceptConn).unwrap_or(false);
    if listens {
        return Some(Socket::Idle);
    }
    Some(match local.family() {
        Some(AddressFamily::Unix) => {
            let end = diag::unix(inode).unwrap_or_default();
            let path = |address: Option<&SockaddrStorage>| {
                let unix = address.and_then(SockaddrStorage::as_unix_addr)?;
                unix_name(unix)
            };
            let own = path(Some(&local));
            let serves = own.is_some();
            let name = own.or_else(|| path(peer.as_ref()));
            // A server's socket before it listens, or one without an address.
            let unconnected = end.peer.is_none() && peer.is_none();
            if unconnected && (name.is_none() || kind != SockType::Datagram) {
                Socket::Idle
            } else {
                Socket::Unix {
                    peer: end.peer,
                    name,
                    serves,
                }
            }
        }
        Some(AddressFamily::Inet | AddressFamily::Inet6) => {
            let transport = match kind {
                SockType::Stream => Transport::Tcp,
                SockType::Datagram => Transport::Udp,
                _ => return Some(Socket::Other),
            };
            let (Some(local), peer) = (internet(&local), peer.as_ref().and_then(internet)) else {
                return Some(Socket::Idle);
            };
            if peer.is_none() && (transport == Transport::Tcp || local.port() == 0) {
                return Some(Socket::Idle);
            }
            Socket::Internet {
                transport,
                local,
                peer,
            }
        }
        _ => Socket::Other,
    })
}

/// The own address of the Internet socket that is descriptor `fd` of process `pid`.
pub(crate) fn local_address(pid: u32, fd: i32) -> Option<SocketAddr> {
    let duplicate = duplicate(pid, fd)?;
    let local: SockaddrStorage = getsockname(duplicate.as_raw_fd()).ok()?;
    internet(&local).filter(|local| local.port() != 0)
}

/// The kernel's own number of the socket that is descriptor `fd` of process `pid` (`SO_COOKIE`), by
/// which sock_diag(7) names it, too.
pub(crate) fn cookie(pid: u32, fd: i32) -> Option<NonZeroU64> {
    let duplicate = duplicate(pid, fd)?;
    let mut cookie = 0_u64;
    let mut length = size_of_val(&cookie) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `cookie`.
    #[expect(unsafe_code)]
    let result = unsafe {
        libc::getsockopt(
            duplicate.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    NonZeroU64::new(cookie).filter(|_| result == 0)
}

/// Size of the buffer of the pipe that is descriptor `fd` of process `pid`.
pub(crate) fn pipe_capacity(pid: u32, fd: i32) -> Option<u64> {
    let duplicate = duplicate(pid, fd)?;
    let size = nix::fcntl::fcntl(&duplicate, nix::fcntl::FcntlArg::F_GETPIPE_SZ).ok()?;
    u64::try_from(size).ok()
}

fn duplicate(pid: u32, fd: i32) -> Option<OwnedFd> {
    PidFd::open(pid)?.duplicate(fd)
}

fn unix_name(address: &UnixAddr) -> Option<Text> {
    if let Some(path) = address.path().filter(|p| !p.as_os_str().is_empty()) {
        return Some(Text::from(path.as_os_str().as_bytes()));
    }
    let name = address.as_abstract()?;
    // Abstract names as ss(8) and /proc/net/unix show them.
    let mut shown = vec![b'@'];
    shown.extend_from_slice(name);
    Some(Text::from(shown))
}

fn internet(address: &SockaddrStorage) -> Option<SocketAddr> {
    let found = match address.family()? {
        AddressFamily::Inet => {
            let address: &SockaddrIn = address.as_sockaddr_in()?;
            SocketAddr::from((address.ip(), address.port()))
        }
        AddressFamily::Inet6 => {
            let address: &SockaddrIn6 = address.as_sockaddr_in6()?;
            SocketAddr::from((address.ip(), address.port()))
        }
        _ => return None,
    };
    Some(SocketAddr::new(found.ip().to_canonical(), found.port()))
}

/// The address at which a `sockaddr` in a program's memory points, for a connection that is still
/// being made. The kernel has read it: a read of it now waits for no server ([`crate::proc::near`]).
pub(crate) fn address_at(tid: u32, (address, length): (u64, u64)) -> Option<SocketAddr> {
    let most = (length as usize).min(size_of::<libc::sockaddr_storage>());
    address_in(&some_at(tid, address, most)?)
}

/// The address in a `sockaddr`.
pub(crate) fn address_in(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    let ip = match i32::from(family) {
        libc::AF_INET => {
            let octets: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            std::net::IpAddr::from(octets)
        }
        libc::AF_INET6 => {
            let octets: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            std::net::IpAddr::from(octets)
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), port))
}

pub(crate) mod diag {
    //! The peer of a UNIX socket, which only sock_diag(7) reports.

    use super::*;

    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const REQUEST: u16 = 1;
    const SHOW_PEER: u32 = 4;
    const ATTRIBUTE_PEER: u16 = 2;
    const HEADER: usize = 16;
    const ANSWER: usize = 16;

    /// State of a UNIX socket.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct End {
        /// Inode of the socket at the other end; 0 until it is accepted.
        pub(crate) peer: Option<u64>,
    }

    /// Requests the socket with this inode. `None`: it is not in our network namespace, or sock_diag is not
    /// built in.
    pub(super) fn unix(inode: u64) -> Option<End> {
        let ask = || -> io::Result<Vec<u8>> {
            let channel = socket(
                AddressFamily::Netlink,
                SockType::Raw,
                SockFlag::SOCK_CLOEXEC,
                SockProtocol::NetlinkSockDiag,
            )?;
            write(&channel, &request(inode))?;
            let mut answer = vec![0; 1024];
            let size = read(&channel, &mut answer)?;
            answer.truncate(size);
            Ok(answer)
        };
        parse(&ask().ok()?)
    }

    /// `struct nlmsghdr` and `struct unix_diag_req` (include/uapi/linux/unix_diag.h).
    fn request(inode: u64) -> Vec<u8> {
        let mut request = Vec::with_capacity(40);
        request.extend(40u32.to_ne_bytes());
        request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        request.extend(REQUEST.to_ne_bytes());
        request.extend([0; 8]);
        request.extend([libc::AF_UNIX as u8, 0, 0, 0]);
        request.extend(u32::MAX.to_ne_bytes());
        request.extend((inode as u32).to_ne_bytes());
        request.extend(SHOW_PEER.to_ne_bytes());
        // No cookie: whatever socket has the inode now.
        request.extend([0xff; 8]);
        request
    }

    /// The peer in an answer.
    pub(crate) fn parse(answer: &[u8]) -> Option<End> {
        let u16_at = |at: usize| -> Option<u16> {
            Some(u16::from_ne_bytes(answer.get(at..at + 2)?.try_into().ok()?))
        };
        let u32_at = |at: usize| -> Option<u32> {
            Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?))
        };
        let end = answer.len().min(u32_at(0)? as usize);
        if u16_at(4)? != SOCK_DIAG_BY_FAMILY {
            return None;
        }
        let mut at = HEADER + ANSWER;
        let mut peer = None;
        while at + 4 <= end {
            let length = usize::from(u16_at(at)?);
            if length < 4 {
                break;
            }
            if u16_at(at + 2)? == ATTRIBUTE_PEER {
                peer = u32_at(at + 4).filter(|inode| *inode != 0).map(u64::from);
            }
            at += length.next_multiple_of(4);
        }
        Some(End { peer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::{UnixListener, UnixStream};

    fn inode(fd: &impl AsRawFd) -> u64 {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        std::fs::metadata(path).unwrap().ino()
    }

    fn ask(fd: &impl AsRawFd) -> Option<Socket> {
        query(std::process::id(), fd.as_raw_fd(), inode(fd))
    }

    #[test]
    fn both_ends_of_a_socket_pair_name_each_other() {
        let (one, other) = UnixStream::pair().unwrap();
        let peer = Some(inode(&other));
        let end = Socket::Unix {
            peer,
            name: None,
            serves: false,
        };
        assert_eq!(ask(&one), Some(end));
    }

    #[test]
    fn a_unix_server_has_a_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(ask(&listener), Some(Socket::Idle));
        let client = UnixStream::connect(&path).unwrap();
        let (server, _) = listener.accept().unwrap();
        let name = Some(Text::from(path.as_path()));
        let end = |peer, serves| {
            Some(Socket::Unix {
                peer,
                name: name.clone(),
                serves,
            })
        };
        assert_eq!(ask(&client), end(Some(inode(&server)), false));
        assert_eq!(ask(&server), end(Some(inode(&client)), true));
    }

    #[test]
    fn tcp_ends_have_each_others_addresses() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, address) = listener.accept().unwrap();
        let internet = |local, peer| Socket::Internet {
            transport: Transport::Tcp,
            local,
            peer: Some(peer),
        };
        let listening = listener.local_addr().unwrap();
        assert_eq!(ask(&client), Some(internet(address, listening)));
        assert_eq!(ask(&server), Some(internet(listening, address)));
        assert_eq!(ask(&listener), Some(Socket::Idle));
    }

    #[test]
    fn addresses_in_memory() {
        let mut v4 = (libc::AF_INET as u16).to_ne_bytes().to_vec();
        v4.extend([0x1f, 0x90, 127, 0, 0, 1]);
        assert_eq!(address_in(&v4), "127.0.0.1:8080".parse().ok());
        assert_eq!(address_in(&v4[..7]), None);
        assert_eq!(address_in(&[]), None);
    }
}
