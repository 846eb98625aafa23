//! Names that one file had at different times, which count as the same.

use std::collections::HashMap;
use std::hash::Hash;

/// Names, each of which leads to another one of its file, or is the last.
pub(crate) struct Names<K>(HashMap<K, K>);

impl<K> Default for Names<K> {
    fn default() -> Names<K> {
        Names(HashMap::new())
    }
}

impl<K: Clone + Eq + Hash> Names<K> {
    /// Both are names of one file.
    pub(crate) fn join(&mut self, one: &K, other: &K) {
        let (one, other) = (self.find(one).clone(), self.find(other).clone());
        if one != other {
            self.0.insert(one, other);
        }
    }

    /// The name that stands for all of the file.
    pub(crate) fn find<'a>(&'a self, mut name: &'a K) -> &'a K {
        while let Some(next) = self.0.get(name) {
            name = next;
        }
        name
    }
}
