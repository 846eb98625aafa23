//! The seccomp filter: a classic BPF program over `struct seccomp_data`
//! (Documentation/userspace-api/seccomp_filter.rst).
//!
//! Calls that are not picked are allowed by comparisons of the number alone: the kernel evaluates these
//! beforehand and never runs the program for such a call (its action cache, Linux 5.11).

use std::io;

use libc::{sock_filter, sock_fprog};

use super::call::{ARCHITECTURES, CallKind, Numbers, UNTRACED};
use super::library::{self, IN_PAGE};

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// Low half of the address after the system call.
const INSTRUCTION: u32 = 8;
const FIRST_ARGUMENT: u32 = 16;

const ALLOW: u32 = 0x7fff_0000;
const TRACE: u32 = 0x7ff0_0000;

const X86_64: u32 = 0xc000_003e;
const ARM64: u32 = 0xc000_00b7;

/// An open with one of these flags is not of interest: `O_DIRECTORY` (of arm64 and of all others) and
/// `O_PATH` move no data. A file without a name is made by opening a directory, which is of interest:
/// [`UNNAMED`].
const fn left_out(architecture: u32) -> u32 {
    let directory = if architecture == ARM64 {
        0o40_000
    } else {
        0o200_000
    };
    directory | 0o10_000_000
}

/// `__O_TMPFILE` of include/uapi/asm-generic/fcntl.h.
pub(crate) const UNNAMED: u32 = 0o20_000_000;
/// An open with exactly these flags is not of interest either where the traced directories are mounted: so GCC
/// opens sources and headers, thousands of them, most at places where they are not. gzip and xz, which open
/// their input without a terminal, too, set more flags.
const AS_GCC: u32 = (libc::O_RDONLY | libc::O_NOCTTY) as u32;

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_SET: u16 = 0x45;
const RETURN: u16 = 0x06;

/// Open flags that change or make a file: the library's own opens have none of them.
pub(crate) const CHANGES: u32 =
    (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) as u32;

/// Bits of a socket's type that are no flags (`SOCK_TYPE_MASK`).
const TYPE: u32 = 0xf;

/// A jump spans at most 255 statements.
const MOST_OWN_OPENS: usize = 16;

fn statement(code: u16, k: u32) -> sock_filter {
    sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// Calls that the filter picks besides those that it always does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Picked {
    /// Calls that make sockets for datagrams of IP.
    pub(crate) datagrams: bool,
    /// Opens that are made as GCC opens sources and headers.
    pub(crate) gcc_opens: bool,
}

fn program(own_opens: &[u32], more: Picked) -> Vec<sock_filter> {
    let mut program = vec![statement(LOAD, ARCHITECTURE)];
    for numbers in &ARCHITECTURES {
        let section = section(numbers, own_opens, more);
        // The target may be further than a conditional jump reaches.
        program.push(jump(JUMP_IF_EQUAL, numbers.architecture, 1, 0));
        program.push(statement(JUMP, section.len() as u32));
        program.extend(section);
    }
    program.push(statement(RETURN, ALLOW));
    program
}

fn section(numbers: &Numbers, own_opens: &[u32], more: Picked) -> Vec<sock_filter> {
    let mut section = vec![statement(LOAD, NUMBER)];
    if numbers.mask != !0 {
        section.push(statement(AND, numbers.mask));
    }
    let wanted =
        |kind: CallKind| !kind.moves_data() && (more.datagrams || kind != CallKind::Socket);
    let calls = numbers.calls.iter();
    for &(number, kind) in calls.filter(|(_, kind)| wanted(*kind)) {
        let picked = TRACE | u32::from(kind.code());
        let verdict = verdict(kind, picked, numbers.architecture, own_opens, more);
        section.push(jump(JUMP_IF_EQUAL, number, 0, verdict.len() as u8));
        section.extend(verdict);
    }
    if let Some(number) = numbers.clone {
        section.push(jump(JUMP_IF_EQUAL, number, 0, 3));
        section.push(statement(LOAD, FIRST_ARGUMENT));
        section.push(jump(JUMP_IF_SET, libc::CLONE_UNTRACED as u32, 0, 1));
        section.push(statement(RETURN, TRACE | u32::from(UNTRACED)));
    }
    section.push(statement(RETURN, ALLOW));
    section
}

