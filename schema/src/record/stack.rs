//! Records of sampled call stacks. Their ids count from 1 within a recording and are assigned by the recorder.

use serde::{Deserialize, Serialize};

use crate::{RunId, Text};

/// Step of the times of samples of stacks, ns: times in this step take a byte less in each row.
pub(crate) const STACK_STEP_NS: i64 = 10_000;

/// CPU time of which stacks are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StackScope {
    /// All of it.
    All,
    /// That outside of the kernel.
    User,
}

/// Source of the names of the functions of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Symbols {
    /// Debug information, with lines.
    Dwarf,
    /// Symbol table.
    Symtab,
    /// Table of exported symbols: other functions have no names.
    Dynsym,
    /// The kernel's own list.
    Kallsyms,
    /// Map that a compiler at run time wrote (`perf-PID.map`).
    Map,
    /// The module has no symbols.
    None,
    /// The module could not be opened again.
    Unreadable,
}

impl Symbols {
    /// Name stored in the database.
    pub const fn name(self) -> &'static str {
        match self {
            Symbols::Dwarf => "dwarf",
            Symbols::Symtab => "symtab",
            Symbols::Dynsym => "dynsym",
            Symbols::Kallsyms => "kallsyms",
            Symbols::Map => "map",
            Symbols::None => "none",
            Symbols::Unreadable => "unreadable",
        }
    }
}

/// A part of the samples of call stacks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum StackRecord {
    /// Stacks are sampled from now on.
    Sampling {
        /// The recording.
        run: RunId,
        /// CPU time for which a sample stands, ns.
        period_ns: u64,
        /// Threads that waited are sampled, too.
        waits: bool,
        /// CPU time that is sampled.
        scope: StackScope,
        /// Pattern of the names of programs that are sampled; `None`: all.
        program: Option<String>,
    },
    /// A file or another place that has code.
    Module {
        /// Own id.
        id: u32,
        /// Path, or a name in brackets.
        path: Text,
        /// Build id of the ELF file.
        build_id: Option<Vec<u8>>,
    },
    /// The source of the names of a module is known.
    ModuleSymbols {
        /// The module.
        module: u32,
        /// Source.
        symbols: Symbols,
    },
    /// A place in code.
    Frame {
        /// Own id.
        id: u32,
        /// The module; `None`: frames further out are not known.
        module: Option<u32>,
        /// Address in the terms of the module.
        address: u64,
    },
    /// A call stack.
    Stack {
        /// Own id.
        id: u32,
        /// Stack of the caller; `None`: this is the outermost frame.
        caller: Option<u32>,
        /// Innermost frame.
        frame: u32,
    },
    /// A thread of a process image.
    Thread {
        /// Own id.
        id: u32,
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// Begin of the image, ns.
        start_ns: u64,
        /// Execs of the process up to then; 0: the image began by the fork of the process.
        execs: u32,
    },
    /// A thread was on a CPU, or returned from a call after it had waited.
    Sample {
        /// Time; of a wait that of the return, ns.
        t_ns: u64,
        /// The thread.
        thread: u32,
        /// Its stack.
        stack: u32,
        /// Time of waiting for which the sample stands, ns; `None`: the thread was on a CPU.
        blocked_ns: Option<u64>,
    },
    /// A function.
    Function {
        /// Own id.
        id: u32,
        /// The module that has it.
        module: u32,
        /// Name, demangled.
        name: String,
        /// Source file.
        file: Option<String>,
    },
    /// A function at a place in code.
    Location {
        /// The place.
        frame: u32,
        /// 0: innermost function; others are those into which the compiler put it.
        depth: u32,
        /// The function.
        function: u32,
        /// Line of its source file.
        line: Option<u32>,
    },
}
