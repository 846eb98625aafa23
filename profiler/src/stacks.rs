//! Sampled call stacks: the threads that were on a CPU or waited, and the functions in which they were.

use std::collections::HashMap;
use std::sync::Arc;

use flowtrace_schema::{FrameRow, Result, Trace};

use crate::model::Workflow;
use crate::paths::base;

mod flame;
#[cfg(test)]
mod tests;

pub use flame::{Flame, Node};

/// Place of a function in [`Samples::functions`].
pub type FunctionId = u32;

/// Most functions of a stack; a recording has fewer.
const MOST_FRAMES: usize = 2_000;
/// Module of the functions of the kernel.
const KERNEL: &str = "[kernel]";
/// Begins of the names of the functions with which the kernel begins to handle an interrupt (x86).
const INTERRUPTS: [&str; 4] = [
    "asm_sysvec_",
    "asm_common_interrupt",
    "asm_exc_nmi",
    "common_interrupt_return",
];

/// A function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    /// Name; of code without symbols the module and an address.
    pub name: Arc<str>,
    /// Source file.
    pub file: Option<Arc<str>>,
    /// File that has the code, or a name in brackets such as `[kernel]`.
    pub module: Option<Arc<str>>,
    /// True if its file has symbols.
    pub has_symbols: bool,
}

impl Function {
    /// True for a function of the kernel.
    pub fn is_of_kernel(&self) -> bool {
        self.module.as_deref() == Some(KERNEL)
    }

    /// True for a function of the interpreter of Python itself.
    fn is_of_python(&self) -> bool {
        self.is_in(&["libpython", "python"])
    }

    /// True for a function of the C library or the loader, which works for its caller.
    fn is_of_libc(&self) -> bool {
        self.is_in(&["libc.so", "libm.so", "ld-linux", "ld-musl"])
    }

    /// True if the name of the file that has the code begins so.
    fn is_in(&self, begins: &[&str]) -> bool {
        let name = self.module.as_deref().map_or("", base);
        begins.iter().any(|begin| name.starts_with(begin))
    }

    /// True for a function that is written in Python.
    fn is_interpreted(&self) -> bool {
        self.file
            .as_deref()
            .is_some_and(|file| file.ends_with(".py") || file.starts_with('<'))
    }

    /// The place of the function for people: the source file and a line of it, else the file that has the code.
    pub fn place(&self, line: Option<i64>) -> String {
        match (&self.file, &self.module) {
            (Some(file), _) => match line {
                Some(line) => format!("{}:{line}", base(file)),
                None => base(file).to_owned(),
            },
            (None, Some(module)) if !self.has_symbols => format!("{}, stripped", base(module)),
            (None, Some(module)) => base(module).trim_matches(['[', ']']).to_owned(),
            (None, None) => String::new(),
        }
    }
}

/// A function in a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Located {
    /// The function.
    pub function: FunctionId,
    /// Line of its source file.
    pub line: Option<i64>,
    /// Address in the terms of the file that has the code.
    pub address: i64,
}

/// A sample: a thread was on a CPU, or has waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Time, ns. Of a wait the end.
    pub t_ns: i64,
    /// Time for which the sample stands, ns: on a CPU [`Samples::period_ns`].
    pub time_ns: i64,
    /// Place of the image in [`Workflow::images`].
    pub image: usize,
    /// Thread.
    pub tid: i64,
    /// Place of its stack; see [`Samples::frames`].
    pub stack: u32,
}

/// A stack: the place of its caller, and that of its frame.
#[derive(Clone, Copy, Debug)]
struct Stack {
    caller: Option<u32>,
    frame: u32,
}

/// All samples of a trace.
#[derive(Clone, Debug)]
pub struct Samples {
    /// CPU time for which a sample stands, ns.
    pub period_ns: i64,
    /// The samples of threads on a CPU, in the order of time.
    pub samples: Vec<Sample>,
    /// The samples of threads that have waited, in the order of time.
    pub waits: Vec<Sample>,
    /// The functions.
    pub functions: Vec<Function>,
    stacks: Vec<Stack>,
    /// The functions at each place, innermost first.
    frames: Vec<Vec<Located>>,
}

