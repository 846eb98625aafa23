//! The channel of each pipe and socket.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use flowtrace_schema::{ChannelId, ChannelKind, ChannelRecord, HostId, Record, Recorder, Text};

use super::super::descriptors::{self, Descriptor, Object};
use super::super::links;
use super::super::observer::ChannelLookup;
use super::super::tracepoints::Destination;
use super::sockets::{self, Socket, Transport};

/// The channels of a run. The two sockets of a connection are one channel.
#[derive(Debug)]
pub(crate) struct Registry {
    host: HostId,
    recorder: Recorder,
    last: u32,
    pipes: HashMap<u64, ChannelId>,
    sockets: HashMap<u64, ChannelId>,
    /// By device and inode, with the name: an inode may be used again for another FIFO.
    fifos: HashMap<(u64, u64), (ChannelId, Option<Text>)>,
    of_sockets: HashSet<ChannelId>,
    /// Sockets that are no channels.
    others: HashSet<u64>,
    /// Connections of which one end was seen, by its address and its peer's.
    half_seen: HashMap<(Transport, SocketAddr, SocketAddr), ChannelId>,
    /// Connections to a path that were not accepted when they were seen, in the order in which they will be.
    waiting: HashMap<Text, VecDeque<ChannelId>>,
    /// Sockets to which datagrams are sent, by address, and by name in the domain UNIX.
    bound: HashMap<SocketAddr, ChannelId>,
    named: HashMap<Text, ChannelId>,
    /// The addresses of Internet sockets, by inode.
    addresses: HashMap<u64, Addresses>,
}

/// The two addresses of an Internet socket; a socket without a connection may have many peers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) transport: Transport,
    pub(crate) local: SocketAddr,
    pub(crate) peer: Option<SocketAddr>,
}

impl Registry {
    pub(crate) fn new(host: HostId, recorder: Recorder) -> Registry {
        Registry {
            host,
            recorder,
            last: 0,
            pipes: HashMap::new(),
            sockets: HashMap::new(),
            fifos: HashMap::new(),
            of_sockets: HashSet::new(),
            others: HashSet::new(),
            half_seen: HashMap::new(),
            waiting: HashMap::new(),
            bound: HashMap::new(),
            named: HashMap::new(),
            addresses: HashMap::new(),
        }
    }

    /// The channel of a descriptor of process `pid`. `None`: a socket that connects nothing.
    pub(crate) fn identify(&mut self, pid: u32, descriptor: &Descriptor) -> Option<ChannelId> {
        match descriptor.object {
            Object::Pipe { inode } => Some(match self.pipes.get(&inode) {
                Some(&channel) => channel,
                None => {
                    let capacity = capacity(pid, descriptor);
                    let channel = self.add(ChannelKind::Pipe, inode, None, capacity);
                    self.pipes.insert(inode, channel);
                    channel
                }
            }),
            Object::Fifo { device, inode } => {
                // The descriptor may have become another file since it was reported.
                let is_it = |now: Descriptor| now.object == descriptor.object;
                let target = links::target(pid, descriptor.fd)
                    .filter(|_| descriptors::one(pid, descriptor.fd).is_some_and(is_it));
                let read = || capacity(pid, descriptor);
                Some(self.fifo((device, inode), target.as_deref(), read))
            }
            Object::Socket { inode } => {
                if let Some(&channel) = self.sockets.get(&inode) {
                    return Some(channel);
                }
                if self.others.contains(&inode) {
                    return None;
                }
                let socket = sockets::query(pid, descriptor.fd, inode)?;
                self.socket(inode, socket)
            }
        }
    }

    /// Records what the socket with this inode is.
    pub(crate) fn learn(&mut self, inode: u64, socket: Socket) {
        if !self.sockets.contains_key(&inode) {
            self.socket(inode, socket);
        }
    }

