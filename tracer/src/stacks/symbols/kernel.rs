//! Functions of the kernel by its list (`/proc/kallsyms`), which shows addresses to root alone.

use std::fs::File;
use std::io::Read;

use flowtrace_schema::Symbols;

use super::found::{Found, Located};

/// Most bytes that are read of the list.
const MOST_BYTES: u64 = 256 << 20;

pub(super) fn find(addresses: &[u64]) -> Found {
    let mut list = Vec::new();
    if let Ok(file) = File::open("/proc/kallsyms") {
        // What was read until an error is used.
        let _ = file.take(MOST_BYTES).read_to_end(&mut list);
    }
    found(&list, addresses)
}

fn found(list: &[u8], addresses: &[u64]) -> Found {
    let mut functions: Vec<(u64, &[u8])> = list
        .split(|&byte| byte == b'\n')
        .filter_map(function)
        .collect();
    functions.sort_unstable();
    let name = |&address: &u64| {
        let after = functions.partition_point(|(start, _)| *start <= address);
        let name = after.checked_sub(1).map(|at| functions[at].1);
        let name = String::from_utf8_lossy(name.unwrap_or(b"[kernel]"));
        vec![Located::named(name.into_owned())]
    };
    Found {
        symbols: match functions.is_empty() {
            true => Symbols::None,
            false => Symbols::Kallsyms,
        },
        functions: addresses.iter().map(name).collect(),
        is_partial: false,
    }
}

/// Address and name of a line as `ffffffff81000000 T _text`, which ends with the module in brackets.
fn function(line: &[u8]) -> Option<(u64, &[u8])> {
    let mut words = line.split(u8::is_ascii_whitespace);
    let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
    let address = std::str::from_utf8(address).ok()?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let is_code = matches!(kind, b"t" | b"T" | b"w" | b"W");
    (address > 0 && is_code && !name.is_empty()).then_some((address, name))
}

#[cfg(any(test, fuzzing))]
pub(super) fn fuzz(bytes: &[u8]) {
    assert_eq!(found(bytes, &[0, 1 << 40, u64::MAX]).functions.len(), 3);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_the_function_before_it() {
        let list =
            b"ffff2000 T second\nffff1000 t first\nffff1800 d data\nffff3000 t third\t[module]\n";
        let found = found(
            &list[..],
            &[0xffff_0000, 0xffff_1900, 0xffff_2000, u64::MAX],
        );
        let names: Vec<&str> = found.functions.iter().map(|f| &*f[0].name).collect();
        assert_eq!(names, ["[kernel]", "first", "second", "third"]);
        // Addresses are hidden from an ordinary user.
        let hidden = b"0000000000000000 T second\n";
        assert_eq!(super::found(hidden, &[5]).symbols, Symbols::None);
    }
}
