//! Strings of Graphviz DOT.

use crate::units::is_noncharacter;

/// A quoted string that Graphviz shows, as a label or as the name of a node: it takes `&lt;` and the like in it for
/// characters, and writes some that are none into an SVG as they are.
pub fn shown(text: &str) -> String {
    quoted(&text.replace('&', "&amp;"))
}

/// A quoted string that Graphviz only keeps. A newline becomes the two characters `\n`, which graphviz centres.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            c if c.is_control() || is_noncharacter(c) => quoted.push('\u{fffd}'),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
