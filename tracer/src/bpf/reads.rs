//! How programs read the kernel's memory, at addresses of which the kernel does not know what is there.
//!
//! A helper copies from any address, for some 15 ns each time; most of what programs read are single words. Since Linux 6.17 a program
//! may also say that it only reads there ("bpf_rdonly_cast" of Documentation/bpf/kfuncs.rst, of `void`): then a word is one instruction.

use std::sync::OnceLock;

use super::btf::Types;
use super::code::{
    Code, LOAD_8, LOAD_16, LOAD_32, LOAD_64, R0, R1, R2, R3, READ_KERNEL, STACK, STORE_8, STORE_16,
    STORE_32, STORE_64, TASK,
};

/// What the kernel calls its function that makes an address one that is only read at.
const CAST: &str = "bpf_rdonly_cast";

/// Ways to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    ByHelper,
    /// The number of [`CAST`].
    Directly(i32),
}

impl Way {
    /// The best that the running kernel has.
    fn of_kernel() -> Way {
        static WAY: OnceLock<Way> = OnceLock::new();
        *WAY.get_or_init(|| Way::directly().unwrap_or(Way::ByHelper))
    }

    fn directly() -> Option<Way> {
        let number = Types::of_kernel().ok()?.function(CAST)?;
        let way = Way::Directly(number.try_into().ok()?);
        let mut code = Code::default();
        code.call(TASK);
        code.read_by(way, STACK, -8, 8, R0, 0);
        code.leave();
        super::load(&code.all).is_ok().then_some(way)
    }
}

impl Code {
    /// Puts the `size` bytes that are `offset` behind the address in a register at place `to` behind `base`, a register that calls of
    /// helpers keep; zeros where nothing can be read. Changes the registers that such calls change.
    pub(crate) fn read_kernel(&mut self, base: u8, to: i16, size: usize, address: u8, offset: i32) {
        self.read_by(Way::of_kernel(), base, to, size, address, offset);
    }

    fn read_by(&mut self, way: Way, base: u8, to: i16, size: usize, address: u8, offset: i32) {
        match way {
            Way::ByHelper => {
                self.copy(R3, address);
                self.add(R3, offset);
                self.copy(R1, base);
                self.add(R1, to.into());
                self.set(R2, size as i32);
                self.call(READ_KERNEL);
            }
            Way::Directly(cast) => {
                self.copy(R1, address);
                self.add(R1, offset);
                self.set(R2, 0);
                self.call_kernel(cast);
                self.copy_words(base, to, size);
            }
        }
    }

    /// Copies from the address in R0.
    fn copy_words(&mut self, base: u8, to: i16, size: usize) {
        let mut done = 0;
        for (bytes, load, store) in [
            (8, LOAD_64, STORE_64),
            (4, LOAD_32, STORE_32),
            (2, LOAD_16, STORE_16),
            (1, LOAD_8, STORE_8),
        ] {
            while size - done >= bytes {
                self.put(load, R1, R0, done as i16, 0);
                self.put(store, base, R1, to + done as i16, 0);
                done += bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::super::code::{Instruction, MEMORY_OF_MAP};
    use super::super::{Kind, Map, run};
    use super::*;

    const MEMORY: u8 = 9;

    /// What a program reads in that way: bytes of ours that are in the kernel's memory as those of a map, a part of them, and what is at
    /// an address where nothing is.
    fn read_by(way: Way) -> [u64; 8] {
        let source = Map::new(Kind::Array, 32, 1).unwrap();
        let bytes: [u8; 32] = std::array::from_fn(|n| n as u8 + 1);
        source.put(0, &bytes).unwrap();
        let seen = Map::new(Kind::Array, 64, 1).unwrap();
        seen.put(0, &[0xffu8; 64]).unwrap();
        let mut code = Code::default();
        code.map(MEMORY, MEMORY_OF_MAP, seen.as_fd());
        for (to, size, offset) in [(0, 16, 3), (16, 15, 1), (32, 1, 31), (40, 2, 30)] {
            code.map(R3, MEMORY_OF_MAP, source.as_fd());
            code.read_by(way, MEMORY, to, size, R3, offset);
        }
        code.set(R3, 64);
        code.read_by(way, MEMORY, 48, 8, R3, 0);
        code.set_wide(R3, 0xdead_0000_0000_0000);
        code.read_by(way, MEMORY, 56, 8, R3, 0);
        code.leave();
        let all: Vec<Instruction> = code.all;
        run(&super::super::load(&all).unwrap(), 0).unwrap();
        seen.get(0).unwrap()
    }

    #[test]
    fn both_ways_read_the_same() {
        if let Err(error) = Map::new(Kind::Array, 8, 1) {
            return eprintln!("skipped: programs in the kernel: {error}");
        }
        let by_helper = read_by(Way::ByHelper);
        let word = |first: u8| u64::from_le_bytes(std::array::from_fn(|n| first + n as u8));
        assert_eq!(by_helper[0], word(4));
        assert_eq!(by_helper[2], word(2));
        assert_eq!(by_helper[3], word(10) & (u64::MAX >> 8) | 0xff << 56);
        assert_eq!(by_helper[4], u64::MAX << 8 | 32);
        assert_eq!(&by_helper[6..], [0, 0], "where nothing is");
        match Way::directly() {
            Some(way) => assert_eq!(read_by(way), by_helper),
            None => eprintln!("skipped: the kernel has no {CAST} of void"),
        }
    }
}
