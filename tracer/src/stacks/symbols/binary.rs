//! Functions of an ELF file: by its debug information or that of its debug file, else by symbol tables, else by
//! the places where its unwind information says that functions begin.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

use flowtrace_schema::Symbols;
use gimli::{
    BaseAddresses, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, ParsedEhFrameHdr, UnwindSection,
};
use object::elf::FileHeader64;
use object::read::elf::{Sym, SymbolTable};
use object::read::{ReadCache, ReadRef, SymbolIndex};
use object::{Object, ObjectSymbol, SymbolKind};

use super::super::elf::{self, Code, Elf};
use super::dwarf::{Debug, Without};
use super::found::{Found, Located, base_name};
use super::{debug_files, names};

/// The functions at addresses of the file at `path`.
pub(super) fn of_file(file: &File, path: &[u8], addresses: &[u64], until: Instant) -> Found {
    let own = ReadCache::new(file);
    let place = Path::new(std::ffi::OsStr::from_bytes(path));
    let debug_file = match Elf::parse(&own) {
        Ok(elf) if elf.section_by_name(".debug_info").is_none() => {
            debug_files::debug_file(&elf, place)
        }
        _ => None,
    };
    let separate = debug_file.as_ref().map(ReadCache::new);
    of_parts(&own, separate.as_ref(), path, addresses, until)
}

/// The functions at addresses of the kernel's code in processes.
pub(super) fn of_vdso(addresses: &[u64]) -> Found {
    let mut functions = Vec::new();
    for _ in addresses {
        functions.push(vec![Located::named("[vdso]".to_owned())]);
    }
    Found {
        symbols: Symbols::None,
        functions,
        is_partial: false,
    }
}

fn of_parts<'data, R: ReadRef<'data>>(
    own: R,
    separate: Option<R>,
    path: &[u8],
    addresses: &[u64],
    until: Instant,
) -> Found {
    let place = Path::new(std::ffi::OsStr::from_bytes(path));
    let elf = Elf::parse(own).ok();
    let separate = separate.and_then(|data| Elf::parse(data).ok());
    let debug = match separate.as_ref().or(elf.as_ref()) {
        Some(elf) if Instant::now() < until => Debug::of(elf, place),
        Some(_) => Err(Without::TooLarge),
        None => Err(Without::None),
    };
    let mut is_partial = matches!(debug, Err(Without::TooLarge));
    let debug = debug.ok();
    let (table, kind) = table(elf.as_ref(), separate.as_ref());
    let begins = Begins::new(own);
    let base = base_name(path);
    let functions = addresses.iter().map(|&address| {
        let located = debug
            .as_ref()
            .and_then(|debug| debug.functions(address, until));
        if let Some(located) = located {
            return located;
        }
        let name = table.as_ref().and_then(|table| table.named(address));
        let name = name.unwrap_or_else(|| {
            let begin = begins.of(address).unwrap_or(address);
            format!("{base}+0x{begin:x}")
        });
        vec![Located::named(name)]
    });
    let functions = functions.collect();
    is_partial |= debug.is_some() && Instant::now() > until;
    Found {
        symbols: if debug.is_some() {
            Symbols::Dwarf
        } else {
            kind
        },
        functions,
        is_partial,
    }
}

/// Most bytes of a function whose symbol has no size.
const MOST_ASSEMBLER: u64 = 4096;

/// The functions of a symbol table. Their names are read when they are asked for: few are.
struct Table<'a, 'data, R: ReadRef<'data>> {
    of: &'a SymbolTable<'data, FileHeader64<object::LittleEndian>, R>,
    /// Begin, end and index of each, by address.
    functions: Vec<(u64, u64, SymbolIndex)>,
}

/// The best symbol table.
fn table<'a, 'data, R: ReadRef<'data>>(
    own: Option<&'a Elf<'data, R>>,
    separate: Option<&'a Elf<'data, R>>,
) -> (Option<Table<'a, 'data, R>>, Symbols) {
    let full = separate.into_iter().chain(own);
    let full = full.map(|elf| {
        (
            Table::new(elf.elf_symbol_table(), elf.symbols()),
            Symbols::Symtab,
        )
    });
    let exported = own.map(|elf| {
        (
            Table::new(elf.elf_dynamic_symbol_table(), elf.dynamic_symbols()),
            Symbols::Dynsym,
        )
    });
    let mut tables = full.chain(exported);
    let best = tables.find(|(table, _)| !table.functions.is_empty());
    best.map_or((None, Symbols::None), |(table, kind)| (Some(table), kind))
}

