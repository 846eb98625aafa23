//! From the registers and the stack of a thread to the addresses of its frames, by the unwind information of
//! the files (`.eh_frame`), and by frame pointers where there is none.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, Reg, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{FrameAddress, Module as Unwindable, Unwinder};

use super::elf::Bytes;
#[cfg(any(test, fuzzing))]
use super::elf::Code;
use super::modules::{ModuleId, Modules};
use super::records::{Mapped, Sample};

/// Most frames of a stack. The outermost ones are those that are missing.
const MOST_FRAMES: usize = 512;

/// The executable mappings of a process, by their first address.
pub(super) type Maps = BTreeMap<u64, Mapped>;

/// Adds a mapping, which replaces what was there.
pub(super) fn map(maps: &mut Maps, new: Mapped) {
    let end = new.start.saturating_add(new.length);
    let covered = maps.range(..end).rev();
    let covered = covered.take_while(|(start, old)| start.saturating_add(old.length) > new.start);
    let covered: Vec<u64> = covered.map(|(&start, _)| start).collect();
    for start in covered {
        let Some(old) = maps.remove(&start) else {
            continue;
        };
        let old_end = start.saturating_add(old.length);
        if old_end > end {
            let rest = Mapped {
                start: end,
                length: old_end - end,
                offset: old.offset.saturating_add(end - start),
                ..old.clone()
            };
            maps.insert(end, rest);
        }
        if start < new.start {
            let rest = Mapped {
                length: new.start - start,
                ..old
            };
            maps.insert(start, rest);
        }
    }
    maps.insert(new.start, new);
}

/// A place in code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) module: ModuleId,
    /// Address in the terms of the module's file; of memory and the kernel the address itself.
    pub(super) address: u64,
}

/// A mapping whose module is known.
#[derive(Clone, Copy, Debug)]
struct Loaded {
    start: u64,
    end: u64,
    module: ModuleId,
    /// To subtract from an address of the process.
    bias: u64,
}

/// State for unwinding the threads of one process image.
pub(super) struct Image {
    pid: u32,
    image: u32,
    unwinder: UnwinderX86_64<Bytes>,
    cache: CacheX86_64,
    loaded: Vec<Loaded>,
    /// The mappings that were loaded; others mean that all must be loaded again.
    maps: Arc<Maps>,
}

impl Image {
    pub(super) fn new(pid: u32, image: u32, maps: Arc<Maps>) -> Image {
        Image {
            pid,
            image,
            unwinder: UnwinderX86_64::new(),
            cache: CacheX86_64::new(),
            loaded: Vec::new(),
            maps,
        }
    }

    /// True if the mappings are still these.
    pub(super) fn is_of(&self, maps: &Arc<Maps>) -> bool {
        Arc::ptr_eq(&self.maps, maps)
    }

    /// The user's frames of a sample, innermost first; true if the stack was unwound to its end.
    pub(super) fn frames(&mut self, modules: &mut Modules, sample: &Sample) -> (Vec<Place>, bool) {
        let Some(values) = &sample.registers else {
            return (Vec::new(), false);
        };
        let [ax, bx, cx, dx, si, di, bp, sp, ip, upper @ ..] = *values;
        if !sample.kernel.is_empty() && !self.is_mapped(ip) {
            // In an exec: the registers are those of a program that is no longer there.
            return (Vec::new(), true);
        }
        let mut registers = UnwindRegsX86_64::new(ip, sp, bp);
        let named = [
            (Reg::RAX, ax),
            (Reg::RBX, bx),
            (Reg::RCX, cx),
            (Reg::RDX, dx),
            (Reg::RSI, si),
            (Reg::RDI, di),
        ];
        let numbered = [
            Reg::R8,
            Reg::R9,
            Reg::R10,
            Reg::R11,
            Reg::R12,
            Reg::R13,
            Reg::R14,
            Reg::R15,
        ];
        for (register, value) in named.into_iter().chain(numbered.into_iter().zip(upper)) {
            registers.set(register, value);
        }
        let stack = &sample.stack;
        let mut read = |address: u64| -> Result<u64, ()> {
            let at = usize::try_from(address.checked_sub(sp).ok_or(())?).map_err(|_| ())?;
            let word = stack.get(at..).and_then(<[u8]>::first_chunk).ok_or(())?;
            Ok(u64::from_ne_bytes(*word))
        };
        let mut frames = Vec::new();
        let mut next = FrameAddress::from_instruction_pointer(ip);
        while frames.len() < MOST_FRAMES {
            let address = next.address_for_lookup();
            let place = self.place(modules, address);
            frames.push(place);
            let code = modules.code(place.module);
            if code.is_some_and(|code| code.is_entry(place.address)) {
                return (frames, true);
            }
            let is_memory = code.is_none();
            let unwound = match is_memory {
                true if next.is_return_address() && self.is_trampoline(next.address()) => {
                    step_over_trampoline(&mut registers, &mut read)
                }
                _ => self
                    .unwinder
                    .unwind_frame(next, &mut registers, &mut self.cache, &mut read)
                    .map_err(|_| ()),
            };
            match unwound {
                Ok(None) => return (frames, true),
                Ok(Some(address)) => match FrameAddress::from_return_address(address) {
                    Some(address) => next = address,
                    None => return (frames, true),
                },
                Err(()) => return (frames, false),
            }
        }
        (frames, false)
    }

    fn is_mapped(&self, address: u64) -> bool {
        let before = self.maps.range(..=address).next_back();
        before.is_some_and(|(start, mapped)| address - start < mapped.length)
    }

