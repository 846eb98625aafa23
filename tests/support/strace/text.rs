//! Parser of the lines of strace.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// Calls and notices in the order of completion; the halves of interrupted lines are joined.
pub(super) fn whole_lines(log: &str) -> Vec<(u32, String)> {
    let mut halves = Halves::default();
    let lines = log.lines().filter_map(|line| {
        let (pid, text) = numbered(line)?;
        Some((pid, halves.whole(pid, text)?))
    });
    lines.collect()
}

/// The thread that a line is about, and the rest of it.
pub(super) fn numbered(line: &str) -> Option<(u32, &str)> {
    let (pid, text) = line.split_once(' ')?;
    Some((pid.parse().ok()?, text.trim_start()))
}

/// First halves of lines whose second half is still to come, by thread.
#[derive(Default)]
pub(super) struct Halves(BTreeMap<u32, String>);

impl Halves {
    /// The whole line that ends with `text`; None if that is a first half.
    pub(super) fn whole(&mut self, pid: u32, text: &str) -> Option<String> {
        if let Some(begin) = text.strip_suffix("<unfinished ...>") {
            self.0.insert(pid, begin.trim_end().to_owned());
            return None;
        }
        let end = text.strip_prefix("<... ");
        match end.and_then(|text| text.split_once(" resumed>")) {
            Some((_, end)) => Some(self.0.remove(&pid).unwrap_or_default() + end),
            None => Some(text.to_owned()),
        }
    }
}

/// Name, arguments and result of a call.
pub(super) fn parts(text: &str) -> Option<(&str, &str, &str)> {
    let (head, result) = text.rsplit_once(" = ")?;
    let (name, arguments) = head.trim_end().strip_suffix(')')?.split_once('(')?;
    Some((name, arguments, result))
}

/// The quoted strings in `text`, unescaped.
pub(super) fn strings(text: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut rest = text.bytes().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'"' {
            continue;
        }
        let mut string = Vec::new();
        while let Some(byte) = rest.next() {
            match byte {
                b'"' => break,
                b'\\' => match rest.next() {
                    Some(b'n') => string.push(b'\n'),
                    Some(b't') => string.push(b'\t'),
                    Some(b'r') => string.push(b'\r'),
                    Some(b'v') => string.push(0x0b),
                    Some(b'f') => string.push(0x0c),
                    Some(digit @ b'0'..=b'7') => {
                        let mut value = u32::from(digit - b'0');
                        for _ in 0..2 {
                            match rest.peek() {
                                Some(&d @ b'0'..=b'7') => {
                                    value = value * 8 + u32::from(d - b'0');
                                    rest.next();
                                }
                                _ => break,
                            }
                        }
                        string.push(value as u8);
                    }
                    Some(other) => string.push(other),
                    None => {}
                },
                other => string.push(other),
            }
        }
        found.push(string);
    }
    found
}

/// The arguments of a call one by one.
pub(super) fn arguments(text: &str) -> Vec<&str> {
    let (mut found, mut begin) = (Vec::new(), 0);
    let (mut depth, mut quoted, mut path, mut escaped) = (0, false, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' if !path => quoted = !quoted,
            _ if quoted => {}
            b'<' => path = true,
            b'>' => path = false,
            _ if path => {}
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            b',' if depth == 0 => {
                found.push(text[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    found.push(text[begin..].trim());
    found
}

/// The path that `-y` wrote behind a descriptor: `3</dir/file>`, or `3</dir/file>(deleted)`.
pub(super) fn annotated(text: &str) -> Option<&str> {
    let text = text.strip_suffix("(deleted)").unwrap_or(text);
    text.split_once('<')?.1.strip_suffix('>')
}

pub(super) fn path(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

/// `base/path` without `.` and `..`; symbolic links count as directories.
pub(super) fn join(base: &Path, path: &Path) -> PathBuf {
    let mut joined = PathBuf::new();
    for component in base.join(path).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(joined.pop()),
            other => joined.push(other),
        }
    }
    joined
}

/// The arguments that a program gets. For a script the kernel replaces the first argument by the interpreter,
/// at most one argument of the interpreter, and the path of the script as given.
pub(super) fn with_interpreter(program: &Path, file: Vec<u8>, argv: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let bytes = fs::read(program).unwrap_or_default();
    let first = bytes.split(|&b| b == b'\n').next().unwrap_or_default();
    let Some(line) = first.strip_prefix(b"#!") else {
        return argv;
    };
    let parts = line.trim_ascii().splitn(2, u8::is_ascii_whitespace);
    let mut full: Vec<Vec<u8>> = parts.map(|p| p.trim_ascii().to_vec()).collect();
    full.push(file);
    full.extend(argv.into_iter().skip(1));
    full
}

/// A number at the start of a result such as `123` or `123<...>`; None for a failure.
pub(super) fn number(result: &str) -> Option<u32> {
    let digits = result.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}
