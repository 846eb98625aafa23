//! Objects compiled from C (`tracer/bpf`): ELF files with instructions, maps, and descriptions of types
//! (Documentation/bpf/btf.rst, Documentation/bpf/llvm_reloc.rst). [`Object::load`] adjusts them to the
//! running kernel and loads them.
//!
//! libbpf does the same and more, but takes 40 ms more at the begin of each run: for each type that a program
//! names it searches all of the kernel's. A relocation of a kind that is not known here is an error.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use object::read::elf::ElfFile64;
use object::{
    Endianness, Object as _, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex,
    SectionKind, SymbolKind, SymbolSection,
};

use super::btf::{Types, word};
use super::described::Described;
use super::instruction::Instruction;
use super::{Kind, Map, NewProgram, Types as LoadedTypes, load_program, load_types};
use crate::side_by_side::side_by_side;

/// Kinds of relocations against the kernel's types (`enum bpf_core_relo_kind` of include/uapi/linux/bpf.h).
const FIELD_OFFSET: u32 = 0;
const FIELD_EXISTS: u32 = 2;
const TYPE_ID: u32 = 7;
const TYPE_SIZE: u32 = 9;

/// Offsets in the header of `.BTF.ext` (`struct btf_ext_header`): of functions, lines, and relocations.
const FUNCTIONS: usize = 8;
const LINES: usize = 16;
const RELOCATIONS: usize = 24;

/// Values of the source register of an instruction: a map, the value of a map, a function of this program, and a
/// function of the kernel (include/uapi/linux/bpf.h).
const MAP: u8 = 1;
const MAP_VALUE: u8 = 2;
const OWN_FUNCTION: u8 = 1;
const KERNEL_FUNCTION: u8 = 2;

/// The section of constants, and the one with the maps.
const CONSTANTS: &str = ".rodata";
const MAPS: &str = ".maps";

/// Source of a map of an object. Maps that are not named in [`Object::load`] are made as the object declares
/// them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Use<'a> {
    /// An existing map.
    Shared(BorrowedFd<'a>),
    /// A new map with this number of entries; of a ring, of bytes.
    Entries(u32),
    /// A new map with this value as its only one; that of `.rodata` never changes.
    Value(&'a [u8]),
}

/// Loaded programs, in the order of their names, and the maps that were made for them.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) programs: Vec<OwnedFd>,
    maps: HashMap<String, Map>,
}

impl Loaded {
    /// Removes the map of this name.
    ///
    /// # Errors
    /// When the object has none, or it was shared.
    pub(crate) fn map(&mut self, name: &str) -> io::Result<Map> {
        let map = self.maps.remove(name);
        map.ok_or_else(|| bad(format!("no map {name}")))
    }
}

/// An object that the compiler wrote.
#[derive(Debug)]
pub(crate) struct Object<'a> {
    file: ElfFile64<'a, Endianness>,
    /// Its own types.
    types: Types,
    functions: Records<'a>,
    lines: Records<'a>,
    relocations: Records<'a>,
}

/// Records of `.BTF.ext` by the name of their section; the first word of each is an offset in the section.
type Records<'a> = HashMap<String, Vec<&'a [u8]>>;

