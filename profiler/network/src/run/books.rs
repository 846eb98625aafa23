//! What the process tracer knows of the processes behind the addresses.

use std::sync::Arc;

use super::{Node, Run};

/// Where the time of a node's process went, from the kernel's totals, over its whole life.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Books {
    /// On a processor, s.
    pub on_cpu_s: f64,
    /// Runnable, and waiting for a processor, s.
    pub run_queue_s: f64,
    /// Waiting for storage, s.
    pub storage_s: f64,
}

impl Books {
    /// Time in which the process waited for nobody, s: at work, or kept from it by its machine.
    pub fn busy_s(&self) -> f64 {
        self.on_cpu_s + self.run_queue_s + self.storage_s
    }
}

impl Run {
    /// The same run with what the process tracer knows of each node.
    #[must_use]
    pub fn with_books(self, books: Vec<Option<Books>>) -> Run {
        let mut data = Arc::try_unwrap(self.data).unwrap_or_else(|data| data.copied());
        data.books = books;
        Run {
            data: Arc::new(data),
            ..self
        }
    }

    /// What the process tracer knows of a node, if it saw its processes; of their whole lives, so
    /// nothing for a part of a run.
    pub fn books(&self, node: Node) -> Option<Books> {
        let known = self.data.books.get(usize::from(node)).copied().flatten();
        known.filter(|_| self.is_whole())
    }
}
