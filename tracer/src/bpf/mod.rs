//! eBPF programs (Documentation/bpf): loading of the objects that the C compiler made ([`object`]), maps
//! ([`Map`]), reading of records ([`ring`], [`per_cpu_rings`]), and layout of the kernel's structures
//! ([`btf`]). Programs and maps live as long as their descriptors are open.
//!
//! The programs are in `tracer/bpf`: `kernel::programs` loads those for calls and for scheduling,
//! `proc::tracepoints` those for processes, `stacks` those for stacks of threads that waited.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub(crate) mod btf;
mod described;
mod instruction;
mod mapped;
pub(crate) mod object;
pub(crate) mod objects;
pub(crate) mod per_cpu_rings;
pub(crate) mod ring;
pub(crate) mod tail_call;
pub(crate) mod traced_pids;

use instruction::Instruction;

const MAP_CREATE: libc::c_int = 0;
const MAP_LOOK_UP: libc::c_int = 1;
const MAP_UPDATE: libc::c_int = 2;
const MAP_DELETE: libc::c_int = 3;
const MAP_NEXT_KEY: libc::c_int = 4;
const PROGRAM_LOAD: libc::c_int = 5;
const OBJECT_INFO: libc::c_int = 15;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const TYPES_LOAD: libc::c_int = 18;
const MAP_FREEZE: libc::c_int = 22;

const PROGRAM_RAW_TRACEPOINT: u32 = 17;
const PROGRAM_TRACING: u32 = 26;
const ATTACHED_TO_RAW_TRACEPOINT: u32 = 23;
const NO_PREALLOCATION: u32 = 1;
const READ_ONLY_FOR_PROGRAMS: u32 = 1 << 7;
const MAPPABLE: u32 = 1 << 10;

/// Kernel helpers require a license; these programs are under both.
const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";

/// Kinds of maps (`enum bpf_map_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// From 32-bit numbers to values, allocated as they come.
    Hash = 1,
    /// Values by index.
    Array = 2,
    /// Programs by index.
    Programs = 3,
    /// Sampling events by index.
    Events = 4,
    /// Maps by index.
    ArrayOfMaps = 12,
    /// A ring of records.
    Ring = 27,
}

impl Kind {
    fn of(number: u32) -> Option<Kind> {
        use Kind::{Array, ArrayOfMaps, Events, Hash, Programs, Ring};
        let all = [Hash, Array, Programs, Events, ArrayOfMaps, Ring];
        all.into_iter().find(|&kind| kind as u32 == number)
    }
}

/// Closes programs and maps on a thread of their own. The kernel waits for up to some 10 ms at the end of a program until
/// no CPU runs it any more.
pub(crate) fn close_aside(programs: impl Send + 'static) {
    let thread = std::thread::Builder::new().name("bpf-close".into());
    // Without a thread they are closed here, with the closure.
    let _ = thread.spawn(move || drop(programs));
}

/// A map: it lives as long as this descriptor or a program that uses it.
#[derive(Debug)]
pub(crate) struct Map(OwnedFd);

/// Members of `union bpf_attr` up to the last used one; the kernel takes the others as 0.
#[repr(C)]
#[derive(Default)]
struct NewMap {
    kind: u32,
    key: u32,
    value: u32,
    entries: u32,
    flags: u32,
    inner: u32,
}

impl NewMap {
    fn new(kind: Kind, value: usize, entries: u32, flags: u32) -> NewMap {
        NewMap {
            kind: kind as u32,
            key: if kind == Kind::Ring { 0 } else { 4 },
            value: value as u32,
            entries,
            flags,
            inner: 0,
        }
    }
}

#[repr(C)]
#[derive(Default)]
struct Element {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Members of `union bpf_attr` for a program.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProgramAttributes {
    kind: u32,
    length: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    version: u32,
    flags: u32,
    name: [u64; 2],
    interface: u32,
    attach_kind: u32,
    types: u32,
    function_size: u32,
    functions: u64,
    function_count: u32,
    line_size: u32,
    lines: u64,
    line_count: u32,
    /// Number of the type of the function that it is attached to.
    attach_type: u32,
}

/// A program that the kernel is to check and load.
#[derive(Clone, Copy, Debug)]
struct NewProgram<'a> {
    code: &'a [Instruction],
    /// Number of the type of the tracepoint's function (`btf_trace_…`): the program may read the structures
    /// that its arguments point to. `None`: it may be at any tracepoint.
    tracepoint: Option<u32>,
    /// Descriptions of the types of the program, which its functions and lines refer to.
    types: &'a Types,
    functions: &'a [[u32; 2]],
    lines: &'a [[u32; 4]],
}

/// Descriptions of types that the kernel has loaded.
#[derive(Debug)]
struct Types(OwnedFd);

