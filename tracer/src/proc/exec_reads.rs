//! Reads by the kernel itself at an exec: it counts them as reads of the process, before the program has done
//! anything (fs/exec.c, fs/binfmt_elf.c, fs/binfmt_script.c).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::near::{self, Found};
use crate::stat::Time;

/// Bytes at the begin of a file by which the kernel decides its format (`BINPRM_BUF_SIZE`).
const BEGIN: usize = 256;
/// Path of the dynamic loader in a program header's table (`PT_INTERP`).
const LOADER: u32 = 3;
/// Most bytes of program headers (`ELF_MIN_ALIGN` and more).
const MOST: usize = 1 << 16;

/// Bytes that an exec read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExecReads {
    /// Bytes of the program and its loader.
    pub(crate) program: u64,
    /// Bytes of the script, if the program was started by one.
    pub(crate) script: u64,
}

/// Programs and loaders that were read: a run executes few of them, each very often.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    programs: HashMap<Identity, Option<Program>>,
    loaders: HashMap<Identity, Option<u64>>,
}

/// Identity and version of a file: a file that was written anew is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Identity {
    inode: (u64, u64),
    size: u64,
    changed: Time,
}

/// Bytes that the kernel reads of a program, and the loader that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Program {
    bytes: u64,
    loader: Option<PathBuf>,
}

impl Programs {
    /// The bytes that the exec of a program with these arguments, each ended by a NUL, read in this working
    /// directory. `None`: the program is of another format, or cannot be read.
    pub(super) fn exec(
        &mut self,
        program: &Path,
        arguments: &[u8],
        directory: &Path,
    ) -> Option<ExecReads> {
        let found = self.programs.entry(Identity::of(program)?);
        let found = found.or_insert_with(|| Program::read(program)).as_ref()?;
        let mut bytes = found.bytes;
        if let Some(loader) = &found.loader {
            let headers = self.loaders.entry(Identity::of(loader)?);
            bytes += (*headers.or_insert_with(|| loader_headers(loader)))?;
        }
        Some(ExecReads {
            program: bytes,
            script: script(arguments, directory),
        })
    }
}

impl Identity {
    fn of(path: &Path) -> Option<Identity> {
        let Found::Is(there) = near::behind(path) else {
            return None;
        };
        let found = &there.attributes;
        Some(Identity {
            inode: (found.dev, found.ino),
            size: found.size,
            changed: found.changed,
        })
    }
}

impl Program {
    fn read(path: &Path) -> Option<Program> {
        let program = regular(path)?;
        let own = Elf::read(&program)?;
        let mut bytes = begin(&program)? + own.headers.len() as u64;
        let mut loader = None;
        if let Some((at, length)) = own.loader() {
            let mut path = vec![0; usize::try_from(length).ok().filter(|&n| n <= MOST)?];
            program.read_exact_at(&mut path, at).ok()?;
            let path = path.split(|&byte| byte == 0).next()?;
            loader = Some(PathBuf::from(OsStr::from_bytes(path)));
            bytes += length;
        }
        Some(Program { bytes, loader })
    }
}

fn loader_headers(path: &Path) -> Option<u64> {
    let loader = Elf::read(&regular(path)?)?;
    Some(loader.size as u64 + loader.headers.len() as u64)
}

impl ExecReads {
    /// The part of `bytes`, the reads up to the end of the exec, that the program before it made. `None`: the
    /// exec has read something else.
    pub(crate) fn before(self, bytes: u64) -> Option<u64> {
        let before = bytes.checked_sub(self.program)?;
        Some(before.checked_sub(self.script).unwrap_or(before))
    }
}

/// Bytes that the kernel reads to decide the format of a file.
fn begin(file: &File) -> Option<u64> {
    Some(file.metadata().ok()?.len().min(BEGIN as u64))
}

/// The bytes read of a script that begins with the name of its interpreter; the script is the interpreter's
/// first argument, or its second after an option.
fn script(arguments: &[u8], directory: &Path) -> u64 {
    let read = |path: &[u8]| {
        let script = regular(&directory.join(OsStr::from_bytes(path)))?;
        let mut sign = [0; 2];
        script.read_exact_at(&mut sign, 0).ok()?;
        (&sign == b"#!").then(|| begin(&script)).flatten()
    };
    let given = arguments.split(|&byte| byte == 0).skip(1).take(2);
    let mut named = given.filter(|name| !name.starts_with(b"-"));
    named.find_map(read).unwrap_or(0)
}

