//! What the process tracer knows of the processes behind the addresses.

use std::sync::Arc;

use super::{Node, Run};

/// Where the time of one node's processes went, from the kernel's totals, over their whole lives.
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
    /// Time in which the processes waited for nobody, s: at work, or kept from it by their machine.
    pub fn busy_s(&self) -> f64 {
        self.on_cpu_s + self.run_queue_s + self.storage_s
    }

    /// Together with those of another process of the same node.
    pub fn and(self, other: Books) -> Books {
        Books {
            on_cpu_s: self.on_cpu_s + other.on_cpu_s,
            run_queue_s: self.run_queue_s + other.run_queue_s,
            storage_s: self.storage_s + other.storage_s,
        }
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