impl<'a, 'data, R: ReadRef<'data>> Table<'a, 'data, R> {
    fn new(
        of: &'a SymbolTable<'data, FileHeader64<object::LittleEndian>, R>,
        symbols: impl Iterator<Item = impl ObjectSymbol<'data>>,
    ) -> Self {
        let functions =
            symbols.filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition());
        let mut functions: Vec<_> = functions
            .map(|symbol| {
                let end = symbol.address().saturating_add(symbol.size());
                (symbol.address(), end, symbol.index())
            })
            .collect();
        functions.sort_unstable_by_key(|(start, end, index)| (*start, *end, index.0));
        Table { of, functions }
    }

    /// Name of the function that has an address; of several names the one that is last in the alphabet, which is
    /// the one without underscores in front.
    fn named(&self, address: u64) -> Option<String> {
        let after = self
            .functions
            .partition_point(|(start, ..)| *start <= address);
        // Functions of assembler have no size.
        let holds = |(start, end, _): &&(u64, u64, SymbolIndex)| {
            address < *end || start == end && address - start < MOST_ASSEMBLER
        };
        let before = self.functions[..after].iter().rev();
        let found = before.clone().take(8).find(holds)?;
        let same = before
            .skip_while(|one| *one != found)
            .take_while(|one| (one.0, one.1) == (found.0, found.1));
        let names = same.filter_map(|one| {
            let symbol = self.of.symbol(one.2).ok()?;
            symbol.name(object::LittleEndian, self.of.strings()).ok()
        });
        Some(names::demangled(&String::from_utf8_lossy(names.max()?)))
    }
}

/// The places where functions begin.
struct Begins {
    code: Option<Code>,
    bases: BaseAddresses,
}

impl Begins {
    fn new<'data>(data: impl ReadRef<'data>) -> Begins {
        let code = Code::parse(data);
        let mut bases = BaseAddresses::default();
        if let Some(code) = &code {
            let sections = &code.sections;
            let start =
                |range: &Option<std::ops::Range<u64>>| range.as_ref().map(|range| range.start);
            if let Some(at) = start(&sections.text_svma) {
                bases = bases.set_text(at);
            }
            if let Some(at) = start(&sections.got_svma) {
                bases = bases.set_got(at);
            }
            if let Some(at) = start(&sections.eh_frame_svma) {
                bases = bases.set_eh_frame(at);
            }
            if let Some(at) = start(&sections.eh_frame_hdr_svma) {
                bases = bases.set_eh_frame_hdr(at);
            }
        }
        Begins { code, bases }
    }

    /// Begin of the function that has an address.
    fn of(&self, address: u64) -> Option<u64> {
        let sections = &self.code.as_ref()?.sections;
        let (header, frames): (&elf::Bytes, &elf::Bytes) =
            (sections.eh_frame_hdr.as_ref()?, sections.eh_frame.as_ref()?);
        let header: ParsedEhFrameHdr<EndianSlice<'_, LittleEndian>> =
            EhFrameHdr::new(header, LittleEndian)
                .parse(&self.bases, 8)
                .ok()?;
        let frames = EhFrame::new(frames, LittleEndian);
        let entry = header
            .table()?
            .fde_for_address(&frames, &self.bases, address, EhFrame::cie_from_offset)
            .ok()?;
        Some(entry.initial_address())
    }
}

#[cfg(any(test, fuzzing))]
pub(super) fn fuzz(bytes: &[u8]) {
    let addresses = [0, 0x1000, u64::MAX];
    let until = Instant::now() + std::time::Duration::from_millis(200);
    let found = of_parts(bytes, None, b"/fuzz", &addresses, until);
    assert_eq!(found.functions.len(), addresses.len());
    assert!(
        found
            .functions
            .iter()
            .all(|functions| !functions.is_empty())
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn marked() -> u64 {
        std::hint::black_box(7)
    }

    /// Address of a function of this program in the terms of its file.
    fn address() -> u64 {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let first = maps.lines().next().unwrap().split('-').next().unwrap();
        let base = u64::from_str_radix(first, 16).unwrap();
        marked as *const () as u64 - base
    }

    #[test]
    fn a_function_of_this_program_has_its_name_and_line() {
        let file = File::open("/proc/self/exe").unwrap();
        let until = Instant::now() + std::time::Duration::from_secs(60);
        let found = of_file(&file, b"/a/program", &[address(), u64::MAX], until);
        // What the compiler put into it comes first.
        let function = found.functions[0].last().unwrap();
        assert_eq!(found.symbols, Symbols::Dwarf);
        assert!(function.name.ends_with("marked"), "{function:?}");
        assert!(
            function
                .file
                .as_ref()
                .unwrap()
                .ends_with("symbols/binary.rs")
        );
        assert!(function.line.is_some());
        assert_eq!(
            found.functions[1][0].name,
            format!("program+0x{:x}", u64::MAX)
        );
        // Without time there are names, no lines.
        let found = of_file(&file, b"/a/program", &[address()], Instant::now());
        assert!(found.is_partial);
        assert_eq!(found.symbols, Symbols::Symtab);
        assert!(found.functions[0][0].name.ends_with("marked"));
    }

    #[test]
    fn without_names_a_function_is_the_place_where_it_begins() {
        let file = std::fs::read("/proc/self/exe").unwrap();
        let begins = Begins::new(&*file);
        let begin = begins.of(address() + 1).unwrap();
        assert!(begin <= address() + 1 && begin + 4096 > address());
    }
}
