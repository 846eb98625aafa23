//! Rows of the calls that move data: the same that direct I/O gives.

use std::rc::Rc;

use flowtrace_schema::{Call, Fidelity, Op};

use super::super::open_file::OpenFile;
use super::super::syscalls::{At, Data, Moves, reported_value};
use super::under_way::UnderWay;

/// A call that is to be made once more by itself (`ERESTARTSYS` and its kin of
/// include/linux/errno.h).
pub(super) const RESTARTS: std::ops::RangeInclusive<i64> = -516..=-512;
/// preadv2(2) and its kin: at the end of the file, whatever the offset.
const RWF_APPEND: u64 = 0x10;

/// A read or write returned. Returns how many were left out of the trace.
pub(super) fn transferred(
    row: Call,
    call: &UnderWay,
    data: Data,
    emit: &mut impl FnMut(Call),
) -> u64 {
    let Some(open) = &call.open else {
        return 0;
    };
    let appends = data.writes
        && (open.appends.get()
            || data
                .flags
                .is_some_and(|at| call.arguments[at] & RWF_APPEND != 0));
    let offset = if call.at_position(data.at) {
        at_position(open, row.result, appends)
    } else {
        match data.at {
            At::Argument(at) | At::ArgumentOrPosition(at) if !appends => Some(call.arguments[at]),
            _ => None,
        }
    };
    if data.is_refused(&call.arguments) {
        return 0;
    }
    let length = data.length(&call.arguments);
    let op = if data.writes { Op::Write } else { Op::Read };
    put(row, open, op, offset, length, emit)
}

/// Data moved from one descriptor to another; `by_fuse`: FUSE did it, which records it.
pub(super) fn moved(
    row: Call,
    call: &UnderWay,
    moves: Moves,
    by_fuse: bool,
    emit: &mut impl FnMut(Call),
) -> u64 {
    let length = Some(call.arguments[moves.length]);
    let mut side = |open: &Option<Rc<OpenFile>>, offset: Option<usize>, op| -> u64 {
        let Some(open) = open else {
            return 0;
        };
        let appends = op == moves.ops.1 && open.appends.get();
        let offset = match offset {
            Some(at) if call.arguments[at] != 0 => {
                reported_value(call.arguments[at]).filter(|_| !appends)
            }
            _ => at_position(open, row.result, appends),
        };
        match by_fuse {
            true => 0,
            false => put(row, open, op, offset, length, emit),
        }
    };
    let (reads, writes) = moves.ops;
    side(&call.open, moves.from_offset, reads) + side(&call.to, moves.to_offset, writes)
}

/// Where a call that used the position of `open` began, if that is known.
fn at_position(open: &OpenFile, result: i64, appends: bool) -> Option<u64> {
    let alone = open.leave();
    if appends && result > 0 {
        open.position.set(None);
    }
    let offset = open.advance(result.max(0).cast_unsigned());
    offset.filter(|_| alone)
}

fn put(
    row: Call,
    open: &OpenFile,
    op: Op,
    offset: Option<u64>,
    length: Option<u64>,
    emit: &mut impl FnMut(Call),
) -> u64 {
    // What never reaches a file system is nobody's row.
    let fails_before = [libc::EBADF, libc::EFAULT].map(|errno| -i64::from(errno));
    let negative = offset.is_some_and(|offset| offset > i64::MAX as u64);
    if open.by_fuse
        || length == Some(0)
        || negative
        || fails_before.contains(&row.result)
        || RESTARTS.contains(&row.result)
    {
        return 0;
    }
    if open.file.is_none() {
        return 1;
    }
    let fidelity = match open.lossy.get() {
        true => Fidelity::Lossy,
        false => row.fidelity,
    };
    let row = Call {
        op,
        fidelity,
        file: open.file,
        offset,
        length,
        ..row
    };
    match &mut *open.waiting.borrow_mut() {
        Some(waiting) => waiting.push(row),
        None => emit(row),
    }
    0
}
