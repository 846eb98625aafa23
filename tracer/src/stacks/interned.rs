//! Numbers for stacks and their frames: equal ones have one number, and are recorded once.

use std::collections::HashMap;

use flowtrace_schema::{Record, Recorder, StackRecord, Text};

use super::modules::{ModuleId, Modules};
use super::unwind::Place;

/// Numbers of stacks and frames; they count from 1.
pub(super) struct Interned {
    recorder: Recorder,
    frames: HashMap<Option<Place>, u32, ahash::RandomState>,
    stacks: HashMap<(u32, u32), u32, ahash::RandomState>,
    /// Number of modules that were recorded.
    modules: ModuleId,
}

/// Number of a module in the trace, which counts from 1.
pub(super) fn module_number(id: ModuleId) -> u32 {
    id + 1
}

impl Interned {
    pub(super) fn new(recorder: Recorder) -> Interned {
        Interned {
            recorder,
            frames: HashMap::default(),
            stacks: HashMap::default(),
            modules: 0,
        }
    }

    /// The number of a stack, whose frames come innermost first. `complete`: the last one is the outermost.
    pub(super) fn stack(&mut self, modules: &Modules, frames: &[Place], complete: bool) -> u32 {
        self.record_modules(modules);
        let mut caller = 0;
        if !complete {
            let frame = self.frame(None);
            caller = self.called(caller, frame);
        }
        for place in frames.iter().rev() {
            let frame = self.frame(Some(*place));
            caller = self.called(caller, frame);
        }
        caller
    }

    fn called(&mut self, caller: u32, frame: u32) -> u32 {
        let next = self.stacks.len() as u32 + 1;
        let id = *self.stacks.entry((caller, frame)).or_insert(next);
        if id == next {
            self.record(StackRecord::Stack {
                id,
                caller: (caller > 0).then_some(caller),
                frame,
            });
        }
        id
    }

    fn frame(&mut self, place: Option<Place>) -> u32 {
        let next = self.frames.len() as u32 + 1;
        let id = *self.frames.entry(place).or_insert(next);
        if id == next {
            self.record(StackRecord::Frame {
                id,
                module: place.map(|place| module_number(place.module)),
                address: place.map_or(0, |place| place.address),
            });
        }
        id
    }

    fn record_modules(&mut self, modules: &Modules) {
        while let Some(module) = modules.get(self.modules) {
            self.record(StackRecord::Module {
                id: module_number(self.modules),
                path: Text::from(module.path.clone()),
                build_id: module.build_id.clone(),
            });
            self.modules += 1;
        }
    }

    fn record(&self, record: StackRecord) {
        self.recorder.record(Record::Stack(Box::new(record)));
    }

    /// All frames that have a place, with their numbers, by module and address.
    pub(super) fn places(&self) -> Vec<(Place, u32)> {
        let frames = self.frames.iter();
        let mut places: Vec<_> = frames
            .filter_map(|(place, &id)| Some(((*place)?, id)))
            .collect();
        places.sort_unstable_by_key(|(place, id)| (place.module, place.address, *id));
        places
    }
}
