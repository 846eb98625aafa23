//! A call as an eBPF program reported it at its return.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use flowtrace_schema::Text;

use super::super::channels::sockets::{Socket, Transport, address_in};
use super::super::snapshot::ProcessSnapshot;
use super::super::topology::{Call, CallKind};
use super::bpf_snapshot::{BpfSnapshot, Open};
use super::bytes::{half, word};
use super::calls::{kind_of, on_name};
use super::format::{
    ADDRESS, ARGUMENTS_OF_CALL, AT, BASES, BEGAN, ENTRY, FAMILY, INODE, KIND, LOCAL, LOCAL_PORT,
    MOVED, NAMES, NUMBER, OPENED, OTHER_INODE, OWN_ADDRESS, PEER, PEER_PORT, PID, REST, RESULT,
    SECOND, SIX, STATE, TID, TRAFFIC, TYPE,
};
use super::pending::{Part, Parts, path, path_with_room};
use crate::file_calls::ByName;
use crate::stat::Attributes;

/// A call and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Called {
    pub(crate) tid: u32,
    pub(crate) call: Call,
    /// Set for calls on names of files.
    pub(crate) on_name: Option<&'static ByName>,
    /// When it began, on `CLOCK_MONOTONIC`, ns, if that was recorded.
    pub(crate) began_ns: Option<u64>,
    /// Type, inode and size of the file whose attributes it reported, or of its descriptor if it has no name.
    pub(crate) found: Option<Attributes>,
    /// A value, or a negative errno.
    pub(crate) result: i64,
    /// The descriptors that it made or named, in their state at the return. `None`: it is about a name, or has failed
    /// to open one.
    pub(crate) made: Option<Box<BpfSnapshot>>,
    /// The sockets among them, by inode.
    pub(crate) sockets: Vec<(u64, Socket)>,
    /// Its path arguments, made absolute in the root of its process.
    pub(crate) names: [Option<PathBuf>; 2],
    /// The address that it sent to.
    pub(crate) destination: Option<Destination>,
}

/// Destination of datagrams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    Internet(SocketAddr),
    /// A name in the domain UNIX, as ss(8) shows it.
    Unix(Text),
}

impl Destination {
    /// The destination in a `sockaddr`. `None`: another domain, or truncated.
    fn of(bytes: &[u8]) -> Option<Destination> {
        let family = u16::from_ne_bytes(*bytes.first_chunk()?);
        if i32::from(family) != libc::AF_UNIX {
            return address_in(bytes).map(Destination::Internet);
        }
        let address = Address {
            is_own: false,
            length: bytes.len(),
            bytes,
        };
        address.name().map(Destination::Unix)
    }
}

/// An address of a socket of the domain UNIX (`struct sockaddr_un`, of `length` bytes).
#[derive(Clone, Copy, Debug)]
struct Address<'a> {
    is_own: bool,
    length: usize,
    bytes: &'a [u8],
}

impl Called {
    /// Decodes a complete record and the parts before it. `None`: an unknown call.
    pub(super) fn new(record: &[u8], before: &Parts) -> Option<Called> {
        let (pid, tid) = (half(record, PID)?, half(record, TID)?);
        let number = half(record, NUMBER)? as usize;
        let kind = kind_of(number)?;
        let mut arguments = [0; SIX];
        for (n, value) in arguments.iter_mut().enumerate() {
            *value = word(record, ARGUMENTS_OF_CALL + 8 * n)?;
        }
        // The address of a socket; those of a pair have none.
        let address = before.get(ADDRESS).and_then(Address::of);
        let mut open = Vec::new();
        let mut sockets = Vec::new();
        let second = before.get(SECOND).map(|second| second.bytes);
        let result = word(record, RESULT)?.cast_signed();
        let gives_none = kind == CallKind::OnName || kind.opens() && result < 0;
        let own = record.get(REST..REST + ENTRY)?;
        let found = Open::read(own).filter(|_| gives_none);
        let found = found.and_then(|(_, open)| open.is_known().then(|| open.attributes()));
        let record_of_own = (!gives_none).then_some(record);
        for described in second.into_iter().chain(record_of_own) {
            let entry = described.get(REST..REST + ENTRY)?;
            open.extend(Open::read(entry));
            if half(entry, KIND)? & libc::S_IFMT == libc::S_IFSOCK {
                let inode = word(entry, INODE)?;
                sockets.push((inode, socket(described, address)?));
            }
        }
        let traffic = record.get(MOVED..MOVED + 8 * TRAFFIC)?;
        let made = match gives_none {
            true => None,
            false => {
                let mut made = BpfSnapshot::new((pid, tid), false, traffic, open)?;
                let fd = made.numbers().into_iter().next();
                if let (Some(opened), Some(fd)) = (before.get(OPENED), fd) {
                    made.paths.insert(fd, path(opened));
                }
                Some(Box::new(made))
            }
        };
        let [one, two] = NAMES.map(|part| before.get(part).map(|name| name.bytes));
        let [from, other] = BASES.map(|part| before.get(part));
        let on_name = on_name(number);
        let enters = on_name.is_some_and(ByName::enters) && result >= 0;
        let first = match &from {
            Some(entered) if enters => Some(PathBuf::from(path(*entered))),
            _ => None,
        };
        let is_sent = matches!(kind, CallKind::SendTo | CallKind::SendMessage);
        let (one, address) = if is_sent { (None, one) } else { (one, None) };
        Some(Called {
            tid,
            call: Call { kind, arguments },
            on_name,
            began_ns: Some(word(record, BEGAN)?).filter(|&began| began != 0),
            found,
            result,
            made,
            sockets,
            names: [first.or_else(|| absolute(one, from)), absolute(two, other)],
            destination: address.and_then(Destination::of),
        })
    }
}

