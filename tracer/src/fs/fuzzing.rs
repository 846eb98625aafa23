//! The part of [`crate::fuzzing`] for files.

use super::credentials::groups_in;
use super::sys::directory::first;

/// Directory entries as `getdents64` writes them.
pub fn directory_entries(bytes: &[u8]) {
    let mut rest = bytes;
    // Each entry takes some bytes; otherwise the loop over them would not end.
    while let Some(entry) = first(rest) {
        assert!((20..=rest.len()).contains(&entry.length));
        assert!(entry.name.to_bytes().len() < entry.length - 19);
        rest = &rest[entry.length..];
    }
}

/// The groups in a thread's status.
pub fn groups(bytes: &[u8]) {
    if let Some(groups) = groups_in(bytes) {
        assert!(groups.len() <= bytes.len());
    }
}
