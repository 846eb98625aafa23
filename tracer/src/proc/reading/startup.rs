//! Arguments and environment of a program that was just started, out of its memory: from its stack, where
//! execve(2) put them, or from the addresses in `/proc/PID/stat`.

use std::io::IoSliceMut;

use flowtrace_schema::MOST_ARGUMENTS;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use super::super::ptrace;

/// Arguments and environment, each string ended by a NUL.
pub(super) type Startup = (Vec<u8>, Vec<u8>);

/// Addresses of the arguments and the environment of a process: one block, as execve(2) lays it
/// out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strings {
    arguments: usize,
    environment: usize,
    end: usize,
}

impl Strings {
    /// Most bytes that execve(2) takes, whatever the limits (`bprm_stack_limits` of fs/exec.c: 3/4 of 8 MiB).
    const MAX: usize = 6 << 20;

    pub(super) fn new(
        arguments: usize,
        arguments_end: usize,
        environment: usize,
        end: usize,
    ) -> Option<Self> {
        let in_order = arguments > 0 && arguments <= environment && environment <= end;
        (in_order && arguments_end == environment && end - arguments <= Self::MAX).then_some(
            Strings {
                arguments,
                environment,
                end,
            },
        )
    }

    /// Reads both out of process `pid`. `None`: not allowed, or gone.
    pub(super) fn fetch(&self, pid: u32) -> Option<Startup> {
        let arguments = self.environment - self.arguments;
        let mut argv = vec![0; arguments.min(MOST_ARGUMENTS + 1)];
        let mut environ = vec![0; self.end - self.environment];
        let piece = |base, len| RemoteIoVec { base, len };
        let remote = [
            piece(self.arguments, argv.len()),
            piece(self.environment, environ.len()),
        ];
        let length = argv.len() + environ.len();
        let mut local = [IoSliceMut::new(&mut argv), IoSliceMut::new(&mut environ)];
        let read = process_vm_readv(Pid::from_raw(pid as i32), &mut local, &remote).ok()?;
        (read == length).then_some((argv, environ))
    }
}

/// Most bytes of a stack that are read: with more arguments than fit, two reads are as good.
const READ: usize = 32 << 10;
const PAGE: usize = 4096;
const WORD: usize = 8;

/// Arguments and environment of process `pid`, which is in the stop of its exec. `None`: the program is not a
/// 64-bit one, has more than fits into one read, or is gone.
pub(super) fn on_stack(pid: u32) -> Option<Startup> {
    let top = usize::try_from(ptrace::stack_pointer(pid)?).ok()?;
    let mut stack = vec![0; READ];
    // One piece for each page: the kernel reads whole pieces, and the stack ends within the read.
    let mut pieces = Vec::with_capacity(READ / PAGE + 1);
    let (mut base, end) = (top, top.checked_add(READ)?);
    while base < end {
        let next = end.min((base / PAGE + 1) * PAGE);
        pieces.push(RemoteIoVec {
            base,
            len: next - base,
        });
        base = next;
    }
    let mut local = [IoSliceMut::new(&mut stack)];
    let read = process_vm_readv(Pid::from_raw(pid as i32), &mut local, &pieces).ok()?;
    parse_stack(&stack[..read], top)
}

/// Arguments and environment from the first bytes of a stack that begins at address `top`: the number of
/// arguments, their addresses, 0, those of the environment, 0, pairs of the auxiliary vector, then the
/// strings (`create_elf_tables` of fs/binfmt_elf.c). The name of the program's file, whose address is in the
/// vector, comes after the environment.
pub(crate) fn parse_stack(stack: &[u8], top: usize) -> Option<Startup> {
    const AT_NULL: usize = 0;
    const AT_EXECFN: usize = 31;
    let word = |at: usize| {
        let bytes = stack.get(at.checked_mul(WORD)?..)?.get(..WORD)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?) as usize)
    };
    let count = word(0)?;
    let first = word(1)?;
    if count == 0 || word(count.checked_add(1)?)? != 0 {
        return None;
    }
    let environment = count + 2;
    let mut at = environment;
    while word(at)? != 0 {
        at += 1;
    }
    let mut vector = at + 1;
    let end = loop {
        match word(vector)? {
            AT_NULL => return None,
            AT_EXECFN => break word(vector + 1)?,
            _ => vector += 2,
        }
    };
    let middle = if at == environment {
        end
    } else {
        word(environment)?
    };
    let place = |address: usize| address.checked_sub(top);
    let (first, middle, end) = (place(first)?, place(middle)?, place(end)?);
    let (argv, environ) = (stack.get(first..middle)?, stack.get(middle..end)?);
    let ended = |strings: &[u8]| strings.is_empty() || strings.ends_with(b"\0");
    (!argv.is_empty() && ended(argv) && ended(environ)).then(|| (argv.to_vec(), environ.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOP: usize = 0x7ffc_0000_1230;

    /// A stack as an exec leaves it.
    fn stack(argv: &[&str], environ: &[&str]) -> Vec<u8> {
        let vector = 4;
        let words = 1 + argv.len() + 1 + environ.len() + 1 + vector;
        let mut strings = Vec::new();
        let mut words_out = vec![argv.len()];
        for list in [argv, environ] {
            for text in list {
                words_out.push(TOP + words * WORD + strings.len());
                strings.extend_from_slice(text.as_bytes());
                strings.push(0);
            }
            words_out.push(0);
        }
        words_out.extend([31, TOP + words * WORD + strings.len(), 0, 0]);
        strings.extend_from_slice(b"/bin/x\0");
        let words = words_out
            .iter()
            .flat_map(|word| (*word as u64).to_ne_bytes());
        words.chain(strings).collect()
    }

    #[test]
    fn strings_are_found_on_the_stack() {
        let (argv, environ) = parse_stack(&stack(&["x", "", "y z"], &["A=1", "B="]), TOP).unwrap();
        assert_eq!(argv, b"x\0\0y z\0");
        assert_eq!(environ, b"A=1\0B=\0");
        let (argv, environ) = parse_stack(&stack(&[""], &[]), TOP).unwrap();
        assert_eq!((&argv[..], &environ[..]), (&b"\0"[..], &b""[..]));
    }

    #[test]
    fn what_is_cut_short_is_none() {
        let whole = stack(&["x", "y"], &["A=1"]);
        let strings_end = whole.len() - b"/bin/x\0".len();
        for length in 0..strings_end {
            assert_eq!(parse_stack(&whole[..length], TOP), None, "{length}");
        }
        assert!(parse_stack(&whole[..strings_end], TOP).is_some());
        assert_eq!(parse_stack(&[0; 64], TOP), None);
        assert_eq!(parse_stack(&[0xff; 64], TOP), None);
    }

    #[test]
    fn nonsense_addresses_are_refused() {
        assert!(Strings::new(4096, 5000, 5000, 6000).is_some());
        for (a, b, c, d) in [(0, 0, 0, 0), (2, 1, 1, 3), (1, 2, 3, 4), (1, 2, 2, 1 << 40)] {
            assert_eq!(Strings::new(a, b, c, d), None);
        }
    }
}
