//! Selection of packets in the kernel, by a program of classic BPF
//! (Documentation/networking/filter.rst).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::sock_filter;

use super::packet::Parsed;

/// Selection of packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Ports, of TCP, UDP and SCTP; empty: all of IP.
    pub ports: Vec<u16>,
}

// Offsets of loads that are not into the frame (linux/filter.h).
const NETWORK: u32 = (-0x10_0000_i32).cast_unsigned();
const PROTOCOL: u32 = (-0x1000_i32).cast_unsigned();

// Instructions: class, size and mode.
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF_AT_X: u16 = 0x48;
const TO_X: u16 = 0x07;
const LOAD_X: u16 = 0x01;
const AND: u16 = 0x54;
const SHIFT_LEFT: u16 = 0x64;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_SET: u16 = 0x45;
const RETURN: u16 = 0x06;

const TCP: u32 = 6;
const UDP: u32 = 17;
const SCTP: u32 = 132;

/// Most ports of one filter: jumps reach 255 instructions.
pub const MOST_PORTS: usize = 64;

const fn plain(code: u16, k: u32) -> sock_filter {
    sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

/// Target of a jump.
#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    Next,
    Accept,
    Reject,
    Ports,
    Version6,
}

/// A program whose jumps have names.
#[derive(Default)]
struct Code {
    lines: Vec<(sock_filter, To, To)>,
    labels: Vec<(To, usize)>,
}

impl Code {
    fn line(&mut self, code: u16, k: u32) {
        self.lines.push((plain(code, k), To::Next, To::Next));
    }

    fn jump(&mut self, code: u16, k: u32, yes: To, no: To) {
        self.lines.push((plain(code, k), yes, no));
    }

    fn label(&mut self, label: To) {
        self.labels.push((label, self.lines.len()));
    }

    fn resolved(self) -> Vec<sock_filter> {
        let place = |to: To| self.labels.iter().find(|l| l.0 == to).map(|l| l.1);
        let lines = self.lines.iter().enumerate().map(|(at, &(line, yes, no))| {
            let distance = |to| place(to).map_or(0, |place| (place - at - 1) as u8);
            sock_filter {
                jt: distance(yes),
                jf: distance(no),
                ..line
            }
        });
        lines.collect()
    }
}

impl Filter {
    /// The program that passes `snap` bytes of each wanted packet.
    pub fn program(&self, snap: u32) -> Vec<sock_filter> {
        let mut code = Code::default();
        // Tags are removed before, unless there are two: those are read later.
        code.line(LOAD_HALF, PROTOCOL);
        let is_version_4 = if self.ports.is_empty() {
            To::Accept
        } else {
            To::Next
        };
        if self.ports.is_empty() {
            code.jump(JUMP_EQUAL, 0x0800, is_version_4, To::Next);
            code.jump(JUMP_EQUAL, 0x86dd, To::Accept, To::Next);
            for tagged in [0x8100, 0x88a8] {
                code.jump(JUMP_EQUAL, tagged, To::Accept, To::Next);
            }
            code.jump(JUMP_EQUAL, 0x8864, To::Accept, To::Reject);
        } else {
            code.jump(JUMP_EQUAL, 0x86dd, To::Version6, To::Next);
            for tagged in [0x8100, 0x88a8, 0x8864] {
                code.jump(JUMP_EQUAL, tagged, To::Accept, To::Next);
            }
            code.jump(JUMP_EQUAL, 0x0800, To::Next, To::Reject);
            code.line(LOAD_BYTE, NETWORK.wrapping_add(9));
            for protocol in [TCP, UDP] {
                code.jump(JUMP_EQUAL, protocol, To::Ports, To::Next);
            }
            code.jump(JUMP_EQUAL, SCTP, To::Ports, To::Reject);
            code.label(To::Version6);
            code.line(LOAD_BYTE, NETWORK.wrapping_add(6));
            // Packets with extension headers are checked later.
            for extension in [0, 43, 44, 51, 60] {
                code.jump(JUMP_EQUAL, extension, To::Accept, To::Next);
            }
            self.version_6_ports(&mut code);
            code.label(To::Ports);
            // Only the first fragment has ports. Those of the others are known later.
            code.line(LOAD_HALF, NETWORK.wrapping_add(6));
            code.jump(JUMP_SET, 0x1fff, To::Accept, To::Next);
            code.line(LOAD_BYTE, NETWORK);
            code.line(AND, 15);
            code.line(SHIFT_LEFT, 2);
            code.line(TO_X, 0);
            self.compare(&mut code);
        }
        code.label(To::Reject);
        code.line(RETURN, 0);
        code.label(To::Accept);
        code.line(RETURN, snap);
        code.resolved()
    }

    fn version_6_ports(&self, code: &mut Code) {
        // Any protocol: packets without ports are left out later.
        code.line(LOAD_X, 40);
        self.compare(code);
    }

    /// Compares both ports with the wanted ones; X is the length of the header of IP.
    fn compare(&self, code: &mut Code) {
        for offset in [0, 2] {
            code.line(LOAD_HALF_AT_X, NETWORK.wrapping_add(offset));
            for (at, &port) in self.ports.iter().enumerate() {
                let is_last = offset == 2 && at + 1 == self.ports.len();
                let no = if is_last { To::Reject } else { To::Next };
                code.jump(JUMP_EQUAL, port.into(), To::Accept, no);
            }
        }
    }

    /// True if a packet that the kernel let through is wanted: the program cannot decide all of them.
    pub(crate) fn wants(&self, parsed: &Parsed) -> bool {
        self.ports.is_empty()
            || parsed
                .ports
                .is_some_and(|(a, b)| self.ports.contains(&a) || self.ports.contains(&b))
    }
}

/// Attaches a program to a socket.
#[expect(unsafe_code)]
pub fn attach(socket: BorrowedFd<'_>, program: &[sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies `program.len` instructions, which live until the call returns.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_reach_what_they_name() {
        for count in [0, 1, 3, MOST_PORTS] {
            let ports: Vec<u16> = (0..count).map(|i| 1000 + i as u16).collect();
            let program = Filter { ports }.program(128);
            let end = program.len();
            assert_eq!((program[end - 1].code, program[end - 1].k), (RETURN, 128));
            assert_eq!((program[end - 2].code, program[end - 2].k), (RETURN, 0));
            for (at, line) in program.iter().enumerate() {
                assert!(at + 1 + usize::from(line.jt) < end || line.code == RETURN);
                assert!(at + 1 + usize::from(line.jf) < end || line.code == RETURN);
            }
        }
    }
}
