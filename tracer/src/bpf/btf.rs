//! Layout of the running kernel's structures, from its own description of its types
//! (Documentation/bpf/btf.rst).

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use memchr::memmem;

use super::described::Described;

const KERNEL: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;

/// Bytes of a type before the members that depend on its kind (`struct btf_type`).
const COMMON: usize = 12;
/// Bytes of a member of a structure (`struct btf_member`).
const MEMBER: usize = 12;
/// Most levels of structures within structures.
const DEPTH: usize = 16;

const INTEGER: u32 = 1;
const ARRAY: u32 = 3;
const STRUCTURE: u32 = 4;
const UNION: u32 = 5;
const ENUMERATION: u32 = 6;
const FORWARD: u32 = 7;
/// A named function, and the types of its parameters and result.
const NAMED_FUNCTION: u32 = 12;
const FUNCTION: u32 = 13;
/// A variable, and a section of an object with its variables.
const VARIABLE: u32 = 14;
const SECTION: u32 = 15;
/// Bytes of a variable in a section (`struct btf_var_secinfo`).
const IN_SECTION: usize = 12;
/// Kinds that stand for another type: typedef, volatile, const, restrict, variable, type tag.
const STANDS_FOR: [u32; 6] = [8, 9, 10, 11, VARIABLE, 18];
const TYPEDEF: u32 = 8;
const POINTER: u32 = 2;

/// The place of each type whose number is a multiple of this is kept; those between are found from there.
const STRIDE: usize = 32;

/// The types of a kernel. The command waits until they are parsed: a few dozen of more than 100 000 are used,
/// and as little as possible is kept of the others.
#[derive(Debug)]
pub(crate) struct Types {
    bytes: Described,
    strings: usize,
    /// End of the types.
    end: usize,
    /// Place of each [`STRIDE`]th type, from number 0 on, which is `void` and takes no bytes.
    places: Vec<usize>,
    /// The first letters of the names of structures, typedefs and variables, and their types.
    begins: Vec<u64>,
    numbers: Vec<u32>,
    /// Places of sections.
    sections: Vec<usize>,
    /// Functions that were sought: programs of several objects call the same one.
    functions: Mutex<HashMap<String, Option<u32>>>,
}

/// The common part of a type.
#[derive(Clone, Copy)]
struct Type {
    kind: u32,
    /// Number of members, or of parameters.
    count: usize,
    /// True if members have bits and offset in one number.
    has_bits: bool,
    /// The type that it stands for, or its size in bytes.
    other: u32,
    /// Place of its members.
    rest: usize,
}