/// Opens a regular file, and nothing else: the open of a FIFO would wait for writers, or count as a reader,
/// and a device may do anything. Files that a server has to deliver are refused, too.
fn regular(path: &Path) -> Option<File> {
    let Found::Is(there) = near::behind(path) else {
        return None;
    };
    let is_regular = there.attributes.is_regular();
    is_regular.then(|| File::open(there.usable()?).ok())?
}

/// The headers of a program.
struct Elf {
    /// Bytes of the first one, and of each of the others.
    size: usize,
    entry: usize,
    is_wide: bool,
    headers: Vec<u8>,
}

impl Elf {
    fn read(file: &File) -> Option<Elf> {
        let mut first = [0; 64];
        let read = file.read_at(&mut first, 0).ok()?;
        let first = first.get(..read)?;
        let is_wide = match first.get(..5)? {
            b"\x7fELF\x02" => true,
            b"\x7fELF\x01" => false,
            _ => return None,
        };
        let half = |at: usize| {
            Some(usize::from(u16::from_ne_bytes(
                first.get(at..at + 2)?.try_into().ok()?,
            )))
        };
        let (size, at, sizes) = match is_wide {
            true => (64, word(first, 32, true)?, 54),
            false => (52, word(first, 28, false)?, 42),
        };
        let (entry, count) = (half(sizes)?, half(sizes + 2)?);
        let length = entry.checked_mul(count).filter(|&length| length <= MOST)?;
        let mut headers = vec![0; length];
        file.read_exact_at(&mut headers, at).ok()?;
        Some(Elf {
            size,
            entry,
            is_wide,
            headers,
        })
    }

    /// Place and length of the path of the loader.
    fn loader(&self) -> Option<(u64, u64)> {
        let (offset, length) = if self.is_wide { (8, 32) } else { (4, 16) };
        let mut entries = self.headers.chunks_exact(self.entry.max(1));
        entries.find_map(|entry| {
            let kind = u32::from_ne_bytes(entry.get(..4)?.try_into().ok()?);
            let place = (
                word(entry, offset, self.is_wide)?,
                word(entry, length, self.is_wide)?,
            );
            (kind == LOADER).then_some(place)
        })
    }
}

fn word(bytes: &[u8], at: usize, is_wide: bool) -> Option<u64> {
    if is_wide {
        let bytes = bytes.get(at..at + 8)?;
        return bytes.try_into().ok().map(u64::from_ne_bytes);
    }
    let bytes = bytes.get(at..at + 4)?;
    bytes.try_into().ok().map(u32::from_ne_bytes).map(u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_sought_where_the_program_runs_and_nothing_else_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        std::fs::write(at.join("s"), "#!/bin/sh\n").unwrap();
        let fifo = std::process::Command::new("mkfifo")
            .arg(at.join("f"))
            .status();
        assert!(fifo.unwrap().success());
        assert_eq!(script(b"sh\0s\0", at), 10);
        assert_eq!(script(b"sh\0-e\0s\0", at), 10);
        assert_eq!(script(b"tee\0f\0s\0", at), 10);
        let whole = at.join("s").into_os_string().into_encoded_bytes();
        assert_eq!(script(&[b"sh\0", &whole[..]].concat(), Path::new("/")), 10);
        // No process ever writes to this FIFO.
        assert_eq!(script(b"cat\0-\0f\0", at), 0);
        assert_eq!(script(b"cat\0/dev/full\0.\0", at), 0);
    }

    #[test]
    fn a_program_that_is_replaced_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        let mut programs = Programs::default();
        let mut read = || programs.exec(&program, b"program\0", directory.path());
        std::fs::copy("/bin/sh", &program).unwrap();
        let first = read().expect("a program");
        assert_eq!(read(), Some(first));
        std::fs::write(&program, "no program").unwrap();
        assert_eq!(read(), None);
    }
}