    /// The place of an address of the process, whose module can be unwound from now on.
    fn place(&mut self, modules: &mut Modules, address: u64) -> Place {
        let holds = |loaded: &&Loaded| loaded.start <= address && address < loaded.end;
        let known = self.loaded.iter().find(holds).copied();
        let Some(loaded) = known.or_else(|| self.load(modules, address)) else {
            let module = modules.memory(self.pid, self.image);
            return Place { module, address };
        };
        Place {
            module: loaded.module,
            address: address.wrapping_sub(loaded.bias),
        }
    }

    fn load(&mut self, modules: &mut Modules, address: u64) -> Option<Loaded> {
        let (&start, mapped) = self.maps.range(..=address).next_back()?;
        let end = start.saturating_add(mapped.length);
        (address < end).then_some(())?;
        let module = modules.of(mapped, self.pid, self.image);
        let code = modules.code(module);
        let own = code.and_then(|code| code.address_at(mapped.offset));
        let bias = own.map_or(0, |own| start.wrapping_sub(own));
        if let Some(code) = code.filter(|_| own.is_some()) {
            let unwindable =
                Unwindable::new(String::new(), start..end, bias, code.sections.clone());
            self.unwinder.add_module(unwindable);
        }
        let loaded = Loaded {
            start,
            end,
            module,
            bias,
        };
        self.loaded.push(loaded);
        Some(loaded)
    }

    /// True if an address in memory without a file is a return address in a trampoline that CPython writes for
    /// each function (Python/asm_trampoline.S of 3.12: `sub $8,%rsp; call *%rcx; add $8,%rsp; ret`). It keeps
    /// no frame pointer.
    fn is_trampoline(&self, address: u64) -> bool {
        const REST: [u8; 5] = [0x48, 0x83, 0xc4, 0x08, 0xc3];
        let mut code = [0; REST.len()];
        let memory = File::open(format!("/proc/{}/mem", self.pid));
        let read = |memory: File| memory.read_exact_at(&mut code, address);
        memory.and_then(read).is_ok() && code == REST
    }
}

fn step_over_trampoline(
    registers: &mut UnwindRegsX86_64,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Result<Option<u64>, ()> {
    let at = registers.sp().checked_add(8).ok_or(())?;
    let address = read(at)?;
    registers.set_sp(at.checked_add(8).ok_or(())?);
    registers.set_ip(address);
    Ok(Some(address))
}

/// Any unwind information with any stack.
#[cfg(any(test, fuzzing))]
pub(super) fn fuzz(code: &Code, bytes: &[u8]) {
    let mut unwinder = UnwinderX86_64::<Bytes>::new();
    let mut cache = CacheX86_64::<framehop::MayAllocateDuringUnwind>::new();
    let all = 0..u64::from(u32::MAX);
    unwinder.add_module(Unwindable::new(
        String::new(),
        all,
        0,
        code.sections.clone(),
    ));
    let mut registers = UnwindRegsX86_64::new(0x1000, 0, 64);
    let mut read = |address: u64| -> Result<u64, ()> {
        let at = usize::try_from(address).map_err(|_| ())?;
        let word = bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or(())?;
        Ok(u64::from_ne_bytes(*word))
    };
    let mut next = FrameAddress::from_instruction_pointer(0x1000);
    for _ in 0..100 {
        let unwound = unwinder.unwind_frame(next, &mut registers, &mut cache, &mut read);
        match unwound
            .ok()
            .flatten()
            .and_then(FrameAddress::from_return_address)
        {
            Some(address) => next = address,
            None => break,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::records::Identity;
    use super::*;

    fn mapped(start: u64, length: u64, path: &str) -> Mapped {
        Mapped {
            start,
            length,
            offset: 0x100,
            identity: Identity::Inode(0, 0, 1),
            path: path.into(),
        }
    }

    #[test]
    fn a_new_mapping_cuts_those_that_it_covers() {
        let mut maps = Maps::new();
        map(&mut maps, mapped(0x1000, 0x4000, "a"));
        map(&mut maps, mapped(0x2000, 0x1000, "b"));
        let parts = |maps: &Maps| -> Vec<(u64, u64, u64)> {
            maps.values()
                .map(|part| (part.start, part.length, part.offset))
                .collect()
        };
        assert_eq!(
            parts(&maps),
            [
                (0x1000, 0x1000, 0x100),
                (0x2000, 0x1000, 0x100),
                (0x3000, 0x2000, 0x2100)
            ]
        );
        map(&mut maps, mapped(0, 0x10000, "c"));
        assert_eq!(parts(&maps), [(0, 0x10000, 0x100)]);
    }

    #[test]
    fn without_unwind_information_frame_pointers_lead_to_the_caller() {
        let maps = Arc::new(Maps::new());
        let mut image = Image::new(std::process::id(), 0, maps);
        let mut registers = [0; 17];
        (registers[6], registers[7], registers[8]) = (0x7000_0010, 0x7000_0000, 0x5000);
        let mut stack = vec![0; 16];
        for word in [0x7000_0030u64, 0x6001, 0, 0, 0, 0x6101] {
            stack.extend(word.to_ne_bytes());
        }
        let sample = Sample {
            blocked_ns: None,
            kernel: Vec::new(),
            registers: Some(registers),
            stack,
        };
        let mut modules = Modules::new(1);
        let (frames, complete) = image.frames(&mut modules, &sample);
        let addresses: Vec<u64> = frames.iter().map(|place| place.address).collect();
        assert_eq!(addresses, [0x5000, 0x6000, 0x6100]);
        assert!(complete, "a frame pointer of 0 ends a stack");
        let cut = Sample {
            stack: sample.stack[..24].to_vec(),
            ..sample
        };
        assert!(!image.frames(&mut modules, &cut).1);
    }
}