impl<'a> Object<'a> {
    /// Parses an object.
    ///
    /// # Errors
    /// When it is damaged, or not an eBPF object.
    pub(crate) fn parse(bytes: &'a [u8]) -> io::Result<Object<'a>> {
        let file = ElfFile64::<Endianness>::parse(bytes).map_err(|e| bad(e.to_string()))?;
        let section = |name: &str| {
            let found = file.section_by_name(name);
            let found = found.ok_or_else(|| bad(format!("no section {name}")))?;
            found.data().map_err(|e| bad(e.to_string()))
        };
        let own = section(".BTF")?;
        let types = Types::parse(Described::Read(own.to_vec()))
            .ok_or_else(|| bad("its types are damaged"))?;
        let ext = section(".BTF.ext")?;
        let records =
            |at| records(&types, ext, at).ok_or_else(|| bad("its relocations are damaged"));
        let (functions, lines, relocations) =
            (records(FUNCTIONS)?, records(LINES)?, records(RELOCATIONS)?);
        Ok(Object {
            file,
            types,
            functions,
            lines,
            relocations,
        })
    }

    /// Its own description of its types.
    #[cfg(test)]
    pub(crate) fn types(&self) -> &Types {
        &self.types
    }

    /// Makes the maps and loads the programs of these names.
    ///
    /// # Errors
    /// When the kernel lacks a structure that the programs read, or refuses them; the error then has the line
    /// of the source and the reason.
    pub(crate) fn load(&self, programs: &[&str], uses: &[(&str, Use<'_>)]) -> io::Result<Loaded> {
        let maps = self.maps(uses)?;
        let shared = uses.iter().filter_map(|(name, of_it)| match of_it {
            Use::Shared(map) => Some(((*name).to_owned(), map.as_raw_fd())),
            _ => None,
        });
        let own = maps
            .iter()
            .map(|(name, map)| (name.clone(), map.as_fd().as_raw_fd()));
        let linked = self.link(programs, own.chain(shared).collect())?;
        let types = load_types(&self.types.for_kernel())?;
        let loading = linked.iter().map(|program| || program.load(&types));
        let programs = side_by_side(loading).into_iter();
        Ok(Loaded {
            programs: programs.collect::<io::Result<_>>()?,
            maps,
        })
    }

    /// The code of programs for the running kernel, with the descriptors of maps in it.
    fn link(&self, programs: &[&str], maps: HashMap<String, i32>) -> io::Result<Vec<Linked>> {
        let loader = Loader {
            object: self,
            kernel: Types::of_kernel()?,
            maps,
            found: RefCell::default(),
            kernel_functions: RefCell::default(),
        };
        programs.iter().map(|name| loader.link(name)).collect()
    }

    /// Makes the maps that are not shared.
    fn maps(&self, uses: &[(&str, Use<'_>)]) -> io::Result<HashMap<String, Map>> {
        let mut maps = HashMap::new();
        let use_of = |wanted: &str| {
            uses.iter()
                .find(|(name, _)| *name == wanted)
                .map(|(_, it)| *it)
        };
        for section in self.file.sections() {
            let name = section.name().map_err(|e| bad(e.to_string()))?;
            let is_data = section.kind() == SectionKind::UninitializedData && section.size() > 0;
            if !(is_data || name == CONSTANTS) {
                continue;
            }
            let size =
                usize::try_from(section.size()).map_err(|_| bad("a section is too large"))?;
            let mut value = match use_of(name) {
                Some(Use::Shared(_)) => continue,
                Some(Use::Value(value)) => value.to_vec(),
                Some(Use::Entries(_)) | None => {
                    section.data().map_err(|e| bad(e.to_string()))?.to_vec()
                }
            };
            if value.len() > size {
                let given = value.len();
                return Err(bad(format!(
                    "the value of {name} has {given} bytes, not {size}"
                )));
            }
            // Of a section of zeros the object has no bytes, and a new map is zeros.
            let is_given = !value.is_empty();
            value.resize(size, 0);
            let map = match name == CONSTANTS {
                true => Map::constant(&value)?,
                false => Map::new(Kind::Array, size, 1)?,
            };
            if is_given && name != CONSTANTS {
                map.put(0, &value[..])?;
            }
            maps.insert(name.to_owned(), map);
        }
        let index = self
            .file
            .section_by_name(MAPS)
            .map(|section| section.index());
        let declared = self
            .file
            .symbols()
            .filter(|symbol| index.is_some() && symbol.section_index() == index);
        for symbol in declared.filter(|symbol| symbol.kind() != SymbolKind::Section) {
            let name = symbol.name().map_err(|e| bad(e.to_string()))?;
            let entries = match use_of(name) {
                Some(Use::Shared(_)) => continue,
                Some(Use::Entries(entries)) => Some(entries),
                Some(Use::Value(_)) | None => None,
            };
            let map = self.declared_map(name, entries);
            maps.insert(
                name.to_owned(),
                map.ok_or_else(|| bad(format!("map {name} is not declared as one")))??,
            );
        }
        Ok(maps)
    }

    /// Makes a map as the type of its variable declares it (`__uint` and `__type` of libbpf's bpf_helpers.h).
    fn declared_map(&self, name: &str, entries: Option<u32>) -> Option<io::Result<Map>> {
        let types = &self.types;
        let declared = types.variable(name)?;
        let count = |member: &str| types.count_of(types.member_type(declared, member)?);
        let kind = Kind::of(count("type")?)?;
        let value = count("value_size").map(|size| size as usize).or_else(|| {
            let pointer = types.member_type(declared, "value")?;
            types.size_of(types.target(pointer)?)
        });
        let value = value.unwrap_or(0);
        Some(Map::with(
            kind,
            value,
            entries.or_else(|| count("max_entries"))?,
            count("map_flags").unwrap_or(0),
        ))
    }
}

/// A program, followed by the functions that it calls.
#[derive(Debug, Default)]
struct Linked {
    /// The tracepoint whose typed arguments it takes: its number among the kernel's types. `None`: any.
    tracepoint: Option<u32>,
    code: Vec<Instruction>,
    /// The first instruction of each function that was appended, by section and address.
    starts: HashMap<(usize, u64), usize>,
    /// First instruction and type of each function (`struct bpf_func_info`).
    functions: Vec<[u32; 2]>,
    /// Instruction and line of the source (`struct bpf_line_info`).
    lines: Vec<[u32; 4]>,
}

impl Linked {
    fn load(&self, types: &LoadedTypes) -> io::Result<OwnedFd> {
        load_program(NewProgram {
            code: &self.code,
            tracepoint: self.tracepoint,
            types,
            functions: &self.functions,
            lines: &self.lines,
        })
    }
}

struct Loader<'a> {
    object: &'a Object<'a>,
    kernel: &'static Types,
    /// Descriptors of all maps.
    maps: HashMap<String, i32>,
    /// Relocations that were resolved, by type, access and kind. `None`: the kernel has no such member.
    found: RefCell<HashMap<(u32, u32, u32), Option<i64>>>,
    kernel_functions: RefCell<HashMap<String, i32>>,
}

impl Loader<'_> {
    fn link(&self, name: &str) -> io::Result<Linked> {
        let file = &self.object.file;
        let symbol = file.symbols().find(|symbol| symbol.name() == Ok(name));
        let symbol = symbol.ok_or_else(|| bad(format!("no program {name}")))?;
        let section = symbol
            .section_index()
            .ok_or_else(|| bad(format!("no code of {name}")))?;
        let mut linked = Linked::default();
        self.add(section, symbol.address(), symbol.size(), &mut linked)?;
        linked.functions.sort_unstable();
        linked.lines.sort_unstable();
        let section = file
            .section_by_index(section)
            .map_err(|e| bad(e.to_string()))?;
        let section = section.name().map_err(|e| bad(e.to_string()))?;
        if let Some(tracepoint) = section.strip_prefix("tp_btf/") {
            let function = format!("btf_trace_{tracepoint}");
            let number = self.kernel.typedef(&function);
            linked.tracepoint =
                Some(number.ok_or_else(|| lacks(&format!("tracepoint {tracepoint}")))?);
        }
        Ok(linked)
    }

    /// Appends the function at an address of a section, and all that it calls.
    fn add(
        &self,
        section: SectionIndex,
        at: u64,
        size: u64,
        linked: &mut Linked,
    ) -> io::Result<()> {
        let file = &self.object.file;
        let section_of = file
            .section_by_index(section)
            .map_err(|e| bad(e.to_string()))?;
        let name = section_of.name().map_err(|e| bad(e.to_string()))?;
        let data = section_of.data().map_err(|e| bad(e.to_string()))?;
        let base = linked.code.len();
        linked.starts.insert((section.0, at), base);
        let end = at
            .checked_add(size)
            .ok_or_else(|| bad("a function has no end"))?;
        let bytes = data.get(at as usize..end as usize);
        let bytes = bytes.ok_or_else(|| bad("a function is beyond its section"))?;
        linked
            .code
            .extend(bytes.chunks_exact(8).map(Instruction::of));
        let place_of = |offset: u64| {
            let inside = (at..end).contains(&offset);
            inside.then(|| base + ((offset - at) / 8) as usize)
        };
        let records = |of_it: &Records<'_>| {
            let all = of_it.get(name).into_iter().flatten();
            let placed =
                all.filter_map(|record| Some((place_of(word(record, 0)?.into())?, words(record))));
            placed.collect::<Vec<_>>()
        };
        for (place, [_, number, ..]) in records(&self.object.functions) {
            linked.functions.push([place as u32, number]);
        }
        for (place, [_, file, line, column]) in records(&self.object.lines) {
            linked.lines.push([place as u32, file, line, column]);
        }
        for (place, [_, number, access, kind]) in records(&self.object.relocations) {
            self.relocate(number, access, kind, instruction(&mut linked.code, place)?)?;
        }
        let mut calls = Vec::new();
        for (offset, relocation) in section_of.relocations() {
            let Some(place) = place_of(offset) else {
                continue;
            };
            let RelocationTarget::Symbol(index) = relocation.target() else {
                return Err(bad("a relocation without a symbol"));
            };
            let symbol = file
                .symbol_by_index(index)
                .map_err(|e| bad(e.to_string()))?;
            let symbol_name = symbol.name().map_err(|e| bad(e.to_string()))?;
            match symbol.section() {
                SymbolSection::Undefined => {
                    let number = self.kernel_function(symbol_name)?;
                    instruction(&mut linked.code, place)?.call(KERNEL_FUNCTION, number);
                }
                SymbolSection::Section(other) => {
                    let target = instruction(&mut linked.code, place)?;
                    if target.is_call() {
                        let behind = match symbol.kind() {
                            SymbolKind::Section => 8 * (i64::from(target.immediate()) + 1),
                            _ => 0,
                        };
                        calls.push((place, other, symbol.address().wrapping_add_signed(behind)));
                        continue;
                    }
                    let section = file
                        .section_by_index(other)
                        .map_err(|e| bad(e.to_string()))?;
                    let section = section.name().map_err(|e| bad(e.to_string()))?;
                    let is_map = section == MAPS;
                    let of_map = if is_map { symbol_name } else { section };
                    let map = self
                        .maps
                        .get(of_map)
                        .ok_or_else(|| bad(format!("no map {of_map}")))?;
                    let offset = target.immediate().wrapping_add(symbol.address() as i32);
                    target.set_map(if is_map { MAP } else { MAP_VALUE }, *map);
                    if !is_map {
                        instruction(&mut linked.code, place + 1)?.set_immediate(offset);
                    }
                }
                _ => return Err(bad(format!("a relocation against {symbol_name}"))),
            }
        }
        for (place, other, start) in calls {
            if !linked.starts.contains_key(&(other.0, start)) {
                let function = file.symbols().find(|symbol| {
                    symbol.section_index() == Some(other)
                        && symbol.address() == start
                        && symbol.size() > 0
                });
                let size = function.ok_or_else(|| bad("a call of no function"))?.size();
                self.add(other, start, size, linked)?;
            }
            let distance = linked.starts[&(other.0, start)] as i64 - place as i64 - 1;
            instruction(&mut linked.code, place)?.call(OWN_FUNCTION, distance as i32);
        }
        Ok(())
    }

    fn kernel_function(&self, name: &str) -> io::Result<i32> {
        if let Some(known) = self.kernel_functions.borrow().get(name) {
            return Ok(*known);
        }
        let number = self
            .kernel
            .function(name)
            .ok_or_else(|| lacks(&format!("function {name}")))?;
        self.kernel_functions
            .borrow_mut()
            .insert(name.to_owned(), number.cast_signed());
        Ok(number.cast_signed())
    }

    /// Adjusts an instruction that depends on the kernel's types.
    fn relocate(
        &self,
        number: u32,
        access: u32,
        kind: u32,
        target: &mut Instruction,
    ) -> io::Result<()> {
        let key = (number, access, kind);
        let known = self.found.borrow().get(&key).copied();
        let value = match known {
            Some(known) => known,
            None => {
                let resolved = self.resolve(number, access, kind)?;
                self.found.borrow_mut().insert(key, resolved);
                resolved
            }
        };
        match value {
            Some(value) => target.relocate(value),
            // Reached only if the program has found that the member exists.
            None => target.poison(),
        }
        Ok(())
    }

    fn resolve(&self, number: u32, access: u32, kind: u32) -> io::Result<Option<i64>> {
        let own = &self.object.types;
        let damaged = || bad("a relocation names no type");
        let structure = own.name_of(number).ok_or_else(damaged)?;
        match kind {
            FIELD_OFFSET | FIELD_EXISTS => {
                let member = own.member_path(number, access).ok_or_else(damaged)?;
                let offset = self.kernel.offset(&structure, &member);
                Ok(match kind {
                    FIELD_OFFSET => offset.map(|offset| offset as i64),
                    _ => Some(offset.is_some().into()),
                })
            }
            TYPE_ID => {
                let found = self.kernel.structure(&structure);
                Ok(Some(
                    found
                        .ok_or_else(|| lacks(&format!("structure {structure}")))?
                        .into(),
                ))
            }
            TYPE_SIZE => {
                let found = self.kernel.size(&structure);
                Ok(Some(
                    found.ok_or_else(|| lacks(&format!("structure {structure}")))? as i64,
                ))
            }
            _ => Err(bad(format!("relocation of kind {kind}"))),
        }
    }
}

/// The records that word `at` of the header refers to.
fn records<'a>(types: &Types, ext: &'a [u8], at: usize) -> Option<Records<'a>> {
    let header = word(ext, 4)? as usize;
    let from = header.checked_add(word(ext, at)? as usize)?;
    let part = ext.get(from..from.checked_add(word(ext, at + 4)? as usize)?)?;
    let mut all = Records::new();
    if part.is_empty() {
        return Some(all);
    }
    let size = word(part, 0)? as usize;
    let mut left = part.get(4..)?;
    while !left.is_empty() {
        let (section, count) = (types.text(word(left, 0)?)?, word(left, 4)? as usize);
        let length = size.checked_mul(count).filter(|_| size >= 4)?;
        let of_section = left.get(8..8usize.checked_add(length)?)?;
        all.entry(section)
            .or_default()
            .extend(of_section.chunks_exact(size));
        left = &left[8 + length..];
    }
    Some(all)
}

