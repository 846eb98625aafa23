//! The interfaces of this network namespace.

use std::fs;
use std::io;

use flowtrace_net::Link;

pub(super) mod deleted;

/// An interface that can be captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    pub(super) index: u32,
    /// `ARPHRD_` number.
    kind: u16,
    /// True if it is up.
    pub is_up: bool,
}

pub(super) const ARPHRD_ETHER: u16 = 1;
pub(super) const ARPHRD_LOOPBACK: u16 = 772;
const IFF_UP: u32 = 1;

impl Interface {
    /// Finds an interface by name.
    ///
    /// # Errors
    /// When there is none.
    pub fn named(name: &str) -> io::Result<Interface> {
        // A name with a slash would be another file.
        if name.contains('/') || name.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        let index = nix::net::if_::if_nametoindex(name).map_err(io::Error::from)?;
        let read = |what: &str| {
            let text = fs::read_to_string(format!("/sys/class/net/{name}/{what}")).ok()?;
            let text = text.trim();
            match text.strip_prefix("0x") {
                Some(hex) => u32::from_str_radix(hex, 16).ok(),
                None => text.parse().ok(),
            }
        };
        // /sys shows the namespace in which it was mounted, maybe not this one.
        let is_ours = read("ifindex") == Some(index);
        let read = |what: &str| read(what).filter(|_| is_ours);
        let guessed = if name == "lo" {
            ARPHRD_LOOPBACK
        } else {
            ARPHRD_ETHER
        };
        Ok(Interface {
            name: name.to_owned(),
            index,
            kind: read("type").map_or(guessed, |kind| kind as u16),
            is_up: read("flags").is_none_or(|flags| flags & IFF_UP != 0),
        })
    }

    /// The interface with this index in the network namespace of this thread, which a packet names, or the
    /// one that was there under that name.
    pub(super) fn of_packet(index: u32, kind: u16, before: Option<&str>) -> Interface {
        let name = nix::net::if_::if_indextoname(index).ok();
        // If there is none the name may be empty, instead of an error.
        let name = name.and_then(|name| name.into_string().ok());
        let name = name.filter(|name| !name.is_empty());
        let name = name.or_else(|| before.map(str::to_owned));
        Interface {
            name: name.unwrap_or_else(|| format!("if{index}")),
            index,
            kind,
            is_up: true,
        }
    }

    /// All interfaces that are up, loopback first.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn all() -> io::Result<Vec<Interface>> {
        let mut all = Vec::new();
        for entry in &nix::net::if_::if_nameindex().map_err(io::Error::from)? {
            let name = entry.name().to_string_lossy();
            all.extend(Interface::named(&name).ok().filter(|found| found.is_up));
        }
        all.sort_by_key(|interface| (!interface.is_loopback(), interface.index));
        Ok(all)
    }

    pub(super) fn is_loopback(&self) -> bool {
        self.kind == ARPHRD_LOOPBACK
    }

    pub(super) fn is_ethernet(&self) -> bool {
        matches!(self.kind, ARPHRD_ETHER | ARPHRD_LOOPBACK)
    }

    /// Link layer of its frames, and the LINKTYPE_ number of that.
    pub(super) fn link(&self) -> (Link, u16) {
        if self.is_ethernet() {
            (Link::Ethernet, 1)
        } else {
            (Link::Raw, 101)
        }
    }
}
