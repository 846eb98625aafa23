//! What a thread has used so far, and the clocks by which that is counted.

use super::format::{
    CLOCK, CLOCK_FLAGS, CONTEXT, COSTS, FORMER, LEFT, MEMORY, Maps, PEAK, PROCESSOR_AT, TASK,
    TASK_CLOCK,
};
use super::layout::Layout;
use super::memory::{HALTED_THREAD, OTHER, WORD, field};
use super::program::Whom;
use crate::bpf::code::{Code, IF_EQUAL, IF_SAME, LOAD_64, PROCESSOR, R0, R1, R2, R3, STORE_64};

impl Code {
    /// Tells of a thread that goes on later what it has used so far, if that is [`HALTED_THREAD`], and leaves.
    pub(super) fn has_left(&mut self, layout: &Layout, maps: &Maps<'_>) {
        self.scratch(maps);
        self.put(LOAD_64, R1, MEMORY, HALTED_THREAD, 0);
        self.leave_if(IF_EQUAL, R1, 0);
        self.load(TASK, CONTEXT, 8);
        self.clear(WORD);
        self.read(WORD, 4, TASK, layout.tid);
        self.put(LOAD_64, R1, MEMORY, WORD, 0);
        self.put(LOAD_64, R2, MEMORY, HALTED_THREAD, 0);
        let it_is = self.jump(IF_SAME, R1, R2, 0);
        self.leave();
        self.land(it_is);
        self.clear(HALTED_THREAD);
        self.begin(maps, Whom::Alive);
        self.costs(layout);
        self.header(LEFT);
        self.emit(maps, FORMER);
        self.leave();
    }

    /// What the task used so far.
    pub(super) fn costs(&mut self, layout: &Layout) {
        for (index, place) in layout.costs.iter().enumerate() {
            let to = field(COSTS + 8 * index);
            match place {
                Some(place) => self.read(to, 8, TASK, *place),
                None => self.clear(to),
            }
        }
        self.follow(TASK, layout.signal);
        self.read(field(PEAK), 8, R3, layout.peak_memory);
        self.call(PROCESSOR);
        self.put(STORE_64, MEMORY, R0, field(PROCESSOR_AT), 0);
        for place in [CLOCK, TASK_CLOCK, CLOCK_FLAGS] {
            self.clear(field(place));
        }
        if let Some(queue) = layout.queue {
            self.follow(TASK, queue.of_task);
            self.follow(R3, queue.of_group);
            self.put(STORE_64, MEMORY, R3, OTHER, 0);
            for (place, bytes, offset) in [
                (CLOCK, 8, queue.clock),
                (TASK_CLOCK, 8, queue.task_clock),
                (CLOCK_FLAGS, 4, queue.flags),
            ] {
                self.put(LOAD_64, R3, MEMORY, OTHER, 0);
                self.read(field(place), bytes, R3, offset);
            }
        }
    }
}
