//! The calls by which a process gets descriptors, names and channels: reported when they have returned.

use super::format::NUMBERS;
use crate::proc::topology::{CallKind, IN_PAGE, own_opens};

/// Forms of reports of calls (`enum call_shape` of tracer/bpf/called.bpf.h); 0: the call is not reported.
const RETURNED: u8 = 1;
const GIVEN: u8 = 2;
const PAIR: u8 = 3;
const PAIR_LAST: u8 = 4;
const NAMED: u8 = 5;
const NAMED_AT: u8 = 6;
const NAMED_SECOND: u8 = 7;
const RENAMED: u8 = 8;
const RENAMED_AT: u8 = 9;
const MOVED_TO: u8 = 10;
const ALONE: u8 = 11;
const SENT: u8 = 12;
const SENT_MESSAGE: u8 = 13;
const RECEIVED: u8 = 14;
const SEVERAL_RECEIVED: u8 = 15;
const WROTE: u8 = 16;

/// The form of the report for each number of a call, with those of 32-bit programs after the others.
pub(super) fn shapes() -> [u8; 2 * NUMBERS] {
    let mut shapes = [0; 2 * NUMBERS];
    for (number, shape) in shapes.iter_mut().enumerate() {
        *shape = kind_of(number).map_or(0, shape_of);
    }
    // Only writes into a pipe that the caller can read are reported.
    shapes[libc::SYS_write as usize] = WROTE;
    shapes
}

/// For each offset of an instruction in its page: not 0 if opens from there are the C library's own.
pub(super) fn library_opens() -> [u8; IN_PAGE as usize + 1] {
    let mut opens = [0; IN_PAGE as usize + 1];
    for place in own_opens() {
        opens[place as usize] = 1;
    }
    opens
}

/// The call that is reported with this number.
pub(super) fn kind_of(number: usize) -> Option<CallKind> {
    CallKind::numbered((number % NUMBERS) as u32, number >= NUMBERS)
}

fn shape_of(kind: CallKind) -> u8 {
    match kind {
        CallKind::Open
        | CallKind::OpenAt
        | CallKind::OpenAt2
        | CallKind::Creat
        | CallKind::Accept
        | CallKind::Socket => RETURNED,
        CallKind::Bind | CallKind::Connect => GIVEN,
        CallKind::Pipe => PAIR,
        CallKind::SocketPair => PAIR_LAST,
        CallKind::Unlink => NAMED,
        CallKind::UnlinkAt => NAMED_AT,
        CallKind::Rename | CallKind::Link => RENAMED,
        CallKind::RenameAt | CallKind::LinkAt => RENAMED_AT,
        CallKind::Mount => NAMED_SECOND,
        CallKind::MoveMount => MOVED_TO,
        CallKind::Splice | CallKind::ChangeView | CallKind::AsyncIo | CallKind::Ring => ALONE,
        CallKind::SendTo => SENT,
        CallKind::SendMessage => SENT_MESSAGE,
        CallKind::ReceiveMessage => RECEIVED,
        CallKind::ReceiveMessages => SEVERAL_RECEIVED,
        // Reported with each exec.
        CallKind::Umask => 0,
    }
}
