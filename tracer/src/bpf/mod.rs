//! Programs of ours in the kernel (Documentation/bpf): how they are written ([`code`]), loaded and put at
//! tracepoints, what they keep ([`Map`]), how their records are read ([`ring`]), and where the
//! kernel has what they read ([`btf`]). All of it ends with the descriptors that are held here.
//!
//! What the programs do is with who needs them: `kernel::programs` for calls, `proc::tracepoints` for processes.
#![expect(unsafe_code)]

use std::cell::Cell;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

pub(crate) mod btf;
pub(crate) mod code;
mod described;
pub(crate) mod followed;
pub(crate) mod lanes;
mod mapped;
pub(crate) mod messages;
pub(crate) mod pages;
mod reads;
pub(crate) mod registers;
pub(crate) mod ring;
pub(crate) mod successor;

use code::{Code, Instruction};

const MAP_CREATE: libc::c_int = 0;
const MAP_LOOK_UP: libc::c_int = 1;
const MAP_UPDATE: libc::c_int = 2;
const MAP_DELETE: libc::c_int = 3;
const MAP_NEXT_KEY: libc::c_int = 4;
const PROGRAM_LOAD: libc::c_int = 5;
const PROGRAM_TEST_RUN: libc::c_int = 10;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;

const PROGRAM_RAW_TRACEPOINT: u32 = 17;
const PROGRAM_TRACING: u32 = 26;
const ATTACHED_TO_RAW_TRACEPOINT: u32 = 23;
const NO_PREALLOCATION: u32 = 1;
const MAPPABLE: u32 = 1 << 10;

impl Code {
    /// Whether the kernel takes loops that end with [`code::JUMP_LATE`]: then it need not follow each step of one by itself when it checks a
    /// program.
    pub(crate) fn may_be_late() -> bool {
        static MAY_BE: OnceLock<bool> = OnceLock::new();
        *MAY_BE.get_or_init(|| {
            let mut code = Code::default();
            let late = code.jump(code::JUMP_LATE, 0, 0, 0);
            code.set(code::R0, 0);
            code.land(late);
            code.set(code::R0, 0);
            code.leave();
            load(&code.all).is_ok()
        })
    }
}

/// Kinds of maps (`enum bpf_map_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// From 32-bit numbers to values, allocated as they come.
    Hash = 1,
    /// Values by index.
    Array = 2,
    /// Programs by index.
    Programs = 3,
    /// Maps by index.
    ArrayOfMaps = 12,
    /// A ring of records.
    Ring = 27,
}

/// What programs keep: held as long as this or a program that uses it.
#[derive(Debug)]
pub(crate) struct Map(OwnedFd);

/// Members of `union bpf_attr` up to those that are used; the kernel takes the rest as 0.
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

#[repr(C)]
#[derive(Default)]
struct Element {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct NewProgram {
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
    /// Number of the type of what it is attached to.
    attach_type: u32,
}

#[repr(C)]
#[derive(Default)]
struct Attach {
    name: u64,
    program: u32,
    padding: u32,
}

/// Members of `union bpf_attr` for a run of a program.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    /// Written by the kernel, as the time below.
    result: Cell<u32>,
    data_sizes: [u32; 2],
    data: [u64; 2],
    repeat: u32,
    duration: Cell<u32>,
    size_of_context: u32,
    size_of_context_after: u32,
    context: u64,
    context_after: u64,
}

impl Map {
    /// A map of `entries` values of `value` bytes; of a ring `entries` are its bytes.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn new(kind: Kind, value: usize, entries: u32) -> io::Result<Map> {
        let flags = if kind == Kind::Hash {
            NO_PREALLOCATION
        } else {
            0
        };
        Self::with(kind, value, entries, flags, None)
    }

    /// An array that may be mapped (mmap(2)).
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn mappable(value: usize, entries: u32) -> io::Result<Map> {
        Self::with(Kind::Array, value, entries, MAPPABLE, None)
    }

    /// An array of these maps, which are alike.
    ///
    /// # Errors
    /// When there are none, or the kernel refuses.
    pub(crate) fn array_of(maps: &[Map]) -> io::Result<Map> {
        let first = maps
            .first()
            .ok_or_else(|| io::Error::other("no processor"))?;
        let array = Self::with(Kind::ArrayOfMaps, 4, maps.len() as u32, 0, Some(first))?;
        for (index, map) in (0..).zip(maps) {
            array.put(index, &(map.0.as_raw_fd() as u32))?;
        }
        Ok(array)
    }

    fn with(
        kind: Kind,
        value: usize,
        entries: u32,
        flags: u32,
        inner: Option<&Map>,
    ) -> io::Result<Map> {
        let attributes = NewMap {
            kind: kind as u32,
            key: if kind == Kind::Ring { 0 } else { 4 },
            value: value as u32,
            entries,
            flags,
            inner: inner.map_or(0, |map| map.0.as_raw_fd() as u32),
        };
        descriptor(MAP_CREATE, &attributes).map(Map)
    }

    /// Sets the value at `key`, which has the size of the map's values.
    ///
    /// # Errors
    /// When there is no room.
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

    /// The key that comes after this one, in no order, or the first one. Takes no memory.
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