    /// The socket with this inode sends datagrams to `to`: it has that channel, unless it is known to have
    /// another, for example because it is bound itself.
    pub(crate) fn sends(&mut self, inode: u64, to: &Destination) {
        if self.sockets.contains_key(&inode) {
            return;
        }
        let channel = match to {
            Destination::Internet(to) => self
                .bound_at(*to, None)
                .unwrap_or_else(|| self.add_receiver(inode, *to)),
            Destination::Unix(name) => {
                let known = self.named.get(name).copied();
                known.unwrap_or_else(|| {
                    let channel = self.add(ChannelKind::Unix, inode, Some(name.clone()), None);
                    self.named.insert(name.clone(), channel);
                    channel
                })
            }
        };
        self.sockets.insert(inode, channel);
    }

    /// The channel of a named pipe, by device and inode of the name; `path` gives none if the name was
    /// removed.
    pub(crate) fn fifo(
        &mut self,
        (device, inode): (u64, u64),
        path: Option<&Path>,
        capacity: impl FnOnce() -> Option<u64>,
    ) -> ChannelId {
        let name = path
            .filter(|path| links::is_path(path.as_os_str()))
            .map(Text::from);
        match self.fifos.get(&(device, inode)) {
            Some((channel, known)) if name.is_none() || *known == name => *channel,
            _ => {
                let channel = self.add(ChannelKind::Fifo, inode, name.clone(), capacity());
                self.fifos.insert((device, inode), (channel, name));
                channel
            }
        }
    }

    /// True if a channel is made of sockets.
    pub(crate) fn is_socket(&self, channel: ChannelId) -> bool {
        self.of_sockets.contains(&channel)
    }

    /// True if a channel is a named pipe, which can be opened again.
    pub(crate) fn is_fifo(&self, channel: ChannelId) -> bool {
        self.fifos.values().any(|(known, _)| *known == channel)
    }

    /// A connection that is still being made: its peer is known from the call, its own address if the kernel
    /// has chosen one.
    pub(crate) fn connecting(
        &mut self,
        inode: u64,
        local: Option<SocketAddr>,
        to: SocketAddr,
    ) -> ChannelId {
        if let Some(&channel) = self.sockets.get(&inode) {
            return channel;
        }
        let channel = match local {
            Some(local) => {
                // "Any address" is this host.
                let ip = match to.ip().is_unspecified() {
                    true => local.ip(),
                    false => to.ip(),
                };
                let (transport, peer) = (Transport::Tcp, SocketAddr::new(ip, to.port()));
                let addresses = Addresses {
                    transport,
                    local,
                    peer: Some(peer),
                };
                self.addresses.insert(inode, addresses);
                self.connection(inode, transport, local, peer)
            }
            None => {
                let name = Text::from(to.to_string().as_str());
                self.add(ChannelKind::Tcp, inode, Some(name), None)
            }
        };
        self.sockets.insert(inode, channel);
        channel
    }

    /// The addresses of the Internet socket with this inode.
    pub(crate) fn addresses(&self, inode: u64) -> Option<Addresses> {
        self.addresses.get(&inode).copied()
    }

    fn socket(&mut self, inode: u64, socket: Socket) -> Option<ChannelId> {
        if let Socket::Internet {
            transport,
            local,
            peer,
        } = socket
        {
            let addresses = Addresses {
                transport,
                local,
                peer,
            };
            self.addresses.insert(inode, addresses);
        }
        let channel = match socket {
            Socket::Unix { peer, name, serves } => self.unix(inode, peer, name, serves),
            Socket::Internet {
                transport,
                local,
                peer: Some(peer),
            } => self.connection(inode, transport, local, peer),
            Socket::Internet {
                transport: _,
                local,
                peer: None,
            } => match self.bound.get(&local) {
                Some(&channel) => channel,
                None => self.add_receiver(inode, local),
            },
            Socket::Idle => return None,
            Socket::Other => {
                self.others.insert(inode);
                return None;
            }
        };
        self.sockets.insert(inode, channel);
        Some(channel)
    }

    /// A new channel for the datagrams sent to this address.
    fn add_receiver(&mut self, inode: u64, at: SocketAddr) -> ChannelId {
        let name = Text::from(at.to_string().as_str());
        let channel = self.add(ChannelKind::Udp, inode, Some(name), None);
        self.bound.insert(at, channel);
        channel
    }

