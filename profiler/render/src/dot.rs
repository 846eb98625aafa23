//! Strings of Graphviz DOT.

use crate::units::is_noncharacter;

/// A quoted string that Graphviz shows, as a label or as the name of a node. Graphviz takes `&lt;` and the
/// like in it for characters, and writes code points that are no characters into an SVG unchanged.
pub fn shown(text: &str) -> String {
    quoted(&text.replace('&', "&amp;"))
}

/// A quoted string that Graphviz only stores. A newline becomes the two characters `\n`, after which Graphviz
/// centres the line.
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