impl Types {
    /// The types of the running kernel, which do not change: they are parsed once.
    ///
    /// # Errors
    /// When the kernel has no description (`CONFIG_DEBUG_INFO_BTF`), or one of an unknown form.
    pub(crate) fn of_kernel() -> io::Result<&'static Types> {
        static TYPES: OnceLock<Result<Types, String>> = OnceLock::new();
        let read = || {
            let described = Described::open(Path::new(KERNEL)).map_err(|e| e.to_string())?;
            Self::parse(described).ok_or_else(|| "it has a form that is not known here".into())
        };
        let types = TYPES.get_or_init(read).as_ref();
        types.map_err(|error| io::Error::other(format!("{KERNEL}: {error}")))
    }

    /// Parses a description. `None`: it is truncated, or has kinds that are not known here.
    pub(crate) fn parse(bytes: Described) -> Option<Types> {
        if half(&bytes, 0)? != MAGIC {
            return None;
        }
        let header = word(&bytes, 4)? as usize;
        let part = |at: usize| header.checked_add(word(&bytes, at)? as usize);
        let (begin, strings) = (part(8)?, part(16)?);
        let end = begin.checked_add(word(&bytes, 12)? as usize)?;
        bytes.get(..end)?;
        bytes.get(strings..)?;
        let mut types = Types {
            strings,
            end,
            places: Vec::new(),
            begins: Vec::new(),
            numbers: Vec::new(),
            sections: Vec::new(),
            functions: Mutex::default(),
            bytes,
        };
        let (mut at, mut number) = (begin, 1u32);
        types.places.push(begin);
        while at < end {
            if (number as usize).is_multiple_of(STRIDE) {
                types.places.push(at);
            }
            let read = types.read(at)?;
            if matches!(
                (read.kind, read.count),
                (STRUCTURE, 1..) | (TYPEDEF | VARIABLE, _)
            ) {
                let name = types
                    .strings
                    .checked_add(word(&types.bytes, at)? as usize)?;
                types.begins.push(first_letters(types.bytes.get(name..)?));
                types.numbers.push(number);
            }
            if read.kind == SECTION {
                types.sections.push(at);
            }
            number = number.checked_add(1)?;
            at = read.rest.checked_add(rest_of(read)?)?;
        }
        Some(types)
    }

    /// Offset in bytes of a member, as in C: `se.sum_exec_runtime` of `task_struct`. Members of unnamed
    /// structures and unions count.
    pub(crate) fn offset(&self, structure: &str, member: &str) -> Option<usize> {
        let mut number = self.named(STRUCTURE, structure)?;
        let mut bits = 0usize;
        for name in member.split('.') {
            let (of_it, other) = self.member(number, name.as_bytes(), DEPTH)?;
            bits = bits.checked_add(of_it)?;
            number = other;
        }
        Some(bits / 8)
    }

    /// The number of a structure.
    pub(crate) fn structure(&self, name: &str) -> Option<u32> {
        self.named(STRUCTURE, name)
    }

    /// Bytes of a structure.
    pub(crate) fn size(&self, structure: &str) -> Option<usize> {
        let number = self.named(STRUCTURE, structure)?;
        Some(self.plain(number)?.other as usize)
    }

    /// The number of typedef `name`.
    pub(crate) fn typedef(&self, name: &str) -> Option<u32> {
        self.named(TYPEDEF, name)
    }

    /// The number of function `name`. Places of functions are not kept: there are more of them than of all
    /// other types, and few are sought.
    pub(crate) fn function(&self, name: &str) -> Option<u32> {
        let mut known = self
            .functions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let found = known.entry(name.to_owned());
        *found.or_insert_with(|| self.find_function(name))
    }

    fn find_function(&self, name: &str) -> Option<u32> {
        let between_ends = [b"\0", name.as_bytes(), b"\0"].concat();
        let strings = self.bytes.get(self.strings..)?;
        let name = memmem::find(strings, &between_ends)? as u32 + 1;
        let found = self.all().find(|(_, at, read)| {
            read.kind == NAMED_FUNCTION && word(&self.bytes, *at) == Some(name)
        });
        found.map(|(number, ..)| number)
    }

    /// The name of a type, without the part after three underscores, which distinguishes types of one name.
    pub(super) fn name_of(&self, number: u32) -> Option<String> {
        let name = self.text(word(&self.bytes, self.place_of_plain(number)?)?)?;
        let own = name.split_once("___").map(|(own, _)| own.to_owned());
        Some(own.unwrap_or(name))
    }

    /// The member of an access, as in C: `se.sum_exec_runtime`. `access` is the place of a text like `0:3:1`:
    /// the index of each member within the one before. `None`: the access leads into an array, or nowhere.
    pub(super) fn member_path(&self, number: u32, access: u32) -> Option<String> {
        let access = self.text(access)?;
        let mut number = number;
        let mut path: Vec<String> = Vec::new();
        for index in access.split(':').skip(1) {
            let structure = self.plain(number)?;
            let index: usize = index.parse().ok()?;
            if !matches!(structure.kind, STRUCTURE | UNION) || index >= structure.count {
                return None;
            }
            let at = structure.rest + index * MEMBER;
            let name = self.text(word(&self.bytes, at)?)?;
            // An unnamed structure within another one has no part in the text.
            if !name.is_empty() {
                path.push(name);
            }
            number = word(&self.bytes, at + 4)?;
        }
        Some(path.join("."))
    }

    /// The number of variable `name`, which stands for its type.
    pub(super) fn variable(&self, name: &str) -> Option<u32> {
        self.named(VARIABLE, name)
    }

    /// Bytes from one variable to another one of the same section, such as that of all variables of each CPU.
    pub(crate) fn distance(&self, from: &str, to: &str) -> Option<i64> {
        let [from, to] = [self.variable(from)?, self.variable(to)?];
        self.sections.iter().find_map(|&at| {
            let section = self.read(at)?;
            let entries = (0..section.count).map(|index| section.rest + IN_SECTION * index);
            let offset = |variable| {
                let mut entries = entries.clone();
                let entry = entries.find(|&at| word(&self.bytes, at) == Some(variable))?;
                word(&self.bytes, entry + 4).map(i64::from)
            };
            Some(offset(to)? - offset(from)?)
        })
    }

    /// The type of a member of a structure.
    pub(super) fn member_type(&self, structure: u32, member: &str) -> Option<u32> {
        let (_, found) = self.member(structure, member.as_bytes(), DEPTH)?;
        Some(found)
    }

    /// Offset of a member in bytes and its size.
    #[cfg(test)]
    pub(crate) fn extent(&self, structure: &str, member: &str) -> Option<(usize, usize)> {
        let number = self.named(STRUCTURE, structure)?;
        let (bits, found) = self.member(number, member.as_bytes(), DEPTH)?;
        Some((bits / 8, self.size_of(found)?))
    }

    /// The type that a pointer points to.
    pub(super) fn target(&self, pointer: u32) -> Option<u32> {
        let found = self.plain(pointer)?;
        (found.kind == POINTER).then_some(found.other)
    }

    /// Number of elements of the array that a pointer points to.
    pub(super) fn count_of(&self, pointer: u32) -> Option<u32> {
        let array = self.plain(self.target(pointer)?)?;
        (array.kind == ARRAY).then(|| word(&self.bytes, array.rest + 8))?
    }

    /// Bytes of a type.
    pub(super) fn size_of(&self, number: u32) -> Option<usize> {
        let found = self.plain(number)?;
        match found.kind {
            INTEGER | STRUCTURE | UNION | ENUMERATION => Some(found.other as usize),
            POINTER => Some(8),
            ARRAY => {
                let (element, count) = (
                    word(&self.bytes, found.rest)?,
                    word(&self.bytes, found.rest + 8)?,
                );
                let deeper = self.plain(element).filter(|it| it.kind != ARRAY)?;
                let size = match deeper.kind {
                    POINTER => 8,
                    _ => deeper.other as usize,
                };
                size.checked_mul(count as usize)
            }
            _ => None,
        }
    }

    /// The types in the form that the kernel takes with programs. It does not take sections whose size only
    /// the loader of an object would fill in: they become structures of integers, and variables become
    /// integers.
    pub(super) fn for_kernel(&self) -> Vec<u8> {
        const INTEGER_BITS: u32 = 32;
        let mut out = self.bytes.to_vec();
        let mut put = |at: usize, value: u32| {
            if let Some(place) = out.get_mut(at..at + 4) {
                place.copy_from_slice(&value.to_ne_bytes());
            }
        };
        let integer = self.all().find(|(_, _, read)| {
            read.kind == VARIABLE || (read.kind == INTEGER && read.other == 4)
        });
        let integer = integer.map_or(0, |(number, ..)| number);
        for (_, at, read) in self.all() {
            match read.kind {
                VARIABLE => {
                    put(at + 4, INTEGER << 24);
                    put(at + 8, INTEGER_BITS / 8);
                    put(at + 12, INTEGER_BITS);
                }
                SECTION => {
                    put(at, 0);
                    put(at + 4, STRUCTURE << 24 | read.count as u32);
                    put(at + 8, 4 * read.count.max(1) as u32);
                    for index in 0..read.count {
                        let entry = read.rest + IN_SECTION * index;
                        put(entry, 0);
                        put(entry + 4, integer);
                        put(entry + 8, INTEGER_BITS * index as u32);
                    }
                }
                // A function of the kernel: its linkage is that of a symbol of the loader.
                NAMED_FUNCTION if read.count == 2 => {
                    put(at + 4, FORWARD << 24);
                    put(at + 8, 0);
                }
                _ => {}
            }
        }
        out
    }

    /// All types, with their numbers and places.
    fn all(&self) -> impl Iterator<Item = (u32, usize, Type)> {
        let mut next = Some((1, self.places.first().copied().unwrap_or(self.end)));
        std::iter::from_fn(move || {
            let (number, at) = next.filter(|(_, at)| *at < self.end)?;
            let read = self.read(at)?;
            next = rest_of(read).and_then(|rest| Some((number + 1, read.rest.checked_add(rest)?)));
            Some((number, at, read))
        })
    }

    /// The number of the first type of that kind and name.
    fn named(&self, kind: u32, name: &str) -> Option<u32> {
        let begin = first_letters(name.as_bytes());
        let alike = self.begins.iter().zip(&self.numbers);
        let mut alike = alike.filter(|(of_it, _)| **of_it == begin);
        let is_it = |number: u32| {
            let at = self.place(number)?;
            let is_named = self.string(word(&self.bytes, at)?)? == name.as_bytes();
            (is_named && self.read(at)?.kind == kind).then_some(number)
        };
        alike.find_map(|(_, number)| is_it(*number))
    }

    /// The place of a type.
    fn place(&self, number: u32) -> Option<usize> {
        let number = number as usize;
        let before = number / STRIDE;
        let mut at = *self.places.get(before)?;
        // Number 0 takes no bytes.
        for _ in (before * STRIDE).max(1)..number {
            at = self.read(at)?.rest.checked_add(rest_of(self.read(at)?)?)?;
        }
        (number > 0 && at < self.end).then_some(at)
    }

    /// Offset in bits and type of a member.
    fn member(&self, number: u32, name: &[u8], depth: usize) -> Option<(usize, u32)> {
        let structure = self.plain(number)?;
        if !matches!(structure.kind, STRUCTURE | UNION) || depth == 0 {
            return None;
        }
        for index in 0..structure.count {
            let at = structure.rest + index * MEMBER;
            let (own, other) = (word(&self.bytes, at)?, word(&self.bytes, at + 4)?);
            let offset = word(&self.bytes, at + 8)?;
            let bits = match structure.has_bits {
                true => offset & 0x00ff_ffff,
                false => offset,
            } as usize;
            let own = self.string(own)?;
            if own == name {
                return Some((bits, other));
            }
            if own.is_empty()
                && let Some((within, found)) = self.member(other, name, depth - 1)
            {
                return Some((bits.checked_add(within)?, found));
            }
        }
        None
    }

    /// The type that a type stands for after all typedefs and qualifiers.
    fn plain(&self, number: u32) -> Option<Type> {
        self.read(self.place_of_plain(number)?)
    }

    /// The place of that type.
    fn place_of_plain(&self, mut number: u32) -> Option<usize> {
        for _ in 0..DEPTH {
            let at = self.place(number)?;
            let found = self.read(at)?;
            if !STANDS_FOR.contains(&found.kind) {
                return Some(at);
            }
            number = found.other;
        }
        None
    }

    fn read(&self, at: usize) -> Option<Type> {
        let info = word(&self.bytes, at.checked_add(4)?)?;
        Some(Type {
            kind: info >> 24 & 0x1f,
            count: (info & 0xffff) as usize,
            has_bits: info >> 31 != 0,
            other: word(&self.bytes, at.checked_add(8)?)?,
            rest: at + COMMON,
        })
    }

    /// The text at a place among the names.
    pub(super) fn text(&self, at: u32) -> Option<String> {
        Some(String::from_utf8_lossy(self.string(at)?).into_owned())
    }

    fn string(&self, at: u32) -> Option<&[u8]> {
        let start = self.strings.checked_add(at as usize)?;
        let rest = self.bytes.get(start..)?;
        let length = rest.iter().position(|&byte| byte == 0)?;
        rest.get(..length)
    }
}

