//! Lines of strace taken apart.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// A call or notice in the order of completion; halves of interrupted lines are joined.
pub(super) fn whole_lines(log: &str) -> Vec<(u32, String)> {
    let mut half: BTreeMap<u32, String> = BTreeMap::new();
    let mut lines = Vec::new();
    for line in log.lines() {
        let Some((pid, text)) = line.split_once(' ') else {
            continue;
        };
        let (Ok(pid), text) = (pid.parse(), text.trim_start()) else {
            continue;
        };
        if let Some(begin) = text.strip_suffix("<unfinished ...>") {
            half.insert(pid, begin.trim_end().to_owned());
        } else if let Some((_, end)) = text
            .strip_prefix("<... ")
            .and_then(|t| t.split_once(" resumed>"))
        {
            let begin = half.remove(&pid).unwrap_or_default();
            lines.push((pid, begin + end));
        } else {
            lines.push((pid, text.to_owned()));
        }
    }
    lines
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

/// The path that `-y` wrote behind a descriptor: `3</dir/file>`.
pub(super) fn annotated(text: &str) -> Option<&str> {
    text.split_once('<')?.1.strip_suffix('>')
}

pub(super) fn path(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

/// `base/path` without `.` and `..`; symbolic links are taken for directories.
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

/// The arguments that a program finds: for a script the kernel puts the interpreter, at most one
/// argument of it, and the script's path as it was given in the place of the first one.
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