impl Samples {
    /// Reads the samples of the processes of a workflow; `None`: no stacks were sampled.
    ///
    /// # Errors
    /// When the trace cannot be read.
    pub fn read(trace: &Trace, workflow: &Workflow) -> Result<Option<Samples>> {
        let Some(period_ns) = trace.stack_period_ns()? else {
            return Ok(None);
        };
        let mut functions = Functions::default();
        let mut frame_places = HashMap::new();
        let mut frames: Vec<Vec<Located>> = Vec::new();
        for row in trace.frames()? {
            let place = *frame_places.entry(row.frame_id).or_insert_with(|| {
                frames.push(Vec::new());
                frames.len() - 1
            });
            let (line, address) = (row.line, row.address);
            frames[place].push(Located {
                function: functions.place(row),
                line,
                address,
            });
        }
        let mut stack_places: HashMap<i64, u32> = HashMap::new();
        let mut stacks = Vec::new();
        for row in trace.stacks()? {
            let Some(&frame) = frame_places.get(&row.frame_id) else {
                continue;
            };
            // A caller comes before those that it calls, so there is no way in a circle.
            let caller = row.caller_id.and_then(|id| stack_places.get(&id)).copied();
            stack_places.insert(row.stack_id, stacks.len() as u32);
            stacks.push(Stack {
                caller,
                frame: frame as u32,
            });
        }
        let images = workflow.image_places();
        let sample = |t_ns, time_ns, upid: Option<i64>, tid, stack_id| {
            Some(Sample {
                t_ns,
                time_ns,
                image: *images.get(&upid?)?,
                tid,
                stack: *stack_places.get(&stack_id)?,
            })
        };
        let samples = trace.stack_samples()?.into_iter();
        let samples =
            samples.filter_map(|row| sample(row.t_ns, period_ns, row.upid, row.tid, row.stack_id));
        let waits = trace.stack_waits()?.into_iter();
        let waits = waits
            .filter_map(|row| sample(row.t_ns, row.blocked_ns, row.upid, row.tid, row.stack_id));
        Ok(Some(Samples {
            period_ns,
            samples: samples.collect(),
            waits: waits.collect(),
            functions: functions.all,
            stacks,
            frames,
        }))
    }

    /// The functions of a stack, outermost first, those that the compiler put into others included.
    pub fn frames(&self, stack: u32) -> Vec<Located> {
        let mut found = Vec::new();
        let mut next = self.stacks.get(stack as usize);
        while let Some(stack) = next.filter(|_| found.len() < MOST_FRAMES) {
            found.extend_from_slice(&self.frames[stack.frame as usize]);
            next = stack
                .caller
                .and_then(|caller| self.stacks.get(caller as usize));
        }
        found.reverse();
        found
    }

    /// The function that worked: the innermost one, with two exceptions. For an interrupt of a CPU it is the function
    /// that was interrupted: the interrupt is no work of the program, and its time is charged to whatever it
    /// interrupts. For the interpreter of Python it is the function that was interpreted, where its name is known.
    pub fn at_work(&self, stack: u32) -> Option<Located> {
        let innermost = self.innermost(stack)?;
        let function = self.function(innermost.function);
        if function.is_of_python() || function.is_of_libc() {
            let frames = self.frames(stack).into_iter().rev();
            let mut outer = frames.skip_while(|located| {
                let function = self.function(located.function);
                function.is_of_python() || function.is_of_libc()
            });
            let next = outer.next();
            let is_interpreted =
                |located: &Located| self.function(located.function).is_interpreted();
            return next.filter(is_interpreted).or(Some(innermost));
        }
        match function.is_of_kernel() {
            true => self.without_interrupt(stack).last().copied(),
            false => Some(innermost),
        }
    }

    /// The functions of a stack, outermost first, without the handling of an interrupt.
    pub fn without_interrupt(&self, stack: u32) -> Vec<Located> {
        let mut frames = self.frames(stack);
        let is_kernel = |located: &Located| self.function(located.function).is_of_kernel();
        let Some(entry) = frames.iter().position(is_kernel) else {
            return frames;
        };
        let name = &self.function(frames[entry].function).name;
        if entry > 0 && INTERRUPTS.iter().any(|begin| name.starts_with(begin)) {
            frames.truncate(entry);
        }
        frames
    }

    /// The innermost function of a stack.
    pub fn innermost(&self, stack: u32) -> Option<Located> {
        let frame = self.stacks.get(stack as usize)?.frame;
        self.frames[frame as usize].first().copied()
    }

    /// A function by its place.
    pub fn function(&self, id: FunctionId) -> &Function {
        &self.functions[id as usize]
    }
}

/// Functions, each once.
#[derive(Default)]
struct Functions {
    all: Vec<Function>,
    places: HashMap<Function, FunctionId>,
    texts: HashMap<String, Arc<str>>,
}

impl Functions {
    fn place(&mut self, row: FrameRow) -> FunctionId {
        let mut text = |text: String| -> Arc<str> {
            let known = self.texts.entry(text);
            Arc::clone(known.or_insert_with_key(|text| Arc::from(text.as_str())))
        };
        let has_symbols = !matches!(
            row.symbols.as_deref(),
            Some("none" | "dynsym" | "unreadable")
        );
        let module = row.module.map(&mut text);
        let is_nameless = module.as_deref().is_some_and(|module| {
            let base = base(module);
            row.function.starts_with(base) && row.function[base.len()..].starts_with("+0x")
        });
        let function = Function {
            name: text(row.function),
            file: row.file.map(&mut text),
            has_symbols: has_symbols || !is_nameless,
            module,
        };
        let next = self.all.len() as FunctionId;
        let all = &mut self.all;
        *self.places.entry(function).or_insert_with_key(|function| {
            all.push(function.clone());
            next
        })
    }
}