/// The first four words; zeros where there are fewer.
fn words(record: &[u8]) -> [u32; 4] {
    std::array::from_fn(|n| word(record, 4 * n).unwrap_or(0))
}

fn instruction(code: &mut [Instruction], place: usize) -> io::Result<&mut Instruction> {
    let found = code.get_mut(place);
    found.ok_or_else(|| bad("a relocation is beyond its function"))
}

fn bad(reason: impl AsRef<str>) -> io::Error {
    io::Error::other(format!("eBPF object: {}", reason.as_ref()))
}

/// The error for a kernel without `thing`.
fn lacks(thing: &str) -> io::Error {
    io::Error::other(format!("this kernel has no {thing}"))
}

#[cfg(test)]
mod tests {
    use super::super::objects::{Source, open};
    use super::*;

    /// Bytes of an object changed one by one, and beginnings of it; `fuzz` has the long form.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn damaged_objects_are_errors() {
        if let Err(error) = Types::of_kernel() {
            return eprintln!("skipped: types of the kernel: {error}");
        }
        let whole: &[u8] = include_bytes!("../../bpf/prebuilt/switches.o");
        let maps = ["all_rings", CONSTANTS, ".bss.descriptors", ".bss.lost"];
        let rings = (0..16).map(|cpu| format!("ring_{cpu}"));
        let maps: HashMap<String, i32> = rings.chain(maps.map(str::to_owned)).zip(3..).collect();
        let link =
            |bytes: &[u8]| Object::parse(bytes)?.link(&["leaves", "completed"], maps.clone());
        assert_eq!(link(whole).unwrap().len(), 2);
        let mut errors = 0;
        for at in (0..whole.len()).step_by(97) {
            let mut changed = whole.to_vec();
            changed[at] ^= 0xff;
            errors += u32::from(link(&changed).is_err());
            let _ = link(&whole[..at]);
        }
        assert!(errors > 10, "{errors}");
    }

    #[test]
    fn a_refusal_names_the_program_and_a_missing_map_is_named() {
        let Ok(object) = open(Source::Tests) else {
            return eprintln!("skipped: no eBPF programs for this CPU architecture");
        };
        if Types::of_kernel().is_err() {
            return eprintln!("skipped: types of the kernel");
        }
        let error = object.link(&["first"], HashMap::new()).unwrap_err();
        assert!(error.to_string().contains("no map"), "{error}");
        let error = object.link(&["none"], HashMap::new()).unwrap_err();
        assert!(error.to_string().contains("no program none"), "{error}");
    }
}