#[repr(C)]
#[derive(Default)]
struct TypesAttributes {
    types: u64,
    log: u64,
    size: u32,
    log_size: u32,
    log_level: u32,
}

#[repr(C)]
#[derive(Default)]
struct Attach {
    name: u64,
    program: u32,
    padding: u32,
}

#[repr(C)]
struct ObjectInfo {
    object: u32,
    length: u32,
    info: u64,
}

impl Map {
    /// A map of `entries` values of `value` bytes; for a ring, `entries` is its size in bytes.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn new(kind: Kind, value: usize, entries: u32) -> io::Result<Map> {
        let flags = if kind == Kind::Hash {
            NO_PREALLOCATION
        } else {
            0
        };
        Self::with(kind, value, entries, flags)
    }

    /// An array with one value, which never changes: the verifier leaves out code that cannot be reached with
    /// it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn constant(value: &[u8]) -> io::Result<Map> {
        let map = Self::with(Kind::Array, value.len(), 1, READ_ONLY_FOR_PROGRAMS)?;
        map.put(0, value)?;
        bpf(MAP_FREEZE, &[map.0.as_raw_fd() as u32])?;
        Ok(map)
    }

    /// An array that may be mapped (mmap(2)).
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn mappable(value: usize, entries: u32) -> io::Result<Map> {
        Self::with(Kind::Array, value, entries, MAPPABLE)
    }

    /// An array for `entries` maps like this one.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn array_of(like: &Map, entries: u32) -> io::Result<Map> {
        let attributes = NewMap {
            inner: like.0.as_raw_fd() as u32,
            ..NewMap::new(Kind::ArrayOfMaps, 4, entries, 0)
        };
        descriptor(MAP_CREATE, &attributes).map(Map)
    }

    fn with(kind: Kind, value: usize, entries: u32, flags: u32) -> io::Result<Map> {
        descriptor(MAP_CREATE, &NewMap::new(kind, value, entries, flags)).map(Map)
    }

    /// The number of the descriptor, which is the value of a map in a map of maps.
    pub(crate) fn descriptor(&self) -> u32 {
        self.0.as_raw_fd() as u32
    }

    /// Sets the value at `key`, which has the size of the map's values.
    ///
    /// # Errors
    /// When the map is full.
    pub(crate) fn put<T: ?Sized>(&self, key: u32, value: &T) -> io::Result<()> {
        let value = std::ptr::from_ref(value).cast::<u8>();
        bpf(MAP_UPDATE, &self.element(&key, value as u64)).map(drop)
    }

    /// Reads the value at `key`, which has the size of the map's values and is plain numbers.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn get<const N: usize>(&self, key: u32) -> io::Result<[u64; N]> {
        let mut value = [0u64; N];
        bpf(MAP_LOOK_UP, &self.element(&key, value.as_mut_ptr() as u64))?;
        Ok(value)
    }

    /// Removes the value at `key`, if there is one.
    pub(crate) fn remove(&self, key: u32) {
        let _ = bpf(MAP_DELETE, &self.element(&key, 0));
    }

    /// The key after `key`, in no order, or the first one. Allocates no memory.
    pub(crate) fn next_key(&self, key: Option<&u32>) -> Option<u32> {
        let mut next = 0u32;
        let element = Element {
            map: self.0.as_raw_fd() as u32,
            key: key.map_or(0, |key| std::ptr::from_ref(key) as u64),
            value: std::ptr::from_mut(&mut next) as u64,
            ..Element::default()
        };
        bpf(MAP_NEXT_KEY, &element).ok().map(|_| next)
    }

    fn element(&self, key: &u32, value: u64) -> Element {
        Element {
            map: self.0.as_raw_fd() as u32,
            key: std::ptr::from_ref(key) as u64,
            value,
            ..Element::default()
        }
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Loads descriptions of types into the kernel.
///
/// # Errors
/// When the kernel refuses them.
fn load_types(types: &[u8]) -> io::Result<Types> {
    let attributes = TypesAttributes {
        types: types.as_ptr() as u64,
        size: types.len() as u32,
        ..TypesAttributes::default()
    };
    let refused = |error| {
        let with_log = |log: &mut [u8]| {
            let (log, log_size) = (log.as_mut_ptr() as u64, log.len() as u32);
            let again = TypesAttributes {
                log,
                log_size,
                log_level: 1,
                ..attributes
            };
            descriptor(TYPES_LOAD, &again)
        };
        explained(error, "types", with_log)
    };
    descriptor(TYPES_LOAD, &attributes)
        .map(Types)
        .map_err(refused)
}

/// Loads a program into the kernel, which checks it.
///
/// # Errors
/// When the kernel refuses it: the error has the last lines of the verifier's log, with the line of the
/// source.
fn load_program(program: NewProgram<'_>) -> io::Result<OwnedFd> {
    let attributes = ProgramAttributes {
        kind: match program.tracepoint {
            Some(_) => PROGRAM_TRACING,
            None => PROGRAM_RAW_TRACEPOINT,
        },
        length: program.code.len() as u32,
        instructions: program.code.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        attach_kind: program.tracepoint.map_or(0, |_| ATTACHED_TO_RAW_TRACEPOINT),
        attach_type: program.tracepoint.unwrap_or(0),
        types: program.types.0.as_raw_fd() as u32,
        function_size: size_of::<[u32; 2]>() as u32,
        functions: program.functions.as_ptr() as u64,
        function_count: program.functions.len() as u32,
        ..ProgramAttributes::default()
    };
    let refused = |error| {
        let with_log = |log: &mut [u8]| {
            // Lines of the source take the kernel a while to check, and only serve in a log.
            let again = ProgramAttributes {
                log_level: 1,
                log_size: log.len() as u32,
                log: log.as_mut_ptr() as u64,
                line_size: size_of::<[u32; 4]>() as u32,
                lines: program.lines.as_ptr() as u64,
                line_count: program.lines.len() as u32,
                ..attributes
            };
            descriptor(PROGRAM_LOAD, &again)
        };
        explained(error, "program", with_log)
    };
    descriptor(PROGRAM_LOAD, &attributes).map_err(refused)
}

/// `error`, with the end of the kernel's log of a second try: the last line of the source, and the reason.
fn explained(
    error: io::Error,
    refused: &str,
    again: impl FnOnce(&mut [u8]) -> io::Result<OwnedFd>,
) -> io::Error {
    const LOG: usize = 16 << 20;
    let mut log = vec![0u8; LOG];
    if again(&mut log).is_ok() {
        return error;
    }
    let text = String::from_utf8_lossy(&log);
    let lines = text.trim_end_matches(['\0', '\n']).lines();
    let lines = lines.filter(|line| !line.starts_with("processed ") && !line.is_empty());
    let lines: Vec<&str> = lines.collect();
    let source = lines.iter().rev().find(|line| line.starts_with("; "));
    let last = lines.last();
    let why: Vec<&str> = source.into_iter().chain(last).copied().collect();
    io::Error::new(
        error.kind(),
        format!(
            "the kernel refuses an eBPF {refused}: {error}: {}",
            why.join(": ")
        ),
    )
}

/// Attaches a program to its tracepoint as long as the result is kept.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn attach(program: &OwnedFd) -> io::Result<OwnedFd> {
    let attributes = Attach {
        program: program.as_raw_fd() as u32,
        ..Attach::default()
    };
    descriptor(RAW_TRACEPOINT_OPEN, &attributes)
}

