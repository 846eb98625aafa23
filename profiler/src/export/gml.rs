//! GML, for networkx, igraph and older tools. The text is ASCII: `"` is written `&quot;`, and other
//! characters `&#N;`, which networkx decodes and igraph shows as it is. Labels are ids, because
//! networkx wants unique ones; the text for people is `caption`.

use std::io::{self, Write};

use super::drawing::{Drawing, Value};

/// Writes the drawing.
///
/// # Errors
/// When `out` fails.
pub fn write(drawing: &Drawing, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "graph [")?;
    writeln!(out, "  directed 1")?;
    writeln!(out, "  multigraph 1")?;
    writeln!(out, "  title {}", quoted(&drawing.title))?;
    facts(&drawing.attributes, "  ", out)?;
    for (i, node) in drawing.nodes.iter().enumerate() {
        writeln!(out, "  node [\n    id {i}\n    label {}", quoted(&node.id))?;
        writeln!(out, "    caption {}", quoted(&node.label.join(" ")))?;
        facts(&node.attributes, "    ", out)?;
        writeln!(out, "  ]")?;
    }
    for edge in &drawing.edges {
        writeln!(
            out,
            "  edge [\n    source {}\n    target {}",
            edge.from, edge.to
        )?;
        if !edge.label.is_empty() {
            writeln!(out, "    caption {}", quoted(&edge.label.join(" ")))?;
        }
        facts(&edge.attributes, "    ", out)?;
        writeln!(out, "  ]")?;
    }
    writeln!(out, "]")
}

/// Attributes with names that GML allows: letters, digits and `_`, which is not first.
fn facts(
    attributes: &[(&'static str, Value)],
    indent: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    for (name, value) in attributes {
        let value = match value {
            Value::Integer(n) => n.to_string(),
            Value::Text(text) => quoted(text),
        };
        writeln!(out, "{indent}{name} {value}")?;
    }
    Ok(())
}

fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("&quot;"),
            '&' => quoted.push_str("&amp;"),
            ' '..='~' => quoted.push(c),
            c if c.is_control() => quoted.push(' '),
            c => quoted += &format!("&#{};", u32::from(c)),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ascii_and_no_backslash_escape() {
        assert_eq!(quoted("ä\"&\\\n"), "\"&#228;&quot;&amp;\\ \"");
    }
}