/// The absolute path of a name, ended by a NUL, relative to a directory. `None`: the directory is not known.
fn absolute(name: Option<&[u8]>, from: Option<Part<'_>>) -> Option<PathBuf> {
    let name = name?;
    let end = name.iter().position(|&byte| byte == 0)?;
    let name = Path::new(OsStr::from_bytes(&name[..end]));
    if name.is_absolute() {
        return Some(name.to_owned());
    }
    let mut absolute = PathBuf::from(path_with_room(from?, 1 + end));
    absolute.push(name);
    Some(absolute)
}

fn socket(record: &[u8], address: Option<Address<'_>>) -> Option<Socket> {
    /// States of include/net/tcp_states.h, which other kinds of sockets use, too.
    const ESTABLISHED: u32 = 1;
    const LISTENS: u32 = 10;
    const CLOSED: u32 = 7;
    let short = |at: usize| Some(half(record, at)? & 0xffff);
    let family = short(FAMILY)?.cast_signed();
    let kind = short(TYPE)?.cast_signed();
    let state = half(record, STATE)? & 0xff;
    if family == libc::AF_UNIX {
        let peer = Some(word(record, OTHER_INODE)?).filter(|&inode| inode != 0);
        let is_own = address.is_some_and(|address| address.is_own);
        let name = address.and_then(|address| address.name());
        let is_connected = state == ESTABLISHED;
        if state == LISTENS || (!is_connected && (name.is_none() || kind != libc::SOCK_DGRAM)) {
            return Some(Socket::Idle);
        }
        return Some(Socket::Unix {
            peer,
            name,
            serves: is_own,
        });
    }
    let address = |at: usize, port: u16| {
        let bytes = record.get(at..at + 16)?;
        let ip = match family {
            libc::AF_INET => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(&bytes[..4]).ok()?)),
            _ => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        };
        Some(SocketAddr::new(ip.to_canonical(), port))
    };
    if family != libc::AF_INET && family != libc::AF_INET6 {
        return Some(Socket::Other);
    }
    let transport = match kind {
        libc::SOCK_STREAM => Transport::Tcp,
        libc::SOCK_DGRAM => Transport::Udp,
        _ => return Some(Socket::Other),
    };
    let local = address(LOCAL, short(LOCAL_PORT)? as u16)?;
    let peer = address(PEER, u16::from_be(short(PEER_PORT)? as u16))?;
    let peer = Some(peer).filter(|peer| peer.port() != 0);
    let is_idle = match transport {
        Transport::Tcp => peer.is_none() || [LISTENS, CLOSED].contains(&state),
        Transport::Udp => peer.is_none() && local.port() == 0,
    };
    if is_idle {
        return Some(Socket::Idle);
    }
    Some(Socket::Internet {
        transport,
        local,
        peer,
    })
}

impl<'a> Address<'a> {
    /// Decodes a reported address.
    fn of(part: Part<'a>) -> Option<Address<'a>> {
        Some(Address {
            is_own: part.flags & OWN_ADDRESS != 0,
            length: word(part.bytes, AT)? as usize,
            bytes: part.bytes.get(REST..)?,
        })
    }

    /// The name as ss(8) shows it. `None`: it has none.
    fn name(&self) -> Option<Text> {
        const FAMILY_BYTES: usize = 2;
        let name = self
            .bytes
            .get(FAMILY_BYTES..self.length.min(self.bytes.len()))?;
        match name {
            [] => None,
            [0, rest @ ..] => Some(Text::from([b"@", rest].concat())),
            path => {
                let end = path.iter().position(|&byte| byte == 0);
                Some(Text::from(&path[..end.unwrap_or(path.len())]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_relative_to_their_directory() {
        let of = |name: &[u8], from: &str| {
            let bytes = from.as_bytes();
            let path = absolute(Some(name), Some(Part { bytes, flags: 0 }))?;
            path.into_os_string().into_string().ok()
        };
        assert_eq!(of(b"/a/b\0", "c\0").as_deref(), Some("/a/b"));
        assert_eq!(of(b"b\0", "d\0c\0").as_deref(), Some("/c/d/b"));
        assert_eq!(of(b"b\0", "").as_deref(), Some("/b"));
        assert_eq!(of(b"b", "c\0"), None, "cut short");
        assert_eq!(absolute(Some(b"b\0"), None), None);
    }

    #[test]
    fn addresses_are_shown_as_usual() {
        let of = |bytes: &[u8]| {
            let address = Address {
                is_own: true,
                length: bytes.len(),
                bytes,
            };
            address.name().map(|name| name.text().into_owned())
        };
        assert_eq!(of(b"\x01\0/run/x\0").as_deref(), Some("/run/x"));
        assert_eq!(of(b"\x01\0\0name").as_deref(), Some("@name"));
        assert_eq!(of(b"\x01\0"), None);
    }
}
