//! Functions and lines by debug information (DWARF), functions that were inlined included.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use addr2line::{Context, LookupContinuation, LookupResult, SplitDwarfLoad};
use gimli::{Dwarf, DwarfFileType, EndianArcSlice, LittleEndian, Reader, SectionId};
use object::read::{CompressionFormat, ReadCache, ReadRef};
use object::{Object, ObjectSection};

use super::super::elf::Elf;
use super::super::files::in_our_namespace;
use super::found::Located;
use super::{debug_files, names};

/// Most bytes of debug information of one file.
const MOST_BYTES: u64 = 1 << 30;

type Bytes = EndianArcSlice<LittleEndian>;

/// Debug information of a file.
pub(super) struct Debug {
    context: Context<Bytes>,
}

/// Reason why there is no debug information.
pub(super) enum Without {
    /// The file has none, or it contradicts itself.
    None,
    /// There is too much.
    TooLarge,
}

impl Debug {
    pub(super) fn of<'data, R: ReadRef<'data>>(
        elf: &Elf<'data, R>,
        path: &Path,
    ) -> Result<Debug, Without> {
        if elf.section_by_name(".debug_info").is_none() {
            return Err(Without::None);
        }
        if size(elf) > MOST_BYTES {
            return Err(Without::TooLarge);
        }
        let mut dwarf = load(elf, false).ok_or(Without::None)?;
        if let Some(file) = debug_files::common_file(elf, path) {
            let cache = ReadCache::new(&file);
            if let Ok(common) = Elf::parse(&cache)
                && size(&common) <= MOST_BYTES
            {
                let section = |id: SectionId| Ok::<_, gimli::Error>(section(&common, id.name()));
                let _ = dwarf.load_sup(section);
            }
        }
        let context = Context::from_dwarf(dwarf).map_err(|_| Without::None)?;
        Ok(Debug { context })
    }

    /// The functions at an address, innermost first; `None`: none is known, or the time is over.
    pub(super) fn functions(&self, address: u64, until: Instant) -> Option<Vec<Located>> {
        if Instant::now() > until {
            return None;
        }
        // The reader looks for the byte after the last address, too.
        address.checked_add(1)?;
        let mut lookup = self.context.find_frames(address);
        let frames = loop {
            match lookup {
                LookupResult::Output(frames) => break frames,
                LookupResult::Load { load, continuation } => {
                    lookup = continuation.resume(split(&load));
                }
            }
        };
        let mut frames = frames.ok()?;
        let mut functions = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            // A frame without a function has the line alone, as of assembler.
            let Some(function) = frame.function else {
                continue;
            };
            let location = frame.location.as_ref();
            functions.push(Located {
                name: names::demangled(&function.raw_name().ok()?),
                file: location
                    .and_then(|location| location.file)
                    .map(str::to_owned),
                line: location.and_then(|location| location.line),
            });
        }
        (!functions.is_empty()).then_some(functions)
    }
}

fn size<'data, R: ReadRef<'data>>(elf: &Elf<'data, R>) -> u64 {
    let sections = elf.sections();
    let debug = sections.filter(|section| section.name().is_ok_and(|name| name.contains("debug_")));
    let size = debug.map(|section| match section.compressed_data() {
        Ok(data) => data.uncompressed_size,
        Err(_) => section.size(),
    });
    size.fold(0, u64::saturating_add)
}

fn load<'data, R: ReadRef<'data>>(elf: &Elf<'data, R>, is_split: bool) -> Option<Dwarf<Bytes>> {
    let of_id = |id: SectionId| {
        let name = if is_split {
            id.dwo_name()
        } else {
            Some(id.name())
        };
        let bytes = name.map_or_else(empty, |name| section(elf, name));
        Ok::<_, gimli::Error>(bytes)
    };
    Dwarf::load(of_id).ok()
}

fn empty() -> Bytes {
    Bytes::new(Arc::from([]), LittleEndian)
}

/// The bytes of a section; none if it is missing, damaged or compressed in an unknown way.
fn section<'data, R: ReadRef<'data>>(elf: &Elf<'data, R>, name: &str) -> Bytes {
    let bytes = || -> Option<Arc<[u8]>> {
        let data = elf.section_by_name(name)?.compressed_data().ok()?;
        match data.format {
            CompressionFormat::None => Some(Arc::from(data.data)),
            CompressionFormat::Zlib => {
                let size = usize::try_from(data.uncompressed_size).ok()?;
                let mut inflated = vec![0; size.min(MOST_BYTES as usize)];
                flate2::Decompress::new(true)
                    .decompress(data.data, &mut inflated, flate2::FlushDecompress::Finish)
                    .ok()?;
                Some(Arc::from(inflated))
            }
            _ => None,
        }
    };
    bytes().map_or_else(empty, |bytes| Bytes::new(bytes, LittleEndian))
}

/// The part of debug information that the compiler put into a file of its own (`-gsplit-dwarf`).
fn split(load: &SplitDwarfLoad<Bytes>) -> Option<Arc<Dwarf<Bytes>>> {
    let text = |bytes: &Option<Bytes>| -> Option<PathBuf> {
        Some(PathBuf::from(&*bytes.as_ref()?.to_string_lossy().ok()?))
    };
    let path = text(&load.comp_dir)
        .unwrap_or_default()
        .join(text(&load.path)?);
    let file: File = in_our_namespace(&path)?;
    let cache = ReadCache::new(&file);
    let elf = Elf::parse(&cache).ok()?;
    if size(&elf) > MOST_BYTES {
        return None;
    }
    let mut dwarf = self::load(&elf, true)?;
    dwarf.file_type = DwarfFileType::Dwo;
    dwarf.make_dwo(&load.parent);
    Some(Arc::new(dwarf))
}