/// The first eight bytes of a text that ends with a 0 or its slice; zeros after its end.
fn first_letters(text: &[u8]) -> u64 {
    let mut letters = [0; 8];
    match text.first_chunk() {
        Some(all) => letters = *all,
        None => letters[..text.len()].copy_from_slice(text),
    }
    let letters = u64::from_le_bytes(letters);
    // The lowest byte that is 0 has its top bit here; bytes above it may have theirs, too.
    const LOW: u64 = u64::from_ne_bytes([1; 8]);
    let zeros = letters.wrapping_sub(LOW) & !letters & (LOW << 7);
    match zeros {
        0 => letters,
        _ => letters & ((zeros & zeros.wrapping_neg()) - 1),
    }
}

/// Bytes after the common part.
fn rest_of(read: Type) -> Option<usize> {
    Some(match read.kind {
        // Numbers, variables, tags.
        INTEGER | VARIABLE | 17 => 4,
        ARRAY => 12,
        STRUCTURE | UNION => MEMBER * read.count,
        ENUMERATION | FUNCTION => 8 * read.count,
        // Sections, enumerations of 64 bits.
        SECTION | 19 => IN_SECTION * read.count,
        POINTER | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at.checked_add(2)?)?;
    bytes.try_into().ok().map(u16::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A description that is being made.
    #[derive(Default)]
    struct Made {
        types: Vec<u8>,
        strings: Vec<u8>,
    }

    impl Made {
        fn name(&mut self, name: &str) -> u32 {
            if self.strings.is_empty() {
                self.strings.push(0);
            }
            if name.is_empty() {
                return 0;
            }
            let at = self.strings.len() as u32;
            self.strings.extend(name.bytes().chain([0]));
            at
        }

        fn add(&mut self, name: &str, kind: u32, count: u32, other: u32, rest: &[u32]) {
            let name = self.name(name);
            let words = [name, kind << 24 | count, other];
            let words = words.iter().chain(rest);
            self.types.extend(words.flat_map(|word| word.to_ne_bytes()));
        }

        fn bytes(&self) -> Vec<u8> {
            let mut all = Vec::new();
            all.extend(MAGIC.to_ne_bytes());
            all.extend([1, 0]);
            let types = self.types.len() as u32;
            for word in [24, 0, types, types, self.strings.len() as u32] {
                all.extend(u32::to_ne_bytes(word));
            }
            all.extend(&self.types);
            all.extend(&self.strings);
            all
        }
    }

    fn example() -> Vec<u8> {
        let mut made = Made::default();
        made.add("int", 1, 0, 4, &[32]);
        let (x, y) = (made.name("x"), made.name("y"));
        made.add("inner", STRUCTURE, 2, 8, &[x, 1, 0, y, 1, 32]);
        made.add("", 10, 0, 2, &[]);
        let own = made.name("own");
        made.add("", UNION, 1, 8, &[own, 3, 0]);
        let first = made.name("first");
        made.add("outer", STRUCTURE, 2, 16, &[first, 1, 0, 0, 4, 64]);
        made.add("", FUNCTION, 2, 0, &[0, 1, 0, 1]);
        made.add("", POINTER, 0, 6, &[]);
        made.add("called", TYPEDEF, 0, 7, &[]);
        made.add("caller", NAMED_FUNCTION, 1, 6, &[]);
        made.add("one", VARIABLE, 0, 1, &[1]);
        made.add("other", VARIABLE, 0, 5, &[1]);
        made.add("alone", VARIABLE, 0, 1, &[1]);
        made.add("", SECTION, 1, 4, &[12, 0, 4]);
        made.add("", SECTION, 2, 24, &[10, 20, 4, 11, 4, 16]);
        made.bytes()
    }

    #[test]
    fn members_are_found_behind_names_and_without() {
        let types = Types::parse(Described::Read(example())).unwrap();
        assert_eq!(types.offset("outer", "first"), Some(0));
        assert_eq!(types.offset("outer", "own.y"), Some(12));
        assert_eq!(types.offset("inner", "y"), Some(4));
        assert_eq!(types.offset("outer", "none"), None);
        assert_eq!(types.offset("inner", "x.y"), None);
        assert_eq!(types.offset("none", "x"), None);
        assert_eq!(types.function("caller"), Some(9));
        assert_eq!(types.function("called"), None);
        assert_eq!(types.function("call"), None);
        assert_eq!((types.size("outer"), types.size("none")), (Some(16), None));
        let other = types.variable("other").unwrap();
        assert_eq!(
            (types.size_of(other), types.distance("one", "other")),
            (Some(16), Some(-16))
        );
        assert_eq!(types.distance("one", "alone"), None);
    }

    #[test]
    fn what_is_cut_short_or_changed_is_no_reason_to_panic() {
        let whole = example();
        for length in 0..whole.len() {
            let _ = Types::parse(Described::Read(whole[..length].to_vec()));
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            if let Some(types) = Types::parse(Described::Read(changed)) {
                let _ = types.offset("outer", "own.y");
                let _ = types.typedef("called");
                let _ = types.member_path(4, 0);
                let _ = types.function("caller");
                let _ = types.distance("one", "other");
            }
        }
    }

    #[test]
    fn of_the_running_kernel() {
        match Types::of_kernel() {
            Ok(types) => {
                assert!(types.offset("task_struct", "se.sum_exec_runtime").is_some());
                assert_eq!(types.offset("path", "mnt"), Some(0));
            }
            Err(error) => eprintln!("skipped: types of the kernel: {error}"),
        }
    }
}
