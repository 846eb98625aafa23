//! The calls by which a process gets descriptors, names and channels, and those on names of files: reported when
//! they have returned.

use std::sync::LazyLock;

use super::format::{NUMBERS, REPORT};
use crate::file_calls::{ByName, by_names};
use crate::proc::sampler::calls::Abi;
use crate::proc::topology::{CallKind, IN_PAGE, own_opens};

/// Forms of reports of calls (`enum call_shape` of tracer/bpf/called.bpf.h); 0: the call is not reported.
const RETURNED: u8 = 1;
const GIVEN: u8 = 2;
const PAIR: u8 = 3;
const PAIR_LAST: u8 = 4;
const NAMED: u8 = 5;
const ALONE: u8 = 6;
const SENT: u8 = 7;
const SENT_MESSAGE: u8 = 8;
const RECEIVED: u8 = 9;
const SEVERAL_RECEIVED: u8 = 10;
const WROTE: u8 = 11;

/// Bits of a report: of calls that fail, too; with a `struct statx`; not of files of the machine; dropped first.
const WITH_FAILURES: u8 = 1;
const AS_STATX: u8 = 2;
const OF_THE_RUN: u8 = 4;
const FINDS: u8 = 8;

/// There is no such argument.
const NONE: u8 = 7;

/// The report of a call (`struct call_report` of tracer/bpf/called.bpf.h).
#[derive(Clone, Copy)]
struct Report {
    how: u8,
    shape: u8,
    names: [(u8, u8); 2],
    attributes: u8,
    empty_name: u8,
}

impl Report {
    const fn of(shape: u8) -> Report {
        Report {
            how: 0,
            shape,
            names: [(NONE, NONE); 2],
            attributes: NONE,
            empty_name: NONE,
        }
    }

    const fn of_name(name: u8, directory: u8) -> Report {
        Report {
            names: [(name, directory), (NONE, NONE)],
            ..Report::of(NAMED)
        }
    }

    fn bytes(self) -> [u8; REPORT] {
        let [(name, directory), (other_name, other_directory)] = self.names;
        let Report { how, shape, .. } = self;
        let (attributes, flags) = (self.attributes, self.empty_name);
        [
            how,
            shape,
            name,
            directory,
            other_name,
            other_directory,
            attributes,
            flags,
        ]
    }
}

/// The report for each number of a call, with those of 32-bit programs after the others. `with_all`: of all calls on
/// names, also of those that change none.
pub(super) fn reports(with_all: bool) -> Vec<u8> {
    let report = |number| report_of(number, with_all).map_or([0; REPORT], Report::bytes);
    (0..2 * NUMBERS).flat_map(report).collect()
}

/// The first bytes of paths of the machine, and which bits of them count, for the programs.
pub(super) fn system_names() -> Vec<u8> {
    let names =
        flowtrace_schema::system_directories().filter(|name| name.len() <= size_of::<u64>());
    let words = names.flat_map(|name| {
        let (mut bytes, mut mask) = ([0; 8], [0; 8]);
        bytes[..name.len()].copy_from_slice(name);
        mask[..name.len()].fill(0xff);
        bytes.into_iter().chain(mask)
    });
    words.collect()
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
    let picked = CallKind::numbered((number % NUMBERS) as u32, number >= NUMBERS);
    picked.or_else(|| on_name(number).map(|_| CallKind::OnName))
}

/// The call on names with this number.
pub(crate) fn on_name(number: usize) -> Option<&'static ByName> {
    static ALL: LazyLock<Vec<Option<&'static ByName>>> = LazyLock::new(|| {
        let of = |number| {
            let (abi, number) = Abi::of_recorded(number);
            let native = abi.native(number)?;
            by_names().find(|call| call.number == native)
        };
        (0..2 * NUMBERS).map(of).collect()
    });
    *ALL.get(number)?
}

fn report_of(number: usize, with_all: bool) -> Option<Report> {
    if number == libc::SYS_write as usize {
        // Only writes into a pipe that the caller can read are reported.
        return Some(Report::of(WROTE));
    }
    let kind = kind_of(number)?;
    let report = report_of_kind(kind)?;
    let changes_nothing = kind == CallKind::OnName;
    let Some(call) = on_name(number) else {
        return Some(report);
    };
    if !with_all {
        // An open is known by the file that it gave.
        let names = if kind.opens() {
            report.names
        } else {
            call.names
        };
        return (!changes_nothing).then_some(Report { names, ..report });
    }
    let mut how = WITH_FAILURES;
    if call.is_statx {
        how |= AS_STATX;
    }
    if changes_nothing {
        how |= OF_THE_RUN | FINDS;
    }
    Some(Report {
        how,
        names: call.names,
        attributes: call.attributes,
        empty_name: call.empty_name,
        ..report
    })
}

/// The report of a call without the names that [`ByName`] has.
fn report_of_kind(kind: CallKind) -> Option<Report> {
    Some(match kind {
        CallKind::Open
        | CallKind::OpenAt
        | CallKind::OpenAt2
        | CallKind::Creat
        | CallKind::Accept
        | CallKind::Socket => Report::of(RETURNED),
        CallKind::Bind | CallKind::Connect => Report::of(GIVEN),
        CallKind::Pipe => Report::of(PAIR),
        CallKind::SocketPair => Report::of(PAIR_LAST),
        CallKind::Unlink
        | CallKind::UnlinkAt
        | CallKind::Rename
        | CallKind::RenameAt
        | CallKind::Link
        | CallKind::LinkAt
        | CallKind::OnName => Report::of(NAMED),
        CallKind::Mount => Report::of_name(1, NONE),
        CallKind::MoveMount => Report::of_name(3, 2),
        CallKind::Splice | CallKind::ChangeView | CallKind::AsyncIo | CallKind::Ring => {
            Report::of(ALONE)
        }
        CallKind::SendTo => Report::of(SENT),
        CallKind::SendMessage => Report::of(SENT_MESSAGE),
        CallKind::ReceiveMessage => Report::of(RECEIVED),
        CallKind::ReceiveMessages => Report::of(SEVERAL_RECEIVED),
        // Reported with each exec.
        CallKind::Umask => return None,
    })
}
