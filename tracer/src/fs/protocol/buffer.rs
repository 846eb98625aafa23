//! Memory of the messages of one thread.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::abi::{InHeader, OutHeader, WriteIn};

/// Bytes of a page.
pub(super) const PAGE: usize = 4096;
/// More than any message without file data: the value of an extended attribute has up to 64 KiB.
const SMALLEST: usize = 128 << 10;
/// Offset at which a request is received. The data of a WRITE then begin on a page, which a file that is open
/// with `O_DIRECT` requires.
const RECEIVE: usize = PAGE - size_of::<InHeader>() - size_of::<WriteIn>();
/// Offset of a reply, so that its body begins on a page.
const SEND: usize = PAGE - size_of::<OutHeader>();

#[repr(C, align(4096))]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(super) struct Page([u8; PAGE]);

/// One page and as many more as `bytes` need, all zero.
pub(super) fn pages(bytes: usize) -> Box<[Page]> {
    let count = bytes.div_ceil(PAGE) + 1;
    // The system zeroes the memory, so no page is touched before it is needed.
    <[Page]>::new_box_zeroed_with_elems(count).unwrap_or_default()
}

/// Memory for one request.
pub(crate) struct Incoming(Box<[Page]>);

impl Incoming {
    /// Memory for requests with at least `data` bytes of data.
    pub(crate) fn new(data: usize) -> Incoming {
        Incoming(pages(data.max(SMALLEST)))
    }

    /// Memory for the next request.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        &mut self.0.as_mut_bytes()[RECEIVE..]
    }

    /// The first `length` bytes of the last request.
    pub(crate) fn message(&self, length: usize) -> &[u8] {
        &self.0.as_bytes()[RECEIVE..][..length]
    }
}

/// Memory for one reply.
pub(crate) struct Outgoing(Box<[Page]>);

impl Outgoing {
    /// Memory for replies of at least `data` bytes.
    pub(crate) fn new(data: usize) -> Outgoing {
        Outgoing(pages(data.max(SMALLEST)))
    }

    /// Largest reply without its header.
    pub(crate) fn capacity(&self) -> usize {
        (self.0.len() - 1) * PAGE
    }

    /// The first `length` bytes of the body, which begins on a page. `length` is at most the capacity.
    pub(crate) fn body(&mut self, length: usize) -> &mut [u8] {
        &mut self.0.as_mut_bytes()[PAGE..][..length]
    }

    /// The whole reply, with `length` bytes after the header.
    pub(crate) fn message(&mut self, unique: u64, error: i32, length: usize) -> &[u8] {
        let size = size_of::<OutHeader>() + length;
        let header = OutHeader {
            len: size as u32,
            error,
            unique,
        };
        let message = &mut self.0.as_mut_bytes()[SEND..][..size];
        message[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_lie_on_pages() {
        let mut incoming = Incoming::new(1 << 20);
        let space = incoming.space();
        let data = size_of::<InHeader>() + size_of::<WriteIn>();
        assert_eq!(space[data..].as_ptr() as usize % PAGE, 0);
        assert!(space.len() >= (1 << 20) + data);
        let mut outgoing = Outgoing::new(1 << 20);
        assert_eq!(outgoing.body(1).as_ptr() as usize % PAGE, 0);
        assert_eq!(outgoing.capacity(), 1 << 20);
        let message = outgoing.message(7, -2, 3);
        assert_eq!(message.len(), 19);
        let header = OutHeader::read_from_prefix(message).unwrap().0;
        assert_eq!((header.len, header.error, header.unique), (19, -2, 7));
    }
}
