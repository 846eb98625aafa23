//! Loops, as the kernel takes them when it checks a program.

use super::format::{MEMORY, Maps, STEP};
use super::memory::{OUTER, WORD};
use crate::bpf::code::{Code, IF_LESS, JUMP_LATE, LOAD_64, STACK, STORE_64};

/// A loop that has begun.
#[derive(Clone, Copy)]
pub(super) struct Loop {
    next: usize,
    late: Option<usize>,
}

impl Code {
    /// Begins a loop that may have others in it: its step is [`STEP`] at first, and [`OUTER`] up to its end.
    pub(super) fn begin_outer(&mut self, maps: &Maps<'_>) -> Loop {
        let begun = self.begin_loop(maps);
        self.put(STORE_64, STACK, STEP, OUTER, 0);
        begun
    }

    /// Goes on with such a loop.
    pub(super) fn end_outer(&mut self, of: Loop, steps: i32) {
        self.put(LOAD_64, STEP, STACK, OUTER, 0);
        self.end_loop(of, steps);
    }

    /// Begins a loop, whose [`STEP`] is 0 at first. Where loops need no bound, the kernel is not to know that when it checks the program: it
    /// would follow each step by itself.
    pub(super) fn begin_loop(&mut self, maps: &Maps<'_>) -> Loop {
        self.set(STEP, 0);
        if maps.endless {
            self.put(STORE_64, MEMORY, STEP, WORD, 0);
            self.put(LOAD_64, STEP, MEMORY, WORD, 0);
        }
        let next = self.all.len();
        let late = maps.endless.then(|| self.jump(JUMP_LATE, 0, 0, 0));
        Loop { next, late }
    }

    /// Goes on with the loop, which ends here after so many steps.
    pub(super) fn end_loop(&mut self, of: Loop, steps: i32) {
        self.add(STEP, 1);
        if of.late.is_some() {
            self.put(STORE_64, MEMORY, STEP, WORD, 0);
            self.put(LOAD_64, STEP, MEMORY, WORD, 0);
        }
        self.jump_back(IF_LESS, STEP, steps, of.next);
        if let Some(late) = of.late {
            self.land(late);
        }
    }
}
