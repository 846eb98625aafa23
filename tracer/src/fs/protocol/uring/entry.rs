//! Memory that is lent to the kernel for one message.
//!
//! The kernel splits a request: it writes the header and the first argument to the beginning of the memory,
//! and the rest, which it calls the payload, elsewhere. The payload begins on a page, because files that are
//! open with `O_DIRECT` need that. The header and the argument are moved right before it, so that a request
//! is parsed like one that was read from the device.

use std::ops::Range;
use std::ptr::NonNull;

use zerocopy::{FromBytes, IntoBytes};

use crate::fs::protocol::abi::{InHeader, OutHeader, RingHeaders};
use crate::fs::protocol::buffer::{PAGE, Page, pages};

/// Offsets of the headers.
const HEADERS: Range<usize> = 0..size_of::<RingHeaders>();
/// Offset of the addresses and lengths of headers and payload, which the kernel reads when it is offered the
/// entry.
const PARTS: usize = HEADERS.end.next_multiple_of(align_of::<libc::iovec>());
/// Smallest offset of the rest of a message.
const REST: usize = PARTS + size_of::<[libc::iovec; 2]>();

/// Memory for one message.
///
/// The kernel writes to it from the time when it is lent until it is given back; after that it belongs to
/// this process alone.
pub(super) struct Entry {
    memory: NonNull<[Page]>,
    is_lent: bool,
    /// Number of the request in it.
    request: Number,
}

/// A request, as the kernel names it in its messages and in its rings.
#[derive(Clone, Copy, Debug, Default)]
struct Number {
    unique: u64,
    commit_id: u64,
}

/// A request that was given back with an entry.
pub(super) struct Received<'a> {
    /// The message in one piece.
    pub(super) message: &'a [u8],
    /// Memory for the answer; `None` if the request is there, so that the answer is made elsewhere.
    pub(super) space: Option<&'a mut [u8]>,
}

impl Entry {
    /// An entry for messages with at least `payload` bytes besides headers.
    pub(super) fn new(payload: usize) -> Entry {
        let memory = NonNull::from(Box::leak(pages(payload)));
        let mut entry = Entry {
            memory,
            is_lent: false,
            request: Number::default(),
        };
        let bytes = entry.bytes();
        let (front, payload) = bytes.split_at_mut(PAGE);
        let parts = [(&mut front[HEADERS]), payload].map(|part| {
            let address = part.as_mut_ptr() as usize;
            [address, part.len()]
        });
        front[PARTS..REST].copy_from_slice(parts.as_bytes());
        entry
    }

    /// Lends the memory to the kernel. The kernel must be informed at once, and gives the memory back with a
    /// completion. Returns the address of two `iovec`, for headers and payload.
    pub(super) fn lend(&mut self) -> u64 {
        let parts = self.bytes()[PARTS..].as_ptr() as u64;
        self.is_lent = true;
        parts
    }

    /// The kernel has given the memory back.
    pub(super) fn given_back(&mut self) {
        self.is_lent = false;
    }

    /// The number by which the answer to the request is committed.
    pub(super) fn commit_id(&self) -> u64 {
        self.request.commit_id
    }

    /// The request that came; `None` if it is malformed.
    pub(super) fn receive(&mut self) -> Option<Received<'_>> {
        let headers = RingHeaders::read_from_bytes(&self.bytes()[HEADERS]).ok()?;
        let header = InHeader::read_from_prefix(&headers.in_out).ok()?.0;
        self.request = Number {
            unique: header.unique,
            commit_id: headers.commit_id,
        };
        let fixed = size_of::<InHeader>();
        let payload = headers.payload_sz as usize;
        let first = (header.len as usize).checked_sub(fixed + payload)?;
        let first = headers.op_in.get(..first)?;
        let begin = PAGE - fixed - first.len();
        let bytes = self.bytes();
        bytes.get(PAGE..PAGE + payload)?;
        bytes[begin..][..fixed].copy_from_slice(&headers.in_out[..fixed]);
        bytes[begin + fixed..PAGE].copy_from_slice(first);
        Some(if payload == 0 {
            let (front, space) = bytes.split_at_mut(PAGE);
            Received {
                message: &front[begin..],
                space: Some(space),
            }
        } else {
            Received {
                message: &bytes[begin..PAGE + payload],
                space: None,
            }
        })
    }

    /// Writes bytes to the place of the answer.
    pub(super) fn fill(&mut self, data: &[u8]) {
        self.bytes()[PAGE..][..data.len()].copy_from_slice(data);
    }

    /// Writes the headers of the answer: 0 or a negative errno, and the length of the body.
    pub(super) fn answer(&mut self, error: i32, length: usize) {
        let header = OutHeader {
            len: (size_of::<OutHeader>() + length) as u32,
            error,
            unique: self.request.unique,
        };
        let mut in_out = [0; 128];
        in_out[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
        let headers = RingHeaders {
            in_out,
            op_in: [0; 128],
            flags: 0,
            commit_id: self.request.commit_id,
            payload_sz: length as u32,
            padding: 0,
            reserved: 0,
        };
        self.bytes()[HEADERS].copy_from_slice(headers.as_bytes());
    }

    #[expect(unsafe_code)]
    fn bytes(&mut self) -> &mut [u8] {
        debug_assert!(!self.is_lent);
        // SAFETY: allocated by `new` and freed by `drop` only; no one else uses it, because it is not lent
        // and this borrows the entry.
        unsafe { self.memory.as_mut() }.as_mut_bytes()
    }
}

