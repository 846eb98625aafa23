//! ELF files: the parts that unwinding needs. The bytes are foreign; a file that contradicts itself has no such
//! part, and none is larger than the file.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use framehop::ExplicitModuleSectionInfo;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::read::{ReadCache, ReadRef};
use object::{LittleEndian, Object, ObjectSection};

/// Bytes of a section, shared by all processes that execute the file.
pub(super) type Bytes = Arc<[u8]>;

/// Most bytes of unwind information of one file.
const MOST_BYTES: u64 = 256 << 20;

/// A parsed file.
pub(super) type Elf<'a, R> = ElfFile64<'a, LittleEndian, R>;

/// The build id of a file, if it is an ELF file that has one.
pub(super) fn build_id(file: &File) -> Option<Vec<u8>> {
    let cache = ReadCache::new(file);
    let elf = Elf::parse(&cache).ok()?;
    elf.build_id().ok().flatten().map(<[u8]>::to_vec)
}

/// A part of a file that is loaded to be executed.
#[derive(Clone, Copy, Debug)]
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
}

/// The parts of a file that unwinding needs.
#[derive(Debug)]
pub(super) struct Code {
    segments: Vec<Segment>,
    entry: u64,
    pub(super) sections: ExplicitModuleSectionInfo<Bytes>,
}

impl Code {
    pub(super) fn of_file(file: &File) -> Option<Code> {
        Code::parse(&ReadCache::new(file))
    }

    pub(super) fn parse<'data>(data: impl ReadRef<'data>) -> Option<Code> {
        let elf = Elf::parse(data).ok()?;
        let endian = elf.endian();
        let segments = elf.elf_program_headers().iter();
        // Parts without code may be mapped from the same page of the file, to other addresses.
        let segments = segments.filter(|header| {
            let has_code = header.p_flags(endian) & object::elf::PF_X != 0;
            header.p_type(endian) == object::elf::PT_LOAD && has_code
        });
        let segments = segments.map(|header| Segment {
            offset: header.p_offset(endian),
            size: header.p_filesz(endian),
            address: header.p_vaddr(endian),
        });
        let range = |name: &str| -> Option<Range<u64>> {
            let section = elf.section_by_name(name)?;
            let start = section.address();
            Some(start..start.checked_add(section.size())?)
        };
        let bytes = |name: &str| -> Option<Bytes> {
            let section = elf.section_by_name(name)?;
            (section.size() <= MOST_BYTES).then_some(())?;
            section.data().ok().map(Bytes::from)
        };
        Some(Code {
            segments: segments.collect(),
            entry: elf.entry(),
            sections: ExplicitModuleSectionInfo {
                base_svma: 0,
                text_svma: range(".text"),
                got_svma: range(".got"),
                eh_frame_svma: range(".eh_frame"),
                eh_frame: bytes(".eh_frame"),
                eh_frame_hdr_svma: range(".eh_frame_hdr"),
                eh_frame_hdr: bytes(".eh_frame_hdr"),
                debug_frame: bytes(".debug_frame"),
                ..ExplicitModuleSectionInfo::default()
            },
        })
    }

    /// True if an address is in the code with which the kernel begins the program or its loader: nothing called
    /// that. Some loaders do not say so in their unwind information.
    pub(super) fn is_entry(&self, address: u64) -> bool {
        const LENGTH: u64 = 64;
        self.entry > 0 && (self.entry..self.entry.saturating_add(LENGTH)).contains(&address)
    }

    /// The address in the file's own terms of the byte at an offset of the file.
    pub(super) fn address_at(&self, offset: u64) -> Option<u64> {
        // A mapping begins at a page, so it may begin before its segment.
        const PAGE: u64 = 4096;
        let holds = |segment: &&Segment| {
            let first = segment.offset & !(PAGE - 1);
            offset >= first && offset < segment.offset.saturating_add(segment.size.max(1))
        };
        let segment = self.segments.iter().find(holds)?;
        let address = segment.address.wrapping_sub(segment.offset);
        Some(address.wrapping_add(offset))
    }
}

/// The code that the kernel maps into each process (vdso(7)), from this process.
pub(super) fn vdso() -> Option<Code> {
    use std::os::unix::fs::FileExt;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, rest) = line.split_once('-')?;
    let (end, _) = rest.split_once(' ')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let length = usize::try_from(end.checked_sub(start)?).ok()?;
    let mut bytes = vec![0; length.min(1 << 20)];
    File::open("/proc/self/mem")
        .ok()?
        .read_exact_at(&mut bytes, start)
        .ok()?;
    Code::parse(&*bytes)
}

/// Any bytes as an ELF file.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(bytes: &[u8]) {
    if let Some(code) = Code::parse(bytes) {
        for at in [0, 0x1000, u64::MAX] {
            let _ = code.address_at(at);
        }
        super::unwind::fuzz(&code, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_program_and_the_code_of_the_kernel_can_be_unwound() {
        let file = File::open("/proc/self/exe").unwrap();
        let code = Code::of_file(&file).unwrap();
        assert!(code.sections.eh_frame.is_some() && code.sections.eh_frame_hdr.is_some());
        let text = code.sections.text_svma.clone().unwrap();
        let holds_text = code.segments.iter().any(|segment| {
            code.address_at(segment.offset).is_some_and(|start| {
                start <= text.start && text.end <= start.saturating_add(segment.size)
            })
        });
        assert!(holds_text, "{:?}", code.segments);
        assert_eq!(code.address_at(u64::MAX), None);
        assert!(vdso().unwrap().sections.eh_frame.is_some());
    }

    /// The index of the unwind information (`.eh_frame_hdr`) has an address before the begin of that.
    #[test]
    fn unwind_information_outside_of_its_section_is_none() {
        const DATAREL_UDATA4: u8 = 0x33;
        let mut index = vec![1, DATAREL_UDATA4, 3, DATAREL_UDATA4];
        // Begin of the unwind information, number of entries; the entry: address of the code, of its information.
        for word in [0x1000u32, 1, 0x100, 0x10] {
            index.extend(word.to_le_bytes());
        }
        let code = Code {
            segments: Vec::new(),
            entry: 0,
            sections: ExplicitModuleSectionInfo {
                eh_frame_svma: Some(0x2000..0x2010),
                eh_frame: Some(Bytes::from([0; 16])),
                eh_frame_hdr_svma: Some(0x1000..0x1014),
                eh_frame_hdr: Some(Bytes::from(index)),
                ..ExplicitModuleSectionInfo::default()
            },
        };
        super::super::unwind::fuzz(&code, &[]);
    }
}
