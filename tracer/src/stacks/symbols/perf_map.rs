//! Functions of code that a compiler at run time wrote into memory, by the map that it left for profilers
//! (`/tmp/perf-PID.map`: begin, size and name, one function a line).

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flowtrace_schema::Symbols;

use super::super::files;
use super::found::{Found, Located};
use super::names;

/// Most bytes that are read of a map.
const MOST_BYTES: u64 = 256 << 20;

/// A function of a map.
struct Entry {
    start: u64,
    end: u64,
    name: String,
}

pub(super) fn find(pid: u32, addresses: &[u64]) -> Found {
    let path = format!("/tmp/perf-{pid}.map");
    let path = Path::new(&path);
    let file = files::below_root_of(pid, path).or_else(|| files::in_our_namespace(path));
    let entries = file.map(|file: File| entries(BufReader::new(file.take(MOST_BYTES))));
    found(pid, entries.unwrap_or_default(), addresses)
}

fn found(pid: u32, mut entries: Vec<Entry>, addresses: &[u64]) -> Found {
    // Of functions that had the same place one after the other the last one counts.
    entries.sort_by_key(|entry| entry.start);
    let name = |&address: &u64| {
        let after = entries.partition_point(|entry| entry.start <= address);
        let entry = entries[..after].last().filter(|entry| address < entry.end);
        match entry {
            Some(entry) => vec![located(&entry.name)],
            None => vec![Located::named(format!("[memory of {pid}]"))],
        }
    };
    Found {
        symbols: match entries.is_empty() {
            true => Symbols::None,
            false => Symbols::Map,
        },
        functions: addresses.iter().map(name).collect(),
        is_partial: false,
    }
}

fn entries(mut map: impl BufRead) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        if !matches!(map.read_until(b'\n', &mut line), Ok(1..)) {
            return entries;
        }
        let text = String::from_utf8_lossy(&line);
        let mut words = text.trim_end().splitn(3, ' ');
        let mut number = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
        if let (Some(start), Some(size)) = (number(), number())
            && let Some(name) = words.next()
        {
            entries.push(Entry {
                start,
                end: start.saturating_add(size),
                name: name.to_owned(),
            });
        }
    }
}

/// A name of CPython is `py::function:file`.
fn located(name: &str) -> Located {
    let python = name
        .strip_prefix("py::")
        .and_then(|name| name.split_once(':'));
    match python {
        Some((function, file)) => Located {
            name: names::demangled(function),
            file: Some(file.to_owned()),
            line: None,
        },
        None => Located::named(names::demangled(name)),
    }
}

#[cfg(any(test, fuzzing))]
pub(super) fn fuzz(bytes: &[u8]) {
    let found = found(1, entries(bytes), &[0, 0x1000, u64::MAX]);
    assert!(found.functions.iter().all(|functions| functions.len() == 1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_the_names_of_the_map() {
        let map = b"1000 10 first\n0x2000 20 py::work:/srv/a b.py\nbroken\n1000 8 later\n";
        let found = found(7, entries(&map[..]), &[0x1004, 0x100c, 0x2010, 0x3000]);
        let names: Vec<&str> = found.functions.iter().map(|f| &*f[0].name).collect();
        assert_eq!(names, ["later", "[memory of 7]", "work", "[memory of 7]"]);
        assert_eq!(found.functions[2][0].file.as_deref(), Some("/srv/a b.py"));
        assert_eq!(found.symbols, Symbols::Map);
    }
}
