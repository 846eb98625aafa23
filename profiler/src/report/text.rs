//! Texts that many processes share, each stored once.

use std::collections::HashMap;
use std::sync::Arc;

use flowtrace_render::units::{plain, shorten};

/// A table of texts, safe to show, in the order in which they were first asked for.
#[derive(Debug, Default)]
pub(super) struct Texts {
    texts: Vec<String>,
    places: HashMap<Arc<str>, usize>,
    longest: usize,
    cut: usize,
}

impl Texts {
    /// A table for this number of processes: the more there are, the shorter each command is cut.
    pub(super) fn new(processes: usize) -> Texts {
        Texts {
            longest: match processes {
                0..=2_000 => 2_000,
                2_001..=20_000 => 300,
                _ => 120,
            },
            ..Texts::default()
        }
    }

    /// The place of a text in the table.
    pub(super) fn place(&mut self, text: &Arc<str>) -> usize {
        if let Some(&place) = self.places.get(text) {
            return place;
        }
        let place = self.texts.len();
        let shown = plain(text);
        self.cut += usize::from(shown.chars().count() > self.longest);
        self.texts.push(shorten(&shown, self.longest));
        self.places.insert(Arc::clone(text), place);
        place
    }

    /// The table.
    pub(super) fn into_texts(self) -> Vec<String> {
        self.texts
    }

    /// Number of texts that were shortened.
    pub(super) fn cut(&self) -> usize {
        self.cut
    }
}