/// How often a program was not run, because an interrupt came to its tracepoint while it ran on that CPU.
///
/// # Errors
/// When the kernel does not count that.
pub(crate) fn missed(program: &OwnedFd) -> io::Result<u64> {
    /// Place of `recursion_misses` among the words of `struct bpf_prog_info`.
    const MISSED: usize = 26;
    let mut info = [0u64; MISSED + 1];
    let attributes = ObjectInfo {
        object: program.as_raw_fd() as u32,
        length: size_of_val(&info) as u32,
        info: info.as_mut_ptr() as u64,
    };
    bpf(OBJECT_INFO, &attributes)?;
    Ok(info[MISSED])
}

/// Runs a program for any tracepoint once, now.
///
/// # Errors
/// When the kernel runs no programs for us.
#[cfg(test)]
fn run(program: &OwnedFd) -> io::Result<()> {
    /// Members of `union bpf_attr` for a run of a program.
    #[repr(C)]
    #[derive(Default)]
    struct TestRun {
        program: u32,
        result: u32,
        data_sizes: [u32; 2],
        data: [u64; 2],
        repeat: u32,
        duration: u32,
        sizes_of_context: [u32; 2],
        contexts: [u64; 2],
    }
    const PROGRAM_TEST_RUN: libc::c_int = 10;
    let context = 0u64;
    let attributes = TestRun {
        program: program.as_raw_fd() as u32,
        sizes_of_context: [size_of::<u64>() as u32, 0],
        contexts: [std::ptr::from_ref(&context) as u64, 0],
        ..TestRun::default()
    };
    bpf(PROGRAM_TEST_RUN, &attributes).map(drop)
}

fn descriptor<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    let made = bpf(command, attributes)?;
    // SAFETY: the kernel has just made this descriptor, and nothing else uses it.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_int> {
    // SAFETY: the kernel reads the attributes, whose size it gets, and the memory that they point to outlives
    // the call; it writes only to the value of a look-up, to a next key, to a description and to a log, which are the
    // caller's.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<T>(),
        )
    };
    match result {
        0.. => Ok(result as libc::c_int),
        _ => Err(io::Error::last_os_error()),
    }
}
