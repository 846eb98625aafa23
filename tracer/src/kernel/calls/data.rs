//! Rows of the calls that move data of files: the same that direct I/O through a mount gives.

use std::collections::HashMap;

use flowtrace_schema::{Call, FileId, Op};

use super::super::sample::{FileUse, Returned};
use super::super::syscalls::{Data, Does, Length};
use super::acts;
use super::thread::{InFlight, RESTARTS};
use crate::stat::Inode;

/// preadv2(2) and its kin: at the end of the file, whatever the offset.
const RWF_APPEND: u32 = 0x10;

/// Makes the rows of a call that returned. With its return comes whether no other call used the position of its first
/// file meanwhile, and of its second one.
pub(super) fn rows(
    files: &HashMap<Inode, FileId>,
    row: &Call,
    call: &InFlight,
    (returned, are_alone): (Returned, [bool; 2]),
    emit: &mut impl FnMut(Call),
) {
    let (first, second) = match call.does {
        Does::Data(data) if is_refused(data, call, returned.result) => return,
        Does::Data(data) if data.writes => (Op::Write, Op::Write),
        Does::Data(_) => (Op::Read, Op::Read),
        Does::Moves(moves) => moves.ops,
        Does::Acts(act) => return acts::row(files, row, call, act, returned.result, emit),
        Does::Obscures(_) => return,
    };
    let sides = [(Some(&call.file), first), (call.other.as_ref(), second)];
    for ((used, op), alone) in sides.into_iter().zip(are_alone) {
        if let Some(used) = used
            && let Some(file) = used.file_in(files)
            && is_seen(used, row.result)
        {
            let offset = offset(used, op, returned).filter(|_| alone);
            if offset.is_some_and(|offset| offset > i64::MAX as u64) {
                continue;
            }
            emit(Call {
                op,
                file: Some(file),
                offset,
                length: used.length,
                ..*row
            });
        }
    }
}

/// True if a call reached its file.
fn is_seen(used: &FileUse, result: i64) -> bool {
    let fails_before = [libc::EBADF, libc::EFAULT].map(|errno| -i64::from(errno));
    !(used.length == Some(0) || fails_before.contains(&result) || RESTARTS.contains(&result))
}

/// Where in the file a call began, if that is known.
fn offset(file: &FileUse, op: Op, returned: Returned) -> Option<u64> {
    let writes = matches!(op, Op::Write | Op::CopyTo);
    if !writes || !(file.appends || file.flags & RWF_APPEND != 0) {
        return file.offset;
    }
    let end = returned.position.filter(|_| file.at_position)?;
    end.checked_sub(u64::try_from(returned.result).ok()?)
}

/// True for a call with more pieces than any may have (`UIO_MAXIOV`), which moves nothing.
fn is_refused(data: Data, call: &InFlight, result: i64) -> bool {
    data.length == Length::Vector
        && call.file.length.is_none()
        && result == -i64::from(libc::EINVAL)
}