    /// The channel of the socket that receives datagrams sent to this address: one that is bound to it, or,
    /// where the address is this host's (`own` is), to any address of the host.
    fn bound_at(&self, to: SocketAddr, own: Option<IpAddr>) -> Option<ChannelId> {
        if let Some(&channel) = self.bound.get(&to) {
            return Some(channel);
        }
        let is_here = to.ip().is_loopback() || Some(to.ip()) == own;
        let any = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let mut any = any
            .map(|ip: IpAddr| SocketAddr::new(ip, to.port()))
            .into_iter();
        let found = any.find_map(|any| self.bound.get(&any).copied());
        found.filter(|_| is_here)
    }

    fn unix(
        &mut self,
        inode: u64,
        peer: Option<u64>,
        name: Option<Text>,
        serves: bool,
    ) -> ChannelId {
        let mut known = peer.and_then(|peer| self.sockets.get(&peer).copied());
        if let Some(name) = name.as_ref().filter(|_| serves)
            && let Some(waiting) = self.waiting.get_mut(name)
        {
            match known {
                Some(known) => waiting.retain(|channel| *channel != known),
                // The client has gone already.
                None if peer.is_none() => known = waiting.pop_front(),
                None => {}
            }
        }
        let channel = known.unwrap_or_else(|| {
            let kind = if name.is_some() {
                ChannelKind::Unix
            } else {
                ChannelKind::Socketpair
            };
            self.add(kind, inode, name.clone(), None)
        });
        match (peer, name) {
            (Some(peer), _) => {
                self.sockets.insert(peer, channel);
            }
            (None, Some(name)) if serves => {
                self.named.insert(name, channel);
            }
            (None, Some(name)) => {
                self.waiting.entry(name).or_default().push_back(channel);
            }
            (None, None) => {}
        }
        channel
    }

