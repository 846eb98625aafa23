//! What the kernel reads of a program to execute it, and counts as reads of the image that made the exec (`fs/binfmt_elf.c`):
//! the begin of the file, its program headers, the name of its interpreter, and the headers of that.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::holder::Moved;

/// The begin of the file, bytes (`BINPRM_BUF_SIZE`).
const BEGIN: u64 = 256;
/// The header of a 64-bit file, bytes.
const HEADER: usize = 64;
/// A program header of it, bytes.
const PROGRAM_HEADER: usize = 56;
/// Type of the program header that names the interpreter.
const INTERPRETER: u32 = 3;

/// What was read to execute the program that process `pid` runs; `None`: it is no 64-bit program of this machine, or gone.
pub(super) fn read_to_execute(pid: u32) -> Option<Moved> {
    let program = File::open(format!("/proc/{pid}/exe")).ok()?;
    of(&program, Path::new(&format!("/proc/{pid}/root")))
}

/// The same of an open program below a root directory.
fn of(program: &File, root: &Path) -> Option<Moved> {
    let headers = program_headers(program)?;
    let mut read = Moved {
        read_calls: 2,
        read_bytes: BEGIN + headers.len() as u64,
        write_bytes: 0,
    };
    let (entries, _) = headers.as_chunks::<PROGRAM_HEADER>();
    let named = entries
        .iter()
        .find(|entry| number(*entry, 0, 4) == Some(INTERPRETER.into()));
    if let Some(entry) = named {
        let (at, length) = (number(entry, 8, 8)?, number(entry, 32, 8)?);
        let mut name = vec![
            0;
            usize::try_from(length)
                .ok()
                .filter(|&length| length <= 4096)?
        ];
        program.read_exact_at(&mut name, at).ok()?;
        let name = std::str::from_utf8(&name).ok()?;
        let name = name.trim_end_matches('\0').trim_start_matches('/');
        let interpreter = File::open(root.join(name)).ok()?;
        let headers = program_headers(&interpreter)?;
        read.read_calls += 3;
        read.read_bytes += length + (HEADER + headers.len()) as u64;
    }
    Some(read)
}

/// The program headers of a file.
fn program_headers(file: &File) -> Option<Vec<u8>> {
    let mut header = [0; HEADER];
    file.read_exact_at(&mut header, 0).ok()?;
    let is_64_bit = header.starts_with(b"\x7fELF\x02");
    let (at, size) = (number(&header, 32, 8)?, number(&header, 54, 2)?);
    if !is_64_bit || size != PROGRAM_HEADER as u64 {
        return None;
    }
    let count = usize::try_from(number(&header, 56, 2)?).ok()?;
    let mut headers = vec![0; count * PROGRAM_HEADER];
    file.read_exact_at(&mut headers, at).ok()?;
    Some(headers)
}

/// The number of so many bytes at a place, in the order of bytes of this machine.
fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let own = bytes.get(at..at + size)?;
    let mut whole = [0; 8];
    match cfg!(target_endian = "little") {
        true => whole[..size].copy_from_slice(own),
        false => whole[8 - size..].copy_from_slice(own),
    }
    Some(u64::from_ne_bytes(whole))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use nix::sys::ptrace;
    use nix::sys::wait::waitpid;
    use nix::unistd::Pid;

    use super::super::super::reading::Traffic;
    use super::*;

    /// As the kernel counts for a process that is stopped at its exec and has read nothing itself.
    #[test]
    fn an_exec_reads_the_headers() {
        let mut command = Command::new("/bin/sleep");
        command.arg("20");
        // SAFETY: the call is all that the child makes, and touches no memory.
        #[expect(unsafe_code)]
        unsafe {
            command.pre_exec(|| Ok(ptrace::traceme()?));
        }
        let mut child = command.spawn().unwrap();
        waitpid(Pid::from_raw(child.id() as i32), None).unwrap();
        let (found, counted) = (read_to_execute(child.id()), Traffic::of(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        let counted = Moved::from(counted.unwrap());
        assert_eq!(found, Some(counted));
        assert!(counted.may_be_exec());
    }

    #[test]
    fn what_is_no_program_has_no_headers() {
        let script = tempfile::tempfile().unwrap();
        script.write_all_at(b"#!/bin/sh\n", 0).unwrap();
        assert_eq!(of(&script, Path::new("/")), None);
        script.write_all_at(&[0; 128], 0).unwrap();
        assert_eq!(of(&script, Path::new("/")), None);
    }
}