fn verdict(
    kind: CallKind,
    picked: u32,
    architecture: u32,
    own_opens: &[u32],
    more: Picked,
) -> Vec<sock_filter> {
    let flags = match kind {
        CallKind::Open => Some(1),
        CallKind::OpenAt => Some(2),
        _ => None,
    };
    let trace = statement(RETURN, picked);
    if kind == CallKind::Socket {
        return datagrams_of_ip(trace);
    }
    let Some(argument) = flags else {
        return vec![trace];
    };
    let own_opens = match architecture {
        X86_64 if kind == CallKind::OpenAt => own_opens,
        _ => &[],
    };
    // No open has all flags.
    let as_gcc = if more.gcc_opens { !0 } else { AS_GCC };
    // The flags are the low half of the argument on these little-endian machines.
    let mut verdict = vec![
        statement(LOAD, FIRST_ARGUMENT + 8 * argument),
        jump(JUMP_IF_SET, UNNAMED, 3, 0),
        jump(JUMP_IF_SET, left_out(architecture), 1, 0),
        jump(JUMP_IF_EQUAL, as_gcc, 0, 1),
        statement(RETURN, ALLOW),
    ];
    if !own_opens.is_empty() {
        let checks = own_opens.len() as u8;
        verdict.push(jump(JUMP_IF_SET, CHANGES, 2 + 2 * checks, 0));
        verdict.push(statement(LOAD, INSTRUCTION));
        verdict.push(statement(AND, IN_PAGE));
        for &place in own_opens {
            verdict.push(jump(JUMP_IF_EQUAL, place, 0, 1));
            verdict.push(statement(RETURN, ALLOW));
        }
    }
    verdict.push(trace);
    verdict
}

/// The verdict on socket(domain, type, protocol): sockets of other kinds have an address, or none at all, at
/// the next call, which is picked.
fn datagrams_of_ip(trace: sock_filter) -> Vec<sock_filter> {
    let domain = |domain: i32| domain as u32;
    vec![
        statement(LOAD, FIRST_ARGUMENT),
        jump(JUMP_IF_EQUAL, domain(libc::AF_INET), 1, 0),
        jump(JUMP_IF_EQUAL, domain(libc::AF_INET6), 0, 3),
        statement(LOAD, FIRST_ARGUMENT + 8),
        statement(AND, TYPE),
        jump(JUMP_IF_EQUAL, libc::SOCK_DGRAM as u32, 1, 0),
        statement(RETURN, ALLOW),
        trace,
    ]
}

/// Installs the filter in this thread and all that it will start. Without privilege they gain none from
/// set-user-id programs any more, which a tracer without privilege prevents, too.
///
/// # Errors
/// When the kernel has no seccomp filters, or another filter forbids to add one.
pub(crate) fn install(more: Picked) -> io::Result<()> {
    let mut own_opens = library::own_opens();
    own_opens.truncate(MOST_OWN_OPENS);
    set(&mut program(&own_opens, more))
}

