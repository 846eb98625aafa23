//! Maps whose keys are already hashes.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

/// Values by a key that is already a hash.
pub(crate) type Hashed<T> = HashMap<u64, T, AsIs>;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AsIs(u64);

impl BuildHasher for AsIs {
    type Hasher = AsIs;

    fn build_hasher(&self) -> AsIs {
        AsIs(0)
    }
}

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
