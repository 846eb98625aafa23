//! Maps whose keys are ids of threads, processes and files, looked up several times for each call.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Values by such an id.
pub(super) type ById<T> = HashMap<u32, T, BuildHasherDefault<Product>>;

/// Hashes by one multiplication: the kernel or flowtrace chooses the ids, so that no program can choose many that
/// collide.
#[derive(Debug, Default)]
pub(super) struct Product(u64);

/// 2^64 divided by the golden ratio, which spreads consecutive numbers.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for Product {
    fn finish(&self) -> u64 {
        // A map takes the bucket from the low bits and distinguishes keys by the high ones.
        self.0.rotate_left(32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(byte.into());
        }
    }

    fn write_u32(&mut self, id: u32) {
        self.0 = (self.0 ^ u64::from(id)).wrapping_mul(FACTOR);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_that_follow_each_other_are_spread() {
        let hash = |id: u32| {
            let mut product = Product::default();
            product.write_u32(id);
            product.finish()
        };
        let low: HashSet<u64> = (0..1 << 10).map(|id| hash(id) & 0x3ff).collect();
        assert!(low.len() > 500, "{}", low.len());
        let high: HashSet<u64> = (0..1 << 10).map(|id| hash(id) >> 57).collect();
        assert_eq!(high.len(), 128);
    }
}
