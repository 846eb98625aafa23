//! Where the kernel has what is in a page of memory: what lies in a pipe, for one, is known to it by its page alone (`struct page`).
//!
//! All memory is in the kernel's address space once, in its order, and all pages are described in their order, from addresses on
//! that are different at each boot and told to nobody (Documentation/arch/x86/x86_64/mm.rst: "direct mapping", "vmemmap"). So one
//! address is a linear function of the other; where it begins is found by a page of which we know what is in it.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::unistd::{SysconfVar, sysconf};

use super::code::{
    Code, IF_EQUAL, JUMP, MEMORY_OF_MAP, R0, R1, R2, R3, READ_KERNEL, STORE_64, TASK,
};
use super::{Kind, Map, load, run};

/// What regions of the kernel's address space begin at a multiple of (`PUD_SIZE` of arch/x86/mm/kaslr.c).
const ALIGNMENT: u64 = 1 << 30;
/// Words that are read at a time.
const WORDS: usize = 4;
const READ_BYTES: usize = 8 * WORDS;

/// Where the content of a page is: its address times `scale` and `base` added, both modulo 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(crate) scale: i32,
    pub(crate) base: u64,
}

/// What leads from a task to the page of what lies in a pipe: offsets of members, bytes, and the size of a page's description.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// From the task to the table of its descriptors: each is the address of the next one.
    pub(crate) to_files: [i32; 3],
    /// The same from an open file to the buffers of the pipe that it is.
    pub(crate) to_buffers: [i32; 3],
    /// Of a buffer.
    pub(crate) page: i32,
    pub(crate) described: u64,
}

impl Pages {
    /// Those of the running kernel. `None`: it has its memory otherwise.
    pub(crate) fn find(way: &Way) -> Option<Pages> {
        if any_unaccepted(&fs::read_to_string("/proc/meminfo").ok()?) {
            return None;
        }
        let looking = Looking::new().ok()?;
        let (reader, mut writer) = io::pipe().ok()?;
        let random = RandomState::new();
        let known: [u64; WORDS] = std::array::from_fn(|index| random.hash_one(index));
        let bytes: Vec<u8> = known.iter().flat_map(|word| word.to_ne_bytes()).collect();
        writer.write_all(&bytes).ok()?;

        let follow = |from: u64, offset: i32| {
            let [next, ..] = looking.at(from.wrapping_add_signed(offset.into()))?;
            (next != 0).then_some(next)
        };
        let task = looking.own_task()?;
        let files = way
            .to_files
            .iter()
            .try_fold(task, |at, &of| follow(at, of))?;
        let file = follow(files, 8 * reader.as_raw_fd())?;
        let buffers = way
            .to_buffers
            .iter()
            .try_fold(file, |at, &of| follow(at, of))?;
        let page = follow(buffers, way.page)?;

        let scale = procfs::page_size().checked_div(way.described)?;
        let scaled = page.wrapping_mul(scale);
        // What we know is somewhere in the region in which the task is, too.
        let region = |number: u64| number & !(ALIGNMENT - 1);
        let below = region(task) | (scaled & (ALIGNMENT - 1));
        let found = nearest(below).find(|&address| looking.at(address) == Some(known))?;
        let base = found.wrapping_sub(scaled);
        let scale = i32::try_from(scale).ok()?;
        Some(Pages { scale, base })
    }
}

/// Whether this is a machine whose host has given it memory that it has not accepted yet, and must not look at
/// (Documentation/arch/x86/tdx.rst), by what /proc/meminfo says.
fn any_unaccepted(meminfo: &str) -> bool {
    let mut found = meminfo
        .lines()
        .filter_map(|line| line.strip_prefix("Unaccepted:"));
    found.any(|amount| amount.trim() != "0 kB")
}

/// Addresses of which one is in each part of the memory that the machine may have, the nearest to this one first.
fn nearest(address: u64) -> impl Iterator<Item = u64> {
    let pages = sysconf(SysconfVar::_PHYS_PAGES).ok().flatten();
    let pages = pages.and_then(|pages| u64::try_from(pages).ok());
    let parts = pages.map_or(0, |pages| pages * procfs::page_size() / ALIGNMENT);
    // There may be holes in it.
    let parts = 2 * parts + 16;
    let both = move |part: u64| {
        let far = part.wrapping_mul(ALIGNMENT);
        [address.wrapping_sub(far), address.wrapping_add(far)]
    };
    (0..parts).flat_map(both)
}

/// A program that looks at the kernel's memory for us, where [`Pages::find`] says; at address 0, where nothing is, it says where the
/// calling thread is.
struct Looking {
    program: OwnedFd,
    seen: Map,
}

impl Looking {
    fn new() -> io::Result<Looking> {
        let seen = Map::new(Kind::Array, READ_BYTES, 1)?;
        let mut code = Code::default();
        code.load(R3, R1, 0);
        let own = code.jump(IF_EQUAL, R3, 0, 0);
        code.map(R1, MEMORY_OF_MAP, seen.as_fd());
        code.set(R2, READ_BYTES as i32);
        code.call(READ_KERNEL);
        let read = code.jump(JUMP, 0, 0, 0);
        code.land(own);
        code.call(TASK);
        code.map(R1, MEMORY_OF_MAP, seen.as_fd());
        code.put(STORE_64, R1, R0, 0, 0);
        code.land(read);
        code.leave();
        let program = load(&code.all)?;
        Ok(Looking { program, seen })
    }

    /// What is at this address, zeros where nothing can be read. `None`: the kernel runs no programs for us.
    fn at(&self, address: u64) -> Option<[u64; WORDS]> {
        run(&self.program, address).ok()?;
        self.seen.get(0).ok()
    }

    /// Where the kernel has the calling thread (`struct task_struct`).
    fn own_task(&self) -> Option<u64> {
        let [task, ..] = self.at(0)?;
        Some(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_accepted_is_noticed() {
        let meminfo = |line: &str| format!("MemTotal:       24684096 kB\n{line}\n");
        assert!(!any_unaccepted(&meminfo("MemFree:          12 kB")));
        assert!(!any_unaccepted(&meminfo("Unaccepted:            0 kB")));
        assert!(any_unaccepted(&meminfo("Unaccepted:      4194304 kB")));
    }

    #[test]
    fn the_nearest_parts_come_first() {
        let first: Vec<i64> = nearest(5 * ALIGNMENT + 7)
            .take(6)
            .map(|at| (at.wrapping_sub(7) / ALIGNMENT).cast_signed())
            .collect();
        assert_eq!(first, [5, 5, 4, 6, 3, 7]);
    }
}