/// Has the kernel check and take a program for a tracepoint.
///
/// # Errors
/// When the kernel refuses it.
pub(crate) fn load(instructions: &[Instruction]) -> io::Result<OwnedFd> {
    load_as(
        instructions,
        NewProgram {
            kind: PROGRAM_RAW_TRACEPOINT,
            ..NewProgram::default()
        },
    )
}

/// The same for a program at the tracepoint whose function has this type, `btf_trace_…`, by number: it may read what the arguments of the
/// tracepoint point to as if it were its own. Attached by [`attach_typed`].
///
/// # Errors
/// Likewise.
pub(crate) fn load_typed(instructions: &[Instruction], function: u32) -> io::Result<OwnedFd> {
    load_as(
        instructions,
        NewProgram {
            kind: PROGRAM_TRACING,
            attach_kind: ATTACHED_TO_RAW_TRACEPOINT,
            attach_type: function,
            ..NewProgram::default()
        },
    )
}

fn load_as(instructions: &[Instruction], program: NewProgram) -> io::Result<OwnedFd> {
    // What the kernel's helpers ask of whoever uses them; these lines of ours are under both.
    const LICENSE: &CStr = c"Dual MIT/GPL";
    let attributes = NewProgram {
        length: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        ..program
    };
    descriptor(PROGRAM_LOAD, &attributes).map_err(|error| refused(&attributes, error))
}

/// `error`, with what the kernel says of why it does not take the program.
fn refused(attributes: &NewProgram, error: io::Error) -> io::Error {
    const LOG: usize = 1 << 20;
    const ERRORS_BEHIND_STEPS: u32 = 1;
    let mut log = vec![0u8; LOG];
    let again = NewProgram {
        log_level: ERRORS_BEHIND_STEPS,
        log_size: LOG as u32,
        log: log.as_mut_ptr() as u64,
        ..*attributes
    };
    if descriptor(PROGRAM_LOAD, &again).is_ok() {
        return error;
    }
    let text = String::from_utf8_lossy(&log);
    let lines = text.trim_end_matches(['\0', '\n']).lines();
    match lines.rev().find(|line| !line.starts_with("processed ")) {
        Some(why) => io::Error::new(error.kind(), format!("{error}: {why}")),
        None => error,
    }
}

/// Runs a program of [`load_typed`] as long as the result is held.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn attach_typed(program: &OwnedFd) -> io::Result<OwnedFd> {
    let attributes = Attach {
        program: program.as_raw_fd() as u32,
        ..Attach::default()
    };
    descriptor(RAW_TRACEPOINT_OPEN, &attributes)
}

/// Runs a program at a tracepoint as long as the result is held.
///
/// # Errors
/// When there is no such tracepoint.
pub(crate) fn attach(tracepoint: &CStr, program: &OwnedFd) -> io::Result<OwnedFd> {
    let attributes = Attach {
        name: tracepoint.as_ptr() as u64,
        program: program.as_raw_fd() as u32,
        padding: 0,
    };
    descriptor(RAW_TRACEPOINT_OPEN, &attributes)
}

/// Runs a program of [`load`] once, now, whose context is this number.
///
/// # Errors
/// When the kernel runs no programs for us.
fn run(program: &OwnedFd, context: u64) -> io::Result<()> {
    let attributes = TestRun {
        program: program.as_raw_fd() as u32,
        size_of_context: size_of::<u64>() as u32,
        context: std::ptr::from_ref(&context) as u64,
        ..TestRun::default()
    };
    bpf(PROGRAM_TEST_RUN, &attributes).map(drop)
}

fn descriptor<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    let made = bpf(command, attributes)?;
    // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_int> {
    // SAFETY: the kernel reads the attributes for as long as told, and what they point at outlives the
    // call; it writes to the value of a look-up, to a next key, and to cells of a run alone, which are the caller's.
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