#[expect(unsafe_code)]
fn set(program: &mut [sock_filter]) -> io::Result<()> {
    const SET_MODE_FILTER: libc::c_uint = 1;
    /// The filter is no sandbox, so nothing must be slowed down against speculation.
    const SPEC_ALLOW: libc::c_ulong = 1 << 2;
    let program = sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    let install = || {
        // SAFETY: `program` and what it points to outlive the call, which only reads them.
        let result = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                SET_MODE_FILTER,
                SPEC_ALLOW,
                &raw const program,
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    match install() {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            // SAFETY: takes numbers only.
            if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
                return Err(io::Error::last_os_error());
            }
            install()
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATAGRAMS_TOO: Picked = Picked {
        datagrams: true,
        gcc_opens: false,
    };

    fn verdict_on(architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
        verdict_at(0, architecture, number, arguments)
    }

    fn verdict_at(ip: u64, architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
        verdict_of(DATAGRAMS_TOO, ip, architecture, number, arguments)
    }

    /// Runs the program as the kernel does.
    fn verdict_of(
        more: Picked,
        ip: u64,
        architecture: u32,
        number: u32,
        arguments: [u64; 6],
    ) -> u32 {
        let mut data = Vec::new();
        data.extend(number.to_ne_bytes());
        data.extend(architecture.to_ne_bytes());
        data.extend(ip.to_ne_bytes());
        data.extend(arguments.iter().flat_map(|a| a.to_ne_bytes()));
        let program = program(&[0xb1d, 0x001], more);
        let (mut at, mut value) = (0, 0);
        loop {
            let step = program[at];
            at += 1;
            let jump = |is: bool| usize::from(if is { step.jt } else { step.jf });
            match step.code {
                LOAD => {
                    let word = &data[step.k as usize..][..4];
                    value = u32::from_ne_bytes(word.try_into().unwrap());
                }
                AND => value &= step.k,
                JUMP => at += step.k as usize,
                JUMP_IF_EQUAL => at += jump(value == step.k),
                JUMP_IF_SET => at += jump(value & step.k != 0),
                RETURN => return step.k,
                other => panic!("{other:#x}"),
            }
        }
    }

    #[test]
    fn every_picked_call_is_traced_under_its_code_and_no_other() {
        for numbers in &ARCHITECTURES {
            for number in 0..600 {
                let mut calls = numbers.calls.iter().filter(|(_, kind)| !kind.moves_data());
                let picked = calls.find(|(n, _)| *n == number);
                let expected = picked.map_or(ALLOW, |(_, kind)| TRACE | u32::from(kind.code()));
                let arguments = match picked {
                    Some((_, CallKind::Socket)) => DATAGRAMS,
                    _ => [0; 6],
                };
                assert_eq!(
                    verdict_on(numbers.architecture, number, arguments),
                    expected,
                    "{number} of {:#x}",
                    numbers.architecture
                );
            }
        }
    }

    #[test]
    fn a_child_without_a_tracer_is_asked_about() {
        let traced = TRACE | u32::from(UNTRACED);
        let untraced = (libc::CLONE_UNTRACED | libc::CLONE_VM | libc::SIGCHLD) as u64;
        for number in [56, 0x4000_0000 | 56] {
            assert_eq!(
                verdict_on(X86_64, number, [untraced, 0, 0, 0, 0, 0]),
                traced
            );
            let plain = [libc::SIGCHLD as u64, u64::MAX, 0, 0, 0, 0];
            assert_eq!(verdict_on(X86_64, number, plain), ALLOW);
        }
    }

    const DATAGRAMS: [u64; 6] = [libc::AF_INET as u64, libc::SOCK_DGRAM as u64, 0, 0, 0, 0];

    #[test]
    fn of_sockets_those_for_datagrams_of_ip_are_traced() {
        let made = |domain: i32, kind: i32| {
            verdict_on(X86_64, 41, [domain as u64, kind as u64, 0, 0, 0, 0])
        };
        let traced = TRACE | u32::from(CallKind::Socket.code());
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        for domain in [libc::AF_INET, libc::AF_INET6] {
            assert_eq!(made(domain, libc::SOCK_DGRAM), traced);
            assert_eq!(made(domain, libc::SOCK_DGRAM | flags), traced);
            assert_eq!(made(domain, libc::SOCK_STREAM | flags), ALLOW);
            assert_eq!(made(domain, libc::SOCK_RAW), ALLOW);
        }
        assert_eq!(made(libc::AF_UNIX, libc::SOCK_DGRAM), ALLOW);
        assert_eq!(made(libc::AF_NETLINK, libc::SOCK_DGRAM), ALLOW);
        // They are not picked without a capture.
        let code = TRACE | u32::from(CallKind::Socket.code());
        let picks = |program: &[sock_filter]| program.iter().any(|step| step.k == code);
        assert!(picks(&program(&[], DATAGRAMS_TOO)) && !picks(&program(&[], Picked::default())));
    }

    #[test]
    fn numbers_mean_nothing_without_their_architecture() {
        const I386: u32 = 0x4000_0003;
        assert_eq!(verdict_on(X86_64, 5, [0; 6]), ALLOW); // fstat there
        assert_eq!(
            verdict_on(I386, 5, [0; 6]),
            TRACE | u32::from(CallKind::Open.code())
        );
        let x32 = 0x4000_0000;
        assert_eq!(
            verdict_on(X86_64, x32 | 257, [0; 6]),
            TRACE | u32::from(CallKind::OpenAt.code())
        );
        assert_eq!(verdict_on(0x1234, 257, [0; 6]), ALLOW);
    }

    #[test]
    fn opens_of_no_interest_are_let_through() {
        let open = |flags: i32| verdict_on(X86_64, 257, [0, 0, flags as u64, 0, 0, 0]);
        let traced = TRACE | u32::from(CallKind::OpenAt.code());
        assert_eq!(open(0o200_000 | libc::O_CLOEXEC), ALLOW);
        assert_eq!(open(libc::O_PATH), ALLOW);
        assert_eq!(open(libc::O_TMPFILE | libc::O_RDWR), traced);
        assert_eq!(open(libc::O_WRONLY | libc::O_CREAT), traced);
        assert_eq!(open(libc::O_CLOEXEC), traced);
        assert_eq!(open(libc::O_NOCTTY), ALLOW);
        assert_eq!(open(libc::O_NOCTTY | libc::O_NONBLOCK), traced);
        let all = Picked {
            gcc_opens: true,
            ..Picked::default()
        };
        let arguments = |flags: i32| [0, 0, flags as u64, 0, 0, 0];
        let unmounted = |flags: i32| verdict_of(all, 0, X86_64, 257, arguments(flags));
        assert_eq!(unmounted(libc::O_NOCTTY), traced);
        assert_eq!(unmounted(libc::O_PATH), ALLOW);
        let at = |ip: u64, flags: i32| verdict_at(ip, X86_64, 257, [0, 0, flags as u64, 0, 0, 0]);
        for place in [0x7f00_1234_5b1d, 0x7f00_1234_5001] {
            assert_eq!(at(place, libc::O_CLOEXEC), ALLOW);
            assert_eq!(at(place, libc::O_CLOEXEC | libc::O_RDWR), traced);
            assert_eq!(at(place, libc::O_RDONLY), ALLOW);
            assert_eq!(at(place + 1, libc::O_CLOEXEC), traced);
        }
    }
}
