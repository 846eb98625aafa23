//! Conversions between the protocol's structures and ours.

use std::time::Duration;

use zerocopy::FromZeros;

use crate::fs::passthrough::{Changes, SetTime};
use crate::fs::protocol::abi::{self, fattr};
use crate::stat::{Attributes, Time};

/// Node ids are never reused, so there is one generation.
const GENERATION: u64 = 0;

/// Attributes of an inode that is shown under `number`.
fn attr(number: u64, a: &Attributes) -> abi::Attr {
    abi::Attr {
        ino: number,
        size: a.size,
        blocks: a.blocks,
        atime: a.accessed.seconds,
        mtime: a.modified.seconds,
        ctime: a.changed.seconds,
        atimensec: a.accessed.nanoseconds,
        mtimensec: a.modified.nanoseconds,
        ctimensec: a.changed.nanoseconds,
        mode: a.mode,
        nlink: a.links,
        uid: a.uid,
        gid: a.gid,
        rdev: encode_device(a.device),
        blksize: a.block_size,
        flags: 0,
    }
}

/// A node with its attributes, and the time for which the kernel may use its name and attributes.
pub(super) fn entry_out(
    node: u64,
    number: u64,
    a: &Attributes,
    name_ttl: Duration,
    ttl: Duration,
) -> abi::EntryOut {
    abi::EntryOut {
        nodeid: node,
        generation: GENERATION,
        entry_valid: name_ttl.as_secs(),
        attr_valid: ttl.as_secs(),
        entry_valid_nsec: name_ttl.subsec_nanos(),
        attr_valid_nsec: ttl.subsec_nanos(),
        attr: attr(number, a),
    }
}

/// Entry of a listing for `.`, `..` and names that cannot be looked up: no node, so that the
/// kernel takes only the name.
pub(super) fn no_entry() -> abi::EntryOut {
    abi::EntryOut::new_zeroed()
}

/// Says that a name does not exist, and need not be looked up again for the time `ttl`.
pub(super) fn absent(ttl: Duration) -> abi::EntryOut {
    abi::EntryOut {
        entry_valid: ttl.as_secs(),
        entry_valid_nsec: ttl.subsec_nanos(),
        ..FromZeros::new_zeroed()
    }
}

/// Attributes, which the kernel may use for the time `ttl`.
pub(super) fn attr_out(number: u64, a: &Attributes, ttl: Duration) -> abi::AttrOut {
    abi::AttrOut {
        attr_valid: ttl.as_secs(),
        attr_valid_nsec: ttl.subsec_nanos(),
        dummy: 0,
        attr: attr(number, a),
    }
}

/// Attributes with the time of birth.
pub(super) fn statx_out(number: u64, a: &Attributes, ttl: Duration) -> abi::StatxOut {
    let time = |time: Time| abi::StatxTime {
        tv_sec: time.seconds,
        tv_nsec: time.nanoseconds,
        reserved: 0,
    };
    let birth = a.birth.map_or(0, |_| libc::STATX_BTIME);
    abi::StatxOut {
        attr_valid: ttl.as_secs(),
        attr_valid_nsec: ttl.subsec_nanos(),
        mask: libc::STATX_BASIC_STATS | birth,
        blksize: a.block_size,
        nlink: a.links,
        uid: a.uid,
        gid: a.gid,
        mode: a.mode as u16,
        ino: number,
        size: a.size,
        blocks: a.blocks,
        atime: time(a.accessed),
        btime: time(a.birth.unwrap_or_default()),
        ctime: time(a.changed),
        mtime: time(a.modified),
        rdev_major: a.device.0,
        rdev_minor: a.device.1,
        ..FromZeros::new_zeroed()
    }
}

/// Attributes that SETATTR changes.
pub(super) fn changes(set: &abi::SetattrIn) -> Changes {
    let has = |flag: u32| set.valid & flag != 0;
    let time = |seconds, nanoseconds, flag, now| {
        has(flag).then(|| {
            if has(now) {
                SetTime::Now
            } else {
                SetTime::To(Time {
                    seconds,
                    nanoseconds,
                })
            }
        })
    };
    Changes {
        mode: has(fattr::MODE).then_some(set.mode),
        uid: has(fattr::UID).then_some(set.uid),
        gid: has(fattr::GID).then_some(set.gid),
        size: has(fattr::SIZE).then_some(set.size),
        accessed: time(set.atime, set.atimensec, fattr::ATIME, fattr::ATIME_NOW),
        modified: time(set.mtime, set.mtimensec, fattr::MTIME, fattr::MTIME_NOW),
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
    }
}