// SAFETY: the memory belongs to the entry alone, as that of a box would.
#[expect(unsafe_code)]
unsafe impl Send for Entry {}

impl Drop for Entry {
    #[expect(unsafe_code)]
    fn drop(&mut self) {
        // Memory to which the kernel may still write is never freed.
        if !self.is_lent {
            // SAFETY: from the box that `new` leaked, and not used again.
            drop(unsafe { Box::from_raw(self.memory.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::protocol::abi::{GetxattrIn, ReadIn, WriteIn};
    use crate::fs::protocol::request;
    use proptest::prelude::*;
    use zerocopy::FromZeros;

    /// Writes a request as the kernel does.
    fn put(entry: &mut Entry, len: u32, first: &[u8], payload: &[u8]) {
        let header = InHeader {
            len,
            unique: 6,
            ..FromZeros::new_zeroed()
        };
        let mut headers = RingHeaders {
            commit_id: 7,
            payload_sz: payload.len() as u32,
            ..FromZeros::new_zeroed()
        };
        headers.in_out[..size_of::<InHeader>()].copy_from_slice(header.as_bytes());
        headers.op_in[..first.len()].copy_from_slice(first);
        let bytes = entry.bytes();
        bytes[HEADERS].copy_from_slice(headers.as_bytes());
        bytes[PAGE..][..payload.len()].copy_from_slice(payload);
    }

    fn length(first: &[u8], payload: &[u8]) -> u32 {
        (size_of::<InHeader>() + first.len() + payload.len()) as u32
    }

    #[test]
    fn a_request_is_one_message_with_its_data_on_a_page() {
        let mut entry = Entry::new(1 << 20);
        let first = WriteIn::new_zeroed();
        let data = vec![5; 1 << 20];
        put(
            &mut entry,
            length(first.as_bytes(), &data),
            first.as_bytes(),
            &data,
        );
        let received = entry.receive().unwrap();
        assert!(received.space.is_none());
        let (header, mut body) = request::parse(received.message).unwrap();
        assert_eq!(header.unique, 6);
        body.take::<WriteIn>().unwrap();
        let found = body.bytes(1 << 20).unwrap();
        assert_eq!(found, data);
        assert_eq!(found.as_ptr() as usize % PAGE, 0);
        assert_eq!(entry.commit_id(), 7);
    }

    #[test]
    fn an_answer_has_space_besides_the_request() {
        let mut entry = Entry::new(8192);
        let first = ReadIn::new_zeroed();
        put(
            &mut entry,
            length(first.as_bytes(), &[]),
            first.as_bytes(),
            &[],
        );
        let Received { message, space } = entry.receive().unwrap();
        let space = space.unwrap();
        assert_eq!((space.len(), space.as_ptr() as usize % PAGE), (8192, 0));
        space.fill(9);
        let mut body = request::parse(message).unwrap().1;
        assert_eq!(body.take::<ReadIn>().unwrap().as_bytes(), first.as_bytes());
        entry.answer(-5, 0);
        let headers = RingHeaders::read_from_bytes(&entry.bytes()[HEADERS]).unwrap();
        let out = OutHeader::read_from_prefix(&headers.in_out).unwrap().0;
        assert_eq!((out.len, out.error, out.unique), (16, -5, 6));
        assert_eq!((headers.commit_id, headers.payload_sz), (7, 0));
    }

    #[test]
    fn a_name_follows_its_argument() {
        let mut entry = Entry::new(8192);
        let first = GetxattrIn::new_zeroed();
        put(
            &mut entry,
            length(first.as_bytes(), b"user.a\0"),
            first.as_bytes(),
            b"user.a\0",
        );
        let received = entry.receive().unwrap();
        let mut body = request::parse(received.message).unwrap().1;
        body.take::<GetxattrIn>().unwrap();
        assert_eq!(body.text().unwrap(), "user.a");
        entry.fill(b"value");
        assert_eq!(&entry.bytes()[PAGE..][..5], b"value");
    }

    #[test]
    fn what_is_lent_is_not_freed() {
        let mut entry = Entry::new(1);
        let parts = entry.lend();
        assert_eq!(parts as usize % PAGE, PARTS);
        drop(entry);
        let mut entry = Entry::new(1);
        entry.lend();
        entry.given_back();
        drop(entry);
    }

    proptest! {
        #[test]
        fn any_headers_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), HEADERS.len())) {
            let mut entry = Entry::new(8192);
            entry.bytes()[HEADERS].copy_from_slice(&bytes);
            let _ = entry.receive();
        }

        #[test]
        fn lengths_that_do_not_fit_are_refused(len: u16, first in 0_usize..128, payload in 0_usize..9000) {
            let mut entry = Entry::new(12000);
            let (first, payload) = (vec![1; first], vec![2; payload]);
            put(&mut entry, u32::from(len), &first, &payload);
            if let Some(received) = entry.receive() {
                prop_assert_eq!(received.message.len(), usize::from(len));
            }
        }
    }
}
