//! Names and lines of the places in code that were sampled, found when the run is over.
//!
//! The files are foreign: what they say is checked by the readers of the formats, and bounded in memory and
//! time. A file that has no names gives the address at which the function begins.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use flowtrace_schema::{Loss, Record, Recorder, StackRecord, Symbols};

use super::interned::{Interned, module_number};
use super::modules::{Module, ModuleId, Modules, Source};
use super::unwind::Place;
use found::{Found, Located, base_name};

mod binary;
mod debug_files;
mod dwarf;
mod found;
mod kernel;
mod names;
mod perf_map;

/// Time for reading debug information; what is left then has names without lines.
const TIME: Duration = Duration::from_secs(20);

/// Records the functions of all frames.
pub(super) fn record(modules: &Modules, interned: &Interned, recorder: &Recorder) {
    let places = interned.places();
    let until = Instant::now() + TIME;
    let mut functions = Functions {
        recorder,
        known: HashMap::new(),
    };
    let mut partial = 0;
    for group in places.chunk_by(|(a, _), (b, _)| a.module == b.module) {
        let Some((Place { module: id, .. }, _)) = group.first().copied() else {
            continue;
        };
        let Some(module) = modules.get(id) else {
            continue;
        };
        let addresses: Vec<u64> = group.iter().map(|(place, _)| place.address).collect();
        let find = || find(modules, (id, module), &addresses, until);
        // The readers of these formats do not panic as far as anybody knows; a run must not depend on that.
        let found = catch_unwind(AssertUnwindSafe(find)).unwrap_or_else(|_| Found {
            symbols: Symbols::Unreadable,
            functions: nameless(module, &addresses),
            is_partial: false,
        });
        partial += u64::from(found.is_partial);
        recorder.record(Record::Stack(Box::new(StackRecord::ModuleSymbols {
            module: module_number(id),
            symbols: found.symbols,
        })));
        for ((_, frame), located) in group.iter().zip(found.functions) {
            for (depth, located) in located.into_iter().enumerate() {
                functions.record(id, *frame, depth as u32, located);
            }
        }
    }
    recorder.lost(Loss::SymbolsLeftOut, partial);
}

fn find(
    modules: &Modules,
    (id, module): (ModuleId, &Module),
    addresses: &[u64],
    until: Instant,
) -> Found {
    match &module.source {
        Source::Kernel => kernel::find(addresses),
        Source::Memory { pid } => perf_map::find(*pid, addresses),
        Source::Vdso => binary::of_vdso(addresses),
        Source::File { .. } => match modules.reopened(id) {
            Some(file) => binary::of_file(&file, &module.path, addresses, until),
            None => Found {
                symbols: Symbols::Unreadable,
                functions: nameless(module, addresses),
                is_partial: false,
            },
        },
    }
}

/// One function for all of a module.
fn nameless(module: &Module, addresses: &[u64]) -> Vec<Vec<Located>> {
    let name = format!("[{}]", base_name(&module.path));
    addresses
        .iter()
        .map(|_| vec![Located::named(name.clone())])
        .collect()
}

/// The functions that were recorded.
struct Functions<'a> {
    recorder: &'a Recorder,
    known: HashMap<(ModuleId, String, Option<String>), u32>,
}

impl Functions<'_> {
    fn record(&mut self, module: ModuleId, frame: u32, depth: u32, located: Located) {
        let Located { name, file, line } = located;
        let next = self.known.len() as u32 + 1;
        let key = (module, name, file);
        let id = match self.known.get(&key) {
            Some(&id) => id,
            None => {
                self.send(StackRecord::Function {
                    id: next,
                    module: module_number(module),
                    name: key.1.clone(),
                    file: key.2.clone(),
                });
                self.known.insert(key, next);
                next
            }
        };
        self.send(StackRecord::Location {
            frame,
            depth,
            function: id,
            line,
        });
    }

    fn send(&self, record: StackRecord) {
        self.recorder.record(Record::Stack(Box::new(record)));
    }
}

/// Any bytes as the files that name functions.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(bytes: &[u8]) {
    kernel::fuzz(bytes);
    perf_map::fuzz(bytes);
    names::fuzz(bytes);
    binary::fuzz(bytes);
}
