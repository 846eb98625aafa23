//! Rows of the calls on descriptors that move no data.

use std::collections::HashMap;

use flowtrace_schema::{Call, FileId, Op};

use super::thread::{InFlight, RESTARTS};
use crate::file_calls::{ByDescriptor, How, result_of};
use crate::stat::Inode;

/// Makes the row of such a call.
pub(super) fn row(
    files: &HashMap<Inode, FileId>,
    row: &Call,
    call: &InFlight,
    act: &ByDescriptor,
    result: i64,
    emit: &mut impl FnMut(Call),
) {
    let used = &call.file;
    let Some(file) = used.file_in(files) else {
        return;
    };
    if RESTARTS.contains(&result) {
        return;
    }
    let is_directory = used.mode & libc::S_IFMT == libc::S_IFDIR;
    let (flags, more_flags) = (used.flags & 0xffff, used.flags >> 16);
    let op = match (act.op, is_directory) {
        (Op::Flush, true) => Op::Releasedir,
        (Op::Fsync, true) => Op::Fsyncdir,
        (Op::Setlk, _) if is_test(more_flags) => Op::Getlk,
        (op, _) => op,
    };
    let flags = match op {
        Op::Getattr | Op::Flush => None,
        Op::Fsync | Op::Fsyncdir => Some(u32::from(act.number == libc::SYS_fdatasync)),
        Op::Flock => Some(lock_of(flags)),
        Op::Setlk | Op::Getlk => Some(flags),
        Op::Lseek => Some(more_flags),
        Op::Chmod => Some(flags & 0o7777),
        _ if act.has_flags() => Some(used.flags),
        _ => None,
    };
    let length = used.length.filter(|_| act.has_length());
    emit(Call {
        op,
        file: Some(file),
        offset: used.offset.filter(|offset| *offset <= i64::MAX as u64),
        length,
        flags,
        result: match op {
            // The address of the mapping says nothing.
            Op::Mmap => result.min(0),
            _ if act.how == How::Lock => result.min(0),
            _ => result_of(op, length, result),
        },
        ..*row
    });
}

/// True for the commands of fcntl(2) that ask for a lock without taking it.
fn is_test(command: u32) -> bool {
    [libc::F_GETLK, libc::F_OFD_GETLK].contains(&command.cast_signed())
}

/// The lock that flock(2) takes, in the numbers of fcntl(2).
fn lock_of(operation: u32) -> u32 {
    let lock = match operation.cast_signed() & !libc::LOCK_NB {
        libc::LOCK_SH => libc::F_RDLCK,
        libc::LOCK_EX => libc::F_WRLCK,
        _ => libc::F_UNLCK,
    };
    lock as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_have_the_numbers_of_fcntl() {
        assert_eq!(
            lock_of((libc::LOCK_EX | libc::LOCK_NB) as u32),
            libc::F_WRLCK as u32
        );
        assert_eq!(lock_of(libc::LOCK_UN as u32), libc::F_UNLCK as u32);
        assert!(is_test(libc::F_GETLK as u32) && !is_test(libc::F_SETLKW as u32));
    }
}
