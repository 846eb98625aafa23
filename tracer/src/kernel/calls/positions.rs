//! Calls in flight at the position of an open file: if there are several, their order is not known.

use std::collections::HashMap;

use super::super::sample::FileUse;

/// Open files whose position calls in flight use, by their address.
#[derive(Debug, Default)]
pub(super) struct Positions(HashMap<u64, Users, ahash::RandomState>);

#[derive(Debug, Default)]
struct Users {
    count: u32,
    /// True if more than one at a time used it.
    contested: bool,
}

/// True for files that have a position.
fn has_position(file: &FileUse) -> bool {
    file.at_position && file.mode & libc::S_IFMT == libc::S_IFREG
}

impl Positions {
    /// A call that uses `file` begins.
    pub(super) fn enter(&mut self, file: &FileUse) {
        if has_position(file) {
            let users = self.0.entry(file.file).or_default();
            users.contested |= users.count > 0;
            users.count += 1;
        }
    }

    /// The call returns, or its thread is gone. Returns true if no other call used the position meanwhile.
    pub(super) fn leave(&mut self, file: &FileUse) -> bool {
        if !has_position(file) {
            return true;
        }
        let Some(users) = self.0.get_mut(&file.file) else {
            return false;
        };
        let alone = !users.contested;
        users.count -= 1;
        if users.count == 0 {
            self.0.remove(&file.file);
        }
        alone
    }
}
