//! Names of functions as programmers write them.

use std::borrow::Cow;

/// Longest name that is stored, bytes; templates of C++ have names of any length.
const MOST: usize = 1000;
/// Longest name that is demangled, bytes.
const MOST_MANGLED: usize = 16 << 10;
/// Names within names that are followed.
const MOST_DEPTH: u32 = 64;

/// The name of a symbol of Rust or C++ without its encoding; other names stay as they are.
pub(super) fn demangled(symbol: &str) -> String {
    let name = match symbol.len() {
        0..=MOST_MANGLED => rust(symbol).or_else(|| cpp(symbol)),
        _ => None,
    };
    cut(name.map_or(Cow::Borrowed(symbol), Cow::Owned))
}

fn rust(symbol: &str) -> Option<String> {
    let name = rustc_demangle::try_demangle(symbol).ok()?;
    // Without the hash.
    Some(format!("{name:#}"))
}

fn cpp(symbol: &str) -> Option<String> {
    if !symbol.starts_with("_Z") {
        return None;
    }
    let depth = cpp_demangle::ParseOptions::default().recursion_limit(MOST_DEPTH);
    let name = cpp_demangle::Symbol::new_with_options(symbol, &depth).ok()?;
    let options = cpp_demangle::DemangleOptions::new().recursion_limit(MOST_DEPTH);
    name.demangle_with_options(&options).ok()
}

fn cut(name: Cow<'_, str>) -> String {
    match name.len() {
        0..=MOST => name.into_owned(),
        _ => {
            let mut end = MOST;
            while !name.is_char_boundary(end) {
                end -= 1;
            }
            format!("{}…", &name[..end])
        }
    }
}

#[cfg(any(test, fuzzing))]
pub(super) fn fuzz(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for symbol in [format!("_Z{text}"), format!("_R{text}"), text.into_owned()] {
        assert!(demangled(&symbol).len() <= MOST + '…'.len_utf8());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_written() {
        assert_eq!(demangled("main"), "main");
        assert_eq!(demangled("_ZN3foo3barEi"), "foo::bar(int)");
        assert_eq!(
            demangled("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE"),
            "core::fmt::Formatter::pad"
        );
        assert_eq!(demangled("_Zbroken"), "_Zbroken");
        let long = "é".repeat(1000);
        assert!(demangled(&long).ends_with('…'));
    }
}
