//! The calls of an AF_PACKET socket that the libraries do not have.

#![expect(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU32;

use crate::mapping::Mapping;

/// A socket of AF_PACKET that receives nothing yet.
pub(super) fn packet_socket(kind: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option of SOL_PACKET.
pub(super) fn set<T>(fd: RawFd, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes of `value`, which lives that long.
    let result = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_PACKET,
            option,
            (&raw const *value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    done(result)
}

/// Starts the capture of all packets of an interface.
pub(super) fn bind(fd: RawFd, interface: u32) -> io::Result<()> {
    // SAFETY: all zeros are a valid address.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = interface as i32;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of `address`, which lives that long.
    done(unsafe { libc::bind(fd, (&raw const address).cast(), length) })
}

/// Reads and resets the counters.
pub(super) fn statistics(fd: RawFd) -> io::Result<libc::tpacket_stats_v3> {
    // SAFETY: all zeros are valid counters.
    let mut statistics: libc::tpacket_stats_v3 = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tpacket_stats_v3>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `statistics`.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut statistics).cast(),
            &raw mut length,
        )
    };
    done(result).map(|()| statistics)
}

/// The index of the interface that a socket is bound to; 0: all, -1: an interface that is gone.
pub(super) fn bound(fd: RawFd) -> io::Result<i32> {
    // SAFETY: all zeros are a valid address.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes of the address.
    let result = unsafe { libc::getsockname(fd, (&raw mut address).cast(), &raw mut length) };
    done(result).map(|()| address.sll_ifindex)
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The memory that the kernel writes packets to.
#[derive(Debug)]
pub(super) struct Map(Mapping);

impl Map {
    pub(super) fn new(socket: BorrowedFd<'_>, length: usize) -> io::Result<Map> {
        Mapping::shared(socket, 0, length).map(Map)
    }

    /// The word at `at`, which must be aligned, shared with the kernel.
    pub(super) fn status(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.0.length());
        // SAFETY: within the mapping and aligned; the kernel accesses it as an atomic word, too.
        unsafe { &*self.0.start().as_ptr().add(at).cast::<AtomicU32>() }
    }

    /// `length` bytes at `at`, of a block that belongs to us until its status is given back.
    pub(super) fn bytes(&self, at: usize, length: usize) -> &[u8] {
        assert!(at + length <= self.0.length());
        // SAFETY: within the mapping. The kernel writes to no block whose status says that it is
        // ours, and the caller gives it back only after its last use of these bytes.
        unsafe { std::slice::from_raw_parts(self.0.start().as_ptr().add(at), length) }
    }
}
