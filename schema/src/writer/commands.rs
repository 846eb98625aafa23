//! Command lines. Each distinct one is stored once: a fork has that of its parent, and a loop runs the same
//! few again.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;

use rusqlite::{Connection, Result, params};

use crate::{Text, Upid};

/// Shorter command lines take no more space than a reference to another row.
const SHORT: usize = 32;

/// The first image with each command line, by a hash of the command line.
#[derive(Debug, Default)]
pub(super) struct Commands {
    first: HashMap<u64, Upid>,
    hasher: RandomState,
}

impl Commands {
    /// The image whose row has the command line of `upid`; `None`: the row of `upid` is to have it.
    ///
    /// # Errors
    /// When the trace cannot be read.
    pub(super) fn same(
        &mut self,
        db: &Connection,
        upid: Upid,
        command: &Text,
        argv_raw: Option<&[u8]>,
    ) -> Result<Option<Upid>> {
        if command.as_bytes().len() < SHORT {
            return Ok(None);
        }
        let mut first = match self.first.entry(self.hasher.hash_one(command.as_bytes())) {
            Entry::Occupied(first) => first,
            Entry::Vacant(none) => {
                none.insert(upid);
                return Ok(None);
            }
        };
        // Two texts may have the same hash, and the row of the first may not have been stored.
        let mut same = db.prepare_cached(
            "SELECT 1 FROM process WHERE upid = ?1 AND command = ?2 AND argv_raw IS ?3",
        )?;
        if same.exists(params![first.get().0, command.text(), argv_raw])? {
            return Ok(Some(*first.get()));
        }
        first.insert(upid);
        Ok(None)
    }
}
