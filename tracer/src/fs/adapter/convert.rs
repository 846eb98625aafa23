//! Between fuser's types and ours.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flowtrace_schema::FileKind;
use fuser::{FileAttr, FileType, Generation, INodeNo, TimeOrNow};
use nix::errno::Errno;

use crate::fs::attributes::{Attributes, Time};
use crate::fs::log::code;
use crate::fs::passthrough::{Changes, SetTime};

/// Node ids are not reused while the kernel knows them, so there is one generation.
pub(super) const GENERATION: Generation = Generation(0);

pub(super) fn errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(code(errno))
}

pub(super) fn file_attr(ino: u64, a: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: a.size,
        blocks: a.blocks,
        atime: system_time(a.accessed),
        mtime: system_time(a.modified),
        ctime: system_time(a.changed),
        crtime: UNIX_EPOCH,
        kind: file_type(a.kind()),
        perm: (a.mode & 0o7777) as u16,
        nlink: a.links,
        uid: a.uid,
        gid: a.gid,
        rdev: encode_device(a.device),
        blksize: a.block_size,
        flags: 0,
    }
}

/// What a listing says about `.` and `..`, which the kernel takes no attributes of, and about what
/// cannot be looked up.
pub(super) fn bare_attr(ino: u64, kind: FileKind) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: file_type(kind),
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

pub(super) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File | FileKind::Absent => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::Char => FileType::CharDevice,
        FileKind::Block => FileType::BlockDevice,
    }
}

fn system_time(time: Time) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 {
        UNIX_EPOCH.checked_sub(seconds)
    } else {
        UNIX_EPOCH.checked_add(seconds)
    };
    let fraction = Duration::from_nanos(u64::from(time.nanoseconds));
    whole
        .and_then(|whole| whole.checked_add(fraction))
        .unwrap_or(UNIX_EPOCH)
}

/// A time as `setattr` of fuser 0.18 decodes it: before 1970 it takes the nanoseconds, which
/// always count forward, off the seconds instead of adding them. This undoes it.
fn time_to_set(time: SystemTime) -> Time {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Time {
            seconds: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: after.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            Time {
                seconds: 0i64.saturating_sub_unsigned(before.as_secs()),
                nanoseconds: before.subsec_nanos(),
            }
        }
    }
}

pub(super) fn changes(
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    size: Option<u64>,
    accessed: Option<TimeOrNow>,
    modified: Option<TimeOrNow>,
) -> Changes {
    let set = |time: TimeOrNow| match time {
        TimeOrNow::SpecificTime(time) => SetTime::To(time_to_set(time)),
        TimeOrNow::Now => SetTime::Now,
    };
    Changes {
        mode,
        uid,
        gid,
        size,
        accessed: accessed.map(set),
        modified: modified.map(set),
    }
}

/// Device numbers in the form of the protocol (`new_encode_dev` of the kernel).
fn encode_device((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

pub(super) fn decode_device(device: u32) -> (u32, u32) {
    (
        (device & 0xf_ff00) >> 8,
        (device & 0xff) | ((device >> 12) & 0xf_ff00),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn devices_survive(major in 0u32..4096, minor in 0u32..(1 << 20)) {
            prop_assert_eq!(decode_device(encode_device((major, minor))), (major, minor));
        }

        #[test]
        fn times_are_exact(seconds in -1i64 << 40..1 << 40, nanoseconds in 0u32..1_000_000_000) {
            let time = system_time(Time { seconds, nanoseconds });
            let nanos = |d: Duration| i128::try_from(d.as_nanos()).unwrap();
            let shown = match time.duration_since(UNIX_EPOCH) {
                Ok(after) => nanos(after),
                Err(before) => -nanos(before.duration()),
            };
            prop_assert_eq!(
                shown,
                i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
            );
        }
    }

    #[test]
    fn extreme_times_do_not_panic() {
        for seconds in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX] {
            let nanoseconds = 999_999_999;
            let _ = system_time(Time {
                seconds,
                nanoseconds,
            });
        }
    }

    /// The way in is the inverse of what fuser does, so this copies what fuser does.
    #[test]
    fn times_before_1970_are_decoded() {
        let decoded_by_fuser = UNIX_EPOCH - Duration::new(2, 800_000_000);
        let time = Time {
            seconds: -2,
            nanoseconds: 800_000_000,
        };
        assert_eq!(time_to_set(decoded_by_fuser), time);
    }
}