    fn connection(
        &mut self,
        inode: u64,
        transport: Transport,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> ChannelId {
        // The other end was seen. Ports may be used again, so the entry serves once.
        if let Some(channel) = self.half_seen.remove(&(transport, peer, local)) {
            return channel;
        }
        if transport == Transport::Udp
            && let Some(channel) = self.bound_at(peer, Some(local.ip()))
        {
            return channel;
        }
        let kind = match transport {
            Transport::Tcp => ChannelKind::Tcp,
            Transport::Udp => ChannelKind::Udp,
        };
        let name = Text::from(format!("{local} {peer}").as_str());
        let channel = self.add(kind, inode, Some(name), None);
        self.half_seen.insert((transport, local, peer), channel);
        channel
    }

    fn add(
        &mut self,
        kind: ChannelKind,
        inode: u64,
        name: Option<Text>,
        capacity_bytes: Option<u64>,
    ) -> ChannelId {
        self.last += 1;
        let id = ChannelId(self.last);
        if !matches!(kind, ChannelKind::Pipe | ChannelKind::Fifo) {
            self.of_sockets.insert(id);
        }
        self.recorder
            .record(Record::Channel(Box::new(ChannelRecord {
                id,
                host: self.host,
                kind,
                inode,
                name,
                capacity_bytes,
            })));
        id
    }
}

/// Size of the buffer of a pipe, bytes.
fn capacity(pid: u32, descriptor: &Descriptor) -> Option<u64> {
    let read = || sockets::pipe_capacity(pid, descriptor.fd);
    descriptor.capacity.or_else(read)
}

impl ChannelLookup for Mutex<Registry> {
    fn of_inode(&self, inode: u64) -> Option<ChannelId> {
        let registry = self.lock().unwrap_or_else(PoisonError::into_inner);
        let fifo = || {
            let mut fifos = registry.fifos.iter();
            fifos.find_map(|((_, number), (channel, _))| (*number == inode).then_some(*channel))
        };
        let pipe_or_socket = registry.pipes.get(&inode).or(registry.sockets.get(&inode));
        pipe_or_socket.copied().or_else(fifo)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry() -> Registry {
        Registry::new(HostId(1), Recorder::nowhere())
    }

    fn internet(local: &str, peer: &str) -> Socket {
        Socket::Internet {
            transport: Transport::Tcp,
            local: local.parse().unwrap(),
            peer: peer.parse().ok(),
        }
    }

    #[test]
    fn the_two_sockets_of_a_connection_are_one_channel() {
        let mut registry = registry();
        let client = registry.socket(1, internet("127.0.0.1:40000", "127.0.0.1:80"));
        let server = registry.socket(2, internet("127.0.0.1:80", "127.0.0.1:40000"));
        assert_eq!(client, server);
        // The same ports again are another connection.
        let later = registry.socket(3, internet("127.0.0.1:40000", "127.0.0.1:80"));
        assert_ne!(later, client);
        let server = registry.socket(4, internet("127.0.0.1:80", "127.0.0.1:40000"));
        assert_eq!(server, later);
    }

    #[test]
    fn a_connection_that_is_being_made_meets_its_other_end() {
        let mut registry = registry();
        let address = |text: &str| -> SocketAddr { text.parse().unwrap() };
        let local = Some(address("127.0.0.1:40000"));
        let client = registry.connecting(1, local, address("0.0.0.0:80"));
        let server = registry.socket(2, internet("127.0.0.1:80", "127.0.0.1:40000"));
        assert_eq!(server, Some(client));
        assert_eq!(
            registry.connecting(1, local, address("127.0.0.1:80")),
            client
        );
        assert_ne!(
            registry.connecting(3, None, address("127.0.0.1:80")),
            client
        );
    }

    #[test]
    fn who_sends_without_connecting_has_the_channel_of_the_receiver() {
        let mut registry = registry();
        let udp = |local: &str, peer: Option<&str>| Socket::Internet {
            transport: Transport::Udp,
            local: local.parse().unwrap(),
            peer: peer.map(|peer| peer.parse().unwrap()),
        };
        let to = |text: &str| Destination::Internet(text.parse().unwrap());
        let server = registry.socket(1, udp("0.0.0.0:90", None)).unwrap();
        registry.sends(2, &to("127.0.0.1:90"));
        registry.sends(3, &to("10.0.0.1:90"));
        assert_eq!(registry.sockets[&2], server);
        assert_ne!(registry.sockets[&3], server, "maybe of another host");
        // A connected socket without own address has one of the host.
        let connected = udp("10.0.0.2:4000", Some("10.0.0.2:90"));
        assert_eq!(registry.socket(4, connected), Some(server));
        // An answer is sent by a socket that has a channel.
        registry.sends(1, &to("127.0.0.1:4000"));
        assert_eq!(registry.sockets[&1], server);
        let name = || Text::from("/log");
        let log = Socket::Unix {
            peer: None,
            name: Some(name()),
            serves: true,
        };
        let log = registry.socket(5, log).unwrap();
        registry.sends(6, &Destination::Unix(name()));
        assert_eq!(registry.sockets[&6], log);
    }

    #[test]
    fn unix_peers_find_each_other_in_either_order() {
        let mut registry = registry();
        let socket = |peer| Socket::Unix {
            peer: Some(peer),
            name: None,
            serves: false,
        };
        let one = registry.socket(1, socket(2)).unwrap();
        assert_eq!(registry.sockets.get(&2), Some(&one));
    }

    #[test]
    fn connections_are_accepted_in_their_order() {
        let mut registry = registry();
        let mut socket = |inode, peer, serves| {
            let name = Some("/s".into());
            registry.socket(inode, Socket::Unix { peer, name, serves })
        };
        // The clients connected before they were accepted, and did not know their peers.
        let clients = [1, 2, 3].map(|inode| socket(inode, None, false));
        // The first has gone when its connection is accepted.
        assert_eq!(socket(4, None, true), clients[0]);
        assert_eq!(socket(5, Some(2), true), clients[1]);
        assert_eq!(socket(6, None, true), clients[2]);
        assert!(!clients.contains(&socket(7, None, true)));
    }

    #[test]
    fn a_listening_socket_is_no_channel() {
        let mut registry = registry();
        assert_eq!(registry.socket(1, Socket::Idle), None);
        assert_eq!(registry.socket(1, Socket::Other), None);
        assert!(registry.others.contains(&1));
    }
}
